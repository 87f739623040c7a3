"""Softmax and norms of rows, and their gradients."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import PIECES, ROWS, Case
from tileworkbench import kernels
from tileworkbench.kernels.flash_attention import LOWEST


def half_softmax(M: int, N: int, block_M: int = 1) -> Any:
    """`softmax(X)` of the rows of an (M, N) bfloat16 matrix, in float32 meanwhile."""

    @T.prim_func
    def half_softmax(X: T.Tensor((M, N), "bfloat16")):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.reduce_max(tile, most, dim=1)
            for i, j in T.Parallel(block_M, N):
                tile[i, j] = T.exp(tile[i, j] - most[i])
            T.reduce_sum(tile, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                tile[i, j] = tile[i, j] / total[i]
            T.copy(tile, Y[bx * block_M, 0])
        return Y

    return half_softmax


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


def group_norm(M: int, G: int, D: int, block_M: int = 1) -> Any:
    """Groups of D elements of X (M, G, D) with mean 0 and variance 1, float32."""

    @T.prim_func
    def group_norm(X: T.Tensor((M, G, D), "float32")):
        Y = T.empty((M, G, D), "float32")
        with T.Kernel(G, T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, D), "float32")
            square = T.alloc_fragment((block_M, D), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            variance = T.alloc_fragment((block_M,), "float32")
            for i, j in T.Parallel(block_M, D):
                tile[i, j] = X[by * block_M + i, bx, j]
            T.reduce_sum(tile, mean, dim=1)
            for i, j in T.Parallel(block_M, D):
                tile[i, j] = tile[i, j] - mean[i] / D
                square[i, j] = tile[i, j] * tile[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i in T.Parallel(block_M):
                variance[i] = T.rsqrt(variance[i] / D + 1e-5)
            for i, j in T.Parallel(block_M, D):
                Y[by * block_M + i, bx, j] = tile[i, j] * variance[i]
        return Y

    return group_norm


def turned_norm(L: int, H: int, D: int, block_L: int, block_H: int) -> Any:
    """Each `x = X[l, h]` of X (L, H, D), bfloat16, as `x / rms(x) * g`, with its halves then turned
    by the angles of l, whose cosines and sines (L, D // 2) are float32, as g (D,) is.
    """

    @T.prim_func
    def turned_norm(
        X: T.Tensor((L, H, D), "bfloat16"),
        g: T.Tensor((D,), "float32"),
        cosines: T.Tensor((L, D // 2), "float32"),
        sines: T.Tensor((L, D // 2), "float32"),
    ):
        Y = T.empty((L, H, D), "bfloat16")
        with T.Kernel(T.ceildiv(H, block_H), T.ceildiv(L, block_L)) as (bx, by):
            tile = T.alloc_fragment((block_L, block_H, D), "float32")
            square = T.alloc_fragment((block_L, block_H, D), "float32")
            rate = T.alloc_fragment((block_L, block_H), "float32")
            T.copy(X[by * block_L, bx * block_H, 0], tile)
            for i, h, d in T.Parallel(block_L, block_H, D):
                square[i, h, d] = tile[i, h, d] * tile[i, h, d]
            T.reduce_sum(square, rate, dim=2)
            for i, h in T.Parallel(block_L, block_H):
                rate[i, h] = T.rsqrt(rate[i, h] / D + 1e-6)
            for i, h, d in T.Parallel(block_L, block_H, D // 2):
                row, head = by * block_L + i, bx * block_H + h
                first = tile[i, h, d] * rate[i, h] * g[d]
                second = tile[i, h, d + D // 2] * rate[i, h] * g[d + D // 2]
                Y[row, head, d] = first * cosines[row, d] - second * sines[row, d]
                Y[row, head, d + D // 2] = second * cosines[row, d] + first * sines[row, d]
        return Y

    return turned_norm


def sparsemax(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`max(x - t, 0)` of the rows x of X (M, N), float32, with t such that the sum is 1: it is
    halved 20 times where t can be, and each time a row is read in pieces.
    """

    @T.prim_func
    def sparsemax(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            low = T.alloc_fragment((block_M,), "float32")
            middle = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(low, LOWEST)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], part)
                T.reduce_max(part, low, dim=1, clear=False)
            for i in T.Parallel(block_M):
                low[i] = low[i] - 1.0
            for step in T.serial(20):
                T.clear(total)
                for i in T.Parallel(block_M):
                    middle[i] = low[i] + T.exp2(-1.0 - T.cast(step, "float32"))
                for k in T.serial(T.ceildiv(N, block_N)):
                    for i, j in T.Parallel(block_M, block_N):
                        x = X[bx * block_M + i, k * block_N + j]
                        part[i, j] = T.max(x - middle[i], 0.0)
                    T.reduce_sum(part, total, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    low[i] = T.if_then_else(total[i] >= 1.0, middle[i], low[i])
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    Y[row, column] = T.max(X[row, column] - low[i], 0.0)
        return Y

    return sparsemax


def gated_norm(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`y / rms(y) * g`, y = x * silu(z), of rows x and z of X and Z (M, N), bfloat16, and g (N,),
    float32: read twice, in pieces.
    """

    @T.prim_func
    def gated_norm(
        X: T.Tensor((M, N), "bfloat16"),
        Z: T.Tensor((M, N), "bfloat16"),
        g: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            z = T.alloc_fragment((block_M, block_N), "float32")
            rate = T.alloc_fragment((block_M,), "float32")
            T.clear(rate)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Z[bx * block_M, k * block_N], z)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = x[i, j] * z[i, j] * T.sigmoid(z[i, j])
                    x[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(x, rate, dim=1, clear=False)
            for i in T.Parallel(block_M):
                rate[i] = T.rsqrt(rate[i] / N + 1e-6)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Z[bx * block_M, k * block_N], z)
                for i, j in T.Parallel(block_M, block_N):
                    column = k * block_N + j
                    x[i, j] = x[i, j] * z[i, j] * T.sigmoid(z[i, j]) * rate[i] * g[column]
                T.copy(x, Y[bx * block_M, k * block_N])
        return Y

    return gated_norm


CASES = (
    Case("softmax 2048x1024", kernels.softmax, {"M": 2048, "N": 1024}, {"block_M": ROWS}),
    Case("softmax of bfloat16 1024x2048", half_softmax, {"M": 1024, "N": 2048}, {"block_M": ROWS}),
    Case("online softmax 512x8192", kernels.online_softmax, {"M": 512, "N": 8192}, PIECES),
    Case("log_softmax 1024x1280", log_softmax, {"M": 1024, "N": 1280}, {"block_M": ROWS}),
    Case("softmax backward 1024x1024", softmax_backward, {"M": 1024, "N": 1024}, {"block_M": ROWS}),
    Case("layernorm 1024x1536", kernels.layernorm, {"M": 1024, "N": 1536}, {"block_M": ROWS}),
    Case(
        "add_layernorm 1024x1024", kernels.add_layernorm, {"M": 1024, "N": 1024}, {"block_M": ROWS}
    ),
    Case(
        "layernorm backward 2048x512",
        layernorm_backward,
        {"M": 2048, "N": 512},
        {"block_M": (*ROWS, 64)},
    ),
    Case(
        "layernorm backward with weights 1024x1024",
        kernels.layernorm_backward,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (16, 256, 1024)},
    ),
    Case("rmsnorm 2048x768", kernels.rmsnorm, {"M": 2048, "N": 768}, {"block_M": ROWS}),
    Case("add_rmsnorm 1024x2048", kernels.add_rmsnorm, {"M": 1024, "N": 2048}, {"block_M": ROWS}),
    Case(
        "rmsnorm backward 1024x1024",
        kernels.rmsnorm_backward,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (16, 256, 1024)},
    ),
    Case("normalise 512x8192", normalise, {"M": 512, "N": 8192}, PIECES),
    Case(
        "group norm 256x16x256", group_norm, {"M": 256, "G": 16, "D": 256}, {"block_M": (*ROWS, 64)}
    ),
    Case(
        "heads with norm and turned 360x10x48, bfloat16",
        turned_norm,
        {"L": 360, "H": 10, "D": 48},
        {"block_L": (1, 6, 40, 360), "block_H": (1, 2, 5, 10)},
    ),
    Case(
        "sparsemax 96x1500",
        sparsemax,
        {"M": 96, "N": 1500},
        {"block_M": (1, 4, 96), "block_N": (10, 30, 60, 150, 500, 1500)},
    ),
    Case(
        "gated rms norm 400x1600, bfloat16",
        gated_norm,
        {"M": 400, "N": 1600},
        {"block_M": (1, 5, 400), "block_N": (8, 16, 40, 80, 200, 1600)},
    ),
)
