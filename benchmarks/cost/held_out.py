"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


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


def trimmed_means(S: int, M: int, N: int, block_M: int, block_N: int) -> Any:
    """Means of the middle half of the S values of each element, X (S, M, N), bfloat16, as float32
    (M, N): gradients of S workers, of which a few may be wrong. S is a power of 2; the values are
    put in order by a network (Batcher's, of bitonic pieces).
    """
    network = [
        (2**size, 2**step) for size in range(1, S.bit_length()) for step in reversed(range(size))
    ]

    @T.prim_func
    def trimmed_means(X: T.Tensor((S, M, N), "bfloat16")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            values = T.alloc_shared((S, block_M, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[0, by * block_M, bx * block_N], values)
            for size, step in network:
                for p, i, j in T.Parallel(S // 2, block_M, block_N):
                    low = p // step * (2 * step) + p % step
                    one, other = values[low, i, j], values[low + step, i, j]
                    least, most = T.min(one, other), T.max(one, other)
                    is_up = low // size % 2 == 0
                    values[low, i, j] = T.if_then_else(is_up, least, most)
                    values[low + step, i, j] = T.if_then_else(is_up, most, least)
            T.clear(total)
            for s in T.serial(S // 2):
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] + values[S // 4 + s, i, j]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] / (S // 2)
        return Y

    return trimmed_means


def alignment_losses(L: int, B: int, C: int, S: int, block_L: int, block_B: int) -> Any:
    """Losses (B,) of all ways to spread the S classes y (B, S), int32, with blanks, class 0,
    between them over L steps, of X (L, B, C), float32, logarithms of chances (CTC).
    """
    W, far = 2 * S + 1, -1e30

    @T.prim_func
    def alignment_losses(X: T.Tensor((L, B, C), "float32"), y: T.Tensor((B, S), "int32")):
        loss = T.empty((B,), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            seen = T.alloc_shared((block_L, block_B, C), "float32")
            label = T.alloc_shared((block_B, W), "int32")
            skip = T.alloc_fragment((block_B, W), "float32")
            state = T.alloc_shared((block_B, W + 2), "float32")
            new = T.alloc_fragment((block_B, W), "float32")
            for b, s in T.Parallel(block_B, W):
                own = y[bx * block_B + b, T.min(s // 2, S - 1)]
                before = y[bx * block_B + b, T.max(s // 2 - 1, 0)]
                label[b, s] = T.if_then_else(s % 2 == 1, own, 0)
                may = (s % 2 == 1) & (own != before)
                skip[b, s] = T.if_then_else(may, 0.0, far)
            for b, s in T.Parallel(block_B, W + 2):
                state[b, s] = T.if_then_else(s == 2, 0.0, far)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B, 0], seen)
                for n in T.serial(block_L):
                    for b, s in T.Parallel(block_B, W):
                        one, two = state[b, s + 2], state[b, s + 1]
                        three = state[b, s] + skip[b, s]
                        most = T.max(T.max(one, two), three)
                        total = T.exp(one - most) + T.exp(two - most) + T.exp(three - most)
                        new[b, s] = most + T.log(total) + seen[n, b, label[b, s]]
                    for b, s in T.Parallel(block_B, W):
                        state[b, s + 2] = new[b, s]
            for b in T.Parallel(block_B):
                one, two = state[b, W + 1], state[b, W]
                most = T.max(one, two)
                loss[bx * block_B + b] = -most - T.log(T.exp(one - most) + T.exp(two - most))
        return loss

    return alignment_losses


def pair_features(L: int, C: int, R: int, block_I: int, block_J: int) -> Any:
    """`relu(A[i] + B[j] + E[r])`, r = j - i cut to -R ... R, plus R, of A and B (L, C) and E (2 * R
    + 1, C), float16, and 0 where `on` (L,), uint8, is 0 at i or j, as float16 (L, L, C).
    """

    @T.prim_func
    def pair_features(
        A: T.Tensor((L, C), "float16"),
        B: T.Tensor((L, C), "float16"),
        E: T.Tensor((2 * R + 1, C), "float16"),
        on: T.Tensor((L,), "uint8"),
    ):
        Y = T.empty((L, L, C), "float16")
        with T.Kernel(T.ceildiv(L, block_J), T.ceildiv(L, block_I)) as (bx, by):
            for i, j, c in T.Parallel(block_I, block_J, C):
                first, second = by * block_I + i, bx * block_J + j
                place = T.clamp(second - first, -R, R) + R
                total = T.cast(A[first, c], "float32") + B[second, c] + E[place, c]
                is_on = (on[first] != 0) & (on[second] != 0)
                Y[first, second, c] = T.if_then_else(is_on, T.max(total, 0.0), 0.0)
        return Y

    return pair_features


def unpacked_changes(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Rows of whole numbers (M, N), int32, of their changes: codes of 5 bits after each other, (M,
    5 * N // 8 + 1), uint8, where 0, 1, 2, 3, ... are changes by 0, -1, 1, -2, ...
    """

    @T.prim_func
    def unpacked_changes(P: T.Tensor((M, 5 * N // 8 + 1), "uint8")):
        Y = T.empty((M, N), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            change = T.alloc_fragment((block_M, block_N), "int32")
            part = T.alloc_fragment((block_M,), "int32")
            last = T.alloc_fragment((block_M,), "int32")
            T.clear(last)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, bit = bx * block_M + i, 5 * (k * block_N + j)
                    low = T.cast(P[row, bit // 8], "int32")
                    high = T.cast(P[row, bit // 8 + 1], "int32")
                    code = ((low | (high << 8)) >> (bit % 8)) & 31
                    change[i, j] = (code >> 1) ^ -(code & 1)
                T.reduce_sum(change, part, dim=1)
                T.cumsum(change, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    Y[bx * block_M + i, k * block_N + j] = last[i] + change[i, j]
                for i in T.Parallel(block_M):
                    last[i] = last[i] + part[i]
        return Y

    return unpacked_changes


def wavelet_bands(H: int, W: int, block_H: int, block_W: int) -> Any:
    """A step of the wavelets of JPEG 2000 (those without loss), in whole numbers along, then down,
    of X (2 * H + 3, 2 * W + 3), int16, two rows and columns of which are before and one after:
    planes (4, H, W), int16, smooth or with details along, then both with details down.
    """

    def halves(x: list[Any]) -> tuple[Any, Any]:
        before, after = x[1] - ((x[0] + x[2]) >> 1), x[3] - ((x[2] + x[4]) >> 1)
        return x[2] + ((before + after + 2) >> 2), after

    @T.prim_func
    def wavelet_bands(X: T.Tensor((2 * H + 3, 2 * W + 3), "int16")):
        Y = T.empty((4, H, W), "int16")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            lines = T.alloc_shared((2, 2 * block_H + 3, block_W), "int32")
            for i, j in T.Parallel(2 * block_H + 3, block_W):
                row, column = 2 * by * block_H + i, 2 * (bx * block_W + j)
                smooth, detail = halves([T.cast(X[row, column + t], "int32") for t in range(5)])
                lines[0, i, j] = smooth
                lines[1, i, j] = detail
            for q, i, j in T.Parallel(2, block_H, block_W):
                smooth, detail = halves([lines[q, 2 * i + t, j] for t in range(5)])
                row, column = by * block_H + i, bx * block_W + j
                Y[q, row, column] = T.cast(smooth, "int16")
                Y[2 + q, row, column] = T.cast(detail, "int16")
        return Y

    return wavelet_bands


def tap_gradients(B: int, L: int, C: int, block_L: int, block_C: int) -> Any:
    """`sum(G[b, l] * X[b, l + t] for b, l)` of X (B, L + 3, C) and G (B, L, C), bfloat16, as
    float32 (4, C), the gradient of four weights for each channel, and `sum(G[b, l])`, (C,).
    """

    @T.prim_func
    def tap_gradients(X: T.Tensor((B, L + 3, C), "bfloat16"), G: T.Tensor((B, L, C), "bfloat16")):
        weights, bias = T.empty((4, C), "float32"), T.empty((C,), "float32")
        with T.Kernel(T.ceildiv(C, block_C)) as bx:
            inputs = T.alloc_shared((block_L + 3, block_C), "float32")
            slope = T.alloc_fragment((block_L, block_C), "float32")
            part = T.alloc_fragment((block_L, block_C), "float32")
            column = T.alloc_fragment((block_C,), "float32")
            total = T.alloc_fragment((4, block_C), "float32")
            every = T.alloc_fragment((block_C,), "float32")
            T.clear(total)
            T.clear(every)
            for b, k in T.grid(B, T.ceildiv(L, block_L)):
                T.copy(X[b, k * block_L, bx * block_C], inputs)
                T.copy(G[b, k * block_L, bx * block_C], slope)
                T.reduce_sum(slope, every, dim=0, clear=False)
                for t in T.serial(4):
                    for i, j in T.Parallel(block_L, block_C):
                        part[i, j] = slope[i, j] * inputs[i + t, j]
                    T.reduce_sum(part, column, dim=0)
                    for j in T.Parallel(block_C):
                        total[t, j] = total[t, j] + column[j]
            T.copy(total, weights[0, bx * block_C])
            T.copy(every, bias[bx * block_C])
        return weights, bias

    return tap_gradients


def hashed_grids(N: int, G: int, S: int, block_N: int, block_G: int) -> Any:
    """Two features from each of G grids at places P (N, 2), float32, (N, G, 2), float32, between
    the four corners of a cell: grid g has `8 * 2**g` cells along `x / 8 + 0.5`, cut to 0 ... 1, and
    a corner's features are in E (G, S, 2), float16, at its mixed numbers; S is a power of 2.
    """

    def slot(x: Any, y: Any) -> Any:
        return T.cast(T.cast(x, "uint32") ^ T.cast(y, "uint32") * T.uint32(2654435761), "int32")

    @T.prim_func
    def hashed_grids(P: T.Tensor((N, 2), "float32"), E: T.Tensor((G, S, 2), "float16")):
        Y = T.empty((N, G, 2), "float32")
        with T.Kernel(T.ceildiv(G, block_G), T.ceildiv(N, block_N)) as (bx, by):
            for i, g, f in T.Parallel(block_N, block_G, 2):
                point, grid = by * block_N + i, bx * block_G + g
                cells = T.cast(8 << grid, "float32")
                x = T.clamp(P[point, 0] * 0.125 + 0.5, 0.0, 1.0) * cells
                y = T.clamp(P[point, 1] * 0.125 + 0.5, 0.0, 1.0) * cells
                left, above = T.cast(T.floor(x), "int32"), T.cast(T.floor(y), "int32")
                along, down = x - T.floor(x), y - T.floor(y)
                upper = (1.0 - along) * E[grid, slot(left, above) & (S - 1), f]
                upper += along * E[grid, slot(left + 1, above) & (S - 1), f]
                lower = (1.0 - along) * E[grid, slot(left, above + 1) & (S - 1), f]
                lower += along * E[grid, slot(left + 1, above + 1) & (S - 1), f]
                Y[point, grid, f] = upper + down * (lower - upper)
        return Y

    return hashed_grids


def cosine_codes(H: int, W: int, block_H: int, block_W: int) -> Any:
    """`round(D @ (x - 128) @ D.T / q)`, cut to -128 ... 127, of the squares x of 8 x 8 pixels of X
    (H, 8, W, 8), uint8, as int8, with waves D and steps q (8, 8), float32 (JPEG).
    """

    @T.prim_func
    def cosine_codes(
        X: T.Tensor((H, 8, W, 8), "uint8"),
        D: T.Tensor((8, 8), "float32"),
        q: T.Tensor((8, 8), "float32"),
    ):
        Y = T.empty((H, 8, W, 8), "int8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            pixels = T.alloc_shared((block_H, 8, block_W, 8), "float32")
            down = T.alloc_shared((block_H, 8, block_W, 8), "float32")
            along = T.alloc_fragment((block_H, 8, block_W, 8), "float32")
            for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                pixel = X[by * block_H + h, u, bx * block_W + w, v]
                pixels[h, u, w, v] = T.cast(pixel, "float32") - 128.0
            T.clear(down)
            T.clear(along)
            for k in T.serial(8):
                for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                    down[h, u, w, v] = down[h, u, w, v] + D[u, k] * pixels[h, k, w, v]
            for k in T.serial(8):
                for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                    along[h, u, w, v] = along[h, u, w, v] + D[v, k] * down[h, u, w, k]
            for h, u, w, v in T.Parallel(block_H, 8, block_W, 8):
                code = T.clamp(T.round(along[h, u, w, v] / q[u, v]), -128.0, 127.0)
                Y[by * block_H + h, u, bx * block_W + w, v] = T.cast(code, "int8")
        return Y

    return cosine_codes


CASES: tuple[Case, ...] = (
    Case(
        "losses of 9 quantiles 100x1200, float16",
        quantile_losses,
        {"M": 100, "N": 1200, "Q": 9},
        {"block_M": (1, 100), "block_N": (4, 8, 16, 40, 120, 400, 1200)},
    ),
    Case(
        "trimmed means of 16, 40x1800, bfloat16",
        trimmed_means,
        {"S": 16, "M": 40, "N": 1800},
        {"block_M": (1, 5, 40), "block_N": (8, 60, 360, 1800)},
    ),
    Case(
        "losses of alignments 80x48x40, 20 classes",
        alignment_losses,
        {"L": 80, "B": 48, "C": 40, "S": 20},
        {"block_L": (1, 8, 80), "block_B": (1, 4, 16, 48)},
    ),
    Case(
        "features of pairs 480x480x64, float16",
        pair_features,
        {"L": 480, "C": 64, "R": 32},
        {"block_I": (1, 12, 96), "block_J": (1, 8, 60, 480)},
    ),
    Case(
        "changes of 5 bits 200x4000",
        unpacked_changes,
        {"M": 200, "N": 4000},
        {"block_M": (1, 10, 200), "block_N": (8, 40, 200, 4000)},
    ),
    Case(
        "bands of wavelets 300x400, int16",
        wavelet_bands,
        {"H": 300, "W": 400},
        {"block_H": (1, 10, 300), "block_W": (8, 40, 200, 400)},
    ),
    Case(
        "gradients of taps 4x1000x600, bfloat16",
        tap_gradients,
        {"B": 4, "L": 1000, "C": 600},
        {"block_L": (1, 20, 1000), "block_C": (8, 40, 200, 600)},
    ),
    Case(
        "features of 8 grids at 6000 places, float16",
        hashed_grids,
        {"N": 6000, "G": 8, "S": 4096},
        {"block_N": (1, 20, 300, 6000), "block_G": (1, 2, 8)},
    ),
    Case(
        "codes of cosines 30x40 squares of 8x8",
        cosine_codes,
        {"H": 30, "W": 40},
        {"block_H": (1, 5, 30), "block_W": (1, 2, 5, 40)},
    ),
)
