"""Products that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def gaussian_densities(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`-0.5 * sum(exp(-S[k, n]) * (X[m, k] - U[k, n])**2 + S[k, n] for k)` of X (M, K), U and S (K,
    N), float32: logarithms of densities of N Gaussians, by products of X and of its squares.
    """

    @T.prim_func
    def gaussian_densities(
        X: T.Tensor((M, K), "float32"),
        U: T.Tensor((K, N), "float32"),
        S: T.Tensor((K, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            square = T.alloc_shared((block_M, block_K), "float32")
            sharp = T.alloc_shared((block_K, block_N), "float32")
            middle = T.alloc_shared((block_K, block_N), "float32")
            own = T.alloc_fragment((block_K, block_N), "float32")
            fixed = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(fixed)
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], x)
                for i, j in T.Parallel(block_M, block_K):
                    square[i, j] = -0.5 * x[i, j] * x[i, j]
                for i, j in T.Parallel(block_K, block_N):
                    row, column = k * block_K + i, bx * block_N + j
                    sharp[i, j] = T.exp(-S[row, column])
                    middle[i, j] = U[row, column] * sharp[i, j]
                    own[i, j] = U[row, column] * middle[i, j] + S[row, column]
                T.gemm(square, sharp, total)
                T.gemm(x, middle, total)
                T.reduce_sum(own, fixed, dim=0, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] - 0.5 * fixed[j]
        return Y

    return gaussian_densities


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


def linear_attention(H: int, L: int, D: int, E: int, block_L: int, block_E: int) -> Any:
    """`q @ (k.T @ V) / (q @ sum(k))`, q and k `x + 1` where x > 0, else `exp(x)`, of the heads of Q
    and K (H, L, D) and V (H, L, E), bfloat16, as float32 (H, L, E).
    """

    def positive(x: Any) -> Any:
        return T.if_then_else(x > 0.0, x + 1.0, T.exp(x))

    @T.prim_func
    def linear_attention(
        Q: T.Tensor((H, L, D), "bfloat16"),
        K: T.Tensor((H, L, D), "bfloat16"),
        V: T.Tensor((H, L, E), "bfloat16"),
    ):
        Y = T.empty((H, L, E), "float32")
        with T.Kernel(T.ceildiv(E, block_E), H) as (bx, h):
            rows = T.alloc_shared((block_L, D), "float32")
            values = T.alloc_shared((block_L, block_E), "float32")
            state = T.alloc_fragment((D, block_E), "float32")
            held = T.alloc_shared((D, block_E), "float32")
            weight = T.alloc_fragment((D,), "float32")
            share = T.alloc_fragment((block_L,), "float32")
            out = T.alloc_fragment((block_L, block_E), "float32")
            T.clear(state)
            T.clear(weight)
            for n in T.serial(T.ceildiv(L, block_L)):
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = positive(T.cast(K[h, n * block_L + i, d], "float32"))
                T.copy(V[h, n * block_L, bx * block_E], values)
                T.gemm(rows, values, state, transpose_A=True)
                T.reduce_sum(rows, weight, dim=0, clear=False)
            T.copy(state, held)
            for n in T.serial(T.ceildiv(L, block_L)):
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = positive(T.cast(Q[h, n * block_L + i, d], "float32"))
                T.gemm(rows, held, out, clear_accum=True)
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = rows[i, d] * weight[d]
                T.reduce_sum(rows, share, dim=1)
                for i, e in T.Parallel(block_L, block_E):
                    Y[h, n * block_L + i, bx * block_E + e] = out[i, e] / share[i]
        return Y

    return linear_attention


CASES: tuple[Case, ...] = (
    Case(
        "densities of Gaussians 150x320x60",
        gaussian_densities,
        {"M": 150, "N": 320, "K": 60},
        {"block_M": (1, 15, 150), "block_N": (8, 40, 320), "block_K": (4, 60)},
    ),
    Case(
        "convolution of bytes 36x40, 24 to 48 channels",
        bytes_convolution,
        {"H": 36, "W": 40, "C": 24, "F": 48},
        {"block_H": (1, 3, 12, 36), "block_W": (2, 8, 20, 40)},
    ),
    Case(
        "linear attention 6x360, 48 to 72, bfloat16",
        linear_attention,
        {"H": 6, "L": 360, "D": 48, "E": 72},
        {"block_L": (1, 8, 60, 360), "block_E": (6, 24, 72)},
    ),
)
