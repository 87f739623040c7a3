"""Tensors of more elements than 32 bits count: arithmetic that is used as an index reaches them
all, on every target, and is 32 bits wide where that is known to be enough.

Tensors are pages that are never touched, and only a few blocks run.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.sim.ptx import PtxProgram
from tileworkbench.compiler.sim.simulate import SimOptions, simulate

N = 2**31 + 4103
TILE = 4096
EDGE = 2**31 // TILE  # the first block beyond
BLOCKS = (0, EDGE - 1, EDGE, EDGE + 1)
n = T.dynamic("n", "int64")


@T.prim_func
def elementwise(A: T.Tensor((N,), "int8"), first: T.int32):
    with T.Kernel(4, threads=128) as block:
        bx = first + block
        for i in T.Parallel(TILE):
            A[bx * TILE + i] = A[bx * TILE + i] + 1


@T.prim_func
def copied(A: T.Tensor((N,), "int8"), first: T.int32):
    with T.Kernel(4, threads=128) as block:
        bx = first + block
        tile = T.alloc_shared((TILE,), "int8")
        T.copy(A[bx * TILE], tile)
        for i in T.Parallel(TILE):
            tile[i] = tile[i] + 1
        T.copy(tile, A[bx * TILE])


@T.prim_func
def named(A: T.Tensor((N,), "int8"), first: T.int32):
    """A name of an index, which a guard compares as the int32 that it is, and a loop's variable."""
    with T.Kernel(4, threads=128) as block:
        base = (first + block) * TILE
        for i in T.Parallel(TILE - 16):
            at = base + i
            if at < N:
                A[at] = A[at] + 1
        for at in T.serial(base + TILE - 16, base + TILE):
            if T.get_thread_binding(0) == 0:
                A[at] = A[at] + 1


@T.prim_func
def symbolic(A: T.Tensor((n,), "int8"), first: T.int32):
    with T.Kernel(4, threads=128) as block:
        for i in T.Parallel(TILE):
            A[(first + block) * TILE + i] = A[(first + block) * TILE + i] + 1


