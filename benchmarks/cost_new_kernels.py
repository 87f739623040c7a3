"""More kernels as users write them for `cost_cases.py`: other operations than in the other files.

They were held out when they were written, and have been looked at since.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def downsample(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """The mean of squares of two by two elements, (2 M, 2 N) to (M, N) of float32."""

    @T.prim_func
    def downsample(X: T.Tensor((2 * M, 2 * N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                upper = X[2 * row, 2 * column] + X[2 * row, 2 * column + 1]
                lower = X[2 * row + 1, 2 * column] + X[2 * row + 1, 2 * column + 1]
                Y[row, column] = (upper + lower) * 0.25
        return Y

    return downsample


def rank_one(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y = A + x y.T` of an (M, N) float32 matrix, through a tile."""

    @T.prim_func
    def rank_one(
        A: T.Tensor((M, N), "float32"),
        x: T.Tensor((M,), "float32"),
        y: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            left = T.alloc_fragment((block_M,), "float32")
            right = T.alloc_fragment((block_N,), "float32")
            T.copy(A[by * block_M, bx * block_N], tile)
            T.copy(x[by * block_M], left)
            T.copy(y[bx * block_N], right)
            for i, j in T.Parallel(block_M, block_N):
                tile[i, j] = tile[i, j] + left[i] * right[j]
            T.copy(tile, Y[by * block_M, bx * block_N])
        return Y

    return rank_one


def cosines(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum(x y) / sqrt(sum(x x) * sum(y y))` of rows of two (M, N) float32 matrices, in pieces."""

    @T.prim_func
    def cosines(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        C = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            both = T.alloc_fragment((block_M,), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.clear(both)
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                for i, j in T.Parallel(block_M, block_N):
                    product[i, j] = x[i, j] * y[i, j]
                    x[i, j] = x[i, j] * x[i, j]
                    y[i, j] = y[i, j] * y[i, j]
                T.reduce_sum(product, both, dim=1, clear=False)
                T.reduce_sum(x, first, dim=1, clear=False)
                T.reduce_sum(y, second, dim=1, clear=False)
            for i in T.Parallel(block_M):
                C[bx * block_M + i] = both[i] / T.sqrt(first[i] * second[i])
        return C

    return cosines


def quantise(M: int, N: int, block_M: int = 1) -> Any:
    """Rows of an (M, N) float32 matrix as int8 with a scale of `max(|x|) / 127` each."""

    @T.prim_func
    def quantise(X: T.Tensor((M, N), "float32")):
        Q = T.empty((M, N), "int8")
        scale = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            factor = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.reduce_absmax(tile, most, dim=1)
            for i in T.Parallel(block_M):
                factor[i] = 127.0 / most[i]
                scale[bx * block_M + i] = most[i] / 127.0
            for i, j in T.Parallel(block_M, N):
                Q[bx * block_M + i, j] = T.cast(T.round(tile[i, j] * factor[i]), "int8")
        return Q, scale

    return quantise


def polynomial(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`sum(x**n / (n + 1) for n in range(16))` of the elements of an (M, N) float32 matrix."""

    @T.prim_func
    def polynomial(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], x)
            T.fill(y, 1.0 / 16)
            for n in T.serial(15):
                for i, j in T.Parallel(block_M, block_N):
                    y[i, j] = y[i, j] * x[i, j] + 1.0 / (15.0 - T.cast(n, "float32"))
            T.copy(y, Y[by * block_M, bx * block_N])
        return Y

    return polynomial


def city_distances(M: int, N: int, K: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`D[i, j] = sum(|A[i, k] - B[k, j]| for k)` of A (M, K) and B (K, N), float32."""

    @T.prim_func
    def city_distances(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(K):
                for i, j in T.Parallel(block_M, block_N):
                    a, b = A[by * block_M + i, k], B[k, bx * block_N + j]
                    total[i, j] = total[i, j] + T.abs(a - b)
            T.copy(total, D[by * block_M, bx * block_N])
        return D

    return city_distances


def embed(M: int, N: int, words: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y[i] = W[words[i]] * scale + P[i]`: rows of a table and places, (M, N) of float32."""

    @T.prim_func
    def embed(
        index: T.Tensor((M,), "int32"),
        W: T.Tensor((words, N), "float32"),
        P: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = W[index[row], column] * 8.0 + P[row, column]
        return Y

    return embed


def decaying_sums(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[i, j] = a[j] * y[i - 1, j] + X[i, j]` down the columns of an (M, N) float32 matrix."""

    @T.prim_func
    def decaying_sums(X: T.Tensor((M, N), "float32"), a: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            state = T.alloc_fragment((block_N,), "float32")
            decay = T.alloc_fragment((block_N,), "float32")
            T.copy(a[bx * block_N], decay)
            T.clear(state)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i in T.serial(block_M):
                    for j in T.Parallel(block_N):
                        state[j] = state[j] * decay[j] + tile[i, j]
                        tile[i, j] = state[j]
                T.copy(tile, Y[k * block_M, bx * block_N])
        return Y

    return decaying_sums


def masked_error(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum((x - y)**2 where y is above 0)` of rows of two (M, N) float32 matrices, in pieces."""

    @T.prim_func
    def masked_error(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        E = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            squares = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    x, y = (
                        X[bx * block_M + i, k * block_N + j],
                        Y[bx * block_M + i, k * block_N + j],
                    )
                    squares[i, j] = T.if_then_else(y > 0.0, (x - y) * (x - y), 0.0)
                T.reduce_sum(squares, total, dim=1, clear=False)
            T.copy(total, E[bx * block_M])
        return E

    return masked_error
