"""Kernels for `cost_cases.py` that were written, with their configurations, after the model was
changed with those of `cost_unseen_kernels.py` in view, and before it or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def edges(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """Lengths of gradients by central differences, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def edges(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                down = X[row + 2, column + 1] - X[row, column + 1]
                along = X[row + 1, column + 2] - X[row + 1, column]
                Y[row, column] = T.sqrt(down * down + along * along)
        return Y

    return edges


def weighted_norms(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sqrt(sum(w * X * X))` of rows of X (M, N) with w (N,), float32, in pieces."""

    @T.prim_func
    def weighted_norms(X: T.Tensor((M, N), "float32"), w: T.Tensor((N,), "float32")):
        Y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            weight = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(w[k * block_N], weight)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = weight[j] * x[i, j] * x[i, j]
                T.reduce_sum(x, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                Y[bx * block_M + i] = T.sqrt(total[i])
        return Y

    return weighted_norms


def outer_softplus(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`log(1 + exp(a[i] + b[j]))` of a (M,) and b (N,), float32."""

    @T.prim_func
    def outer_softplus(a: T.Tensor((M,), "float32"), b: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                total = a[by * block_M + i] + b[bx * block_N + j]
                Y[by * block_M + i, bx * block_N + j] = T.log(1.0 + T.exp(total))
        return Y

    return outer_softplus


def column_moments(M: int, N: int, block_M: int = 64, block_N: int = 64) -> Any:
    """Means and largest elements of the columns of X (M, N), float32."""

    @T.prim_func
    def column_moments(X: T.Tensor((M, N), "float32")):
        means, largest = T.empty((N,), "float32"), T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            T.fill(most, -1e30)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
                T.reduce_max(tile, most, dim=0, clear=False)
            for j in T.Parallel(block_N):
                means[bx * block_N + j] = total[j] / float(M)
                largest[bx * block_N + j] = most[j]
        return means, largest

    return column_moments


def mixed(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`c[i] * X + (1 - c[i]) * Y` of X and Y (M, N) with c (M,), float32, from tiles."""

    @T.prim_func
    def mixed(
        X: T.Tensor((M, N), "float32"),
        Y: T.Tensor((M, N), "float32"),
        c: T.Tensor((M,), "float32"),
    ):
        Z = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], x)
            T.copy(Y[by * block_M, bx * block_N], y)
            for i, j in T.Parallel(block_M, block_N):
                part = c[by * block_M + i]
                x[i, j] = part * x[i, j] + (1.0 - part) * y[i, j]
            T.copy(x, Z[by * block_M, bx * block_N])
        return Z

    return mixed


def scaled_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(A * s) @ B.T` of A (M, K), s (K,) and B (N, K), float32."""

    @T.prim_func
    def scaled_product(
        A: T.Tensor((M, K), "float32"),
        s: T.Tensor((K,), "float32"),
        B: T.Tensor((N, K), "float32"),
    ):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    left[i, j] = A[by * block_M + i, k * block_K + j] * s[k * block_K + j]
                T.copy(B[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, C[by * block_M, bx * block_N])
        return C

    return scaled_product


def plane_means(C: int, M: int, N: int, block_M: int = 8, block_C: int = 1) -> Any:
    """Means of the planes of X (C, M, N), float32, `block_M` rows of `block_C` planes at a time."""

    @T.prim_func
    def plane_means(X: T.Tensor((C, M, N), "float32")):
        Y = T.empty((C,), "float32")
        with T.Kernel(T.ceildiv(C, block_C)) as bx:
            tile = T.alloc_fragment((block_C, N), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.clear(tile)
                for row in T.serial(block_M):
                    for i, j in T.Parallel(block_C, N):
                        tile[i, j] = tile[i, j] + X[bx * block_C + i, k * block_M + row, j]
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(block_C):
                Y[bx * block_C + i] = total[i] / float(M * N)
        return Y

    return plane_means


def scores(M: int, N: int, D: int, block_M: int = 32, block_N: int = 64) -> Any:
    """`sigmoid(Q @ K.T)` of Q (M, D) and K (N, D), float32, whole D at once."""

    @T.prim_func
    def scores(Q: T.Tensor((M, D), "float32"), K: T.Tensor((N, D), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, D), "float32")
            right = T.alloc_shared((block_N, D), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            T.copy(Q[by * block_M, 0], left)
            T.copy(K[bx * block_N, 0], right)
            T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = 1.0 / (1.0 + T.exp(-total[i, j]))
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return scores
