"""Convolutions as products, and gradients of convolutions."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench import kernels


def sequence_convolution(L: int, C: int, F: int, block_L: int = 32, block_F: int = 32) -> Any:
    """`Y[l] = sum(X[l + t] @ W[t] for t in range(3))` of X (L + 2, C) and W (3, C, F), float32."""

    @T.prim_func
    def sequence_convolution(X: T.Tensor((L + 2, C), "float32"), W: T.Tensor((3, C, F), "float32")):
        Y = T.empty((L, F), "float32")
        with T.Kernel(T.ceildiv(F, block_F), T.ceildiv(L, block_L)) as (bx, by):
            rows = T.alloc_shared((block_L, C), "float32")
            weights = T.alloc_shared((C, block_F), "float32")
            total = T.alloc_fragment((block_L, block_F), "float32")
            T.clear(total)
            for t in T.serial(3):
                T.copy(X[by * block_L + t, 0], rows)
                T.copy(W[t, 0, bx * block_F], weights)
                T.gemm(rows, weights, total)
            T.copy(total, Y[by * block_L, bx * block_F])
        return Y

    return sequence_convolution


def patches(S: int, P: int, C: int, N: int, block_M: int, block_N: int, block_K: int) -> Any:
    """Squares of P by P pixels of an image X (S * P, S * P, C), each times W (P * P * C, N), with
    b (N,) and places E (S * S, N) added, float32.
    """
    M, K, line = S * S, P * P * C, P * C

    @T.prim_func
    def patches(
        X: T.Tensor((S * P, S * P, C), "float32"),
        W: T.Tensor((K, N), "float32"),
        b: T.Tensor((N,), "float32"),
        E: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    patch, at = by * block_M + i, k * block_K + j
                    left[i, j] = X[
                        patch // S * P + at // line, patch % S * P + at % line // C, at % C
                    ]
                T.copy(W[k * block_K, bx * block_N], right)
                T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = total[i, j] + b[column] + E[row, column]
        return Y

    return patches


def pointwise_backward(
    B: int, C: int, F: int, P: int, block_C: int, block_P: int, block_F: int
) -> Any:
    """`where(X > 0, W.T @ G[b], 0)` of X (B, C, P), W (F, C) and G (B, F, P), float32: the gradient
    of a 1 x 1 convolution of what a relu left.
    """

    @T.prim_func
    def pointwise_backward(
        X: T.Tensor((B, C, P), "float32"),
        W: T.Tensor((F, C), "float32"),
        G: T.Tensor((B, F, P), "float32"),
    ):
        Y = T.empty((B, C, P), "float32")
        with T.Kernel(T.ceildiv(P, block_P), T.ceildiv(C, block_C), B) as (bx, by, b):
            weights = T.alloc_shared((block_F, block_C), "float32")
            pixels = T.alloc_shared((block_F, block_P), "float32")
            total = T.alloc_fragment((block_C, block_P), "float32")
            T.clear(total)
            for f in T.Pipelined(T.ceildiv(F, block_F), num_stages=2):
                T.copy(W[f * block_F, by * block_C], weights)
                T.copy(G[b, f * block_F, bx * block_P], pixels)
                T.gemm(weights, pixels, total, transpose_A=True)
            for i, j in T.Parallel(block_C, block_P):
                x = X[b, by * block_C + i, bx * block_P + j]
                total[i, j] = T.if_then_else(x > 0.0, total[i, j], 0.0)
            T.copy(total, Y[b, by * block_C, bx * block_P])
        return Y

    return pointwise_backward


def bytes_convolution(H: int, W: int, C: int, F: int, block_H: int, block_W: int) -> Any:
    """Convolution of X (H + 2, W + 2, C) with 3 x 3 `filters` (9, C, F), int8, sums in int32,
    times s (F,), float32, rounded and cut to 0 ... 127: (H, W, F), int8.
    """

    @T.prim_func
    def bytes_convolution(
        X: T.Tensor((H + 2, W + 2, C), "int8"),
        filters: T.Tensor((9, C, F), "int8"),
        s: T.Tensor((F,), "float32"),
    ):
        Y = T.empty((H, W, F), "int8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            pixels = T.alloc_shared((block_H * block_W, C), "int8")
            weights = T.alloc_shared((C, F), "int8")
            total = T.alloc_fragment((block_H * block_W, F), "int32")
            T.clear(total)
            for t in T.serial(9):
                for i, j, c in T.Parallel(block_H, block_W, C):
                    row, column = by * block_H + i + t // 3, bx * block_W + j + t % 3
                    pixels[i * block_W + j, c] = X[row, column, c]
                T.copy(filters[t, 0, 0], weights)
                T.gemm(pixels, weights, total)
            for i, j, f in T.Parallel(block_H, block_W, F):
                value = T.round(T.cast(total[i * block_W + j, f], "float32") * s[f])
                row, column = by * block_H + i, bx * block_W + j
                Y[row, column, f] = T.cast(T.clamp(value, 0.0, 127.0), "int8")
        return Y

    return bytes_convolution


def tap_gradients(B: int, L: int, C: int, block_L: int, block_C: int) -> Any:
    """`sum(G[b, l] * X[b, l + t] for b, l)` of X (B, L + 3, C) and G (B, L, C), bfloat16, as
    float32 (4, C), the gradient of four weights for each channel, and `sum(G[b, l])`, (C,).
    """

    @T.prim_func
    def tap_gradients(X: T.Tensor((B, L + 3, C), "bfloat16"), G: T.Tensor((B, L, C), "bfloat16")):
        weights, bias = T.empty((4, C), "float32"), T.empty((C,), "float32")
        with T.Kernel(T.ceildiv(C, block_C)) as bx:
            inputs = T.alloc_shared((block_L + 3, block_C), "float32")
            slope = T.alloc_fragment((block_L, block_C), "float32")
            part = T.alloc_fragment((block_L, block_C), "float32")
            column = T.alloc_fragment((block_C,), "float32")
            total = T.alloc_fragment((4, block_C), "float32")
            every = T.alloc_fragment((block_C,), "float32")
            T.clear(total)
            T.clear(every)
            for b, k in T.grid(B, T.ceildiv(L, block_L)):
                T.copy(X[b, k * block_L, bx * block_C], inputs)
                T.copy(G[b, k * block_L, bx * block_C], slope)
                T.reduce_sum(slope, every, dim=0, clear=False)
                for t in T.serial(4):
                    for i, j in T.Parallel(block_L, block_C):
                        part[i, j] = slope[i, j] * inputs[i + t, j]
                    T.reduce_sum(part, column, dim=0)
                    for j in T.Parallel(block_C):
                        total[t, j] = total[t, j] + column[j]
            T.copy(total, weights[0, bx * block_C])
            T.copy(every, bias[bx * block_C])
        return weights, bias

    return tap_gradients


CASES = (
    Case(
        "convolution 28x28, 64 to 64",
        kernels.convolution,
        {"batch": 1, "height": 28, "width": 28, "channels": 64, "filters": 64, "pad": 1},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64), "block_K": (32, 64)},
    ),
    Case(
        "convolution of a sequence, 512x96 to 128",
        sequence_convolution,
        {"L": 512, "C": 96, "F": 128},
        {"block_L": (8, 16, 32, 64, 128), "block_F": (16, 32, 64, 128)},
    ),
    Case(
        "patches of 16x16x3, 14x14 to 192",
        patches,
        {"S": 14, "P": 16, "C": 3, "N": 192},
        {"block_M": (1, 8, 49, 196), "block_N": (8, 48, 192), "block_K": (16, 96, 768)},
    ),
    Case(
        "backward 1x1 convolution 4x96x144x784",
        pointwise_backward,
        {"B": 4, "C": 96, "F": 144, "P": 784},
        {"block_C": (1, 8, 32, 96), "block_P": (16, 112, 784), "block_F": (8, 48, 144)},
    ),
    Case(
        "convolution of bytes 36x40, 24 to 48 channels",
        bytes_convolution,
        {"H": 36, "W": 40, "C": 24, "F": 48},
        {"block_H": (1, 3, 12, 36), "block_W": (2, 8, 20, 40)},
    ),
    Case(
        "gradients of taps 4x1000x600, bfloat16",
        tap_gradients,
        {"B": 4, "L": 1000, "C": 600},
        {"block_L": (1, 20, 1000), "block_C": (8, 40, 200, 600)},
    ),
)
