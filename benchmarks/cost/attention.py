"""Attention and its parts."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench import kernels
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


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


def soft_values(M: int, N: int, D: int, block_M: int = 32, block_N: int = 64) -> Any:
    """`exp(S) @ V` over the sums of its rows, of S (M, N) and V (N, D), float32."""

    @T.prim_func
    def soft_values(S: T.Tensor((M, N), "float32"), V: T.Tensor((N, D), "float32")):
        Y = T.empty((M, D), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            values = T.alloc_shared((block_N, D), "float32")
            out = T.alloc_fragment((block_M, D), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(out)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(S[bx * block_M, k * block_N], scores)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp(scores[i, j])
                T.reduce_sum(scores, total, dim=1, clear=False)
                T.copy(scores, weights)
                T.copy(V[k * block_N, 0], values)
                T.gemm(weights, values, out)
            for i, j in T.Parallel(block_M, D):
                out[i, j] = out[i, j] / total[i]
            T.copy(out, Y[bx * block_M, 0])
        return Y

    return soft_values


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


def value_gradient(H: int, L: int, S: int, D: int, block_M: int, block_N: int) -> Any:
    """`exp(Q @ K.mT / sqrt(D) - l).mT @ G` of Q and G (H, L, D), K (H, S, D) and l (H, L), float32:
    the gradient of attention's values, from the logarithms of its sums; a block has some keys.
    """

    @T.prim_func
    def value_gradient(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, S, D), "float32"),
        G: T.Tensor((H, L, D), "float32"),
        logs: T.Tensor((H, L), "float32"),
    ):
        Y = T.empty((H, S, D), "float32")
        with T.Kernel(T.ceildiv(S, block_N), H) as (bx, h):
            keys = T.alloc_shared((block_N, D), "float32")
            q = T.alloc_shared((block_M, D), "float32")
            g = T.alloc_shared((block_M, D), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            out = T.alloc_fragment((block_N, D), "float32")
            T.copy(K[h, bx * block_N, 0], keys)
            T.clear(out)
            for m in T.serial(T.ceildiv(L, block_M)):
                T.copy(Q[h, m * block_M, 0], q)
                T.copy(G[h, m * block_M, 0], g)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    weights[i, j] = T.exp(scores[i, j] * D**-0.5 - logs[h, m * block_M + i])
                T.gemm(weights, g, out, transpose_A=True)
            T.copy(out, Y[h, bx * block_N, 0])
        return Y

    return value_gradient


def capped_attention(H: int, L: int, S: int, D: int, block_M: int, block_N: int) -> Any:
    """Attention of Q (H, L, D) to K and V (H, S, D), float32, with scores s that are capped by `20
    * tanh(s / 20)`; a further key of each head has the score sink (H,) and the value 0.
    """

    @T.prim_func
    def capped_attention(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, S, D), "float32"),
        V: T.Tensor((H, S, D), "float32"),
        sink: T.Tensor((H,), "float32"),
    ):
        Y = T.empty((H, L, D), "float32")
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
            T.copy(Q[h, bx * block_M, 0], q)
            T.clear(out)
            T.fill(total, 1.0)
            for i in T.Parallel(block_M):
                most[i] = sink[h]
            for n in T.serial(T.ceildiv(S, block_N)):
                T.copy(K[h, n * block_N, 0], keys)
                T.copy(V[h, n * block_N, 0], values)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = 20.0 * T.tanh(scores[i, j] * (D**-0.5 / 20.0))
                update_softmax(scores, out, most, total, rescale, part, LOG2_E, block_M, block_N, D)
                T.copy(scores, weights)
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_M, D):
                Y[h, bx * block_M + i, d] = out[i, d] / total[i]
        return Y

    return capped_attention


def paged_attention(
    B: int, G: int, L: int, D: int, P: int, S: int, block_G: int, block_N: int
) -> Any:
    """Attention of Q (B, G, D) to keys and values in pages of S, K and V (P, S, D), float32: those
    of b are in the pages of table (B, L // S), up to the place in last (B,), both int32.
    """

    @T.prim_func
    def paged_attention(
        Q: T.Tensor((B, G, D), "float32"),
        K: T.Tensor((P, S, D), "float32"),
        V: T.Tensor((P, S, D), "float32"),
        table: T.Tensor((B, L // S), "int32"),
        last: T.Tensor((B,), "int32"),
    ):
        Y = T.empty((B, G, D), "float32")
        with T.Kernel(T.ceildiv(G, block_G), B) as (bx, b):
            q = T.alloc_shared((block_G, D), "float32")
            keys = T.alloc_shared((block_N, D), "float32")
            values = T.alloc_shared((block_N, D), "float32")
            scores = T.alloc_fragment((block_G, block_N), "float32")
            weights = T.alloc_shared((block_G, block_N), "float32")
            out = T.alloc_fragment((block_G, D), "float32")
            most = T.alloc_fragment((block_G,), "float32")
            total = T.alloc_fragment((block_G,), "float32")
            rescale = T.alloc_fragment((block_G,), "float32")
            part = T.alloc_fragment((block_G,), "float32")
            T.copy(Q[b, bx * block_G, 0], q)
            T.clear(out)
            T.clear(total)
            T.fill(most, LOWEST)
            for n in T.serial(T.ceildiv(L, block_N)):
                for j, d in T.Parallel(block_N, D):
                    place = n * block_N + j
                    keys[j, d] = K[table[b, place // S], place % S, d]
                    values[j, d] = V[table[b, place // S], place % S, d]
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_G, block_N):
                    is_there = n * block_N + j <= last[b]
                    scores[i, j] = T.if_then_else(is_there, scores[i, j], LOWEST)
                scale = D**-0.5 * LOG2_E
                update_softmax(scores, out, most, total, rescale, part, scale, block_G, block_N, D)
                T.copy(scores, weights)
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_G, D):
                Y[b, bx * block_G + i, d] = out[i, d] / total[i]
        return Y

    return paged_attention


def latent_attention(B: int, H: int, L: int, D: int, R: int, block_H: int, block_N: int) -> Any:
    """`softmax((Q[b] @ C[b].T + P[b] @ K[b].T) / sqrt(D + R)) @ C[b]` of Q (B, H, D) and P (B, H,
    R), C (B, L, D) and K (B, L, R), float16, as float32 (B, H, D): all H heads share what they
    attend to, and C has keys and values.
    """

    @T.prim_func
    def latent_attention(
        Q: T.Tensor((B, H, D), "float16"),
        P: T.Tensor((B, H, R), "float16"),
        C: T.Tensor((B, L, D), "float16"),
        K: T.Tensor((B, L, R), "float16"),
    ):
        Y = T.empty((B, H, D), "float32")
        with T.Kernel(T.ceildiv(H, block_H), B) as (bx, b):
            q = T.alloc_shared((block_H, D), "float16")
            place = T.alloc_shared((block_H, R), "float16")
            latent = T.alloc_shared((block_N, D), "float16")
            keys = T.alloc_shared((block_N, R), "float16")
            scores = T.alloc_fragment((block_H, block_N), "float32")
            weights = T.alloc_shared((block_H, block_N), "float16")
            out = T.alloc_fragment((block_H, D), "float32")
            most = T.alloc_fragment((block_H,), "float32")
            total = T.alloc_fragment((block_H,), "float32")
            rescale = T.alloc_fragment((block_H,), "float32")
            part = T.alloc_fragment((block_H,), "float32")
            T.copy(Q[b, bx * block_H, 0], q)
            T.copy(P[b, bx * block_H, 0], place)
            T.clear(out)
            T.clear(total)
            T.fill(most, LOWEST)
            for n in T.Pipelined(T.ceildiv(L, block_N), num_stages=2):
                T.copy(C[b, n * block_N, 0], latent)
                T.copy(K[b, n * block_N, 0], keys)
                T.gemm(q, latent, scores, transpose_B=True, clear_accum=True)
                T.gemm(place, keys, scores, transpose_B=True)
                scale = (D + R) ** -0.5 * LOG2_E
                update_softmax(scores, out, most, total, rescale, part, scale, block_H, block_N, D)
                T.copy(scores, weights)
                T.gemm(weights, latent, out)
            for i, d in T.Parallel(block_H, D):
                Y[b, bx * block_H + i, d] = out[i, d] / total[i]
        return Y

    return latent_attention


CASES = (
    Case(
        "flash attention 512, D 64",
        kernels.flash_attention,
        {"batch": 1, "heads": 4, "seq_q": 512, "seq_kv": 512, "dim": 64},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "window of 128 of 512 keys, 4 heads, D 64",
        window,
        {"L": 512, "H": 4, "G": 2, "D": 64, "W": 128},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "attention with a bias 2x320x640, D 48, bfloat16",
        biased_attention,
        {"H": 2, "L": 320, "S": 640, "D": 48},
        {"block_M": (1, 8, 32, 80, 320), "block_N": (8, 32, 128, 640)},
    ),
    Case(
        "softmax times values 256x1024, D 64",
        soft_values,
        {"M": 256, "N": 1024, "D": 64},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "sigmoid of scores 384x512, D 96",
        scores,
        {"M": 384, "N": 512, "D": 96},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128, 256)},
    ),
    Case(
        "gradient of values 3x384x320, D 80",
        value_gradient,
        {"H": 3, "L": 384, "S": 320, "D": 80},
        {"block_M": (1, 8, 32, 96, 384), "block_N": (8, 32, 80, 320)},
    ),
    Case(
        "capped attention with a sink 3x240x360, D 40",
        capped_attention,
        {"H": 3, "L": 240, "S": 360, "D": 40},
        {"block_M": (1, 8, 40, 240), "block_N": (8, 40, 120, 360)},
    ),
    Case(
        "attention to pages 12x6x960, D 48",
        paged_attention,
        {"B": 12, "G": 6, "L": 960, "D": 48, "P": 500, "S": 24},
        {"block_G": (1, 2, 6), "block_N": (8, 24, 120, 480, 960)},
    ),
    Case(
        "latent attention 6x16x480, D 96 and 16, float16",
        latent_attention,
        {"B": 6, "H": 16, "L": 480, "D": 96, "R": 16},
        {"block_H": (1, 4, 16), "block_N": (8, 40, 120, 480)},
    ),
)
