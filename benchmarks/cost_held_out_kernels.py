"""Kernels for `cost_cases.py` that were held out when they were written, and have been looked at
since.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def causal_convolution(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y[i, j] = sum(W[t, j] * X[i + t, j] for t in range(4))`, X (M + 3, N), W (4, N), float32."""

    @T.prim_func
    def causal_convolution(X: T.Tensor((M + 3, N), "float32"), W: T.Tensor((4, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(4):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = by * block_M + i, bx * block_N + j
                    total[i, j] = total[i, j] + W[t, column] * X[row + t, column]
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return causal_convolution


def huber(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """The sums of Huber's loss of rows of X and Y, (M, N) of float32, in pieces of `block_N`."""

    @T.prim_func
    def huber(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        E = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                for i, j in T.Parallel(block_M, block_N):
                    off = T.abs(x[i, j] - y[i, j])
                    x[i, j] = T.if_then_else(off < 1.0, 0.5 * off * off, off - 0.5)
                T.reduce_sum(x, total, dim=1, clear=False)
            T.copy(total, E[bx * block_M])
        return E

    return huber


def batched_products(B: int, M: int, N: int, K: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`C[b] = A[b] @ B[b]` of A (B, M, K) and B (B, K, N), float32."""

    @T.prim_func
    def batched_products(A: T.Tensor((B, M, K), "float32"), Right: T.Tensor((B, K, N), "float32")):
        C = T.empty((B, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), B) as (bx, by, bz):
            left = T.alloc_shared((block_M, K), "float32")
            right = T.alloc_shared((K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            T.copy(A[bz, by * block_M, 0], left)
            T.copy(Right[bz, 0, bx * block_N], right)
            T.gemm(left, right, total)
            T.copy(total, C[bz, by * block_M, bx * block_N])
        return C

    return batched_products


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


def column_variance(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`mean(x * x) - mean(x) ** 2` of the columns of an (M, N) float32 matrix."""

    @T.prim_func
    def column_variance(X: T.Tensor((M, N), "float32")):
        V = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_N,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, first, dim=0, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, second, dim=0, clear=False)
            for j in T.Parallel(block_N):
                V[bx * block_N + j] = second[j] / M - (first[j] / M) * (first[j] / M)
        return V

    return column_variance


def longest_paths(M: int, N: int, K: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`C[i, j] = max(A[i, k] + B[k, j] for k)` of A (M, K) and B (K, N), float32."""

    @T.prim_func
    def longest_paths(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, 32), "float32")
            right = T.alloc_shared((32, block_N), "float32")
            most = T.alloc_fragment((block_M, block_N), "float32")
            T.fill(most, -1e30)
            for step in T.serial(K // 32):
                T.copy(A[by * block_M, step * 32], left)
                T.copy(B[step * 32, bx * block_N], right)
                for k in T.serial(32):
                    for i, j in T.Parallel(block_M, block_N):
                        most[i, j] = T.max(most[i, j], left[i, k] + right[k, j])
            T.copy(most, C[by * block_M, bx * block_N])
        return C

    return longest_paths


def gated_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`sigmoid(X @ U) * (X @ V)` of X (M, K), U and V (K, N), float32."""

    @T.prim_func
    def gated_product(
        X: T.Tensor((M, K), "float32"),
        U: T.Tensor((K, N), "float32"),
        V: T.Tensor((K, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            u = T.alloc_shared((block_K, block_N), "float32")
            v = T.alloc_shared((block_K, block_N), "float32")
            gate = T.alloc_fragment((block_M, block_N), "float32")
            value = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(gate)
            T.clear(value)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(U[k * block_K, bx * block_N], u)
                T.copy(V[k * block_K, bx * block_N], v)
                T.gemm(x, u, gate)
                T.gemm(x, v, value)
            for i, j in T.Parallel(block_M, block_N):
                value[i, j] = value[i, j] / (1.0 + T.exp(-gate[i, j]))
            T.copy(value, Y[by * block_M, bx * block_N])
        return Y

    return gated_product


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
