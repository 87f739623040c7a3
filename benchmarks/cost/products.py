"""Products of matrices, and of matrices with vectors."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench import kernels


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


def chosen_adapters(
    B: int, L: int, N: int, K: int, R: int, block_L: int, block_N: int, block_K: int
) -> Any:
    """`X[b] @ U[c] @ V[c] / R`, c = choice[b], of X (B, L, K), U (16, K, R) and V (16, R, N),
    float16, and choice (B,), int32: of adapters of rank R each request has its own.
    """

    @T.prim_func
    def chosen_adapters(
        X: T.Tensor((B, L, K), "float16"),
        U: T.Tensor((16, K, R), "float16"),
        V: T.Tensor((16, R, N), "float16"),
        choice: T.Tensor((B,), "int32"),
    ):
        Y = T.empty((B, L, N), "float16")
        grid = T.ceildiv(N, block_N), T.ceildiv(L, block_L), B
        with T.Kernel(*grid) as (bx, by, b):
            x = T.alloc_shared((block_L, block_K), "float16")
            u = T.alloc_shared((block_K, R), "float16")
            v = T.alloc_shared((R, block_N), "float16")
            inner = T.alloc_fragment((block_L, R), "float32")
            held = T.alloc_shared((block_L, R), "float16")
            out = T.alloc_fragment((block_L, block_N), "float32")
            T.clear(inner)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[b, by * block_L, k * block_K], x)
                T.copy(U[choice[b], k * block_K, 0], u)
                T.gemm(x, u, inner)
            for i, j in T.Parallel(block_L, R):
                held[i, j] = inner[i, j] / R
            T.copy(V[choice[b], 0, bx * block_N], v)
            T.gemm(held, v, out, clear_accum=True)
            T.copy(out, Y[b, by * block_L, bx * block_N])
        return Y

    return chosen_adapters


def weight_gradient(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X.T @ where(Y > 0, G, 0)` of X (M, K) and Y and G (M, N), bfloat16, as float32 (K, N): the
    gradient of the weights before a relu.
    """

    @T.prim_func
    def weight_gradient(
        X: T.Tensor((M, K), "bfloat16"),
        Y: T.Tensor((M, N), "bfloat16"),
        G: T.Tensor((M, N), "bfloat16"),
    ):
        D = T.empty((K, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(K, block_K)) as (bx, by):
            inputs = T.alloc_shared((block_M, block_K), "bfloat16")
            passed = T.alloc_shared((block_M, block_N), "bfloat16")
            total = T.alloc_fragment((block_K, block_N), "float32")
            T.clear(total)
            for m in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[m * block_M, by * block_K], inputs)
                for i, j in T.Parallel(block_M, block_N):
                    row, column = m * block_M + i, bx * block_N + j
                    passed[i, j] = T.if_then_else(Y[row, column] > 0.0, G[row, column], 0.0)
                T.gemm(inputs, passed, total, transpose_A=True)
            T.copy(total, D[by * block_K, bx * block_N])
        return D

    return weight_gradient


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


def sparse_step(M: int, K: int, block_M: int, block_K: int) -> Any:
    """`x + (b - A @ x) / d`, Jacobi's step, of x, b and d (M,) and A, K elements V of each row in
    the columns C, (M, K), int32, the others float32; in pieces of K.
    """

    @T.prim_func
    def sparse_step(
        V: T.Tensor((M, K), "float32"),
        C: T.Tensor((M, K), "int32"),
        x: T.Tensor((M,), "float32"),
        b: T.Tensor((M,), "float32"),
        d: T.Tensor((M,), "float32"),
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            product = T.alloc_fragment((block_M, block_K), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    row, column = bx * block_M + i, k * block_K + j
                    product[i, j] = V[row, column] * x[C[row, column]]
                T.reduce_sum(product, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                row = bx * block_M + i
                y[row] = x[row] + (b[row] - total[i]) / d[row]
        return y

    return sparse_step


CASES = (
    Case(
        "matmul 512, float32",
        kernels.matmul,
        {"M": 512, "N": 512, "K": 512, "dtype": "float32"},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_K": (16, 64)},
    ),
    Case(
        "matmul 384x768x256, bfloat16",
        kernels.matmul,
        {"M": 384, "N": 768, "K": 256, "dtype": "bfloat16"},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "split-k matmul 64x256x4096",
        kernels.split_k_matmul,
        {"M": 64, "N": 256, "K": 4096},
        {"block_M": (16, 32, 64), "block_N": (32, 64, 128), "splits": (2, 8)},
    ),
    Case(
        "linear 256x512x768",
        kernels.linear,
        {"M": 256, "N": 512, "K": 768},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 64)},
    ),
    Case(
        "gemv 2048x2048",
        kernels.gemv,
        {"N": 2048, "K": 2048},
        {"block_N": (1, 4, 16), "block_K": (16, 64, 256, 1024)},
    ),
    Case(
        "16 matrices 256x1024 by vectors",
        batched_gemv,
        {"B": 16, "M": 256, "K": 1024},
        {"block_M": (1, 4, 16), "block_K": (16, 64, 256, 1024)},
    ),
    Case(
        "32 products 64x96x64",
        batched_products,
        {"B": 32, "M": 64, "N": 96, "K": 64},
        {"block_M": (8, 16, 32, 64), "block_N": (16, 32, 96)},
    ),
    Case(
        "A.T @ B 256x384x512, bfloat16",
        gram_product,
        {"M": 256, "N": 384, "K": 512},
        {"block_M": (16, 32, 64, 128), "block_N": (32, 64, 128), "block_K": (32, 128)},
    ),
    Case(
        "16 Gram matrices 128x128",
        gram_matrices,
        {"B": 16, "M": 128, "N": 128},
        {"block_M": (8, 16, 32, 64), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "C + A @ B.T 1024x1024, K 16",
        thin_update,
        {"M": 1024, "N": 1024, "K": 16},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128, 256)},
    ),
    Case(
        "low rank 512x768x512, R 32",
        low_rank,
        {"M": 512, "N": 768, "K": 512, "R": 32},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (32, 64, 128, 256)},
    ),
    Case(
        "adapters chosen 6x30x240x320, rank 16, float16",
        chosen_adapters,
        {"B": 6, "L": 30, "N": 240, "K": 320, "R": 16},
        {"block_L": (1, 6, 30), "block_N": (8, 40, 240), "block_K": (16, 320)},
    ),
    Case(
        "gradient of weights 320x360x200, bfloat16",
        weight_gradient,
        {"M": 320, "N": 360, "K": 200},
        {"block_M": (16, 320), "block_N": (8, 72, 360), "block_K": (1, 20, 200)},
    ),
    Case(
        "complex product 90x240x300",
        complex_product,
        {"M": 90, "N": 240, "K": 300},
        {"block_M": (1, 9, 90), "block_N": (8, 48, 240), "block_K": (12, 60, 300)},
    ),
    Case(
        "step of a sparse system 2400x60",
        sparse_step,
        {"M": 2400, "K": 60},
        {"block_M": (1, 8, 60, 240, 2400), "block_K": (4, 12, 60)},
    ),
)
