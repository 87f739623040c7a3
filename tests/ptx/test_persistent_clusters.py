"""Persistent kernels whose workers are clusters: each visits tiles with the memory of all its
blocks, and counts the phases of its memory barriers on from one tile to the next.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_clusters, check_on_threads, equals, random_array

pytestmark = pytest.mark.nvrtc

M, N, K = 256, 96, 128
ROWS, COLUMNS, DEPTH = M // 128, N // 32, K // 64
WORKERS = 2  # clusters, which visit 6 tiles


def integers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Small whole numbers, whose sums and products are exact."""
    return (random_array(shape, "int32") % 5).astype(np.float16)


@T.prim_func
def shared_tiles(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16")):
    """Two blocks, each with half of the rows, and one B for both."""
    C = T.empty((M, N), "float32")
    with T.ClusterKernel(2 * WORKERS, cluster_dims=2, threads=128) as bx:
        rank = T.block_rank_in_cluster()
        a = T.alloc_shared((DEPTH, 64, 64), "float16")
        b = T.alloc_shared((DEPTH, 64, 32), "float16")
        c = T.alloc_fragment((64, 32), "float32")
        full = T.alloc_barrier([128] * DEPTH)
        free = T.alloc_cluster_barrier([256] * DEPTH)
        visit = T.alloc_var("int32", 0)
        T.cluster_sync()
        for m, n in T.Persistent([ROWS, COLUMNS], WORKERS, bx // 2):
            T.clear(c)
            for k in T.serial(DEPTH):
                if rank == 0:
                    T.mbarrier_wait_parity(free[k], visit % 2 ^ 1)
                T.tma_copy(A[m * 128 + rank * 64, k * 64], a[k, :, :], barrier=full[k])
                T.tma_copy(B[k * 64, n * 32], b[k, :, :], barrier=full[k], cluster_mask=0b11)
                T.mbarrier_arrive(full[k])
                T.mbarrier_wait_parity(full[k], visit % 2)
                T.gemm(a[k, :, :], b[k, :, :], c)
                T.mbarrier_arrive(free[k], 0)
            visit += 1
            T.copy(c, C[m * 128 + rank * 64, n * 32])
        T.cluster_sync()
    return C


@T.prim_func
def exchanged_sums(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16")):
    """Two blocks, each with half of the depth; the second one sends its sums to the first."""
    C = T.empty((M, N), "float32")
    with T.ClusterKernel(2 * WORKERS, cluster_dims=2, threads=128) as bx:
        rank = T.block_rank_in_cluster()
        a = T.alloc_shared((128, 64), "float16")
        b = T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((128, 32), "float32")
        own = T.alloc_shared((128, 32), "float32")
        theirs = T.alloc_shared((128, 32), "float32")
        for m, n in T.Persistent([ROWS, COLUMNS], WORKERS, bx // 2, group_size=2):
            T.copy(A[m * 128, rank * 64], a)
            T.copy(B[rank * 64, n * 32], b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, own)
            T.cluster_sync()
            if rank == 1:
                T.copy_cluster(own, theirs, dst_block=0)
            T.cluster_sync()
            if rank == 0:
                for i, j in T.Parallel(128, 32):
                    C[m * 128 + i, n * 32 + j] = own[i, j] + theirs[i, j]
    return C


@T.prim_func
def scheduled(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16")):
    """The rows of a cluster from the scheduler: neighbours in m, B read by each."""
    C = T.empty((M, N), "float32")
    with T.ClusterKernel(2 * WORKERS, cluster_dims=2, threads=128) as bx:
        rank = T.block_rank_in_cluster()
        a = T.alloc_shared((64, 64), "float16")
        b = T.alloc_shared((64, 32), "float16")
        c = T.alloc_fragment((64, 32), "float32")
        tiles = T.PersistentTileScheduler(M // 64, COLUMNS, WORKERS, cluster_size=2)
        tiles.init(bx // 2)
        while tiles.valid():
            T.clear(c)
            for k in T.Pipelined(DEPTH, num_stages=2):
                T.copy(A[(tiles.m_idx * 2 + rank) * 64, k * 64], a)
                T.copy(B[k * 64, tiles.n_idx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[(tiles.m_idx * 2 + rank) * 64, tiles.n_idx * 32])
            T.cluster_sync()
            tiles.next_tile()
    return C


# Every stage in every simulator takes 20 seconds for each of them.
KERNELS = [
    shared_tiles,
    pytest.param(exchanged_sums, marks=pytest.mark.slow),
    pytest.param(scheduled, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("kernel", KERNELS)
def test_every_tile_once(kernel: Any) -> None:
    a, b = integers((M, K)), integers((K, N))
    expected = a.astype(np.float32) @ b.astype(np.float32)
    arguments, check = {"A": a, "B": b}, equals(C=expected)
    check_clusters(kernel, arguments, check)
    check_on_threads(kernel, arguments, check, "sim:sm_90a")
    assert np.array_equal(tw.compile(kernel, target="ptx:sm_90a")(a, b), expected)
