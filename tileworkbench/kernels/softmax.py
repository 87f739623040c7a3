"""Softmax over rows: at once, and online (Milakov and Gimelshein, arXiv 1805.02867)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def softmax_reference(x: Tensor) -> Tensor:
    """Softmax of the last dimension in float64."""
    return x.double().softmax(-1)


@compared_with(softmax_reference)
def softmax(
    M: Extent, N: int, dtype: Any = T.float32, block_M: int = TABLE, threads: int = 128
) -> PrimFunc:
    """`Y = softmax(X)` for rows that fit into fast memory whole.

    X and Y are (M, N) of a float dtype; computed in float32.
    """

    @T.prim_func
    def softmax(X: T.Tensor((M, N), dtype)):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            X_local = T.alloc_fragment((block_M, N), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], X_local)
            T.reduce_max(X_local, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = T.exp(X_local[i, j] - row_max[i])
            T.reduce_sum(X_local, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = X_local[i, j] / row_sum[i]
            T.copy(X_local, Y[bx * block_M, 0])
        return Y

    return softmax


@compared_with(softmax_reference)
def online_softmax(
    M: Extent,
    N: Extent,
    dtype: Any = T.float32,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`Y = softmax(X)` for rows of any length, read in pieces of `block_N` twice.

    The first pass keeps each row's maximum and the sum of exponentials relative to it; when the
    maximum grows, the sum shrinks by the exponential of the difference. X and Y are (M, N) of a
    float dtype; computed in float32.
    """

    @T.prim_func
    def online_softmax(X: T.Tensor((M, N), dtype)):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            X_local = T.alloc_fragment((block_M, block_N), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            previous_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            piece_sum = T.alloc_fragment((block_M,), T.float32)
            T.fill(row_max, T.min_value(T.float32))  # finite: a piece may hold infinities alone
            T.clear(row_sum)
            # Beyond a row's end are elements that count as nothing.
            T.annotate_safe_value({X: -T.infinity(dtype)})
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, k * block_N], X_local)
                T.copy(row_max, previous_max)
                T.reduce_max(X_local, row_max, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] = T.exp(X_local[i, j] - row_max[i])
                T.reduce_sum(X_local, piece_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * T.exp(previous_max[i] - row_max[i]) + piece_sum[i]
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(X[bx * block_M, k * block_N], X_local)
                for i, j in T.Parallel(block_M, block_N):
                    X_local[i, j] = T.exp(X_local[i, j] - row_max[i]) / row_sum[i]
                T.copy(X_local, Y[bx * block_M, k * block_N])
        return Y

    return online_softmax
