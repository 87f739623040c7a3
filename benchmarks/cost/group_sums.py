"""Sums and means of rows that belong together."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def clipped_sums(G: int, M: int, N: int, block_M: int, block_N: int) -> Any:
    """`sum(min(1, 9 / |x|) * x)` of the rows x of each of G parts of X (G, M, N), float16, as
    float32 (G, N): rows are read in pieces for their lengths, then again.
    """

    @T.prim_func
    def clipped_sums(X: T.Tensor((G, M, N), "float16")):
        Y = T.empty((G, N), "float32")
        with T.Kernel(G) as g:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            length = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_shared((N,), "float32")
            T.clear(total)
            for m in T.serial(T.ceildiv(M, block_M)):
                T.clear(length)
                for k in T.serial(T.ceildiv(N, block_N)):
                    T.copy(X[g, m * block_M, k * block_N], tile)
                    for i, j in T.Parallel(block_M, block_N):
                        tile[i, j] = tile[i, j] * tile[i, j]
                    T.reduce_sum(tile, length, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    length[i] = T.min(9.0 * T.rsqrt(length[i]), 1.0)
                for k in T.serial(T.ceildiv(N, block_N)):
                    T.copy(X[g, m * block_M, k * block_N], tile)
                    for i, j in T.Parallel(block_M, block_N):
                        tile[i, j] = tile[i, j] * length[i]
                    T.reduce_sum(tile, part, dim=0)
                    for j in T.Parallel(block_N):
                        total[k * block_N + j] = total[k * block_N + j] + part[j]
            T.copy(total, Y[g, 0])
        return Y

    return clipped_sums


def centres_of_groups(M: int, N: int, C: int, block_M: int, block_N: int) -> Any:
    """Means of the rows of X (M, N), bfloat16, in each of C groups, (C, N), float32, of which
    `group` (M,), int32, has one for each row; 0 for a group without rows (a step of k-means).
    """

    @T.prim_func
    def centres_of_groups(X: T.Tensor((M, N), "bfloat16"), group: T.Tensor((M,), "int32")):
        Y = T.empty((C, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            rows = T.alloc_shared((block_M, block_N), "float32")
            total = T.alloc_shared((C, block_N), "float32")
            count = T.alloc_shared((C,), "float32")
            T.clear(total)
            T.clear(count)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], rows)
                for i in T.serial(block_M):
                    own = group[k * block_M + i]
                    for c in T.Parallel(C):
                        count[c] = count[c] + T.if_then_else(c == own, 1.0, 0.0)
                    for j in T.Parallel(block_N):
                        total[own, j] = total[own, j] + rows[i, j]
            for c, j in T.Parallel(C, block_N):
                Y[c, bx * block_N + j] = total[c, j] / T.max(count[c], 1.0)
        return Y

    return centres_of_groups


def trimmed_means(S: int, M: int, N: int, block_M: int, block_N: int) -> Any:
    """Means of the middle half of the S values of each element, X (S, M, N), bfloat16, as float32
    (M, N): gradients of S workers, of which a few may be wrong. S is a power of 2; the values are
    put in order by a network (Batcher's, of bitonic pieces).
    """
    network = [
        (2**size, 2**step) for size in range(1, S.bit_length()) for step in reversed(range(size))
    ]

    @T.prim_func
    def trimmed_means(X: T.Tensor((S, M, N), "bfloat16")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            values = T.alloc_shared((S, block_M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[0, by * block_M, bx * block_N], values)
            for size, step in network:
                for p, i, j in T.Parallel(S // 2, block_M, block_N):
                    low = p // step * (2 * step) + p % step
                    one, other = values[low, i, j], values[low + step, i, j]
                    least, most = T.min(one, other), T.max(one, other)
                    is_up = low // size % 2 == 0
                    values[low, i, j] = T.if_then_else(is_up, least, most)
                    values[low + step, i, j] = T.if_then_else(is_up, most, least)
            T.clear(total)
            for s in T.serial(S // 2):
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] + values[S // 4 + s, i, j]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] / (S // 2)
        return Y

    return trimmed_means


CASES = (
    Case(
        "sums of clipped rows 4x150x1200, float16",
        clipped_sums,
        {"G": 4, "M": 150, "N": 1200},
        {"block_M": (1, 6, 30, 150), "block_N": (8, 60, 300, 1200)},
    ),
    Case(
        "centres of 24 groups 1200x480, bfloat16",
        centres_of_groups,
        {"M": 1200, "N": 480, "C": 24},
        {"block_M": (1, 20, 150, 1200), "block_N": (8, 32, 120, 480)},
    ),
    Case(
        "trimmed means of 16, 40x1800, bfloat16",
        trimmed_means,
        {"S": 16, "M": 40, "N": 1800},
        {"block_M": (1, 5, 40), "block_N": (8, 60, 360, 1800)},
    ),
)
