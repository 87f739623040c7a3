"""Products that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def complex_product(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(A + 1j * B) @ (C + 1j * D)` by three products of A and B (M, K), C and D (K, N), float32,
    as its real and its imaginary part.
    """

    @T.prim_func
    def complex_product(
        A: T.Tensor((M, K), "float32"),
        B: T.Tensor((M, K), "float32"),
        C: T.Tensor((K, N), "float32"),
        D: T.Tensor((K, N), "float32"),
    ):
        real, imaginary = T.empty((M, N), "float32"), T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            first = T.alloc_fragment((block_M, block_N), "float32")
            second = T.alloc_fragment((block_M, block_N), "float32")
            third = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(first)
            T.clear(second)
            T.clear(third)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    row, column = by * block_M + i, k * block_K + j
                    left[i, j] = A[row, column] + B[row, column]
                T.copy(C[k * block_K, bx * block_N], right)
                T.gemm(left, right, first)
                T.copy(A[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_K, block_N):
                    right[i, j] = D[k * block_K + i, bx * block_N + j] - right[i, j]
                T.gemm(left, right, second)
                T.copy(B[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_K, block_N):
                    right[i, j] = right[i, j] + 2.0 * C[k * block_K + i, bx * block_N + j]
                T.gemm(left, right, third)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                real[row, column] = first[i, j] - third[i, j]
                imaginary[row, column] = first[i, j] + second[i, j]
        return real, imaginary

    return complex_product


def graph_layer(M: int, N: int, K: int, S: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`relu(mean(X[near[i]]) @ W)` of the S neighbours of each i, near (M, S), int32, of X (M, K)
    and W (K, N), bfloat16, as float32 (M, N).
    """

    @T.prim_func
    def graph_layer(
        X: T.Tensor((M, K), "bfloat16"),
        near: T.Tensor((M, S), "int32"),
        W: T.Tensor((K, N), "bfloat16"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            sums = T.alloc_fragment((block_M, block_K), "float32")
            means = T.alloc_shared((block_M, block_K), "bfloat16")
            weights = T.alloc_shared((block_K, block_N), "bfloat16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.clear(sums)
                for s in T.serial(S):
                    for i, j in T.Parallel(block_M, block_K):
                        row = near[by * block_M + i, s]
                        sums[i, j] = sums[i, j] + X[row, k * block_K + j]
                for i, j in T.Parallel(block_M, block_K):
                    means[i, j] = sums[i, j] / S
                T.copy(W[k * block_K, bx * block_N], weights)
                T.gemm(means, weights, total)
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = T.max(total[i, j], 0.0)
        return Y

    return graph_layer


def orthogonal_step(B: int, M: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`1.5 * X - 0.5 * (X @ X.mT) @ X` of X (B, M, K), float32, a step of Newton and Schulz towards
    rows that are orthogonal; each block has `X @ X.mT` of its rows made for itself.
    """

    @T.prim_func
    def orthogonal_step(X: T.Tensor((B, M, K), "float32")):
        Y = T.empty((B, M, K), "float32")
        grid = T.ceildiv(K, block_N), T.ceildiv(M, block_M), B
        with T.Kernel(*grid) as (bx, by, b):
            some = T.alloc_shared((block_M, block_K), "float32")
            every = T.alloc_shared((M, block_K), "float32")
            columns = T.alloc_shared((M, block_N), "float32")
            dots = T.alloc_fragment((block_M, M), "float32")
            held = T.alloc_shared((block_M, M), "float32")
            out = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(dots)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[b, by * block_M, k * block_K], some)
                T.copy(X[b, 0, k * block_K], every)
                T.gemm(some, every, dots, transpose_B=True)
            T.copy(dots, held)
            T.copy(X[b, 0, bx * block_N], columns)
            T.gemm(held, columns, out, clear_accum=True)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[b, row, column] = 1.5 * X[b, row, column] - 0.5 * out[i, j]
        return Y

    return orthogonal_step


def factor_gradient(M: int, N: int, R: int, block_M: int, block_N: int) -> Any:
    """`where(G > 0, U @ V.T - G, 0) @ V / N` of grades G (M, N) with factors U (M, R) and V (N, R),
    float16, as float32 (M, R): where no grade is, none is missed.
    """

    @T.prim_func
    def factor_gradient(
        U: T.Tensor((M, R), "float16"),
        V: T.Tensor((N, R), "float16"),
        G: T.Tensor((M, N), "float16"),
    ):
        D = T.empty((M, R), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            users = T.alloc_shared((block_M, R), "float16")
            things = T.alloc_shared((block_N, R), "float16")
            guess = T.alloc_fragment((block_M, block_N), "float32")
            off = T.alloc_shared((block_M, block_N), "float16")
            total = T.alloc_fragment((block_M, R), "float32")
            T.clear(total)
            T.copy(U[bx * block_M, 0], users)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(V[n * block_N, 0], things)
                T.gemm(users, things, guess, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    grade = G[bx * block_M + i, n * block_N + j]
                    off[i, j] = T.if_then_else(grade > 0.0, guess[i, j] - grade, 0.0)
                T.gemm(off, things, total)
            for i, j in T.Parallel(block_M, R):
                D[bx * block_M + i, j] = total[i, j] / N
        return D

    return factor_gradient


CASES: tuple[Case, ...] = (
    Case(
        "complex product 90x240x300",
        complex_product,
        {"M": 90, "N": 240, "K": 300},
        {"block_M": (1, 9, 90), "block_N": (8, 48, 240), "block_K": (12, 60, 300)},
    ),
    Case(
        "layer of a graph 400x192x160, 10 neighbours, bfloat16",
        graph_layer,
        {"M": 400, "N": 192, "K": 160, "S": 10},
        {"block_M": (1, 8, 50, 400), "block_N": (8, 48, 192), "block_K": (16, 160)},
    ),
    Case(
        "step to orthogonal rows 3x48x400",
        orthogonal_step,
        {"B": 3, "M": 48, "K": 400},
        {"block_M": (1, 6, 48), "block_N": (40, 100, 400), "block_K": (8, 50, 400)},
    ),
    Case(
        "gradient of factors 240x600, rank 24, float16",
        factor_gradient,
        {"M": 240, "N": 600, "R": 24},
        {"block_M": (1, 8, 48, 240), "block_N": (8, 40, 200, 600)},
    ),
)
