"""Element-wise kernels on matrices: the shortest pages, bound by memory traffic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.matmul import ACTIVATIONS
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def add_reference(a: Tensor, b: Tensor) -> Tensor:
    """`a + b` in float64."""
    return a.double() + b.double()


@compared_with(add_reference)
def add(
    M: Extent,
    N: Extent,
    dtype: Any = T.float32,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`C = A + B` for matrices (M, N) of `dtype`."""

    @T.prim_func
    def add(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        C = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                C[row, column] = A[row, column] + B[row, column]
        return C

    return add


def gelu_reference(x: Tensor) -> Tensor:
    """The exact form, with erf, in float64."""
    import torch.nn.functional as F

    return F.gelu(x.double())


@compared_with(gelu_reference)
def gelu(
    M: Extent,
    N: Extent,
    dtype: Any = T.float32,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`Y = X / 2 * (1 + erf(X / sqrt(2)))` for matrices (M, N) of a float dtype; computed in
    float32.
    """
    activation = ACTIVATIONS["gelu"]

    @T.prim_func
    def gelu(X: T.Tensor((M, N), dtype)):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = activation(T.cast(X[row, column], T.float32))
        return Y

    return gelu
