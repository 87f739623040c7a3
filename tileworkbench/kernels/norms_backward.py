"""Gradients of normalisations, row by row, and of their weights, which are sums over all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.layernorm import layernorm_reference
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with
from tileworkbench.kernels.rmsnorm import rmsnorm_reference

if TYPE_CHECKING:
    from torch import Tensor


def rmsnorm_backward_reference(
    x: Tensor, weight: Tensor, dy: Tensor, *, eps: float = 1e-6
) -> tuple[Tensor, ...]:
    """(dX, dWeight) by automatic differentiation in float64."""
    import torch

    inputs = [each.double().detach().requires_grad_() for each in (x, weight)]
    return torch.autograd.grad(rmsnorm_reference(*inputs, eps=eps), inputs, dy.double())


def layernorm_backward_reference(
    x: Tensor, weight: Tensor, dy: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, ...]:
    """(dX, dWeight, dBias) by automatic differentiation in float64."""
    import torch

    inputs = [each.double().detach().requires_grad_() for each in (x, weight, weight * 0)]
    return torch.autograd.grad(layernorm_reference(*inputs, eps=eps), inputs, dy.double())


@T.macro
def add_shares(shares, total, blocks, N, block_N, threads):
    """`total` is the sum of what each block of rows has summed."""
    with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
        own = T.alloc_fragment((block_N,), T.float32)
        T.clear(own)
        for block in T.serial(blocks):
            for j in T.Parallel(block_N):
                own[j] += shares[block, bx * block_N + j]
        T.copy(own, total[bx * block_N])


@compared_with(rmsnorm_backward_reference)
def rmsnorm_backward(
    M: int,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-6,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """The gradients [dX, dWeight] of `rmsnorm` with the same `eps`, from X, weight and dY.

    X, dY and dX are (M, N), weight and dWeight (N,), of one float dtype; computed in float32. With
    s = 1 / sqrt(mean(X**2) + eps) and g = dY * weight, dX = s * (g - X * s**2 * mean(g * X)), and
    dWeight sums dY * X * s over rows: first those of a block of `block_M`, then those of all.
    """
    blocks = -(-M // block_M)

    @T.prim_func
    def rmsnorm_backward(
        X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), dY: T.Tensor((M, N), dtype)
    ):
        dX = T.empty((M, N), dtype)
        dWeight = T.empty((N,), dtype)
        shares = T.alloc_global((blocks, N), T.float32)
        with T.Kernel(blocks, threads=threads) as bx:
            x = T.alloc_fragment((1, N), T.float32)
            dy = T.alloc_fragment((1, N), T.float32)
            product = T.alloc_fragment((1, N), T.float32)
            own = T.alloc_fragment((1, N), T.float32)
            scale = T.alloc_fragment((1,), T.float32)
            mean = T.alloc_fragment((1,), T.float32)
            T.clear(own)
            for row in T.serial(block_M):
                T.copy(X[bx * block_M + row, 0], x)
                T.copy(dY[bx * block_M + row, 0], dy)
                for i, j in T.Parallel(1, N):
                    product[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(product, scale, dim=1)
                for i in T.Parallel(1):
                    scale[i] = T.rsqrt(scale[i] / N + eps)
                for i, j in T.Parallel(1, N):
                    x[i, j] = x[i, j] * scale[i]
                    own[i, j] += dy[i, j] * x[i, j]
                    dy[i, j] = dy[i, j] * weight[j]
                    product[i, j] = dy[i, j] * x[i, j]
                T.reduce_sum(product, mean, dim=1)
                for i, j in T.Parallel(1, N):
                    dy[i, j] = scale[i] * (dy[i, j] - x[i, j] * mean[i] / N)
                T.copy(dy, dX[bx * block_M + row, 0])
            T.copy(own, shares[bx, 0])
        add_shares(shares, dWeight, blocks, N, block_N, threads)
        return dX, dWeight

    return rmsnorm_backward


@compared_with(layernorm_backward_reference)
def layernorm_backward(
    M: int,
    N: int,
    dtype: Any = T.float32,
    eps: float = 1e-5,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """The gradients [dX, dWeight, dBias] of `layernorm` with the same `eps`, from X, weight and dY.

    X, dY and dX are (M, N), the others (N,), of one float dtype; computed in float32. With the
    normalised row x, s = 1 / sqrt(var(X) + eps) and g = dY * weight,
    dX = s * (g - mean(g) - x * mean(g * x)); dWeight sums dY * x over rows and dBias dY: first
    those of a block of `block_M`, then those of all.
    """
    blocks = -(-M // block_M)

    @T.prim_func
    def layernorm_backward(
        X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), dY: T.Tensor((M, N), dtype)
    ):
        dX = T.empty((M, N), dtype)
        dWeight = T.empty((N,), dtype)
        dBias = T.empty((N,), dtype)
        shares = T.alloc_global((blocks, N), T.float32)
        bias_shares = T.alloc_global((blocks, N), T.float32)
        with T.Kernel(blocks, threads=threads) as bx:
            x = T.alloc_fragment((1, N), T.float32)
            dy = T.alloc_fragment((1, N), T.float32)
            product = T.alloc_fragment((1, N), T.float32)
            own = T.alloc_fragment((1, N), T.float32)
            of_bias = T.alloc_fragment((1, N), T.float32)
            mean = T.alloc_fragment((1,), T.float32)
            scale = T.alloc_fragment((1,), T.float32)
            mean_product = T.alloc_fragment((1,), T.float32)
            T.clear(own)
            T.clear(of_bias)
            for row in T.serial(block_M):
                T.copy(X[bx * block_M + row, 0], x)
                T.copy(dY[bx * block_M + row, 0], dy)
                T.reduce_sum(x, mean, dim=1)
                for i, j in T.Parallel(1, N):
                    x[i, j] = x[i, j] - mean[i] / N
                    product[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(product, scale, dim=1)
                for i in T.Parallel(1):
                    scale[i] = T.rsqrt(scale[i] / N + eps)
                for i, j in T.Parallel(1, N):
                    x[i, j] = x[i, j] * scale[i]
                    own[i, j] += dy[i, j] * x[i, j]
                    of_bias[i, j] += dy[i, j]
                    dy[i, j] = dy[i, j] * weight[j]
                    product[i, j] = dy[i, j] * x[i, j]
                T.reduce_sum(dy, mean, dim=1)
                T.reduce_sum(product, mean_product, dim=1)
                for i, j in T.Parallel(1, N):
                    rest = dy[i, j] - mean[i] / N - x[i, j] * mean_product[i] / N
                    dy[i, j] = scale[i] * rest
                T.copy(dy, dX[bx * block_M + row, 0])
            T.copy(own, shares[bx, 0])
            T.copy(of_bias, bias_shares[bx, 0])
        add_shares(shares, dWeight, blocks, N, block_N, threads)
        add_shares(bias_shares, dBias, blocks, N, block_N, threads)
        return dX, dWeight, dBias

    return layernorm_backward
