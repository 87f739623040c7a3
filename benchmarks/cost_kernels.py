"""Kernels for `cost_cases.py` that the library has no page of."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def softmax_backward(M: int, N: int, block_M: int = 1) -> Any:
    """`dX = Y * (dY - sum(Y * dY))` of rows, all (M, N) of float32."""

    @T.prim_func
    def softmax_backward(Y: T.Tensor((M, N), "float32"), dY: T.Tensor((M, N), "float32")):
        dX = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            values = T.alloc_fragment((block_M, N), "float32")
            product = T.alloc_fragment((block_M, N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(Y[bx * block_M, 0], values)
            for i, j in T.Parallel(block_M, N):
                product[i, j] = values[i, j] * dY[bx * block_M + i, j]
            T.reduce_sum(product, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                dX[row, j] = values[i, j] * (dY[row, j] - total[i])
        return dX

    return softmax_backward


def log_sum_exp(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`y = log(sum(exp(x)))` of rows of an (M, N) float32 matrix, read in pieces of `block_N`."""

    @T.prim_func
    def log_sum_exp(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j])
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                y[bx * block_M + i] = T.log(total[i])
        return y

    return log_sum_exp


def column_max(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = max(abs(X[i, j]) for i)` of an (M, N) float32 matrix, a tile of rows at a time."""

    @T.prim_func
    def column_max(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.clear(most)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_absmax(tile, most, dim=0, clear=False)
            T.copy(most, y[bx * block_N])
        return y

    return column_max


def normalise(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`Y = X / sqrt(sum(X**2))` of rows, (M, N) of float32, read twice in pieces of `block_N`."""

    @T.prim_func
    def normalise(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                total[i] = T.rsqrt(total[i])
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    Y[row, column] = X[row, column] * total[i]
        return Y

    return normalise


def log_softmax(M: int, N: int, block_M: int = 1) -> Any:
    """`Y = X - max - log(sum(exp(X - max)))` of rows, all (M, N) of float32."""

    @T.prim_func
    def log_softmax(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            X_local = T.alloc_fragment((block_M, N), "float32")
            powers = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], X_local)
            T.reduce_max(X_local, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                powers[i, j] = T.exp(X_local[i, j] - row_max[i])
            T.reduce_sum(powers, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                Y[bx * block_M + i, j] = X_local[i, j] - row_max[i] - T.log(row_sum[i])
        return Y

    return log_softmax


def column_sums(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = sum(X[i, j] for i)` of an (M, N) float32 matrix, a tile of rows at a time."""

    @T.prim_func
    def column_sums(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return column_sums


def layernorm_backward(M: int, N: int, block_M: int = 1) -> Any:
    """The gradient of x in a normalisation of rows without weights: `(dy - mean(dy) - xhat *
    mean(dy * xhat)) * rstd`; X, dY and dX are (M, N), mean and rstd (M,), float32.
    """

    @T.prim_func
    def layernorm_backward(
        X: T.Tensor((M, N), "float32"),
        dY: T.Tensor((M, N), "float32"),
        mean: T.Tensor((M,), "float32"),
        rstd: T.Tensor((M,), "float32"),
    ):
        dX = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            normal = T.alloc_fragment((block_M, N), "float32")
            slope = T.alloc_fragment((block_M, N), "float32")
            product = T.alloc_fragment((block_M, N), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.copy(dY[bx * block_M, 0], slope)
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                normal[i, j] = (X[row, j] - mean[row]) * rstd[row]
                product[i, j] = normal[i, j] * slope[i, j]
            T.reduce_sum(slope, first, dim=1)
            T.reduce_sum(product, second, dim=1)
            for i, j in T.Parallel(block_M, N):
                row = bx * block_M + i
                dX[row, j] = (slope[i, j] - first[i] / N - normal[i, j] * second[i] / N) * rstd[row]
        return dX

    return layernorm_backward
