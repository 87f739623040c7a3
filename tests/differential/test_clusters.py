"""Blocks of a cluster: their ranks, their barriers, copies that they share."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_clusters, equals, random_array
from tileworkbench.compiler.diagnostics import ArgumentError, DeadlockError, UnsupportedError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.sim import simulate


def test_ranks_of_blocks():
    @T.prim_func
    def kernel(A: T.Tensor((4, 6), "int32")):
        with T.ClusterKernel(6, 4, cluster_dims=(3, 2, 1), threads=32) as (bx, by):
            rank = T.block_rank_in_cluster()
            for _ in T.Parallel(1):
                A[by, bx] = rank

    assert parse(print_program(kernel.program)) == kernel.program
    rows, columns = np.indices((4, 6))
    expected = (rows % 2 * 3 + columns % 3).astype(np.int32)
    check_clusters(kernel, {"A": np.zeros((4, 6), np.int32)}, equals(A=expected))


@pytest.mark.parametrize("split", [False, True])
def test_blocks_hand_values_to_each_other(split):
    a = random_array((8, 64), "int32") % 1000

    @T.prim_func
    def kernel(A: T.Tensor((8, 64), "int32")):
        P = T.empty((8,), "int32")
        S = T.empty((8,), "int32")
        with T.ClusterKernel(8, cluster_dims=4, threads=64) as bx:
            row = T.alloc_fragment((1, 64), "int32")
            total = T.alloc_fragment((1,), "int32")
            T.copy(A[bx : bx + 1, :], row)
            T.reduce_sum(row, total, dim=1)
            T.copy(total, P[bx])
            if split:
                T.cluster_arrive()
                T.cluster_wait()
            else:
                T.cluster_sync()
            for _ in T.Parallel(1):
                first = bx // 4 * 4
                S[bx] = P[first] + P[first + 1] + P[first + 2] + P[first + 3]
        return P, S

    sums = a.sum(axis=1).astype(np.int32)
    clusters = np.repeat(sums.reshape(2, 4).sum(axis=1), 4).astype(np.int32)
    check_clusters(kernel, {"A": a}, equals(P=sums, S=clusters))


def test_shared_tiles_live_on_over_the_barrier_of_a_cluster():
    a = random_array((6, 32), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((6, 32), "int32"), B: T.Tensor((6, 32), "int32")):
        with T.ClusterKernel(6, cluster_dims=(2,), threads=32) as bx:
            tile = T.alloc_shared((32,), "int32")
            bars = T.alloc_cluster_barrier([32])
            T.copy(A[bx, :], tile)
            T.mbarrier_arrive(bars)
            T.mbarrier_wait_parity(bars, 0)
            for step in T.serial(2 + bx // 2):  # each cluster at a pace of its own
                T.copy(tile, B[bx + 1 - 2 * T.block_rank_in_cluster(), :])
                T.cluster_sync()
                T.copy(B[bx, :], tile)
                T.cluster_sync()

    expected = a.copy()
    for cluster, steps in enumerate((2, 3, 4)):
        held = a[2 * cluster : 2 * cluster + 2]
        for _ in range(steps):
            held = held[::-1]
        expected[2 * cluster : 2 * cluster + 2] = held
    arguments = {"A": a, "B": np.zeros_like(a)}
    check_clusters(kernel, arguments, equals(B=expected))


def test_barriers_of_clusters_and_of_the_grid():
    a = random_array((4, 64), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((4, 64), "int32"), B: T.Tensor((4, 64), "int32")):
        C = T.empty((4, 64), "int32")
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            tile = T.alloc_shared((64,), "int32")
            T.copy(A[bx, :], tile)
            T.cluster_sync()
            T.copy(tile, B[(bx + 1) % 4, :])
            T.sync_grid()
            T.copy(B[bx, :], tile)
            for i in T.Parallel(64):
                tile[i] += bx
            T.cluster_sync()
            T.copy(tile, C[bx ^ 1, :])
        return C

    shifted = np.roll(a, 1, axis=0)
    expected = (shifted + np.arange(4, dtype=np.int32)[:, None])[[1, 0, 3, 2]]
    check_clusters(kernel, {"A": a, "B": np.zeros_like(a)}, equals(B=shifted, C=expected))


def test_copies_that_blocks_share():
    a = random_array((2, 64), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((2, 64), "float32")):
        B = T.empty((4, 64), "float32")
        C = T.empty((4, 64), "float32")
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            tile = T.alloc_shared((64,), "float32")
            other = T.alloc_shared((64,), "float32")
            bars = T.alloc_barrier(64)
            T.copy_cluster(A[bx // 2, :], tile, cluster_mask=0b11)
            T.tma_copy(A[1, :], other, barrier=bars, cluster_mask=0b01)
            T.mbarrier_arrive(bars)
            T.mbarrier_wait_parity(bars, 0)
            T.copy(tile, B[bx, :])
            T.copy(other, C[bx, :])
        return B, C

    check = equals(B=np.repeat(a, 2, axis=0), C=np.repeat(a[1:], 4, axis=0))
    check_clusters(kernel, {"A": a}, check)


def test_a_cluster_that_waits_for_a_block_that_never_comes():
    @T.prim_func
    def kernel(A: T.Tensor((4,), "int32")):
        with T.ClusterKernel(4, cluster_dims=2, threads=32) as bx:
            if bx != 3:
                T.cluster_sync()

    with pytest.raises(DeadlockError) as error:
        simulate(kernel.program, {"A": np.zeros(4, np.int32)})
    assert error.value.message.splitlines()[0] == (
        "1 block waits at a barrier of the cluster that the others do not reach"
    )
    with pytest.raises(DeadlockError) as error:
        tw.compile(kernel)(np.zeros(4, np.int32))
    first = error.value.message.splitlines()[0]
    assert first.startswith("deadlock: threads 0 to 31 of block 0 of the cluster wait in line")
    assert first.endswith(
        "at T.cluster_sync; threads 0 to 31 of block 1 of the cluster have finished"
    )


def test_threads_that_do_not_come_to_the_barrier_of_a_cluster():
    @T.prim_func
    def kernel(A: T.Tensor((2,), "int32")):
        with T.ClusterKernel(2, cluster_dims=2, threads=64):
            if T.get_thread_binding() < 32:
                T.cluster_sync()

    with pytest.raises(DeadlockError) as error:
        simulate(kernel.program, {"A": np.zeros(2, np.int32)})
    first = error.value.message.splitlines()[0]
    assert first.startswith(
        "block (0) waits for ever: threads 0-31 wait at the barrier of the cluster"
    )
    assert first.endswith("threads 32-63 have ended")
    with pytest.raises(DeadlockError, match="threads 32 to 63 of block 1 of the cluster have fin"):
        tw.compile(kernel)(np.zeros(2, np.int32))


def test_a_grid_of_whole_clusters():
    n = T.dynamic("n")

    @T.prim_func
    def kernel(A: T.Tensor((n,), "int32")):
        with T.ClusterKernel(n, cluster_dims=2, threads=32) as bx:
            for _ in T.Parallel(1):
                A[bx] = T.block_rank_in_cluster()

    a = np.full(6, 9, np.int32)
    tw.compile(kernel)(a)
    assert a.tolist() == [0, 1, 0, 1, 0, 1]
    with pytest.raises(ArgumentError, match=r"assumes 'n % 2 == 0', and n = 5"):
        tw.compile(kernel)(np.zeros(5, np.int32))
    with pytest.raises(UnsupportedError) as error:
        tw.compile(kernel, target="sim:sm_80")
    assert f"{error.value.message}\nhint: {error.value.hint}" == (
        "clusters of blocks need sm_90, and 'sm_80' has none\n"
        "hint: compile for 'cuda:sm_90', 'ptx:sm_90' or 'sim:sm_90', or later"
    )