@T.prim_func
def seen_otherwise(A: T.Tensor((N // 8 * 8 // 8, 8), "int8"), first: T.int32):
    """Each index fits 32 bits; those of the view and the offsets in memory do not."""
    with T.Kernel(4, threads=128) as block:
        flat = T.reshape(A, (N // 8 * 8,))
        for i in T.Parallel(TILE):
            flat[(first + block) * TILE + i] = flat[(first + block) * TILE + i] + 1


@T.prim_func
def updated(A: T.Tensor((N,), "int8"), first: T.int32):
    with T.Kernel(4, threads=128) as block:
        for i in T.Parallel(TILE):
            T.atomic_add(A[(first + block) * TILE + i], T.int8(1))


KERNELS = [elementwise, copied, named, symbolic, seen_otherwise, updated]


def expected(first: int, size: int) -> dict[range, int]:
    """What the elements around the border are, by range."""
    low, high = first * TILE, min((first + 4) * TILE, size)
    return {range(max(low - 9, 0), low): 0, range(low, high): 1, range(high, size): 0}


STARTS = [("cpu", 0), ("cpu", EDGE - 2), ("cpu", EDGE - 1), ("sim:sm_80", EDGE - 2)]


@pytest.mark.covering(1)
@pytest.mark.parametrize(("target", "first"), STARTS)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_elements_beyond_32_bits(kernel, target, first):
    shape = (N // 8, 8) if kernel is seen_otherwise else (N,)
    a = np.zeros(shape, np.int8)
    compiled = tw.compile(kernel, target=target)
    if target == "cpu":
        compiled(a, first)
    else:
        lowered, options = compiled.passes[-1].program, SimOptions(races=False)
        found = simulate(lowered, {"A": a, "first": first}, None, options, compiled.program)
        assert found.report.ok
        a = found.arrays["A"]
    flat = a.reshape(-1)
    for places, value in expected(first, flat.size).items():
        near = flat[places.start : min(places.stop, places.start + 5 * TILE)]
        assert (near == value).all(), places
    assert flat[: 2 * TILE].any() == (first == 0)


def test_the_simulator_runs_the_blocks_that_it_is_told():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, TILE), threads=128) as bx:
            for i in T.Parallel(TILE):
                A[bx * TILE + i] = A[bx * TILE + i] + 1

    compiled, a = tw.compile(kernel, target="sim:sm_80"), np.zeros(N, np.int8)
    for stage in ("tile", "lowered"):
        program = compiled.program if stage == "tile" else compiled.passes[-1].program
        options = SimOptions(races=False, blocks=BLOCKS)
        found = simulate(program, {"A": a}, None, options, compiled.program)
        made = found.arrays["A"]
        assert found.report.blocks == len(BLOCKS)
        assert [made[at * TILE] for at in (0, 1, EDGE - 2, EDGE - 1, EDGE, EDGE + 1)] == [
            *(1, 0, 0, 1, 1, 1)
        ]
        assert made[-7:].tolist() == [1] * 7


@pytest.mark.nvrtc
def test_the_blocks_around_the_border_from_ptx():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, TILE), threads=128) as bx:
            for i in T.Parallel(TILE):
                A[bx * TILE + i] = A[bx * TILE + i] + 1

    a = np.zeros(N, np.int8)
    program = PtxProgram.parse(tw.compile(kernel, target="ptx:sm_80").asm)
    program.launch("kernel", (-(-N // TILE),), (128,), [a], blocks=BLOCKS)
    assert [a[at * TILE] for at in (0, 1, EDGE - 2, EDGE - 1, EDGE, EDGE + 1)] == [
        *(1, 0, 0, 1, 1, 1)
    ]
    assert a[-7:].tolist() == [1] * 7


def test_few_blocks_of_a_kernel():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "int32")):
        with T.Kernel(4, 2, threads=32) as (bx, by):
            for i in T.Parallel(8):
                A[by * 32 + bx * 8 + i] = 1

    for target in ("cpu", "sim:sm_80"):
        array = np.zeros(64, np.int32)
        found = tw.compile(kernel, target=target).simulate(array, blocks=(5, 2, 99))
        ones = [block for block in range(8) if found.arrays["A"][block * 8 : block * 8 + 8].all()]
        assert ones == [2, 5] and found.report.blocks == 2


def indices(kernel: T.prim_func) -> str:
    return kernel.script().partition("T.Kernel")[2]


def test_32_bits_stay_where_they_are_proven():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int8"), B: T.Tensor(2**31 - 1, "int8"), C: T.Tensor(8, "int32")):
        with T.Kernel(8, threads=128) as bx:
            for i in T.Parallel(TILE):
                A[bx * TILE + i] = A[C[i % 8]]
            for i in T.Parallel(TILE):
                B[bx * 2**24 * 64 + i] = 1

    assert "int64" not in indices(kernel)


def test_values_stay_32_bits():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int32")):
        with T.Kernel(2**20, threads=128) as bx:
            for i in T.Parallel(TILE):
                A[bx * TILE + i] = bx * TILE + i

    assert "] = bx * 4096 + i\n" in kernel.script()


def test_text_for_a_gpu():
    @T.prim_func
    def kernel(A: T.Tensor((N,), "int8"), B: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, TILE), threads=128) as bx:
            for i in T.Parallel(TILE):
                B[bx * TILE + i] = A[bx * TILE + i]

    generated = tw.compile(kernel, target="cuda:sm_80").source
    place = "(long long)bx * 4096ll + (long long)i_1 * 128ll + (long long)tx]"
    assert generated.count(f"A[{place}") == generated.count(f"B[{place}") == 1
    assert "bx * 4096 " not in generated


@pytest.mark.slow
def test_a_tensor_of_more_than_four_gibibytes():
    """All of it, on a processor."""

    @T.prim_func
    def kernel(A: T.Tensor((N,), "int8"), B: T.Tensor((N,), "int8")):
        with T.Kernel(T.ceildiv(N, TILE), threads=128) as bx:
            for i in T.Parallel(TILE):
                B[bx * TILE + i] = A[bx * TILE + i] + 1

    a, b = np.zeros(N, np.int8), np.zeros(N, np.int8)
    a[:: 2**20] = 2
    tw.compile(kernel, target="cpu")(a, b)
    assert (b[:: 2**20] == 3).all()
    b[:: 2**20] = 1
    assert (b == 1).all()
