"""Tiles that blocks of a cluster load for each other."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_simulated, equals, random_array
from tests.tiers import examples
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Peer
from tileworkbench.compiler.sim import SimOptions, simulate


def integers(*shape):
    """Small whole numbers, whose sums and products are exact."""
    return (random_array(shape, "int32") % 5).astype(np.float32)


@pytest.mark.covering(1)
@pytest.mark.parametrize("mask", [0b0011, 0b1010, 0b1111, 0b0100])
@pytest.mark.parametrize("tma", [False, True])
def test_the_lowest_block_of_the_mask_loads_for_all(tma, mask):
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), "float32")):
        B = T.empty((16, 64), "float32")
        with T.Kernel(4, 2, threads=64, cluster_dims=(4, 1, 1)) as (bx, by):
            tile = T.alloc_shared((8, 16), "float32")
            bars = T.alloc_barrier(64)
            if tma:
                T.cluster_sync()
                T.tma_copy(A[by * 8, bx * 16], tile, barrier=bars, cluster_mask=mask)
                T.mbarrier_arrive(bars)
                T.mbarrier_wait_parity(bars, 0)
            else:
                T.copy_cluster(A[by * 8, bx * 16], tile, cluster_mask=mask)
            T.copy(tile, B[by * 8, bx * 16])
            if tma:
                T.cluster_sync()
        return B

    a = integers(16, 64)
    first = (mask & -mask).bit_length() - 1
    columns = [first if mask >> rank & 1 else rank for rank in range(4)]
    expected = np.concatenate([a[:, 16 * at : 16 * at + 16] for at in columns], axis=1)
    check_everywhere(kernel, {"A": a}, equals(B=expected), ("native",))


def test_what_all_would_load_alike_needs_no_other_block():
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), "float32")):
        B = T.empty((32, 64), "float32")
        with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
            tile = T.alloc_shared((8, 64), "float32")
            row = bx // 2 * 8
            T.copy_cluster(A[row, 0], tile, cluster_mask=0b11)
            T.copy(tile, B[bx * 8, 0])
        return B

    assert not any(isinstance(stmt, Peer) for stmt in statements(kernel.program.body))
    a = integers(16, 64)
    expected = np.repeat(a.reshape(2, 1, 8, 64), 2, axis=1).reshape(32, 64)
    check_everywhere(kernel, {"A": a}, equals(B=expected))


def test_sources_that_only_the_run_tells_apart():
    """Loops that begin elsewhere in each block, indices from memory."""

    @T.prim_func
    def kernel(A: T.Tensor((8, 32), "int32"), rows: T.Tensor((2,), "int32")):
        B = T.empty((2, 32), "int32")
        with T.ClusterKernel(2, cluster_dims=2, threads=32) as bx:
            tile = T.alloc_shared((32,), "int32")
            total = T.alloc_fragment((32,), "int32")
            row = T.alloc_var("int32", rows[bx])
            T.clear(total)
            for k in T.serial(bx, bx + 8, 2):
                T.copy_cluster(A[k % 8, :], tile, cluster_mask=0b11)
                for i in T.Parallel(32):
                    total[i] = total[i] * 3 + tile[i]
            T.copy_cluster(A[row, :], tile, cluster_mask=0b11)
            for i in T.Parallel(32):
                B[bx, i] = total[i] * 3 + tile[i]
        return B

    a = random_array((8, 32), "int32") % 100
    total = np.zeros(32, np.int32)
    for row in (0, 2, 4, 6, 5):
        total = total * 3 + a[row]
    rows = np.array([5, 1], np.int32)
    check_everywhere(kernel, {"A": a, "rows": rows}, equals(B=np.stack([total, total])))


def test_each_block_loads_its_part_of_a_tile():
    M, N, K = 64, 64, 128

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.ClusterKernel(N // 32, M // 32, cluster_dims=(2, 1), threads=128) as (bx, by):
            rank = T.block_rank_in_cluster()
            a = T.alloc_shared((2, 32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            full = T.alloc_barrier([128] * 2)
            free = T.alloc_cluster_barrier([256] * 2)
            T.clear(c)
            T.cluster_sync()
            for k in T.serial(K // 32):
                T.mbarrier_wait_parity(free[k % 2], k // 2 % 2 ^ 1)
                T.tma_copy(
                    A[by * 32 + rank * 16, k * 32],
                    a[k % 2, rank * 16 : (rank + 1) * 16, :],
                    barrier=full[k % 2],
                    cluster_mask=0b11,
                )
                T.mbarrier_arrive(full[k % 2])
                T.copy(B[k * 32, bx * 32], b)
                T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                T.gemm(a[k % 2, :, :], b, c)
                T.mbarrier_arrive(free[k % 2], 0)
                T.mbarrier_arrive(free[k % 2], 1)
            T.cluster_sync()
            T.copy(c, C[by * 32, bx * 32])
        return C

    a, b = integers(M, K), integers(K, N)
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=a @ b))


@pytest.mark.parametrize("seed", [None, 1])
def test_a_product_in_clusters_of_two_by_two(seed):
    M, N, K = 64, 64, 96

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.ClusterKernel(N // 32, M // 32, cluster_dims=(2, 2), threads=128) as (bx, by):
            x, y = bx % 2, by % 2
            a = T.alloc_shared((2, 32, 32), "float32")
            b = T.alloc_shared((2, 32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            full = T.alloc_barrier([128] * 2)
            free = T.alloc_cluster_barrier([128 * 4] * 2)
            T.clear(c)
            T.cluster_sync()
            for k in T.serial(K // 32):
                s = k % 2
                T.mbarrier_wait_parity(free[s], k // 2 % 2 ^ 1)
                rows = A[by * 32 + x * 16 : by * 32 + x * 16 + 16, k * 32 : k * 32 + 32]
                own = a[s, x * 16 : x * 16 + 16, :]
                if y == 0:
                    T.tma_copy(rows, own, barrier=full[s], cluster_mask=0b0011)
                else:
                    T.tma_copy(rows, own, barrier=full[s], cluster_mask=0b1100)
                columns = B[k * 32 + y * 16 : k * 32 + y * 16 + 16, bx * 32 : bx * 32 + 32]
                part = b[s, y * 16 : y * 16 + 16, :]
                if x == 0:
                    T.tma_copy(columns, part, barrier=full[s], cluster_mask=0b0101)
                else:
                    T.tma_copy(columns, part, barrier=full[s], cluster_mask=0b1010)
                T.mbarrier_arrive(full[s])
                T.mbarrier_wait_parity(full[s], k // 2 % 2)
                T.gemm(a[s, :, :], b[s, :, :], c)
                for rank in T.serial(4):
                    T.mbarrier_arrive(free[s], rank)
            T.cluster_sync()
            T.copy(c, C[by * 32, bx * 32])
        return C

    a, b = integers(M, K), integers(K, N)
    arguments, check = {"A": a, "B": b}, equals(C=a @ b)
    if seed is None:
        check_everywhere(kernel, arguments, check)
    else:
        found = simulate(kernel.program, arguments, options=SimOptions(seed=seed))
        check_simulated("shuffled", found, check)


def test_parts_of_a_tile_without_a_barrier():
    M, N, K = 64, 32, 64

    @T.prim_func
    def kernel(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.ClusterKernel(2, cluster_dims=2, threads=128) as bx:
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, N), "float32")
            c = T.alloc_fragment((32, N), "float32")
            T.clear(c)
            for k in T.Pipelined(K // 32, num_stages=2):
                T.copy(A[bx * 32, k * 32], a)
                T.copy_cluster(B[k * 32 + bx * 16, 0], b[bx * 16 : bx * 16 + 16, :], cluster_mask=3)
                T.gemm(a, b, c)
            T.copy(c, C[bx * 32, 0])
        return C

    a, b = integers(M, K), integers(K, N)
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=a @ b))


@pytest.mark.parametrize("tma", [False, True])
def test_one_block_loads_for_the_others(tma):
    @T.prim_func
    def kernel(A: T.Tensor((3, 64), "float32")):
        B = T.empty((3, 64), "float32")
        with T.ClusterKernel(3, cluster_dims=3, threads=64) as bx:
            tx = T.get_thread_binding()
            tile = T.alloc_shared((64,), "float32")
            bars = T.alloc_barrier(1)
            T.cluster_sync()
            if tma:
                if bx == 1:
                    T.tma_copy(A[bx, :], tile, barrier=bars, cluster_mask=0b110)
                elif bx == 2:
                    if tx == 0:
                        T.mbarrier_expect_tx(bars, 64 * 4)
                else:
                    T.copy(A[bx, :], tile)
                if tx == 0:
                    T.mbarrier_arrive(bars)
                T.mbarrier_wait_parity(bars, 0)
            elif bx == 1:
                T.copy_cluster(A[bx, :], tile, cluster_mask=0b111)
            T.cluster_sync()
            T.copy(tile, B[bx, :])
        return B

    a = integers(3, 64)
    check_everywhere(kernel, {"A": a}, equals(B=a[[0 if tma else 1, 1, 1]]))


def test_roles_that_load_for_the_cluster():
    steps = 4

    @T.prim_func
    def kernel(A: T.Tensor((steps, 64), "float32")):
        B = T.empty((2, 64), "float32")
        with T.ClusterKernel(2, cluster_dims=2, threads=256) as bx:
            ring = T.alloc_shared((2, 64), "float32")
            total = T.alloc_fragment((64,), "float32")
            full = T.alloc_barrier([128] * 2)
            free = T.alloc_cluster_barrier([256] * 2)
            T.cluster_sync()
            with T.ws(0):
                for k in T.serial(steps):
                    T.mbarrier_wait_parity(free[k % 2], k // 2 % 2 ^ 1)
                    T.tma_copy(
                        A[k, bx * 32 : bx * 32 + 32],
                        ring[k % 2, bx * 32 : bx * 32 + 32],
                        barrier=full[k % 2],
                        cluster_mask=0b11,
                    )
                    T.mbarrier_arrive(full[k % 2])
            with T.ws(1):
                T.clear(total)
                for k in T.serial(steps):
                    T.mbarrier_wait_parity(full[k % 2], k // 2 % 2)
                    for i in T.Parallel(64):
                        total[i] += ring[k % 2, i]
                    for rank in T.serial(2):
                        T.mbarrier_arrive(free[k % 2], rank)
                T.copy(total, B[bx, :])
            T.cluster_sync()
        return B

    a = integers(steps, 64)
    check_everywhere(kernel, {"A": a}, equals(B=np.stack([a.sum(axis=0)] * 2)))


@settings(max_examples=examples(12), deadline=None)
@given(
    size=st.sampled_from([2, 4]),
    loads=st.lists(
        st.tuples(st.integers(1, 15), st.none() | st.integers(0, 3)), min_size=1, max_size=3
    ),
)
def test_masks_in_any_order(size, loads):
    """Each load: its mask, and the block that executes it, if not all do."""

    @T.prim_func
    def kernel(A: T.Tensor((2 * size, 32), "int32")):
        B = T.empty((2 * size, 32), "int32")
        with T.ClusterKernel(2 * size, cluster_dims=size, threads=32) as bx:
            rank = T.block_rank_in_cluster()
            tile = T.alloc_shared((32,), "int32")
            total = T.alloc_fragment((32,), "int32")
            T.fill(tile, 0)
            T.fill(total, 0)
            for mask, alone in loads:
                chosen = mask & ((1 << size) - 1) or 1
                T.cluster_sync()
                if True if alone is None else rank == alone % size:
                    T.copy_cluster(A[bx, :], tile, cluster_mask=chosen)
                T.cluster_sync()
                for i in T.Parallel(32):
                    total[i] = total[i] * 3 + tile[i]
            T.copy(total, B[bx, :])
        return B

    a = random_array((2 * size, 32), "int32") % 100
    expected = []
    for rows in a.reshape(2, size, 32):
        tiles, total = np.zeros((2, size, 32), np.int32)
        for mask, alone in loads:
            mask = mask & ((1 << size) - 1) or 1
            here = range(size) if alone is None else [alone % size]
            issuers = [rank for rank in here if mask >> rank & 1]
            for rank in range(size):
                if mask >> rank & 1:
                    tiles[rank] = rows[issuers[0]] if issuers else tiles[rank]
                elif rank in here:
                    tiles[rank] = rows[rank]
            total = total * 3 + tiles
        expected.append(total)
    check_everywhere(kernel, {"A": a}, equals(B=np.concatenate(expected)), ("native",))
