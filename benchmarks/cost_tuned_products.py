"""Kernels for `cost_cases.py` that were written, with their configurations, after the model had
followed those of `cost_fresh_kernels.py`, and before it or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


def biased_attention(H: int, L: int, S: int, D: int, block_M: int, block_N: int) -> Any:
    """Attention of Q (H, L, D) to K and V (H, S, D), bfloat16, with R (H, L, S), float32, added to
    its scores.
    """

    @T.prim_func
    def biased_attention(
        Q: T.Tensor((H, L, D), "bfloat16"),
        K: T.Tensor((H, S, D), "bfloat16"),
        V: T.Tensor((H, S, D), "bfloat16"),
        R: T.Tensor((H, L, S), "float32"),
    ):
        Y = T.empty((H, L, D), "float32")
        with T.Kernel(T.ceildiv(L, block_M), H) as (bx, h):
            q = T.alloc_shared((block_M, D), "bfloat16")
            keys = T.alloc_shared((block_N, D), "bfloat16")
            values = T.alloc_shared((block_N, D), "bfloat16")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "bfloat16")
            out = T.alloc_fragment((block_M, D), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[h, bx * block_M, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(most, LOWEST)
            for n in T.Pipelined(T.ceildiv(S, block_N), num_stages=2):
                T.copy(K[h, n * block_N, 0], keys)
                T.copy(V[h, n * block_N, 0], values)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    bias = R[h, bx * block_M + i, n * block_N + j]
                    scores[i, j] = scores[i, j] * D**-0.5 + bias
                update_softmax(scores, out, most, total, rescale, part, LOG2_E, block_M, block_N, D)
                T.copy(scores, weights)
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_M, D):
                out[i, d] = out[i, d] / total[i]
            T.copy(out, Y[h, bx * block_M, 0])
        return Y

    return biased_attention


def patches(S: int, P: int, C: int, N: int, block_M: int, block_N: int, block_K: int) -> Any:
    """Squares of P by P pixels of an image X (S * P, S * P, C), each times W (P * P * C, N), with
    b (N,) and places E (S * S, N) added, float32.
    """
    M, K, line = S * S, P * P * C, P * C

    @T.prim_func
    def patches(
        X: T.Tensor((S * P, S * P, C), "float32"),
        W: T.Tensor((K, N), "float32"),
        b: T.Tensor((N,), "float32"),
        E: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    patch, at = by * block_M + i, k * block_K + j
                    left[i, j] = X[
                        patch // S * P + at // line, patch % S * P + at % line // C, at % C
                    ]
                T.copy(W[k * block_K, bx * block_N], right)
                T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = total[i, j] + b[column] + E[row, column]
        return Y

    return patches


def pointwise_backward(
    B: int, C: int, F: int, P: int, block_C: int, block_P: int, block_F: int
) -> Any:
    """`where(X > 0, W.T @ G[b], 0)` of X (B, C, P), W (F, C) and G (B, F, P), float32: the gradient
    of a 1 x 1 convolution of what a relu left.
    """

    @T.prim_func
    def pointwise_backward(
        X: T.Tensor((B, C, P), "float32"),
        W: T.Tensor((F, C), "float32"),
        G: T.Tensor((B, F, P), "float32"),
    ):
        Y = T.empty((B, C, P), "float32")
        with T.Kernel(T.ceildiv(P, block_P), T.ceildiv(C, block_C), B) as (bx, by, b):
            weights = T.alloc_shared((block_F, block_C), "float32")
            pixels = T.alloc_shared((block_F, block_P), "float32")
            total = T.alloc_fragment((block_C, block_P), "float32")
            T.clear(total)
            for f in T.Pipelined(T.ceildiv(F, block_F), num_stages=2):
                T.copy(W[f * block_F, by * block_C], weights)
                T.copy(G[b, f * block_F, bx * block_P], pixels)
                T.gemm(weights, pixels, total, transpose_A=True)
            for i, j in T.Parallel(block_C, block_P):
                x = X[b, by * block_C + i, bx * block_P + j]
                total[i, j] = T.if_then_else(x > 0.0, total[i, j], 0.0)
            T.copy(total, Y[b, by * block_C, bx * block_P])
        return Y

    return pointwise_backward


def code_book(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ (book[Q] * s).T`, X (M, K) float32, Q (N, K) uint8 below 16, book (16,) and s (N, K //
    G) of groups of G columns, float32.
    """

    @T.prim_func
    def code_book(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K), "uint8"),
        book: T.Tensor((16,), "float32"),
        s: T.Tensor((N, K // G), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for i, j in T.Parallel(block_N, block_K):
                    row, column = bx * block_N + i, k * block_K + j
                    code = T.cast(Q[row, column], "int32")
                    right[i, j] = book[code] * s[row, column // G]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return code_book


def linear_norm(M: int, N: int, K: int, block_M: int, block_K: int) -> Any:
    """`layernorm(R + X @ W.T) * g + b`, X (M, K), W (N, K), R (M, N), g and b (N,), float32; a
    block has whole rows.
    """

    @T.prim_func
    def linear_norm(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        R: T.Tensor((M, N), "float32"),
        g: T.Tensor((N,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((N, block_K), "float32")
            total = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            spread = T.alloc_fragment((block_M,), "float32")
            T.copy(R[bx * block_M, 0], total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[bx * block_M, k * block_K], left)
                T.copy(W[0, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            T.reduce_sum(total, mean, dim=1)
            for i, j in T.Parallel(block_M, N):
                total[i, j] = total[i, j] - mean[i] / N
                square[i, j] = total[i, j] * total[i, j]
            T.reduce_sum(square, spread, dim=1)
            for i in T.Parallel(block_M):
                spread[i] = T.rsqrt(spread[i] / N + 1e-5)
            for i, j in T.Parallel(block_M, N):
                Y[bx * block_M + i, j] = total[i, j] * spread[i] * g[j] + b[j]
        return Y

    return linear_norm
