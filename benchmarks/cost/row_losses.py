"""Losses of rows, entropies and divergences."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import PIECES, SHORT_PIECES, Case
from tileworkbench import kernels


def entropy_backward(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`(softmax(X) - onehot(y)) * g[:, None]` of X (M, N) and g (M,), float32, and y (M,), int32:
    rows in pieces, read for their sums and again for what is stored.
    """

    @T.prim_func
    def entropy_backward(
        X: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "int32"), g: T.Tensor((M,), "float32")
    ):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -1e30)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.copy(most, before)
                T.reduce_max(tile, most, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - most[i])
                T.reduce_sum(tile, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp(before[i] - most[i]) + part[i]
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    p = T.exp(X[row, column] - most[i]) / total[i]
                    D[row, column] = g[row] * (p - T.if_then_else(column == y[row], 1.0, 0.0))
        return D

    return entropy_backward


def log_sum_exp(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`y = log(sum(exp(x)))` of rows of an (M, N) float32 matrix, read in pieces of `block_N`."""

    @T.prim_func
    def log_sum_exp(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j])
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                y[bx * block_M + i] = T.log(total[i])
        return y

    return log_sum_exp


def entropies(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`-sum(p log(p + tiny))` of the rows of an (M, N) float32 matrix, in pieces of `block_N`."""

    @T.prim_func
    def entropies(P: T.Tensor((M, N), "float32")):
        H = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(P[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    share = T.abs(tile[i, j])
                    tile[i, j] = -share * T.log(share + 1e-9)
                T.reduce_sum(tile, total, dim=1, clear=False)
            T.copy(total, H[bx * block_M])
        return H

    return entropies


def divergences(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum(p * (log(p) - q))` of rows of P and logarithms Q, (M, N) of float32, in pieces."""

    @T.prim_func
    def divergences(P: T.Tensor((M, N), "float32"), Q: T.Tensor((M, N), "float32")):
        D = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            p = T.alloc_fragment((block_M, block_N), "float32")
            q = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(P[bx * block_M, k * block_N], p)
                T.copy(Q[bx * block_M, k * block_N], q)
                for i, j in T.Parallel(block_M, block_N):
                    share = T.abs(p[i, j]) + 1e-6
                    q[i, j] = share * (T.log(share) - q[i, j])
                T.reduce_sum(q, total, dim=1, clear=False)
            T.copy(total, D[bx * block_M])
        return D

    return divergences


def huber(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """The sums of Huber's loss of rows of X and Y, (M, N) of float32, in pieces of `block_N`."""

    @T.prim_func
    def huber(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        E = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                for i, j in T.Parallel(block_M, block_N):
                    off = T.abs(x[i, j] - y[i, j])
                    x[i, j] = T.if_then_else(off < 1.0, 0.5 * off * off, off - 0.5)
                T.reduce_sum(x, total, dim=1, clear=False)
            T.copy(total, E[bx * block_M])
        return E

    return huber


def masked_error(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum((x - y)**2 where y is above 0)` of rows of two (M, N) float32 matrices, in pieces."""

    @T.prim_func
    def masked_error(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        E = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            squares = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    x, y = (
                        X[bx * block_M + i, k * block_N + j],
                        Y[bx * block_M + i, k * block_N + j],
                    )
                    squares[i, j] = T.if_then_else(y > 0.0, (x - y) * (x - y), 0.0)
                T.reduce_sum(squares, total, dim=1, clear=False)
            T.copy(total, E[bx * block_M])
        return E

    return masked_error


def smoothed_entropy(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Cross entropy of the rows of X (M, N), bfloat16, with a tenth of the weight on all classes
    and the rest on y (M,), int32; read once, in pieces.
    """

    @T.prim_func
    def smoothed_entropy(X: T.Tensor((M, N), "bfloat16"), y: T.Tensor((M,), "int32")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            powers = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -1e30)
            T.clear(powers)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.copy(most, before)
                T.reduce_max(tile, most, dim=1, clear=False)
                T.reduce_sum(tile, total, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    powers[i] = powers[i] * T.exp(before[i] - most[i])
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - most[i])
                T.reduce_sum(tile, powers, dim=1, clear=False)
            for i in T.Parallel(block_M):
                row = bx * block_M + i
                expected = 0.9 * T.cast(X[row, y[row]], "float32") + total[i] * (0.1 / N)
                loss[row] = most[i] + T.log(powers[i]) - expected
        return loss

    return smoothed_entropy


def distillation(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Divergences of softmax(Y) from softmax(X), rows of X and Y (M, N), bfloat16: sums of
    `p * (log(p) - log(q))`, where both are read once, in pieces.
    """

    @T.prim_func
    def distillation(X: T.Tensor((M, N), "bfloat16"), Y: T.Tensor((M, N), "bfloat16")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            apart = T.alloc_fragment((block_M, block_N), "float32")
            most_x = T.alloc_fragment((block_M,), "float32")
            most_y = T.alloc_fragment((block_M,), "float32")
            before_x = T.alloc_fragment((block_M,), "float32")
            before_y = T.alloc_fragment((block_M,), "float32")
            total_x = T.alloc_fragment((block_M,), "float32")
            total_y = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most_x, -1e30)
            T.fill(most_y, -1e30)
            T.clear(total_x)
            T.clear(total_y)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                T.copy(most_x, before_x)
                T.copy(most_y, before_y)
                T.reduce_max(x, most_x, dim=1, clear=False)
                T.reduce_max(y, most_y, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink = T.exp(before_x[i] - most_x[i])
                    total_x[i] = total_x[i] * shrink
                    total[i] = total[i] * shrink
                    total_y[i] = total_y[i] * T.exp(before_y[i] - most_y[i])
                for i, j in T.Parallel(block_M, block_N):
                    apart[i, j] = T.exp(x[i, j] - most_x[i]) * (x[i, j] - y[i, j])
                    x[i, j] = T.exp(x[i, j] - most_x[i])
                    y[i, j] = T.exp(y[i, j] - most_y[i])
                T.reduce_sum(x, total_x, dim=1, clear=False)
                T.reduce_sum(y, total_y, dim=1, clear=False)
                T.reduce_sum(apart, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                logs = most_y[i] + T.log(total_y[i]) - most_x[i] - T.log(total_x[i])
                loss[bx * block_M + i] = total[i] / total_x[i] + logs
        return loss

    return distillation


def focal_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Sums over the rows of `-w * (1 - p)**2 * log(p)` of X (M, N), bfloat16, in pieces: p is
    sigmoid(x) and w is 0.25 where `on` (M, N), uint8, is; elsewhere sigmoid(-x) and 0.75.
    """

    @T.prim_func
    def focal_loss(X: T.Tensor((M, N), "bfloat16"), on: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    x, is_on = T.cast(X[row, column], "float32"), on[row, column] != 0
                    margin, weight = T.if_then_else(is_on, x, -x), T.if_then_else(is_on, 0.25, 0.75)
                    small = T.exp(-T.abs(margin))
                    missed = T.if_then_else(margin > 0.0, small, 1.0) / (1.0 + small)
                    logs = T.log(1.0 + small) - T.min(margin, 0.0)
                    part[i, j] = weight * missed * missed * logs
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, loss[bx * block_M])
        return loss

    return focal_loss


def margin_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`sum(max(0, 1 + x[j] - x[y]) for j other than y)` of the rows x of X (M, N), float16, and
    their classes y (M,), int32, in pieces.
    """

    @T.prim_func
    def margin_loss(X: T.Tensor((M, N), "float16"), y: T.Tensor((M,), "int32")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            wanted = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for i in T.Parallel(block_M):
                wanted[i] = X[bx * block_M + i, y[bx * block_M + i]]
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], part)
                for i, j in T.Parallel(block_M, block_N):
                    margin = T.max(1.0 + part[i, j] - wanted[i], 0.0)
                    is_other = k * block_N + j != y[bx * block_M + i]
                    part[i, j] = T.if_then_else(is_other, margin, 0.0)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, loss[bx * block_M])
        return loss

    return margin_loss


def earth_movers(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`mean(|cumsum(x - y)|)` of the rows x and y of X and Y (M, N), float16, in pieces: what it
    takes to move one heap of earth to where the other is.
    """

    @T.prim_func
    def earth_movers(X: T.Tensor((M, N), "float16"), Y: T.Tensor((M, N), "float16")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            earth = T.alloc_fragment((block_M, block_N), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(before)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    x = T.cast(X[row, column], "float32")
                    part[i, j] = x - T.cast(Y[row, column], "float32")
                T.cumsum(part, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    earth[i, j] = T.abs(part[i, j] + before[i])
                T.reduce_sum(earth, total, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    before[i] = before[i] + part[i, block_N - 1]
            for i in T.Parallel(block_M):
                y[bx * block_M + i] = total[i] / N
        return y

    return earth_movers


CASES = (
    Case("cross entropy 256x16384", kernels.cross_entropy, {"M": 256, "N": 16384}, PIECES),
    Case(
        "cross entropy backward 160x6144",
        entropy_backward,
        {"M": 160, "N": 6144},
        {"block_M": (1, 8, 160), "block_N": (8, 32, 128, 512, 2048, 6144)},
    ),
    Case("log_sum_exp 512x8192", log_sum_exp, {"M": 512, "N": 8192}, PIECES),
    Case("entropies of rows 256x8192", entropies, {"M": 256, "N": 8192}, SHORT_PIECES),
    Case("divergences of rows 256x8192", divergences, {"M": 256, "N": 8192}, SHORT_PIECES),
    Case("Huber's loss of rows 512x4096", huber, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case("masked error of rows 512x4096", masked_error, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case(
        "smoothed cross entropy 90x12000, bfloat16",
        smoothed_entropy,
        {"M": 90, "N": 12000},
        {"block_M": (1, 9, 90), "block_N": (16, 40, 96, 240, 600, 1500, 3000, 12000)},
    ),
    Case(
        "distillation 120x6000, bfloat16",
        distillation,
        {"M": 120, "N": 6000},
        {"block_M": (1, 8, 120), "block_N": (8, 24, 80, 200, 600, 6000)},
    ),
    Case(
        "focal loss 200x5000, bfloat16",
        focal_loss,
        {"M": 200, "N": 5000},
        {"block_M": (1, 4, 20, 200), "block_N": (8, 40, 100, 5000)},
    ),
    Case(
        "margins of classes 150x6000, float16",
        margin_loss,
        {"M": 150, "N": 6000},
        {"block_M": (1, 3, 15, 150), "block_N": (8, 60, 500, 6000)},
    ),
    Case(
        "earth moved in rows 300x1800, float16",
        earth_movers,
        {"M": 300, "N": 1800},
        {"block_M": (1, 5, 30, 300), "block_N": (8, 36, 150, 450, 1800)},
    ),
)
