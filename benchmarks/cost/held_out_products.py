"""Products that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


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


def triangle_product(L: int, K: int, C: int, block_I: int, block_J: int, block_K: int) -> Any:
    """`sum(sigmoid(U[i, k, c]) * A[i, k, c] * sigmoid(V[j, k, c]) * B[j, k, c] for k)` of A, B, U
    and V (L, K, C), bfloat16, as float32 (C, L, L): a product for each channel.
    """

    @T.prim_func
    def triangle_product(
        A: T.Tensor((L, K, C), "bfloat16"),
        U: T.Tensor((L, K, C), "bfloat16"),
        B: T.Tensor((L, K, C), "bfloat16"),
        V: T.Tensor((L, K, C), "bfloat16"),
    ):
        Y = T.empty((C, L, L), "float32")
        with T.Kernel(T.ceildiv(L, block_J), T.ceildiv(L, block_I), C) as (bx, by, c):
            left = T.alloc_shared((block_I, block_K), "float32")
            right = T.alloc_shared((block_J, block_K), "float32")
            total = T.alloc_fragment((block_I, block_J), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, n in T.Parallel(block_I, block_K):
                    row, column = by * block_I + i, k * block_K + n
                    gate = T.sigmoid(T.cast(U[row, column, c], "float32"))
                    left[i, n] = gate * A[row, column, c]
                for j, n in T.Parallel(block_J, block_K):
                    row, column = bx * block_J + j, k * block_K + n
                    gate = T.sigmoid(T.cast(V[row, column, c], "float32"))
                    right[j, n] = gate * B[row, column, c]
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[c, by * block_I, bx * block_J])
        return Y

    return triangle_product


def matched_features(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """The row b of B (N, K) with the least `|a - b|**2` for each row a of A (M, K), int8, where it
    is below 0.64 of the next, else -1; and the least: (M,) each, int32.
    """
    far = 2**30

    @T.prim_func
    def matched_features(A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8")):
        match, least = T.empty((M,), "int32"), T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, K), "int8")
            right = T.alloc_shared((block_N, K), "int8")
            square = T.alloc_fragment((block_M, K), "int32")
            squares = T.alloc_fragment((block_N, K), "int32")
            own = T.alloc_fragment((block_M,), "int32")
            size = T.alloc_fragment((block_N,), "int32")
            off = T.alloc_fragment((block_M, block_N), "int32")
            place = T.alloc_fragment((block_M, block_N), "int32")
            near = T.alloc_fragment((block_M,), "int32")
            at = T.alloc_fragment((block_M,), "int32")
            later = T.alloc_fragment((block_M,), "int32")
            first = T.alloc_fragment((block_M,), "int32")
            second = T.alloc_fragment((block_M,), "int32")
            best = T.alloc_fragment((block_M,), "int32")
            T.copy(A[bx * block_M, 0], left)
            for i, d in T.Parallel(block_M, K):
                square[i, d] = T.cast(left[i, d], "int32") * T.cast(left[i, d], "int32")
            T.reduce_sum(square, own, dim=1)
            T.fill(first, far)
            T.fill(second, far)
            T.fill(best, -1)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(B[n * block_N, 0], right)
                for j, d in T.Parallel(block_N, K):
                    squares[j, d] = T.cast(right[j, d], "int32") * T.cast(right[j, d], "int32")
                T.reduce_sum(squares, size, dim=1)
                T.gemm(left, right, off, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    off[i, j] = own[i] + size[j] - 2 * off[i, j]
                T.reduce_min(off, near, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    place[i, j] = T.if_then_else(off[i, j] == near[i], n * block_N + j, N)
                T.reduce_min(place, at, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    off[i, j] = T.if_then_else(n * block_N + j == at[i], far, off[i, j])
                T.reduce_min(off, later, dim=1)
                for i in T.Parallel(block_M):
                    second[i] = T.min(T.max(first[i], near[i]), T.min(second[i], later[i]))
                    best[i] = T.if_then_else(near[i] < first[i], at[i], best[i])
                    first[i] = T.min(first[i], near[i])
            for i in T.Parallel(block_M):
                is_clear = T.cast(first[i], "float32") < 0.64 * T.cast(second[i], "float32")
                match[bx * block_M + i] = T.if_then_else(is_clear, best[i], -1)
                least[bx * block_M + i] = first[i]
        return match, least

    return matched_features


CASES: tuple[Case, ...] = (
    Case(
        "latent attention 6x16x480, D 96 and 16, float16",
        latent_attention,
        {"B": 6, "H": 16, "L": 480, "D": 96, "R": 16},
        {"block_H": (1, 4, 16), "block_N": (8, 40, 120, 480)},
    ),
    Case(
        "products of triangles 24x60x60x80, bfloat16",
        triangle_product,
        {"L": 60, "K": 80, "C": 24},
        {"block_I": (6, 20, 60), "block_J": (6, 60), "block_K": (16, 80)},
    ),
    Case(
        "features matched 90x150x128, int8",
        matched_features,
        {"M": 90, "N": 150, "K": 128},
        {"block_M": (1, 9, 90), "block_N": (3, 15, 50, 150)},
    ),
)
