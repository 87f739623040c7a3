"""Products whose factors are products."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def mlp(M: int, K: int, H: int, N: int, block_M: int, block_H: int) -> Any:
    """`relu(X @ U)**2 @ V` of X (M, K), U (K, H) and V (H, N), float32, by pieces of H."""

    @T.prim_func
    def mlp(
        X: T.Tensor((M, K), "float32"),
        U: T.Tensor((K, H), "float32"),
        V: T.Tensor((H, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_shared((block_M, K), "float32")
            u = T.alloc_shared((K, block_H), "float32")
            v = T.alloc_shared((block_H, N), "float32")
            inner = T.alloc_fragment((block_M, block_H), "float32")
            out = T.alloc_fragment((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.clear(out)
            for h in T.serial(T.ceildiv(H, block_H)):
                T.copy(U[0, h * block_H], u)
                T.copy(V[h * block_H, 0], v)
                T.gemm(x, u, inner, clear_accum=True)
                for i, j in T.Parallel(block_M, block_H):
                    inner[i, j] = T.max(inner[i, j], 0.0) * T.max(inner[i, j], 0.0)
                T.gemm(inner, v, out)
            T.copy(out, Y[bx * block_M, 0])
        return Y

    return mlp


def adapted_linear(M: int, N: int, K: int, R: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ W.T + 2 (X @ A.T) @ B.T` of X (M, K), W (N, K), A (R, K) and B (N, R), float32, with a
    small R.
    """

    @T.prim_func
    def adapted_linear(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        A: T.Tensor((R, K), "float32"),
        B: T.Tensor((N, R), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            w = T.alloc_shared((block_N, block_K), "float32")
            a = T.alloc_shared((R, block_K), "float32")
            b = T.alloc_shared((block_N, R), "float32")
            held = T.alloc_shared((block_M, R), "float32")
            inner = T.alloc_fragment((block_M, R), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(inner)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * block_K], w)
                T.copy(A[0, k * block_K], a)
                T.gemm(x, w, total, transpose_B=True)
                T.gemm(x, a, inner, transpose_B=True)
            for i, r in T.Parallel(block_M, R):
                held[i, r] = 2.0 * inner[i, r]
            T.copy(B[bx * block_N, 0], b)
            T.gemm(held, b, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return adapted_linear


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


CASES = (
    Case(
        "two layers 256x128x512x128",
        mlp,
        {"M": 256, "K": 128, "H": 512, "N": 128},
        {"block_M": (8, 16, 32, 64, 128), "block_H": (16, 32, 64, 128)},
    ),
    Case(
        "adapted linear 192x448x640, rank 16",
        adapted_linear,
        {"M": 192, "N": 448, "K": 640, "R": 16},
        {"block_M": (1, 8, 48, 192), "block_N": (16, 64, 448), "block_K": (16, 80, 640)},
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
