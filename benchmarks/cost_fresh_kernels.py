"""Kernels for `cost_cases.py` that were written, with their configurations, after the model had
followed those of `cost_blind_kernels.py`, and before it or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def depthwise(H: int, W: int, C: int, block_H: int, block_W: int, block_C: int) -> Any:
    """3 x 3 convolution of each channel, X (H + 2, W + 2, C) and F (3, 3, C), float32."""

    @T.prim_func
    def depthwise(X: T.Tensor((H + 2, W + 2, C), "float32"), F: T.Tensor((3, 3, C), "float32")):
        Y = T.empty((H, W, C), "float32")
        with T.Kernel(T.ceildiv(C, block_C), T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (
            bx,
            by,
            bz,
        ):
            total = T.alloc_fragment((block_H, block_W, block_C), "float32")
            T.clear(total)
            for down, along in T.grid(3, 3):
                for i, j, c in T.Parallel(block_H, block_W, block_C):
                    row, column, channel = bz * block_H + i, by * block_W + j, bx * block_C + c
                    value = X[row + down, column + along, channel]
                    total[i, j, c] = total[i, j, c] + F[down, along, channel] * value
            T.copy(total, Y[bz * block_H, by * block_W, bx * block_C])
        return Y

    return depthwise


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


def max_pool(C: int, H: int, W: int, block_H: int, block_W: int) -> Any:
    """Maxima of 3 x 3 with stride 2, X (C, 2 * H + 1, 2 * W + 1) to (C, H, W), float32."""

    @T.prim_func
    def max_pool(X: T.Tensor((C, 2 * H + 1, 2 * W + 1), "float32")):
        Y = T.empty((C, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H), C) as (bx, by, c):
            most = T.alloc_fragment((block_H, block_W), "float32")
            T.fill(most, -T.infinity("float32"))
            for down, along in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    row, column = 2 * (by * block_H + i) + down, 2 * (bx * block_W + j) + along
                    most[i, j] = T.max(most[i, j], X[c, row, column])
            T.copy(most, Y[c, by * block_H, bx * block_W])
        return Y

    return max_pool


def first_largest(M: int, N: int, block_M: int, block_N: int) -> Any:
    """The places of the largest elements of the rows of X (M, N), float32, in pieces; int32."""

    @T.prim_func
    def first_largest(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            best = T.alloc_fragment((block_M, block_N), "float32")
            place = T.alloc_fragment((block_M, block_N), "int32")
            most = T.alloc_fragment((block_M,), "float32")
            first = T.alloc_fragment((block_M,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.clear(place)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    x = X[bx * block_M + i, k * block_N + j]
                    place[i, j] = T.if_then_else(x > best[i, j], k * block_N + j, place[i, j])
                    best[i, j] = T.max(x, best[i, j])
            T.reduce_max(best, most, dim=1)
            for i, j in T.Parallel(block_M, block_N):
                place[i, j] = T.if_then_else(best[i, j] == most[i], place[i, j], N)
            T.reduce_min(place, first, dim=1)
            T.copy(first, y[bx * block_M])
        return y

    return first_largest


def residual_swish(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`R + hardswish(X + b)` of R and X (M, N) and b (N,), float32."""

    @T.prim_func
    def residual_swish(
        R: T.Tensor((M, N), "float32"), X: T.Tensor((M, N), "float32"), b: T.Tensor((N,), "float32")
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                x = X[row, column] + b[column]
                Y[row, column] = R[row, column] + x * T.clamp(x + 3.0, 0.0, 6.0) / 6.0
        return Y

    return residual_swish
