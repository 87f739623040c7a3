"""Kernels for `cost_cases.py` that were written, with their configurations, before the model or the
clock had seen any of them.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def divergences(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum(p * (log(p) - q))` of rows of P and logarithms Q, (M, N) of float32, in pieces."""

    @T.prim_func
    def divergences(P: T.Tensor((M, N), "float32"), Q: T.Tensor((M, N), "float32")):
        D = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            p = T.alloc_fragment((block_M, block_N), "float32")
            q = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(P[bx * block_M, k * block_N], p)
                T.copy(Q[bx * block_M, k * block_N], q)
                for i, j in T.Parallel(block_M, block_N):
                    share = T.abs(p[i, j]) + 1e-6
                    q[i, j] = share * (T.log(share) - q[i, j])
                T.reduce_sum(q, total, dim=1, clear=False)
            T.copy(total, D[bx * block_M])
        return D

    return divergences


def box_filter(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """The mean of 3 x 3 neighbours, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def box_filter(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for down in T.serial(3):
                for along in T.serial(3):
                    for i, j in T.Parallel(block_M, block_N):
                        row, column = by * block_M + i + down, bx * block_N + j + along
                        total[i, j] = total[i, j] + X[row, column]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] / 9.0
        return Y

    return box_filter


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


def low_rank(M: int, N: int, K: int, R: int, block_M: int = 32, block_N: int = 64) -> Any:
    """`(X @ U) @ V` of X (M, K), U (K, R) and V (R, N), float32; each block has `X @ U` of its
    rows.
    """

    @T.prim_func
    def low_rank(
        X: T.Tensor((M, K), "float32"),
        U: T.Tensor((K, R), "float32"),
        V: T.Tensor((R, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_shared((block_M, K), "float32")
            u = T.alloc_shared((K, R), "float32")
            v = T.alloc_shared((R, block_N), "float32")
            inner = T.alloc_fragment((block_M, R), "float32")
            held = T.alloc_shared((block_M, R), "float32")
            out = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(inner)
            T.copy(X[bx * block_M, 0], x)
            T.copy(U, u)
            T.gemm(x, u, inner)
            T.copy(inner, held)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(V[0, n * block_N], v)
                T.clear(out)
                T.gemm(held, v, out)
                T.copy(out, Y[bx * block_M, n * block_N])
        return Y

    return low_rank


def gram_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`A.T @ B` of A (K, M) and B (K, N), bfloat16 with sums in float32."""

    @T.prim_func
    def gram_product(A: T.Tensor((K, M), "bfloat16"), B: T.Tensor((K, N), "bfloat16")):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_K, block_M), "bfloat16")
            right = T.alloc_shared((block_K, block_N), "bfloat16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[k * block_K, by * block_M], left)
                T.copy(B[k * block_K, bx * block_N], right)
                T.gemm(left, right, total, transpose_A=True)
            T.copy(total, C[by * block_M, bx * block_N])
        return C

    return gram_product


def thin_update(M: int, N: int, K: int, block_M: int = 32, block_N: int = 64) -> Any:
    """`C + A @ B.T` of C (M, N), A (M, K) and B (N, K), float32, for a small K."""

    @T.prim_func
    def thin_update(
        C: T.Tensor((M, N), "float32"),
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((N, K), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, K), "float32")
            right = T.alloc_shared((block_N, K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(C[by * block_M, bx * block_N], total)
            T.copy(A[by * block_M, 0], left)
            T.copy(B[bx * block_N, 0], right)
            T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return thin_update


def middle_max(M: int, S: int, N: int, block_S: int = 8, block_N: int = 64) -> Any:
    """`X.amax(1)` of X (M, S, N), float32, `block_S` of S at a time."""

    @T.prim_func
    def middle_max(X: T.Tensor((M, S, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), M) as (bx, by):
            tile = T.alloc_fragment((block_S, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.fill(most, -1e30)
            for k in T.serial(T.ceildiv(S, block_S)):
                for i, j in T.Parallel(block_S, block_N):
                    tile[i, j] = X[by, k * block_S + i, bx * block_N + j]
                T.reduce_max(tile, most, dim=0, clear=False)
            T.copy(most, Y[by, bx * block_N])
        return Y

    return middle_max


def biased_silu(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`silu(X + b)` of X (M, N) of bfloat16 and b (N,) of float32, through a tile of float32."""

    @T.prim_func
    def biased_silu(X: T.Tensor((M, N), "bfloat16"), b: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            bias = T.alloc_fragment((block_N,), "float32")
            T.copy(X[by * block_M, bx * block_N], tile)
            T.copy(b[bx * block_N], bias)
            for i, j in T.Parallel(block_M, block_N):
                value = tile[i, j] + bias[j]
                tile[i, j] = value / (1.0 + T.exp(-value))
            T.copy(tile, Y[by * block_M, bx * block_N])
        return Y

    return biased_silu
