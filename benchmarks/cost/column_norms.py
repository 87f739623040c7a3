"""Norms of columns, and statistics of columns with weights."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import COLUMNS, Case
from tileworkbench.kernels.flash_attention import LOWEST


def column_softmax(M: int, N: int, block_N: int = 64) -> Any:
    """`softmax(X, dim=0)` of an (M, N) float32 matrix, whole columns in a block."""

    @T.prim_func
    def column_softmax(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.copy(X[0, bx * block_N], tile)
            T.reduce_max(tile, most, dim=0)
            for i, j in T.Parallel(M, block_N):
                tile[i, j] = T.exp(tile[i, j] - most[j])
            T.reduce_sum(tile, total, dim=0)
            for i, j in T.Parallel(M, block_N):
                tile[i, j] = tile[i, j] / total[j]
            T.copy(tile, Y[0, bx * block_N])
        return Y

    return column_softmax


def unit_columns(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """The columns of an (M, N) float32 matrix with length 1: read for their lengths, then again."""

    @T.prim_func
    def unit_columns(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            square = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(square, total, dim=0, clear=False)
            for j in T.Parallel(block_N):
                total[j] = T.rsqrt(total[j] + 1e-12)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = tile[i, j] * total[j]
                T.copy(tile, Y[k * block_M, bx * block_N])
        return Y

    return unit_columns


def batch_norm(M: int, N: int, block_M: int = 64, block_N: int = 64) -> Any:
    """`relu((X - mean) / deviation * w + b)` of columns of X (M, N), w and b (N,), float32."""

    @T.prim_func
    def batch_norm(
        X: T.Tensor((M, N), "float32"), w: T.Tensor((N,), "float32"), b: T.Tensor((N,), "float32")
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            square = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_N,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, first, dim=0, clear=False)
                T.reduce_sum(square, second, dim=0, clear=False)
            for j in T.Parallel(block_N):
                mean = first[j] / M
                second[j] = w[bx * block_N + j] * T.rsqrt(second[j] / M - mean * mean + 1e-5)
                first[j] = b[bx * block_N + j] - mean * second[j]
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.max(tile[i, j] * second[j] + first[j], 0.0)
                T.copy(tile, Y[k * block_M, bx * block_N])
        return Y

    return batch_norm


def response_norm(B: int, P: int, C: int, block_P: int, block_C: int) -> Any:
    """`X + g * X * n / mean(n) + b` with the lengths n of the columns of each X[i]: X (B, P, C), g
    and b (C,), float32 (global response normalisation).
    """

    @T.prim_func
    def response_norm(
        X: T.Tensor((B, P, C), "float32"),
        g: T.Tensor((C,), "float32"),
        b: T.Tensor((C,), "float32"),
    ):
        Y = T.empty((B, P, C), "float32")
        with T.Kernel(B) as bz:
            square = T.alloc_fragment((block_P, block_C), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            lengths = T.alloc_shared((C,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            for c in T.serial(T.ceildiv(C, block_C)):
                T.clear(total)
                for p in T.serial(T.ceildiv(P, block_P)):
                    for i, j in T.Parallel(block_P, block_C):
                        x = X[bz, p * block_P + i, c * block_C + j]
                        square[i, j] = x * x
                    T.reduce_sum(square, total, dim=0, clear=False)
                for j in T.Parallel(block_C):
                    lengths[c * block_C + j] = T.sqrt(total[j])
            T.reduce_sum(lengths, mean, dim=0)
            for p, c in T.grid(T.ceildiv(P, block_P), T.ceildiv(C, block_C)):
                for i, j in T.Parallel(block_P, block_C):
                    row, column = p * block_P + i, c * block_C + j
                    part = lengths[column] * C / mean[0]
                    x = X[bz, row, column]
                    Y[bz, row, column] = x + g[column] * x * part + b[column]
        return Y

    return response_norm


def batch_norm_backward(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`w * r * (G - mean(G) - x * mean(G * x))`, x = (X - m) * r, by columns of X and G (M, N),
    with w, means m and r, one over deviations, (N,), float32; and the sums of G * x and of G.
    """

    @T.prim_func
    def batch_norm_backward(
        X: T.Tensor((M, N), "float32"),
        G: T.Tensor((M, N), "float32"),
        w: T.Tensor((N,), "float32"),
        m: T.Tensor((N,), "float32"),
        r: T.Tensor((N,), "float32"),
    ):
        D = T.empty((M, N), "float32")
        dw, db = T.empty((N,), "float32"), T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            gradient = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            scale = T.alloc_fragment((block_N,), "float32")
            shift = T.alloc_fragment((block_N,), "float32")
            T.clear(scale)
            T.clear(shift)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(G[k * block_M, bx * block_N], gradient)
                for i, j in T.Parallel(block_M, block_N):
                    row, column = k * block_M + i, bx * block_N + j
                    product[i, j] = gradient[i, j] * (X[row, column] - m[column]) * r[column]
                T.reduce_sum(product, scale, dim=0, clear=False)
                T.reduce_sum(gradient, shift, dim=0, clear=False)
            T.copy(scale, dw[bx * block_N])
            T.copy(shift, db[bx * block_N])
            for k in T.serial(T.ceildiv(M, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = k * block_M + i, bx * block_N + j
                    x = (X[row, column] - m[column]) * r[column]
                    part = G[row, column] - (shift[j] + x * scale[j]) / M
                    D[row, column] = w[column] * r[column] * part
        return D, dw, db

    return batch_norm_backward


def attentive_statistics(B: int, L: int, C: int, block_L: int, block_C: int) -> Any:
    """Means of the columns of X (B, L, C), bfloat16, and roots of their mean squares about them,
    with the weights `softmax(S, dim=1)` of S (B, L, C), float32: (B, C) each, float32.
    """

    @T.prim_func
    def attentive_statistics(X: T.Tensor((B, L, C), "bfloat16"), S: T.Tensor((B, L, C), "float32")):
        mean, spread = T.empty((B, C), "float32"), T.empty((B, C), "float32")
        with T.Kernel(T.ceildiv(C, block_C), B) as (bx, b):
            value = T.alloc_fragment((block_L, block_C), "float32")
            weight = T.alloc_fragment((block_L, block_C), "float32")
            square = T.alloc_fragment((block_L, block_C), "float32")
            most = T.alloc_fragment((block_C,), "float32")
            before = T.alloc_fragment((block_C,), "float32")
            first = T.alloc_fragment((block_C,), "float32")
            second = T.alloc_fragment((block_C,), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            T.fill(most, LOWEST)
            T.clear(first)
            T.clear(second)
            T.clear(total)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[b, k * block_L, bx * block_C], value)
                T.copy(S[b, k * block_L, bx * block_C], weight)
                T.copy(most, before)
                T.reduce_max(weight, most, dim=0, clear=False)
                for j in T.Parallel(block_C):
                    shrink = T.exp(before[j] - most[j])
                    total[j] = total[j] * shrink
                    first[j] = first[j] * shrink
                    second[j] = second[j] * shrink
                for i, j in T.Parallel(block_L, block_C):
                    weight[i, j] = T.exp(weight[i, j] - most[j])
                    square[i, j] = weight[i, j] * value[i, j] * value[i, j]
                    value[i, j] = weight[i, j] * value[i, j]
                T.reduce_sum(weight, total, dim=0, clear=False)
                T.reduce_sum(value, first, dim=0, clear=False)
                T.reduce_sum(square, second, dim=0, clear=False)
            for j in T.Parallel(block_C):
                middle = first[j] / total[j]
                mean[b, bx * block_C + j] = middle
                variance = second[j] / total[j] - middle * middle
                spread[b, bx * block_C + j] = T.sqrt(T.max(variance, 1e-6))
        return mean, spread

    return attentive_statistics


CASES = (
    Case(
        "softmax of columns 256x2048",
        column_softmax,
        {"M": 256, "N": 2048},
        {"block_N": (16, 32, 64, 128, 256, 512)},
    ),
    Case("columns of length 1, 1024x1024", unit_columns, {"M": 1024, "N": 1024}, COLUMNS),
    Case(
        "batch norm 1024x768",
        batch_norm,
        {"M": 1024, "N": 768},
        {"block_M": (1, 8, 64, 256), "block_N": (16, 64, 256)},
    ),
    Case(
        "response norm 6x196x384",
        response_norm,
        {"B": 6, "P": 196, "C": 384},
        {"block_P": (1, 7, 49, 196), "block_C": (8, 32, 128, 384)},
    ),
    Case(
        "batch norm backward 1500x640",
        batch_norm_backward,
        {"M": 1500, "N": 640},
        {"block_M": (1, 10, 100, 1500), "block_N": (8, 40, 160, 640)},
    ),
    Case(
        "attentive statistics 4x300x360, bfloat16",
        attentive_statistics,
        {"B": 4, "L": 300, "C": 360},
        {"block_L": (1, 10, 60, 300), "block_C": (8, 40, 120, 360)},
    ),
)
