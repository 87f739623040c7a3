"""The addresses behind the accesses of a lowered GPU program: phases, banks, sectors, registers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.test_gpu import CASES
from tests.viz.tiled import compiled
from tileworkbench.compiler.sim.threads.requests import Phase, WarpAccess
from tileworkbench.viz.model.views import view_html, view_model


@cache
def copied(swizzled: bool) -> tw.Kernel:
    """A 128x32 tile of float16 that `T.gemm` reads by ldmatrix, row-major or swizzled."""

    @tw.jit(target="sim:sm_80")
    def tile(A, B):
        A: T.Tensor((128, 32), "float16")
        B: T.Tensor((32, 64), "float16")
        C = T.empty((128, 64), "float32")
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((128, 64), "float32")
            if not swizzled:
                T.annotate_layout({A_shared: T.Layout((128, 32), lambda i, j: (i, j))})
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            T.clear(C_local)
            T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C)
        return C

    return tile.compile()


def access(kernel: tw.Kernel, buffer: str, kind: str) -> WarpAccess:
    (found,) = [a for a in kernel.requests if (a.count.buffer, a.count.kind) == (buffer, kind)]
    return found


def test_a_row_major_tile_of_half_lines_conflicts_four_times() -> None:
    load = access(copied(False), "A_shared", "ldmatrix.x4")
    assert (load.degree, load.group, load.count.factor) == (4, 8, 4.0)
    first = next(load.phases())
    assert first.lanes == tuple(range(8)) and first.addresses == tuple(range(0, 512, 64))
    assert first.banks[0] == {0: (0,), 32: (2,), 64: (4,), 96: (6,)}
    assert (first.degree, first.ideal) == (4, 1)
    assert access(copied(True), "A_shared", "ldmatrix.x4").degree == 1


def test_registers_of_matrices_and_accumulators() -> None:
    kernel = copied(True)
    load, store = access(kernel, "A_shared", "ldmatrix.x4"), access(kernel, "C", "store")
    assert load.requests[0].register == "A_registers[0:8]"
    assert store.requests[1].register == "C_local[2:4]"
    copied_in = access(kernel, "A_shared", "store")  # from global memory, through no array
    assert {request.register for request in copied_in.requests} == {""}


def test_words_that_lanes_share_and_lanes_that_straddle_words() -> None:
    same = Phase(0, 0, 0, (0, 1, 2), (0, 2, 128), 2)
    assert same.banks == {0: {0: (0, 1), 32: (2,)}}
    assert (same.degree, same.ideal) == (2, 1)
    wide = Phase(0, 0, 0, (0, 5), (8, 8), 8)
    assert (wide.degree, wide.ideal) == (1, 1)


def test_sectors_of_each_warp() -> None:
    store = access(copied(True), "C", "store")
    for warp, touched in store.sectors(0).items():
        mine = store.requests[0].addresses[32 * warp : 32 * warp + 32]
        assert touched == tuple(sorted({int(byte) // 32 for byte in mine}))
    every = (store.sectors(at).values() for at in range(len(store.requests)))
    assert sum(len(found) for warps in every for found in warps) == store.count.sectors


def test_plain_data_has_every_address() -> None:
    load = access(copied(False), "A_shared", "ldmatrix.x4")
    made = load.to_dict()
    assert (made["kind"], made["wavefronts"], made["ideal"]) == ("ldmatrix.x4", 512, 128)
    assert made["line"] == load.count.span.line and made["lanes_per_phase"] == 8
    assert made["requests"][0]["addresses"][:3] == [0, 64, 128]
    assert sum(request["times"] for request in made["requests"]) * 4 == load.count.count


def test_lanes_that_take_no_part_have_no_phase() -> None:
    @tw.jit(target="sim:sm_80")
    def few(A):
        A: T.Tensor((8,), "float32")
        with T.Kernel(1, threads=64) as _:
            S = T.alloc_shared((8,), "float32")
            for i in T.Parallel(8):
                S[i] = A[i]
            for i in T.Parallel(8):
                A[i] = S[7 - i]

    store = access(few.compile(), "S", "store")
    (phase,) = store.phases()
    assert phase.lanes == tuple(range(8)) and phase.warp == 0
    assert store.to_dict()["requests"][0]["addresses"][8:10] == [None, None]


def check_sums(name: str) -> None:
    """What phases and sectors say of each access of a kernel of the library is what is counted."""
    kernel = tw.compile(CASES[name]()[0], target="sim:sm_80")
    assert tuple(found.count for found in kernel.requests) == kernel.accesses
    for found in kernel.requests:
        every = [(at, request.times) for at, request in enumerate(found.requests)]
        if found.count.scope == "shared":
            sums = np.sum(
                [
                    (times * phase.degree, times * phase.ideal)
                    for at, times in every
                    for phase in found.phases(at)
                ],
                axis=0,
            )
            assert tuple(sums) == (found.count.wavefronts, found.count.ideal), str(found)
            worst = max(phase.degree for at, _ in every for phase in found.phases(at))
            assert worst == found.degree
        else:
            used = sum(t * len(s) for at, t in every for s in found.sectors(at).values())
            assert used == found.count.sectors, str(found)


@pytest.mark.parametrize("name", ["topk", "histogram", "flash_decoding"])
def test_phases_add_up(name: str) -> None:
    check_sums(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(CASES) - {"topk", "histogram", "flash_decoding"}))
def test_phases_add_up_in_the_rest_of_the_library(name: str) -> None:
    check_sums(name)


def test_accesses_without_a_known_address_are_told_of() -> None:
    @tw.jit(target="sim:sm_80")
    def gather(A, index):
        A: T.Tensor((256,), "float32")
        index: T.Tensor((128,), "int32")
        B = T.empty((128,), "float32")
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((256,), "float32")
            T.copy(A, tile)
            for i in T.Parallel(128):
                B[i] = A[index[i]] + tile[index[i]]
        return B

    kernel = gather.compile()
    line = next(
        n
        for n, text in enumerate(kernel.record.source.splitlines(), kernel.record.first_line)
        if "B[i] =" in text
    )
    reason = "its address depends on 'index', known only when the kernel runs"
    assert sorted(each.text for each in kernel.unlisted) == [
        f"line {line}: load of A: {reason}",
        f"line {line}: load of tile: {reason}",
    ]
    assert {(a.buffer, a.kind) for a in kernel.accesses} == {
        ("A", "load"),
        ("tile", "store"),
        ("index", "load"),
        ("B", "store"),
    }
    for name in ("global", "banks"):
        assert f"not counted: line {line}: load of " in view_html(kernel.view(), name)
        assert len(view_model(kernel.view(), name)["unlisted"]) == 1
    assert compiled("mm").unlisted == ()
