"""Products that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


def contrastive_losses(M: int, K: int, block_M: int, block_N: int) -> Any:
    """`log(sum(exp(s[i] - s[i, i])))` of the rows of `s = A @ B.T / 0.07`, rows of A and B (M, K),
    bfloat16, divided by their lengths, as float32 (M,): each wants its own (InfoNCE).
    """

    @T.prim_func
    def contrastive_losses(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((M, K), "bfloat16")):
        Y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, K), "bfloat16")
            right = T.alloc_shared((block_N, K), "bfloat16")
            square = T.alloc_fragment((block_M, K), "float32")
            squares = T.alloc_fragment((block_N, K), "float32")
            own = T.alloc_fragment((block_M,), "float32")
            size = T.alloc_fragment((block_N,), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            wanted = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            match = T.alloc_fragment((block_M,), "float32")
            T.copy(A[bx * block_M, 0], left)
            for i, d in T.Parallel(block_M, K):
                square[i, d] = T.cast(left[i, d], "float32") * T.cast(left[i, d], "float32")
            T.reduce_sum(square, own, dim=1)
            T.clear(total)
            T.clear(match)
            for n in T.serial(T.ceildiv(M, block_N)):
                T.copy(B[n * block_N, 0], right)
                for j, d in T.Parallel(block_N, K):
                    squares[j, d] = T.cast(right[j, d], "float32") * T.cast(right[j, d], "float32")
                T.reduce_sum(squares, size, dim=1)
                T.gemm(left, right, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    score = scores[i, j] * T.rsqrt(own[i] * size[j]) / 0.07
                    is_own = bx * block_M + i == n * block_N + j
                    wanted[i, j] = T.if_then_else(is_own, score, 0.0)
                    # No score is above 1 / 0.07.
                    scores[i, j] = T.exp(score - 1.0 / 0.07)
                T.reduce_sum(scores, total, dim=1, clear=False)
                T.reduce_sum(wanted, match, dim=1, clear=False)
            for i in T.Parallel(block_M):
                Y[bx * block_M + i] = T.log(total[i]) + 1.0 / 0.07 - match[i]
        return Y

    return contrastive_losses


def table_distances(M: int, N: int, S: int, block_M: int, block_N: int) -> Any:
    """`sum(D[i, s, codes[j, s]] for s)` of D (M, S, 256), float32, the distances of M rows to 256
    pieces at each of S places, and codes (N, S), uint8, as float32 (M, N); and the least of each
    row, (M,) (search among products of few rows).
    """

    @T.prim_func
    def table_distances(D: T.Tensor((M, S, 256), "float32"), codes: T.Tensor((N, S), "uint8")):
        Y, least = T.empty((M, N), "float32"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            table = T.alloc_shared((block_M, S, 256), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            near = T.alloc_fragment((block_M,), "float32")
            T.copy(D[bx * block_M, 0, 0], table)
            T.fill(near, 1e30)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.clear(total)
                for s in T.serial(S):
                    for i, j in T.Parallel(block_M, block_N):
                        code = T.cast(codes[n * block_N + j, s], "int32")
                        total[i, j] = total[i, j] + table[i, s, code]
                T.reduce_min(total, near, dim=1, clear=False)
                T.copy(total, Y[bx * block_M, n * block_N])
            T.copy(near, least[bx * block_M])
        return Y, least

    return table_distances


def bytes_attention(B: int, G: int, L: int, D: int, block_G: int, block_N: int) -> Any:
    """Attention of Q (B, G, D), float32, to keys and values of bytes, K and V (B, L, D), int8, with
    the steps k and v (B, L), float32, of each row, as float32 (B, G, D).
    """

    @T.prim_func
    def bytes_attention(
        Q: T.Tensor((B, G, D), "float32"),
        K: T.Tensor((B, L, D), "int8"),
        V: T.Tensor((B, L, D), "int8"),
        k: T.Tensor((B, L), "float32"),
        v: T.Tensor((B, L), "float32"),
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
                T.copy(K[b, n * block_N, 0], keys)
                T.copy(V[b, n * block_N, 0], values)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_G, block_N):
                    scores[i, j] = scores[i, j] * k[b, n * block_N + j]
                scale = D**-0.5 * LOG2_E
                update_softmax(scores, out, most, total, rescale, part, scale, block_G, block_N, D)
                for i, j in T.Parallel(block_G, block_N):
                    weights[i, j] = scores[i, j] * v[b, n * block_N + j]
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_G, D):
                Y[b, bx * block_G + i, d] = out[i, d] / total[i]
        return Y

    return bytes_attention


CASES: tuple[Case, ...] = (
    Case(
        "contrastive losses 180x96, bfloat16",
        contrastive_losses,
        {"M": 180, "K": 96},
        {"block_M": (1, 6, 30, 180), "block_N": (4, 20, 60, 180)},
    ),
    Case(
        "distances from tables 12x3000, 12 codes",
        table_distances,
        {"M": 12, "N": 3000, "S": 12},
        {"block_M": (1, 3, 12), "block_N": (1, 12, 120, 3000)},
    ),
    Case(
        "attention to bytes 8x10x600, D 64",
        bytes_attention,
        {"B": 8, "G": 10, "L": 600, "D": 64},
        {"block_G": (1, 5, 10), "block_N": (4, 20, 60, 200, 600)},
    ),
)
