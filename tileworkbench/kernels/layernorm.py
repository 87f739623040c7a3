"""Layer normalisation (Ba, Kiros and Hinton, arXiv 1607.06450), with a residual."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def layernorm_reference(x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` along the last dimension in float64."""
    import torch.nn.functional as F

    return F.layer_norm(x.double(), x.shape[-1:], weight.double(), bias.double(), eps)


@T.macro
def normalise_rows(X_local, mean, scale, block_M, N, eps):
    """Replace each row of a float32 tile by its deviation from the mean, and `scale` by the inverse
    of the standard deviation.
    """
    squares = T.alloc_fragment((block_M, N), T.float32)
    T.reduce_sum(X_local, mean, dim=1)
    for i, j in T.Parallel(block_M, N):
        X_local[i, j] = X_local[i, j] - mean[i] / N
        squares[i, j] = X_local[i, j] * X_local[i, j]
    T.reduce_sum(squares, scale, dim=1)
    for i in T.Parallel(block_M):
        scale[i] = T.rsqrt(scale[i] / N + eps)


@compared_with(layernorm_reference)
def layernorm(
    M: Extent,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-5,
    block_M: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`Y = (X - mean(X)) / sqrt(var(X) + eps) * weight + bias`, row by row.

    X and Y are (M, N), weight and bias are (N,), of one float dtype; computed in float32, the
    variance from the deviations (two passes over the row).
    """

    @T.prim_func
    def layernorm(
        X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), bias: T.Tensor((N,), dtype)
    ):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            X_local = T.alloc_fragment((block_M, N), T.float32)
            mean = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], X_local)
            normalise_rows(X_local, mean, scale, block_M, N, eps)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = X_local[i, j] * scale[i] * weight[j] + bias[j]
            T.copy(X_local, Y[bx * block_M, 0])
        return Y

    return layernorm


def add_layernorm_reference(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """`(layernorm(s), s)` in float64, where `s` is `x + residual` rounded to their dtype."""
    total = (x.float() + residual.float()).to(x.dtype)
    return layernorm_reference(total, weight, bias, eps=eps), total.double()


@compared_with(add_layernorm_reference)
def add_layernorm(
    M: Extent,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-5,
    block_M: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`S = X + R` and `Y = layernorm(S)`: a residual stream and its norm.

    X, R, Y and S are (M, N), weight and bias are (N,), of one float dtype; computed in float32 from
    S as rounded to `dtype`. Returns [Y, S].
    """

    @T.prim_func
    def add_layernorm(
        X: T.Tensor((M, N), dtype),
        R: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        bias: T.Tensor((N,), dtype),
    ):
        Y = T.empty((M, N), dtype)
        S = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            S_local = T.alloc_fragment((block_M, N), dtype)
            R_local = T.alloc_fragment((block_M, N), dtype)
            X_local = T.alloc_fragment((block_M, N), T.float32)
            mean = T.alloc_fragment((block_M,), T.float32)
            scale = T.alloc_fragment((block_M,), T.float32)
            T.copy(X[bx * block_M, 0], S_local)
            T.copy(R[bx * block_M, 0], R_local)
            for i, j in T.Parallel(block_M, N):
                S_local[i, j] = S_local[i, j] + R_local[i, j]
            T.copy(S_local, S[bx * block_M, 0])
            T.copy(S_local, X_local)
            normalise_rows(X_local, mean, scale, block_M, N, eps)
            for i, j in T.Parallel(block_M, N):
                X_local[i, j] = X_local[i, j] * scale[i] * weight[j] + bias[j]
            T.copy(X_local, Y[bx * block_M, 0])
        return Y, S

    return add_layernorm
