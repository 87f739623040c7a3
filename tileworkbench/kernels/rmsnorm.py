"""Root-mean-square normalisation (Zhang and Sennrich, arXiv 1910.07467), with a residual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def rmsnorm_reference(x: Tensor, weight: Tensor, *, eps: float = 1e-6) -> Tensor:
    """`x / sqrt(mean(x**2) + eps) * weight` along the last dimension in float64."""
    x = x.double()
    return x * (x.square().mean(-1, keepdim=True) + eps).rsqrt() * weight.double()


@compared_with(rmsnorm_reference)
def rmsnorm(
    M: Extent,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-6,
    block_M: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`Y = X / sqrt(mean(X**2) + eps) * weight`, row by row.

    X and Y are (M, N), weight is (N,), of one float dtype; computed in float32.
    """

    @T.prim_func
    def rmsnorm(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype)):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            X_local = T.alloc_fragment((block_M, N), T.float32)
            squares = T.alloc_fragment((block_M, N), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], X_local)
            for i, j in T.Parallel(block_M, N):
                squares[i, j] = X_local[i, j] * X_local[i, j]
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = X_local[i, j] * scale[i] * weight[j]
            T.copy(X_local, Y[bx * block_M, 0])
        return Y

    return rmsnorm


def add_rmsnorm_reference(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """`(rmsnorm(x + residual), x + residual)` in float64; the sum is rounded to x's dtype first."""
    total = (x.float() + residual.float()).to(x.dtype)
    return rmsnorm_reference(total, weight, eps=eps), total.double()


@compared_with(add_rmsnorm_reference)
def add_rmsnorm(
    M: Extent,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-6,
    block_M: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`S = X + R` and `Y = S / sqrt(mean(S**2) + eps) * weight`: a residual stream and its norm.

    X, R, Y and S are (M, N), weight is (N,), of one float dtype; computed in float32 from S as
    rounded to `dtype`. Returns [Y, S].
    """

    @T.prim_func
    def add_rmsnorm(
        X: T.Tensor((M, N), dtype), R: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype)
    ):
        Y = T.empty((M, N), dtype)
        S = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            S_local = T.alloc_fragment((block_M, N), dtype)
            R_local = T.alloc_fragment((block_M, N), dtype)
            squares = T.alloc_fragment((block_M, N), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], S_local)
            T.copy(R[bx * block_M, 0], R_local)
            for i, j in T.Parallel(block_M, N):
                S_local[i, j] = S_local[i, j] + R_local[i, j]
                squares[i, j] = T.cast(S_local[i, j], T.float32) * T.cast(S_local[i, j], T.float32)
            T.copy(S_local, S[bx * block_M, 0])
            T.reduce_sum(squares, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for i, j in T.Parallel(block_M, N):
                S_local[i, j] = T.cast(S_local[i, j], T.float32) * scale[i] * weight[j]
            T.copy(S_local, Y[bx * block_M, 0])
        return Y, S

    return add_rmsnorm
