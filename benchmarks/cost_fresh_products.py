"""Products for `cost_cases.py` that were written, with their configurations, after the model had
followed those of `cost_blind_kernels.py`, and before it or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


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


def window(L: int, H: int, G: int, D: int, W: int, block_M: int = 32, block_N: int = 32) -> Any:
    """Causal attention to the last W keys of Q (L, H, D), K and V (L, H // G, D), float32, where G
    neighbouring heads share their keys.
    """

    @T.prim_func
    def window(
        Q: T.Tensor((L, H, D), "float32"),
        K: T.Tensor((L, H // G, D), "float32"),
        V: T.Tensor((L, H // G, D), "float32"),
    ):
        Y = T.empty((L, H, D), "float32")
        with T.Kernel(T.ceildiv(L, block_M), H) as (bx, h):
            q = T.alloc_shared((block_M, D), "float32")
            keys = T.alloc_shared((block_N, D), "float32")
            values = T.alloc_shared((block_N, D), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            out = T.alloc_fragment((block_M, D), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[bx * block_M : (bx + 1) * block_M, h, :], q)
            T.clear(out)
            T.clear(total)
            T.fill(most, LOWEST)
            first = T.max(bx * block_M - W + 1, 0) // block_N
            for n in T.serial(first, T.ceildiv((bx + 1) * block_M, block_N)):
                T.copy(K[n * block_N : (n + 1) * block_N, h // G, :], keys)
                T.copy(V[n * block_N : (n + 1) * block_N, h // G, :], values)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    ago = bx * block_M + i - n * block_N - j
                    score = T.if_then_else(ago < W, scores[i, j], -T.infinity("float32"))
                    scores[i, j] = T.if_then_else(ago >= 0, score, -T.infinity("float32"))
                update_softmax(
                    scores, out, most, total, rescale, part,
                    D**-0.5 * LOG2_E, block_M, block_N, D,
                )  # fmt: skip
                T.copy(scores, weights)
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_M, D):
                out[i, d] = out[i, d] / total[i]
            T.copy(out, Y[bx * block_M : (bx + 1) * block_M, h, :])
        return Y

    return window


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


def group_bytes(M: int, N: int, K: int, G: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ (Q * s).T`, X (M, K) float32, Q (N, K) int8, s (N, K // G) of G columns, float32."""

    @T.prim_func
    def group_bytes(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K), "int8"),
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
                    right[i, j] = T.cast(Q[row, column], "float32") * s[row, column // G]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return group_bytes


def nearest(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """`min(|b|**2 - 2 a.b)` over rows of B (N, K) for each a of A (M, K), given |b|**2, float32."""

    @T.prim_func
    def nearest(
        A: T.Tensor((M, K), "float32"), B: T.Tensor((N, K), "float32"), b: T.Tensor((N,), "float32")
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, K), "float32")
            right = T.alloc_shared((block_N, K), "float32")
            far = T.alloc_fragment((block_M, block_N), "float32")
            least = T.alloc_fragment((block_M,), "float32")
            T.copy(A[bx * block_M, 0], left)
            T.fill(least, T.infinity("float32"))
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(B[n * block_N, 0], right)
                T.gemm(left, right, far, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    far[i, j] = b[n * block_N + j] - 2.0 * far[i, j]
                T.reduce_min(far, least, dim=1, clear=False)
            T.copy(least, y[bx * block_M])
        return y

    return nearest
