"""Kernels for `cost_cases.py` that were held out when the time model was first read off the code
that LLVM makes, and have been looked at since.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


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


def batched_gemv(B: int, M: int, K: int, block_M: int = 4, block_K: int = 256) -> Any:
    """`Y[b] = A[b] @ x[b]` of A (B, M, K) and x (B, K), float32."""

    @T.prim_func
    def batched_gemv(A: T.Tensor((B, M, K), "float32"), X: T.Tensor((B, K), "float32")):
        Y = T.empty((B, M), "float32")
        with T.Kernel(T.ceildiv(M, block_M), B) as (bx, bz):
            product = T.alloc_fragment((block_M, block_K), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    column = k * block_K + j
                    product[i, j] = A[bz, bx * block_M + i, column] * X[bz, column]
                T.reduce_sum(product, total, dim=1, clear=False)
            T.copy(total, Y[bz, bx * block_M])
        return Y

    return batched_gemv


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


def radial_kernel(M: int, N: int, D: int, block_M: int, block_N: int, block_D: int) -> Any:
    """`exp(-|a - b|**2)` of the rows a of A (M, D) and b of B (N, D), whose squares are given."""

    @T.prim_func
    def radial_kernel(
        A: T.Tensor((M, D), "float32"),
        B: T.Tensor((N, D), "float32"),
        a: T.Tensor((M,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        K = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_D), "float32")
            right = T.alloc_shared((block_N, block_D), "float32")
            dot = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(dot)
            for k in T.Pipelined(T.ceildiv(D, block_D), num_stages=2):
                T.copy(A[by * block_M, k * block_D], left)
                T.copy(B[bx * block_N, k * block_D], right)
                T.gemm(left, right, dot, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                far = a[by * block_M + i] + b[bx * block_N + j] - 2.0 * dot[i, j]
                dot[i, j] = T.exp(-T.max(far, 0.0) / D)
            T.copy(dot, K[by * block_M, bx * block_N])
        return K

    return radial_kernel


def entropies(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`-sum(p log(p + tiny))` of the rows of an (M, N) float32 matrix, in pieces of `block_N`."""

    @T.prim_func
    def entropies(P: T.Tensor((M, N), "float32")):
        H = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(P[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    share = T.abs(tile[i, j])
                    tile[i, j] = -share * T.log(share + 1e-9)
                T.reduce_sum(tile, total, dim=1, clear=False)
            T.copy(total, H[bx * block_M])
        return H

    return entropies


def moving_average(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """The mean of eight rows that follow each other, (M + 7, N) to (M, N) of float32."""

    @T.prim_func
    def moving_average(X: T.Tensor((M + 7, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(8):
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] + X[by * block_M + i + t, bx * block_N + j]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] * 0.125
        return Y

    return moving_average


def soft_values(M: int, N: int, D: int, block_M: int = 32, block_N: int = 64) -> Any:
    """`exp(S) @ V` over the sums of its rows, of S (M, N) and V (N, D), float32."""

    @T.prim_func
    def soft_values(S: T.Tensor((M, N), "float32"), V: T.Tensor((N, D), "float32")):
        Y = T.empty((M, D), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            values = T.alloc_shared((block_N, D), "float32")
            out = T.alloc_fragment((block_M, D), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(out)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(S[bx * block_M, k * block_N], scores)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp(scores[i, j])
                T.reduce_sum(scores, total, dim=1, clear=False)
                T.copy(scores, weights)
                T.copy(V[k * block_N, 0], values)
                T.gemm(weights, values, out)
            for i, j in T.Parallel(block_M, D):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, Y[bx * block_M, 0])
        return Y

    return soft_values


def scaled_bytes_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(s * A) @ B` of A (M, K) of int8, s (M,) and B (K, N) of float32."""

    @T.prim_func
    def scaled_bytes_product(
        A: T.Tensor((M, K), "int8"),
        s: T.Tensor((M,), "float32"),
        B: T.Tensor((K, N), "float32"),
    ):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    left[i, j] = T.cast(A[by * block_M + i, k * block_K + j], "float32")
                T.copy(B[k * block_K, bx * block_N], right)
                T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = total[i, j] * s[by * block_M + i]
            T.copy(total, C[by * block_M, bx * block_N])
        return C

    return scaled_bytes_product
