"""The barrier of a cluster in two halves, on threads of every stage."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import CompileError, RunError, UnsupportedError
from tileworkbench.compiler.driver import lower_program, resolve_target
from tileworkbench.compiler.sim import simulate


def exchange(steps: str) -> Any:
    """Two blocks that swap rows; `steps` are the halves of the barrier around the copy."""

    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            own = T.alloc_shared((64,), "float32")
            theirs = T.alloc_shared((64,), "float32")
            for step in steps.split():
                if step == "load":
                    T.copy(A[bx, :], own)
                if step == "send":
                    T.copy_cluster(own, theirs, dst_block=1 - bx)
                if step == "arrive":
                    T.cluster_arrive()
                if step == "relaxed":
                    T.cluster_arrive_relaxed()
                if step == "wait":
                    T.cluster_wait()
                if step == "sync":
                    T.cluster_sync()
            T.copy(theirs, B[bx, :])
            T.cluster_sync()

    return kernel


RIGHT = ["load sync send sync", "load sync send arrive wait", "sync load send arrive wait"]
RACES = ["load sync arrive send wait", "load sync send relaxed wait"]


def results(steps: str) -> list[Any]:
    program = exchange(steps).program
    arguments = {
        "A": np.arange(128, dtype=np.float32).reshape(2, 64),
        "B": np.zeros((2, 64), np.float32),
    }
    stages = [program]
    stages += [s.program for s in lower_program(program, resolve_target("sim:sm_90")) if s.changed]
    return [simulate(each, arguments, signature=program) for each in stages]


@pytest.mark.parametrize("steps", RIGHT)
def test_what_is_done_before_the_arrival_is_known_behind_the_wait(steps: str) -> None:
    for result in results(steps):
        assert result.report.ok, str(result.report)
        assert np.array_equal(result.arrays["B"], result.arrays["A"][::-1])


@pytest.mark.parametrize("steps", RACES)
def test_what_is_done_behind_the_arrival_is_a_race(steps: str) -> None:
    for result in results(steps):
        said = [str(finding) for finding in result.report.findings]
        assert any("another one writes, unordered by a barrier" in each for each in said), said


WRONG = {
    "load sync send wait": (
        "a thread waits at the barrier of its cluster, where it has not arrived\n"
        "hint: call T.cluster_arrive() before T.cluster_wait()"
    ),
    "load sync send arrive arrive wait": (
        "a thread arrives at the barrier of its cluster twice without waiting there\n"
        "hint: put T.cluster_wait() between the two arrivals"
    ),
}


def text_of(error: CompileError | RunError) -> str:
    """The message and the hint."""
    return f"{error.message}\nhint: {error.hint}"


@pytest.mark.parametrize("steps", WRONG)
def test_halves_without_their_other(steps: str) -> None:
    with pytest.raises(RunError) as caught:
        results(steps)
    assert text_of(caught.value) == WRONG[steps]


def test_more_blocks_than_every_gpu_has() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((16,), "int32")):
        with T.ClusterKernel(16, cluster_dims=16, threads=32) as bx:
            A[bx] = bx

    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target="sim:sm_90")
    assert caught.value.message == (
        "a cluster has at most 8 blocks on every 'sm_90', and this one 16"
    )


def test_blocks_in_another_order() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((4, 4), "int32")):
        with T.ClusterKernel(4, 4, cluster_dims=(2, 1), threads=32) as (bx, by):
            T.use_swizzle(2)
            A[by, bx] = bx

    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target="sim:sm_90")
    assert text_of(caught.value) == (
        "the blocks of clusters are visited in the order of the grid, which has at most 3 "
        "dimensions\n"
        "hint: leave T.use_swizzle out, and join dimensions of the grid"
    )


def test_a_group_of_threads_that_is_no_whole_warps() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            own = T.alloc_shared((64,), "float32")
            theirs = T.alloc_shared((64,), "float32")
            bars = T.alloc_cluster_barrier([1])
            T.copy(A[bx, :], own)
            T.cluster_sync()
            if T.get_thread_binding() < 48:
                T.copy_cluster(own, theirs, dst_block=1 - bx, remote_barrier=bars[0])
            T.cluster_sync()

    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target="sim:sm_90")
    assert text_of(caught.value) == (
        "48 threads copy to another block and then arrive at its memory barrier, for which they "
        "need a barrier of their own\n"
        "hint: let whole warps make the copy, and use fewer groups of threads"
    )


def test_a_multicast_that_the_engine_cannot_make() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((2, 63), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            tile = T.alloc_shared((1, 63), "float32")
            bars = T.alloc_cluster_barrier([64])
            T.cluster_sync()
            if bx == 0:
                T.tma_copy(A[0, 0], tile, barrier=bars[0], cluster_mask=3)
            T.mbarrier_arrive(bars[0])
            T.mbarrier_wait_parity(bars[0], 0)
            T.cluster_sync()

    with pytest.raises(UnsupportedError) as caught:
        tw.compile(kernel, target="sim:sm_90")
    assert text_of(caught.value) == (
        "only the copy engine tells memory barriers of other blocks what has come, and it cannot "
        "make this copy: rows of 252 bytes are not multiples of 16\n"
        "hint: share tiles with T.copy_cluster(..., dst_block=rank, remote_barrier=...)"
    )


def test_a_pipelined_loop_that_sends_is_not_pipelined() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((2, 4, 64), "float32"), B: T.Tensor((2, 64), "float32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64) as bx:
            own = T.alloc_shared((64,), "float32")
            theirs = T.alloc_shared((4, 64), "float32")
            T.cluster_sync()
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[bx, k, :], own)
                T.copy_cluster(own, theirs[k, :], dst_block=1 - bx)
            T.cluster_sync()
            T.copy(theirs[3, :], B[bx, :])
            T.cluster_sync()

    compiled = tw.compile(kernel, target="sim:sm_90")
    assert "loop 'k' is not pipelined: it uses memory of another block" in (
        compiled.passes["plan_pipelines"].program.notes
    )
    a, b = np.arange(512, dtype=np.float32).reshape(2, 4, 64), np.zeros((2, 64), np.float32)
    compiled(a, b)
    assert np.array_equal(b, a[::-1, 3])
