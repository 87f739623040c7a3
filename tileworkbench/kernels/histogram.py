"""Counts of values, first per block in fast memory, then added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def histogram_reference(x: Tensor, *, bins: int) -> Tensor:
    """How often each of 0 ... bins - 1 occurs; see `histogram`."""
    import torch

    return torch.bincount(x[(x >= 0) & (x < bins)].long(), minlength=bins).int()


@compared_with(histogram_reference)
def histogram(
    N: Extent, bins: int, dtype: Any = T.int32, block_N: int = TABLE, threads: int = 128
) -> PrimFunc:
    """`counts[v]` is how often `v` occurs in `X`; values outside 0 ... bins - 1 count nowhere.

    X is (N,) of an integer dtype, counts are int32 (bins,).
    """

    @T.prim_func
    def histogram(X: T.Tensor((N,), dtype)):
        counts = T.empty((bins,), T.int32)
        with T.Kernel(1, threads=threads) as _:
            T.clear(counts)
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            counts_shared = T.alloc_shared((bins,), T.int32)
            T.clear(counts_shared)
            for i in T.Parallel(block_N):
                if bx * block_N + i < N:
                    value = X[bx * block_N + i]
                    if (value >= 0) & (value < bins):
                        T.atomic_add(counts_shared[value], 1)
            T.atomic_add(counts, counts_shared)
        return counts

    return histogram
