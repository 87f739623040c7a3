"""Kernels as users write them for `cost_cases.py`, beside those of `cost_kernels.py`."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def transpose(M: int, N: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`Y = X.T` of an (M, N) float32 matrix, a tile at a time."""

    @T.prim_func
    def transpose(X: T.Tensor((M, N), "float32")):
        Y = T.empty((N, M), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], tile)
            for j, i in T.Parallel(block_N, block_M):
                Y[bx * block_N + j, by * block_M + i] = tile[i, j]
        return Y

    return transpose


def stencil(M: int, N: int, block_M: int = 16, block_N: int = 256) -> Any:
    """The mean of an element and its four neighbours, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def stencil(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                beside = X[row + 1, column] + X[row + 1, column + 2]
                across = X[row, column + 1] + X[row + 2, column + 1]
                Y[row, column] = (X[row + 1, column + 1] + beside + across) * 0.2
        return Y

    return stencil


def running_sums(M: int, N: int, block_M: int = 1) -> Any:
    """`Y[i, j] = sum(X[i, :j + 1])` of an (M, N) float32 matrix."""

    @T.prim_func
    def running_sums(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.cumsum(tile, dim=1)
            T.copy(tile, Y[bx * block_M, 0])
        return Y

    return running_sums


def gated(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`Y = A * sigmoid(A) * B` of (M, N) float32 matrices (SwiGLU)."""

    @T.prim_func
    def gated(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = A[row, column] * T.sigmoid(A[row, column]) * B[row, column]
        return Y

    return gated


def moments(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """The sums of x and of its squares of rows of an (M, N) float32 matrix, in pieces."""

    @T.prim_func
    def moments(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, 2), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            square = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, first, dim=1, clear=False)
                T.reduce_sum(square, second, dim=1, clear=False)
            for i in T.Parallel(block_M):
                Y[bx * block_M + i, 0] = first[i]
                Y[bx * block_M + i, 1] = second[i]
        return Y

    return moments


def row_range(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`max(x) - min(x)` of rows of an (M, N) float32 matrix, in pieces."""

    @T.prim_func
    def row_range(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            least = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -T.infinity("float32"))
            T.fill(least, T.infinity("float32"))
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.reduce_max(tile, most, dim=1, clear=False)
                T.reduce_min(tile, least, dim=1, clear=False)
            for i in T.Parallel(block_M):
                y[bx * block_M + i] = most[i] - least[i]
        return y

    return row_range


def weighted_columns(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = sum(w[i] * X[i, j] for i)` of an (M, N) float32 matrix (a transposed gemv)."""

    @T.prim_func
    def weighted_columns(X: T.Tensor((M, N), "float32"), w: T.Tensor((M,), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = X[k * block_M + i, bx * block_N + j] * w[k * block_M + i]
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return weighted_columns


def dequantise(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`Y[i, j] = (Q[i, j] - zero[i]) * scale[i]`: int8 to float32, (M, N)."""

    @T.prim_func
    def dequantise(
        Q: T.Tensor((M, N), "int8"),
        scale: T.Tensor((M,), "float32"),
        zero: T.Tensor((M,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = (T.cast(Q[row, column], "float32") - zero[row]) * scale[row]
        return Y

    return dequantise


def distances(M: int, N: int, K: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`D[i, j] = |a_i - b_j|**2` of rows of A (M, K) and B (N, K), float32, by one product."""

    @T.prim_func
    def distances(A: T.Tensor((M, K), "float32"), B: T.Tensor((N, K), "float32")):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_fragment((block_M, K), "float32")
            right = T.alloc_fragment((block_N, K), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(A[by * block_M, 0], left)
            T.copy(B[bx * block_N, 0], right)
            T.clear(product)
            T.gemm(left, right, product, transpose_B=True)
            for i, k in T.Parallel(block_M, K):
                left[i, k] = left[i, k] * left[i, k]
            for j, k in T.Parallel(block_N, K):
                right[j, k] = right[j, k] * right[j, k]
            T.reduce_sum(left, first, dim=1)
            T.reduce_sum(right, second, dim=1)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                D[row, column] = first[i] + second[j] - 2.0 * product[i, j]
        return D

    return distances
