"""Kernels for `cost_cases.py` that were written, with their configurations, after reductions were
fused with what they read, and before the model or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def relu_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`relu(A) @ B + bias` of A (M, K), B (K, N) and bias (N,), float32."""

    @T.prim_func
    def relu_linear(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((K, N), "float32"),
        bias: T.Tensor((N,), "float32"),
    ):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    left[i, j] = T.max(A[by * block_M + i, k * block_K + j], 0.0)
                T.copy(B[k * block_K, bx * block_N], right)
                T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = total[i, j] + bias[bx * block_N + j]
        return C

    return relu_linear


def gram_matrices(B: int, M: int, N: int, block_M: int, block_N: int) -> Any:
    """`X[b].T @ X[b]` of X (B, M, N), float32."""

    @T.prim_func
    def gram_matrices(X: T.Tensor((B, M, N), "float32")):
        C = T.empty((B, N, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(N, block_M), B) as (bx, by, bz):
            left = T.alloc_shared((M, block_M), "float32")
            right = T.alloc_shared((M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            T.copy(X[bz, 0, by * block_M], left)
            T.copy(X[bz, 0, bx * block_N], right)
            T.gemm(left, right, total, transpose_A=True)
            T.copy(total, C[bz, by * block_M, bx * block_N])
        return C

    return gram_matrices


def kernel_sums(M: int, N: int, block_M: int = 8, block_N: int = 64) -> Any:
    """`sum(w[j] * exp(-|a[i] - b[j]|))` over j, of a (M,), b and w (N,), float32."""

    @T.prim_func
    def kernel_sums(
        a: T.Tensor((M,), "float32"), b: T.Tensor((N,), "float32"), w: T.Tensor((N,), "float32")
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    away = T.abs(a[bx * block_M + i] - b[k * block_N + j])
                    part[i, j] = w[k * block_N + j] * T.exp(-away)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, y[bx * block_M])
        return y

    return kernel_sums


def dilated(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`sum(w[t] * X[i, j + 4 * t])` over five taps, (M, N + 16) to (M, N) of float32."""

    @T.prim_func
    def dilated(X: T.Tensor((M, N + 16), "float32"), w: T.Tensor((5,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(5):
                for i, j in T.Parallel(block_M, block_N):
                    value = X[by * block_M + i, bx * block_N + j + 4 * t]
                    total[i, j] = total[i, j] + w[t] * value
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return dilated


def column_ranges(M: int, N: int, block_M: int = 64, block_N: int = 64) -> Any:
    """Largest less smallest elements of the columns of X (M, N), float32."""

    @T.prim_func
    def column_ranges(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            least = T.alloc_fragment((block_N,), "float32")
            T.fill(most, -1e30)
            T.fill(least, 1e30)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_max(tile, most, dim=0, clear=False)
                T.reduce_min(tile, least, dim=0, clear=False)
            for j in T.Parallel(block_N):
                y[bx * block_N + j] = most[j] - least[j]
        return y

    return column_ranges


def counts(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """How many elements of each row of X (M, N), int32, are above those of t (M,), in pieces."""

    @T.prim_func
    def counts(X: T.Tensor((M, N), "int32"), t: T.Tensor((M,), "int32")):
        y = T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            above = T.alloc_fragment((block_M, block_N), "int32")
            total = T.alloc_fragment((block_M,), "int32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    is_above = X[bx * block_M + i, k * block_N + j] > t[bx * block_M + i]
                    above[i, j] = T.if_then_else(is_above, 1, 0)
                T.reduce_sum(above, total, dim=1, clear=False)
            T.copy(total, y[bx * block_M])
        return y

    return counts


def gated_update(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`X + g * tanh(Z)` of X and Z (M, N) and g (N,), bfloat16."""

    @T.prim_func
    def gated_update(
        X: T.Tensor((M, N), "bfloat16"),
        Z: T.Tensor((M, N), "bfloat16"),
        g: T.Tensor((N,), "bfloat16"),
    ):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                gate = T.cast(g[column], "float32") * T.tanh(T.cast(Z[row, column], "float32"))
                Y[row, column] = T.cast(T.cast(X[row, column], "float32") + gate, "bfloat16")
        return Y

    return gated_update


def row_statistics(M: int, N: int, block_M: int = 1) -> Any:
    """Means, and roots of mean squares about them, of rows of X (M, N), float32, whole rows."""

    @T.prim_func
    def row_statistics(X: T.Tensor((M, N), "float32")):
        mean, deviation = T.empty((M,), "float32"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            squares = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.reduce_sum(tile, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                away = tile[i, j] - total[i] / float(N)
                tile[i, j] = away * away
            T.reduce_sum(tile, squares, dim=1)
            for i in T.Parallel(block_M):
                mean[bx * block_M + i] = total[i] / float(N)
                deviation[bx * block_M + i] = T.sqrt(squares[i] / float(N))
        return mean, deviation

    return row_statistics
