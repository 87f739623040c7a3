"""The largest elements of each row, one after the other: routing of experts, sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def topk_reference(x: Tensor, *, k: int) -> tuple[Tensor, Tensor]:
    """(values, indices) by a stable sort, so that equal elements keep their order."""
    values, indices = x.sort(dim=-1, descending=True, stable=True)
    return values[..., :k], indices[..., :k].int()


@compared_with(topk_reference)
def topk(
    M: Extent, N: int, k: int, dtype: Any = T.float32, block_M: int = TABLE, threads: int = 128
) -> PrimFunc:
    """The `k` largest elements of each row in falling order, and where they are.

    X is (M, N) of a float dtype without NaN; returns [values, indices]: (M, k) of that dtype and of
    int32. Of equal elements the first comes first. Each of `k` rounds finds the maximum, its first
    place, and takes it out, which suits small `k`.
    """

    @T.prim_func
    def topk(X: T.Tensor((M, N), dtype)):
        values = T.empty((M, k), dtype)
        indices = T.empty((M, k), T.int32)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            X_local = T.alloc_fragment((block_M, N), T.float32)
            left = T.alloc_fragment((block_M, N), T.int32)  # an element's index, N once taken
            place = T.alloc_fragment((block_M, N), T.int32)
            best = T.alloc_fragment((block_M,), T.float32)
            first = T.alloc_fragment((block_M,), T.int32)
            T.copy(X[bx * block_M, 0], X_local)
            for i, j in T.Parallel(block_M, N):
                left[i, j] = j
            for round in T.serial(k):
                T.reduce_max(X_local, best, dim=1)
                for i, j in T.Parallel(block_M, N):
                    place[i, j] = T.if_then_else(X_local[i, j] == best[i], left[i, j], N)
                T.reduce_min(place, first, dim=1)
                for i, j in T.Parallel(block_M, N):
                    if j == first[i]:
                        X_local[i, j] = -T.infinity(T.float32)
                        left[i, j] = N
                for i in T.Parallel(block_M):
                    if bx * block_M + i < M:
                        values[bx * block_M + i, round] = best[i]
                        indices[bx * block_M + i, round] = first[i]
        return values, indices

    return topk
