"""Losses of rows whose wanted values are bytes, or other rows, or lie between quantiles."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def dice_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`1 - (2 * sum(p * t) + 1) / (sum(p) + sum(t) + 1)`, p = sigmoid(x), of the rows x of X (M,
    N), float16, and t, 0 or 1, of `on` (M, N), uint8, in pieces.
    """

    @T.prim_func
    def dice_loss(X: T.Tensor((M, N), "float16"), on: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            chance = T.alloc_fragment((block_M, block_N), "float32")
            wanted = T.alloc_fragment((block_M, block_N), "float32")
            both = T.alloc_fragment((block_M,), "float32")
            either = T.alloc_fragment((block_M,), "float32")
            T.clear(both)
            T.clear(either)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], chance)
                T.copy(on[bx * block_M, k * block_N], wanted)
                for i, j in T.Parallel(block_M, block_N):
                    p = T.sigmoid(chance[i, j])
                    chance[i, j] = p + wanted[i, j]
                    wanted[i, j] = p * wanted[i, j]
                T.reduce_sum(wanted, both, dim=1, clear=False)
                T.reduce_sum(chance, either, dim=1, clear=False)
            for i in T.Parallel(block_M):
                loss[bx * block_M + i] = 1.0 - (2.0 * both[i] + 1.0) / (either[i] + 1.0)
        return loss

    return dice_loss


def order_loss(M: int, N: int, block_I: int, block_J: int) -> Any:
    """`sum(log(1 + exp(s[j] - s[i])) for i, j where g[i] > g[j])` of the rows s of S (M, N),
    float32, and g of G (M, N), uint8: scores of N documents that are to be ordered as their grades.
    """

    @T.prim_func
    def order_loss(S: T.Tensor((M, N), "float32"), G: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(M) as bx:
            part = T.alloc_fragment((block_I, block_J), "float32")
            total = T.alloc_fragment((block_I,), "float32")
            every = T.alloc_fragment((1,), "float32")
            T.clear(total)
            for m, n in T.grid(T.ceildiv(N, block_I), T.ceildiv(N, block_J)):
                for i, j in T.Parallel(block_I, block_J):
                    better, worse = m * block_I + i, n * block_J + j
                    cost = T.log(1.0 + T.exp(S[bx, worse] - S[bx, better]))
                    part[i, j] = T.if_then_else(G[bx, better] > G[bx, worse], cost, 0.0)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.reduce_sum(total, every, dim=0)
            T.copy(every, loss[bx])
        return loss

    return order_loss


def triplet_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`max(0, |a - b| - |a - c| + 0.5)` of the rows a, b and c of A, B and C (M, N), bfloat16, in
    pieces: (M,), float32.
    """

    @T.prim_func
    def triplet_loss(
        A: T.Tensor((M, N), "bfloat16"),
        B: T.Tensor((M, N), "bfloat16"),
        C: T.Tensor((M, N), "bfloat16"),
    ):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            anchor = T.alloc_fragment((block_M, block_N), "float32")
            same = T.alloc_fragment((block_M, block_N), "float32")
            other = T.alloc_fragment((block_M, block_N), "float32")
            near = T.alloc_fragment((block_M,), "float32")
            far = T.alloc_fragment((block_M,), "float32")
            T.clear(near)
            T.clear(far)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(A[bx * block_M, k * block_N], anchor)
                T.copy(B[bx * block_M, k * block_N], same)
                T.copy(C[bx * block_M, k * block_N], other)
                for i, j in T.Parallel(block_M, block_N):
                    to_same, to_other = anchor[i, j] - same[i, j], anchor[i, j] - other[i, j]
                    same[i, j] = to_same * to_same
                    other[i, j] = to_other * to_other
                T.reduce_sum(same, near, dim=1, clear=False)
                T.reduce_sum(other, far, dim=1, clear=False)
            for i in T.Parallel(block_M):
                off = T.sqrt(near[i]) - T.sqrt(far[i])
                loss[bx * block_M + i] = T.max(off + 0.5, 0.0)
        return loss

    return triplet_loss


def quantile_losses(M: int, N: int, Q: int, block_M: int, block_N: int) -> Any:
    """`sum(max(t * d, (t - 1) * d))`, d = y - p and t = (q + 1) / (Q + 1), of the rows of Y (M, N),
    float32, and P (M, N, Q), float16, Q quantiles of each: (M,), float32; and the gradient of P,
    float16, where that of the sums is g (M,), float32.
    """

    @T.prim_func
    def quantile_losses(
        P: T.Tensor((M, N, Q), "float16"),
        Y: T.Tensor((M, N), "float32"),
        g: T.Tensor((M,), "float32"),
    ):
        loss, slope = T.empty((M,), "float32"), T.empty((M, N, Q), "float16")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            cost = T.alloc_fragment((block_M, block_N, Q), "float32")
            each = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j, q in T.Parallel(block_M, block_N, Q):
                    row, column = bx * block_M + i, k * block_N + j
                    level = T.cast(q + 1, "float32") / (Q + 1.0)
                    off = Y[row, column] - P[row, column, q]
                    cost[i, j, q] = T.max(level * off, (level - 1.0) * off)
                    slope[row, column, q] = g[row] * (T.if_then_else(off > 0.0, 0.0, 1.0) - level)
                T.reduce_sum(cost, each, dim=2)
                T.reduce_sum(each, total, dim=1, clear=False)
            T.copy(total, loss[bx * block_M])
        return loss, slope

    return quantile_losses


CASES = (
    Case(
        "dice loss of rows 160x3600, float16",
        dice_loss,
        {"M": 160, "N": 3600},
        {"block_M": (1, 4, 20, 160), "block_N": (8, 48, 240, 900, 3600)},
    ),
    Case(
        "loss of orders 12x180",
        order_loss,
        {"M": 12, "N": 180},
        {"block_I": (1, 6, 30, 180), "block_J": (4, 12, 60, 180)},
    ),
    Case(
        "triplet loss of rows 240x2000, bfloat16",
        triplet_loss,
        {"M": 240, "N": 2000},
        {"block_M": (1, 4, 24, 240), "block_N": (8, 80, 400, 2000)},
    ),
    Case(
        "losses of 9 quantiles 100x1200, float16",
        quantile_losses,
        {"M": 100, "N": 1200, "Q": 9},
        {"block_M": (1, 100), "block_N": (4, 8, 16, 40, 120, 400, 1200)},
    ),
)
