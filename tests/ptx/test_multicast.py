"""Loads of the copy engine that reach several blocks of a cluster: at every stage, and from their
PTX.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_on_threads, equals, random_array
from tests.mutation.subjects import tensor_map
from tileworkbench.compiler.diagnostics import DeadlockError, RaceError, RunError
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.simt import BarrierWait, ClusterBarrier, TensorLoad, TensorMap
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.lowering import lower_program
from tileworkbench.compiler.sim import simulate
from tileworkbench.compiler.sim.ptx import PtxProgram

pytestmark = pytest.mark.nvrtc


def integers(shape: tuple[int, ...], dtype: str = "float16") -> np.ndarray:
    """Small whole numbers, whose sums and products are exact."""
    return (random_array(shape, "int32") % 5).astype(dtype)


@T.prim_func
def parts(A: T.Tensor((128, 128), "float16"), B: T.Tensor((128, 64), "float16")):
    """Each of two blocks loads half of the rows of A for both."""
    C = T.empty((128, 64), "float16")
    with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
        rank = T.block_rank_in_cluster()
        a = T.alloc_shared((2, 128, 64), "float16")
        b = T.alloc_shared((2, 64, 32), "float16")
        c = T.alloc_fragment((128, 32), "float32")
        full = T.alloc_barrier([128] * 2)
        free = T.alloc_cluster_barrier([256] * 2)
        T.clear(c)
        T.cluster_sync()
        for k in T.serial(2):
            T.mbarrier_wait_parity(free[k % 2], k // 2 % 2 ^ 1)
            T.tma_copy(
                A[rank * 64, k * 64],
                a[k % 2, rank * 64 : (rank + 1) * 64, :],
                barrier=full[k % 2],
                cluster_mask=0b11,
            )
            T.tma_copy(B[k * 64, bx * 32], b[k % 2, :, :], barrier=full[k % 2])
            T.mbarrier_arrive(full[k % 2])
            T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
            T.gemm(a[k % 2, :, :], b[k % 2, :, :], c)
            T.mbarrier_arrive(free[k % 2], 0)
            T.mbarrier_arrive(free[k % 2], 1)
        T.cluster_sync()
        T.copy(c, C[0, bx * 32])
    return C


@T.prim_func
def whole(A: T.Tensor((128, 256), "float16"), B: T.Tensor((256, 32), "float16")):
    """The first of two blocks loads B for both, in a ring of two."""
    C = T.empty((128, 32), "float16")
    with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
        a = T.alloc_shared((2, 64, 64), "float16")
        b = T.alloc_shared((2, 64, 32), "float16")
        c = T.alloc_fragment((64, 32), "float32")
        full = T.alloc_barrier([128] * 2)
        free = T.alloc_cluster_barrier([256] * 2)
        T.clear(c)
        T.cluster_sync()
        for k in T.serial(4):
            if bx == 0:
                T.mbarrier_wait_parity(free[k % 2], k // 2 % 2 ^ 1)
            T.tma_copy(A[bx * 64, k * 64], a[k % 2, :, :], barrier=full[k % 2])
            T.tma_copy(B[k * 64, 0], b[k % 2, :, :], barrier=full[k % 2], cluster_mask=0b11)
            T.mbarrier_arrive(full[k % 2])
            T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
            T.gemm(a[k % 2, :, :], b[k % 2, :, :], c)
            T.mbarrier_arrive(free[k % 2], 0)
        T.cluster_sync()
        T.copy(c, C[bx * 64, 0])
    return C


@T.prim_func
def grid(A: T.Tensor((128, 128), "float16"), B: T.Tensor((128, 64), "float16")):
    """Clusters of two by two: rows of blocks share A, columns share B."""
    C = T.empty((128, 64), "float32")
    with T.ClusterKernel(2, 2, cluster_dims=(2, 2), threads=128) as (bx, by):
        x, y = bx % 2, by % 2
        a = T.alloc_shared((64, 128), "float16")
        b = T.alloc_shared((128, 32), "float16")
        c = T.alloc_fragment((64, 32), "float32")
        full = T.alloc_barrier(128)
        T.clear(c)
        T.cluster_sync()
        rows = A[by * 64 + x * 32 : by * 64 + x * 32 + 32, :]
        columns = B[y * 64 : y * 64 + 64, bx * 32 : bx * 32 + 32]
        if y == 0:
            T.tma_copy(rows, a[x * 32 : x * 32 + 32, :], barrier=full, cluster_mask=0b0011)
        else:
            T.tma_copy(rows, a[x * 32 : x * 32 + 32, :], barrier=full, cluster_mask=0b1100)
        if x == 0:
            T.tma_copy(columns, b[y * 64 : y * 64 + 64, :], barrier=full, cluster_mask=0b0101)
        else:
            T.tma_copy(columns, b[y * 64 : y * 64 + 64, :], barrier=full, cluster_mask=0b1010)
        T.mbarrier_arrive(full)
        T.mbarrier_wait_parity(full, 0)
        T.gemm(a, b, c)
        T.cluster_sync()
        T.copy(c, C[by * 64, bx * 32])
    return C


CASES = {"parts": (parts, 128), "whole": (whole, 256), "grid": (grid, 128)}


@pytest.mark.parametrize("name", CASES)
def test_products_of_tiles_that_blocks_share(name: str) -> None:
    kernel, depth = CASES[name]
    b = integers((depth, 32 if name == "whole" else 64))
    a = integers((128, depth))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(
        np.float32 if name == "grid" else np.float16
    )
    check_on_threads(kernel, {"A": a, "B": b}, equals(C=expected), "sim:sm_90a")
    for target in ("ptx:sm_90", "ptx:sm_90a"):
        compiled = tw.compile(kernel, target=target)
        assert "multicast::cluster" in compiled.asm
        assert "st.shared::cluster" not in compiled.asm
        assert np.array_equal(compiled(a, b), expected)


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int64"])
@pytest.mark.parametrize("mask", [0b0011, 0b1010, 0b1111, 0b0100])
def test_blocks_outside_the_mask_load_for_themselves(dtype: str, mask: int) -> None:
    @T.prim_func
    def kernel(A: T.Tensor((16, 128), dtype)):
        B = T.empty((16, 128), dtype)
        with T.Kernel(4, 2, threads=64, cluster_dims=(4, 1, 1)) as (bx, by):
            tile = T.alloc_shared((8, 32), dtype)
            bars = T.alloc_barrier(64)
            T.cluster_sync()
            T.tma_copy(A[by * 8, bx * 32], tile, barrier=bars, cluster_mask=mask)
            T.mbarrier_arrive(bars)
            T.mbarrier_wait_parity(bars, 0)
            T.copy(tile, B[by * 8, bx * 32])
            T.cluster_sync()
        return B

    a = integers((16, 128), dtype)
    first = (mask & -mask).bit_length() - 1
    columns = [first if mask >> rank & 1 else rank for rank in range(4)]
    expected = np.concatenate([a[:, 32 * at : 32 * at + 32] for at in columns], axis=1)
    check_on_threads(kernel, {"A": a}, equals(B=expected), "sim:sm_90")
    compiled = tw.compile(kernel, target="ptx:sm_90")
    assert "multicast::cluster" in compiled.asm
    assert np.array_equal(compiled(a), expected)


def test_what_the_card_says_of_it() -> None:
    notes = tw.compile(whole, target="sim:sm_90a").passes["lower_to_threads"].program.notes
    assert any("B: TMA, 64-byte swizzle, multicast to 2 blocks (copy" in note for note in notes)


def test_who_arrives_later_waits_for_the_bytes_to_be_expected() -> None:
    """Only some threads arrive: the first thread is not among them."""

    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            tile = T.alloc_shared((64,), "float32")
            bars = T.alloc_barrier(32)
            T.cluster_sync()
            T.tma_copy(A, tile, barrier=bars, cluster_mask=0b11)
            if T.get_thread_binding() >= 32:
                T.mbarrier_arrive(bars)
            T.mbarrier_wait_parity(bars, 0)
            T.copy(tile, B[bx, :])
            T.cluster_sync()

    a = random_array((64,), "float32")
    expected = np.stack([a, a])
    arguments = {"A": a, "B": np.zeros_like(expected)}
    check_on_threads(kernel, arguments, equals(B=expected), "sim:sm_90")
    compiled, b = tw.compile(kernel, target="ptx:sm_90"), np.zeros_like(expected)
    compiled(a, b)
    assert np.array_equal(b, expected)
    source = compiled.source
    assert (
        "__syncthreads" in source[source.index("mbarrier_expect(smem") :].split("mbarrier_arr")[0]
    )


# Mistakes in what `whole` became


def without(kind: type[Stmt], name: str = "") -> Callable[[Stmt], Stmt]:
    """Drop the statements of a kind, those at the barrier of that name."""

    def change(stmt: Stmt) -> Stmt:
        named = not name or (isinstance(stmt, kind) and stmt.barrier.buffer.name == name)
        return Seq(()) if isinstance(stmt, kind) and named else stmt

    return change


def to_blocks(mask: int) -> Callable[[Stmt], Stmt]:
    """Send what goes to several blocks to others."""

    def change(stmt: Stmt) -> Stmt:
        sends = isinstance(stmt, TensorLoad) and stmt.blocks
        return replace(stmt, blocks=mask) if sends else stmt

    return change


STATEMENTS: dict[str, tuple[Callable[[Stmt], Stmt], str]] = {
    "a block that is left out": (
        to_blocks(0b01),
        "block (0) waits for ever: threads 0-127 wait for parity 0 of 'free[0]', which lacks 128 "
        "of 256 arrivals",
    ),
    "a block that is not there": (to_blocks(0b101), "block 2 of a cluster of 2 does not exist"),
    "a tile that is still read": (
        without(BarrierWait, "free"),
        "threads 0-127 wait for parity 0 of 'full[0]', which lacks -4096 bytes",
    ),
    "a block that may not have begun": (without(ClusterBarrier), "may not have made 'b' yet"),
}


@pytest.mark.parametrize("mistake", STATEMENTS)
def test_mistakes_in_its_statements_are_found(mistake: str) -> None:
    change, words = STATEMENTS[mistake]
    program = lower_program(whole.program, resolve_target("sim:sm_90a"))[-1].program
    assert not findings(program)
    changed = with_body(program, Rewriter(rewrite_stmt=change)(program.body))
    assert words in findings(changed)


def findings(program: Program) -> str:
    """What the simulator finds wrong, or stops at."""
    arguments = {"A": integers((128, 256)), "B": integers((256, 32))}
    try:
        report = simulate(program, arguments, signature=whole.program).report
    except RunError as error:
        return error.message
    return "" if report.ok else str(report)


MISTAKES: dict[str, tuple[str, str, type[RunError], str]] = {
    "a block that is left out": (
        r"(%rs\d+), 3;",
        r"\1, 1;",
        DeadlockError,
        "which lacks 0 of 128 arrivals and 4096 bytes",
    ),
    "a block that is not there": (
        r"(%rs\d+), 3;",
        r"\1, 7;",
        RunError,
        "thread (0, 0, 0) of block (0, 0, 0) names block 2 of a cluster of 2: ",
    ),
    "no block": (r"(%rs\d+), 3;", r"\1, 0;", RunError, "a load to no block of the cluster: "),
    "its own block alone": (
        r"\.multicast::cluster (.*), %rs\d+;",
        r" \1;",
        DeadlockError,
        "which lacks 0 of 128 arrivals and 4096 bytes",
    ),
    "a block that may not have begun": (
        r"barrier\.cluster\.arrive;",
        "barrier.cluster.arrive.relaxed;",
        RaceError,
        "which may not have begun",
    ),
    "readers that tell their own block only": (
        "arrive.release.cluster.shared::cluster",
        "arrive.release.cta.shared::cluster",
        RaceError,
        "copies into byte 16384 of shared memory, which an asynchronous copy wrote with no",
    ),
    "a wait for readers of its own block only": (
        "parity.acquire.cluster",
        "parity.acquire.cta",
        RaceError,
        "copies into byte 16384 of shared memory, which an asynchronous copy wrote with no",
    ),
}


def test_its_ptx_is_right() -> None:
    assert run("ret;", "ret;")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_its_ptx_are_found(mistake: str) -> None:
    old, new, kind, words = MISTAKES[mistake]
    with pytest.raises(kind) as caught:
        run(old, new)
    assert words in caught.value.message


def run(old: str, new: str) -> bool:
    """Execute the PTX of `whole` with one place changed; whether the result is right."""
    kernel = tw.compile(whole, target="ptx:sm_90a")
    text, count = re.subn(old, new, kernel.asm, count=1)
    assert count, old
    arrays = {"A": integers((128, 256)), "B": integers((256, 32)), "C": np.zeros((128, 32), "f2")}
    module = kernel.compiled.module
    values = [
        tensor_map(each, arrays[each.source.name])
        if isinstance(each, TensorMap)
        else arrays[each.name]
        for each in module.arguments
    ]
    (launch,) = module.launches
    PtxProgram.parse(text).launch(
        launch.entry, (2,), (128,), values, launch.shared_bytes, cluster=(2,)
    )
    expected = arrays["A"].astype(np.float32) @ arrays["B"].astype(np.float32)
    return bool(np.array_equal(arrays["C"], expected))
