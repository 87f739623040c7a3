"""Matrix times vector: a product bound by memory traffic, so a dot product per row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.matmul import accumulator
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def gemv_reference(a: Tensor, x: Tensor) -> Tensor:
    """`a @ x` in float64; integers exactly."""
    import torch

    wide = torch.float64 if a.is_floating_point() else torch.int64
    return a.to(wide) @ x.to(wide)


@compared_with(gemv_reference)
def gemv(
    N: int,
    K: int,
    dtype: Any = T.float32,
    out_dtype: Any = None,
    block_N: int = TABLE,
    block_K: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`y = A @ x`.

    A is (N, K) and x is (K,), both of `dtype`; y is (N,) of `out_dtype` (default: that of the
    accumulator: int32 for integers, float64 for float64, else float32). Each of `block_K` columns
    of a tile keeps its own partial sum; they are added at the end.
    """
    accum_dtype = accumulator(dtype)
    out_dtype = out_dtype or accum_dtype

    @T.prim_func
    def gemv(A: T.Tensor((N, K), dtype), x: T.Tensor((K,), dtype)):
        y = T.empty((N,), out_dtype)
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bn:
            partial = T.alloc_fragment((block_N, block_K), accum_dtype)
            total = T.alloc_fragment((block_N,), accum_dtype)
            T.clear(partial)
            # Row by row, so that each is read from end to end.
            for i in T.serial(block_N):
                for ko in T.serial(T.ceildiv(K, block_K)):
                    for j in T.Parallel(block_K):
                        k = ko * block_K + j
                        partial[i, j] += T.cast(A[bn * block_N + i, k], accum_dtype) * T.cast(
                            x[k], accum_dtype
                        )
            T.reduce_sum(partial, total, dim=1)
            T.copy(total, y[bn * block_N])
        return y

    return gemv
