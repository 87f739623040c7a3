"""Products with something done before or after."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import SMALL_PRODUCTS, Case


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


def experts(E: int, M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`R + silu(X @ W.mT)`, X (E, M, K) and W (E, N, K) of bfloat16, R (E, M, N) of float32."""

    @T.prim_func
    def experts(
        X: T.Tensor((E, M, K), "bfloat16"),
        W: T.Tensor((E, N, K), "bfloat16"),
        R: T.Tensor((E, M, N), "float32"),
    ):
        Y = T.empty((E, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), E) as (bx, by, e):
            left = T.alloc_shared((block_M, block_K), "bfloat16")
            right = T.alloc_shared((block_N, block_K), "bfloat16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[e, by * block_M, k * block_K], left)
                T.copy(W[e, bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                row, column, value = by * block_M + i, bx * block_N + j, total[i, j]
                Y[e, row, column] = R[e, row, column] + value / (1.0 + T.exp(-value))
        return Y

    return experts


def gated_projection(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`R + (X * silu(Z)) @ W.T` of X and Z (M, K), W (N, K) and R (M, N), float32."""

    @T.prim_func
    def gated_projection(
        X: T.Tensor((M, K), "float32"),
        Z: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        R: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(R[by * block_M, bx * block_N], total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    row, column = by * block_M + i, k * block_K + j
                    gate = Z[row, column]
                    left[i, j] = X[row, column] * gate / (1.0 + T.exp(-gate))
                T.copy(W[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return gated_projection


def covariance(M: int, N: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X - m).T @ (X - m) / (M - 1)` of X (M, N) and the means m (N,) of its columns, float32."""

    @T.prim_func
    def covariance(X: T.Tensor((M, N), "float32"), m: T.Tensor((N,), "float32")):
        C = T.empty((N, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(N, block_M)) as (bx, by):
            left = T.alloc_shared((block_K, block_M), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_K)):
                for i, j in T.Parallel(block_K, block_M):
                    column = by * block_M + j
                    left[i, j] = X[k * block_K + i, column] - m[column]
                for i, j in T.Parallel(block_K, block_N):
                    column = bx * block_N + j
                    right[i, j] = X[k * block_K + i, column] - m[column]
                T.gemm(left, right, total, transpose_A=True)
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = total[i, j] / (M - 1.0)
        return C

    return covariance


def dropped_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`gelu(X @ W.T + b) / 0.9`, or 0 where `on` (M, N), uint8, is 0, of X (M, K), W (N, K) and b
    (N,), float32.
    """

    @T.prim_func
    def dropped_linear(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        b: T.Tensor((N,), "float32"),
        on: T.Tensor((M, N), "uint8"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                T.copy(W[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                x = total[i, j] + b[column]
                value = x * (1.0 + T.erf(x * 0.5**0.5)) * (0.5 / 0.9)
                Y[row, column] = T.if_then_else(on[row, column] != 0, value, 0.0)
        return Y

    return dropped_linear


def power_spectrum(
    M: int, F: int, Q: int, hop: int, block_M: int, block_N: int, block_K: int
) -> Any:
    """`(x * w @ C)**2 + (x * w @ S)**2` of M frames x of F samples, `hop` after each other, of a
    sound X ((M - 1) * hop + F,), with the window w (F,) and the waves C and S (F, Q), float32.
    """

    @T.prim_func
    def power_spectrum(
        X: T.Tensor(((M - 1) * hop + F,), "float32"),
        w: T.Tensor((F,), "float32"),
        C: T.Tensor((F, Q), "float32"),
        S: T.Tensor((F, Q), "float32"),
    ):
        Y = T.empty((M, Q), "float32")
        with T.Kernel(T.ceildiv(Q, block_N), T.ceildiv(M, block_M)) as (bx, by):
            frames = T.alloc_shared((block_M, block_K), "float32")
            waves = T.alloc_shared((block_K, block_N), "float32")
            real = T.alloc_fragment((block_M, block_N), "float32")
            imaginary = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(real)
            T.clear(imaginary)
            for k in T.serial(T.ceildiv(F, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    at = k * block_K + j
                    frames[i, j] = X[(by * block_M + i) * hop + at] * w[at]
                T.copy(C[k * block_K, bx * block_N], waves)
                T.gemm(frames, waves, real)
                T.copy(S[k * block_K, bx * block_N], waves)
                T.gemm(frames, waves, imaginary)
            for i, j in T.Parallel(block_M, block_N):
                real[i, j] = real[i, j] * real[i, j] + imaginary[i, j] * imaginary[i, j]
            T.copy(real, Y[by * block_M, bx * block_N])
        return Y

    return power_spectrum


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


def basis_layer(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`sum(exp(-(X - c[g])**2) @ W[g] for g in range(G))` of X (M, K) and W (G, K, N), bfloat16,
    and c (G,), float32, as float32 (M, N): a layer that learns functions of each input.
    """

    @T.prim_func
    def basis_layer(
        X: T.Tensor((M, K), "bfloat16"),
        c: T.Tensor((G,), "float32"),
        W: T.Tensor((G, K, N), "bfloat16"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            basis = T.alloc_shared((block_M, block_K), "bfloat16")
            weights = T.alloc_shared((block_K, block_N), "bfloat16")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k, g in T.grid(T.ceildiv(K, block_K), G):
                for i, j in T.Parallel(block_M, block_K):
                    x = T.cast(X[by * block_M + i, k * block_K + j], "float32")
                    basis[i, j] = T.exp(-(x - c[g]) * (x - c[g]))
                T.copy(W[g, k * block_K, bx * block_N], weights)
                T.gemm(basis, weights, total)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return basis_layer


CASES = (
    Case(
        "relu and linear 256x384x512", relu_linear, {"M": 256, "N": 384, "K": 512}, SMALL_PRODUCTS
    ),
    Case(
        "scaled product 192x384x512", scaled_product, {"M": 192, "N": 384, "K": 512}, SMALL_PRODUCTS
    ),
    Case(
        "gated products 256x256x256",
        gated_product,
        {"M": 256, "N": 256, "K": 256},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128), "block_K": (32, 128)},
    ),
    Case(
        "experts 4x64x256x256, bfloat16",
        experts,
        {"E": 4, "M": 64, "N": 256, "K": 256},
        SMALL_PRODUCTS,
    ),
    Case(
        "gated projection 200x600x720",
        gated_projection,
        {"M": 200, "N": 600, "K": 720},
        {"block_M": (1, 8, 200), "block_N": (24, 120, 600), "block_K": (16, 90, 720)},
    ),
    Case(
        "covariance of columns 1000x320",
        covariance,
        {"M": 1000, "N": 320},
        {"block_M": (8, 64, 320), "block_N": (8, 64, 320), "block_K": (8, 100, 1000)},
    ),
    Case(
        "linear with gelu and dropout 150x480x600",
        dropped_linear,
        {"M": 150, "N": 480, "K": 600},
        {"block_M": (1, 10, 150), "block_N": (8, 60, 480), "block_K": (8, 100, 600)},
    ),
    Case(
        "power spectrum of 150 frames of 400",
        power_spectrum,
        {"M": 150, "F": 400, "Q": 200, "hop": 160},
        {"block_M": (1, 10, 150), "block_N": (8, 40, 200), "block_K": (16, 80, 400)},
    ),
    Case(
        "layer of a graph 400x192x160, 10 neighbours, bfloat16",
        graph_layer,
        {"M": 400, "N": 192, "K": 160, "S": 10},
        {"block_M": (1, 8, 50, 400), "block_N": (8, 48, 192), "block_K": (16, 160)},
    ),
    Case(
        "layer of bases 100x180x72, 8 of each, bfloat16",
        basis_layer,
        {"M": 100, "N": 180, "K": 72, "G": 8},
        {"block_M": (1, 10, 100), "block_N": (12, 60, 180), "block_K": (8, 24, 72)},
    ),
)
