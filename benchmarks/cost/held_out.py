"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax


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


def quadratic_forms(M: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`x @ A @ x` of the rows x of X (M, K) with A (K, K), float32, some columns of A at a time."""

    @T.prim_func
    def quadratic_forms(X: T.Tensor((M, K), "float32"), A: T.Tensor((K, K), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            form = T.alloc_fragment((block_M,), "float32")
            T.clear(form)
            for n in T.serial(T.ceildiv(K, block_N)):
                T.clear(total)
                for k in T.serial(T.ceildiv(K, block_K)):
                    T.copy(X[bx * block_M, k * block_K], left)
                    T.copy(A[k * block_K, n * block_N], right)
                    T.gemm(left, right, total)
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] * X[bx * block_M + i, n * block_N + j]
                T.reduce_sum(total, form, dim=1, clear=False)
            T.copy(form, y[bx * block_M])
        return y

    return quadratic_forms


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


def turned_norm(L: int, H: int, D: int, block_L: int, block_H: int) -> Any:
    """Each `x = X[l, h]` of X (L, H, D), bfloat16, as `x / rms(x) * g`, with its halves then turned
    by the angles of l, whose cosines and sines (L, D // 2) are float32, as g (D,) is.
    """

    @T.prim_func
    def turned_norm(
        X: T.Tensor((L, H, D), "bfloat16"),
        g: T.Tensor((D,), "float32"),
        cosines: T.Tensor((L, D // 2), "float32"),
        sines: T.Tensor((L, D // 2), "float32"),
    ):
        Y = T.empty((L, H, D), "bfloat16")
        with T.Kernel(T.ceildiv(H, block_H), T.ceildiv(L, block_L)) as (bx, by):
            tile = T.alloc_fragment((block_L, block_H, D), "float32")
            square = T.alloc_fragment((block_L, block_H, D), "float32")
            rate = T.alloc_fragment((block_L, block_H), "float32")
            T.copy(X[by * block_L, bx * block_H, 0], tile)
            for i, h, d in T.Parallel(block_L, block_H, D):
                square[i, h, d] = tile[i, h, d] * tile[i, h, d]
            T.reduce_sum(square, rate, dim=2)
            for i, h in T.Parallel(block_L, block_H):
                rate[i, h] = T.rsqrt(rate[i, h] / D + 1e-6)
            for i, h, d in T.Parallel(block_L, block_H, D // 2):
                row, head = by * block_L + i, bx * block_H + h
                first = tile[i, h, d] * rate[i, h] * g[d]
                second = tile[i, h, d + D // 2] * rate[i, h] * g[d + D // 2]
                Y[row, head, d] = first * cosines[row, d] - second * sines[row, d]
                Y[row, head, d + D // 2] = second * cosines[row, d] + first * sines[row, d]
        return Y

    return turned_norm


def light_of_pixels(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Three planes (3, H, W), float32, of the pixels X (H, W, 3), uint8: from bytes of sRGB to
    light.
    """

    @T.prim_func
    def light_of_pixels(X: T.Tensor((H, W, 3), "uint8")):
        Y = T.empty((3, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            for c, i, j in T.Parallel(3, block_H, block_W):
                row, column = by * block_H + i, bx * block_W + j
                x = T.cast(X[row, column, c], "float32") / 255.0
                bright = T.exp(2.4 * T.log((x + 0.055) / 1.055))
                Y[c, row, column] = T.if_then_else(x > 0.04045, bright, x / 12.92)
        return Y

    return light_of_pixels


def column_log_sums(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`log(sum(exp(x)))` of the columns x of X (M, N), float32, a tile of rows at a time."""

    @T.prim_func
    def column_log_sums(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            before = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.fill(most, LOWEST)
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.copy(most, before)
                T.reduce_max(tile, most, dim=0, clear=False)
                for j in T.Parallel(block_N):
                    total[j] = total[j] * T.exp(before[j] - most[j])
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - most[j])
                T.reduce_sum(tile, total, dim=0, clear=False)
            for j in T.Parallel(block_N):
                y[bx * block_N + j] = most[j] + T.log(total[j])
        return y

    return column_log_sums


def random_normals(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Normal numbers (M, N), float32, by the method of Box and Muller from places whose bits are
    mixed with the seeds (M,), int32, of their rows.
    """

    def mixed(x: Any, factor: int, shift: int) -> Any:
        return (x ^ x >> shift) * T.uint32(factor)

    @T.prim_func
    def random_normals(seeds: T.Tensor((M,), "int32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                start = T.cast(seeds[row], "uint32") + T.cast(column, "uint32")
                once = mixed(start, 0x7FEB352D, 16)
                first = mixed(once, 0x846CA68B, 15)
                again = mixed(first, 0x9E3779B1, 16)
                second = mixed(again, 0x85EBCA77, 15)
                chance = (T.cast(first >> 8, "float32") + 0.5) * 2.0**-24
                angle = T.cast(second >> 8, "float32") * (6.283185307179586 * 2.0**-24)
                Y[row, column] = T.sqrt(-2.0 * T.log(chance)) * T.cos(angle)
        return Y

    return random_normals


def medians(H: int, W: int, block_H: int, block_W: int) -> Any:
    """The middle of 3 x 3 neighbours, (H + 2, W + 2) to (H, W) of float32: threes above each other
    are put in order first.
    """

    def middle(a: Any, b: Any, c: Any) -> Any:
        return T.max(T.min(a, b), T.min(T.max(a, b), c))

    @T.prim_func
    def medians(X: T.Tensor((H + 2, W + 2), "float32")):
        Y = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            least = T.alloc_shared((block_H, block_W + 2), "float32")
            between = T.alloc_shared((block_H, block_W + 2), "float32")
            most = T.alloc_shared((block_H, block_W + 2), "float32")
            for i, j in T.Parallel(block_H, block_W + 2):
                row, column = by * block_H + i, bx * block_W + j
                a, b, c = X[row, column], X[row + 1, column], X[row + 2, column]
                least[i, j] = T.min(T.min(a, b), c)
                between[i, j] = middle(a, b, c)
                most[i, j] = T.max(T.max(a, b), c)
            for i, j in T.Parallel(block_H, block_W):
                low = T.max(T.max(least[i, j], least[i, j + 1]), least[i, j + 2])
                center = middle(between[i, j], between[i, j + 1], between[i, j + 2])
                high = T.min(T.min(most[i, j], most[i, j + 1]), most[i, j + 2])
                Y[by * block_H + i, bx * block_W + j] = middle(low, center, high)
        return Y

    return medians


def recurrent_layer(L: int, B: int, H: int, block_L: int, block_B: int) -> Any:
    """`h = tanh(X[l] + h @ U)` for L steps from h = 0, of X (L, B, H) and U (H, H), float32: all h,
    (L, B, H); `block_L` steps of X are fetched at a time.
    """

    @T.prim_func
    def recurrent_layer(X: T.Tensor((L, B, H), "float32"), U: T.Tensor((H, H), "float32")):
        Y = T.empty((L, B, H), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            weights = T.alloc_shared((H, H), "float32")
            inputs = T.alloc_shared((block_L, block_B, H), "float32")
            state = T.alloc_shared((block_B, H), "float32")
            total = T.alloc_fragment((block_B, H), "float32")
            T.copy(U, weights)
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B, 0], inputs)
                for n in T.serial(block_L):
                    T.gemm(state, weights, total, clear_accum=True)
                    for i, j in T.Parallel(block_B, H):
                        state[i, j] = T.tanh(total[i, j] + inputs[n, i, j])
                    T.copy(state, Y[k * block_L + n, bx * block_B, 0])
        return Y

    return recurrent_layer


def three_values(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X @ W.T) * s` of X (M, K) and s (N,), float32, and W (N, K) of -1, 0 and 1, which are codes
    of 2 bits, four in a byte of Q (N, K // 4), uint8.
    """

    @T.prim_func
    def three_values(
        X: T.Tensor((M, K), "float32"),
        Q: T.Tensor((N, K // 4), "uint8"),
        s: T.Tensor((N,), "float32"),
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
                    byte = T.cast(Q[bx * block_N + i, (k * block_K + j) // 4], "int32")
                    right[i, j] = T.cast((byte >> j % 4 * 2 & 3) - 1, "float32")
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                column = bx * block_N + j
                Y[by * block_M + i, column] = total[i, j] * s[column]
        return Y

    return three_values


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


CASES: tuple[Case, ...] = (
    Case(
        "linear with gelu and dropout 150x480x600",
        dropped_linear,
        {"M": 150, "N": 480, "K": 600},
        {"block_M": (1, 10, 150), "block_N": (8, 60, 480), "block_K": (8, 100, 600)},
    ),
    Case(
        "quadratic forms of rows 500x360",
        quadratic_forms,
        {"M": 500, "K": 360},
        {"block_M": (1, 10, 100, 500), "block_N": (8, 60, 360), "block_K": (24, 360)},
    ),
    Case(
        "attention to pages 12x6x960, D 48",
        paged_attention,
        {"B": 12, "G": 6, "L": 960, "D": 48, "P": 500, "S": 24},
        {"block_G": (1, 2, 6), "block_N": (8, 24, 120, 480, 960)},
    ),
    Case(
        "heads with norm and turned 360x10x48, bfloat16",
        turned_norm,
        {"L": 360, "H": 10, "D": 48},
        {"block_L": (1, 6, 40, 360), "block_H": (1, 2, 5, 10)},
    ),
    Case(
        "light of pixels 200x320",
        light_of_pixels,
        {"H": 200, "W": 320},
        {"block_H": (1, 5, 40, 200), "block_W": (8, 40, 160, 320)},
    ),
    Case(
        "log_sum_exp of columns 1200x720",
        column_log_sums,
        {"M": 1200, "N": 720},
        {"block_M": (1, 8, 60, 1200), "block_N": (8, 48, 240, 720)},
    ),
    Case(
        "random normals 400x900",
        random_normals,
        {"M": 400, "N": 900},
        {"block_M": (1, 8, 50, 400), "block_N": (9, 60, 300, 900)},
    ),
    Case(
        "medians of an image 300x400",
        medians,
        {"H": 300, "W": 400},
        {"block_H": (1, 4, 30, 300), "block_W": (8, 40, 200, 400)},
    ),
    Case(
        "recurrent layer 40x60x72",
        recurrent_layer,
        {"L": 40, "B": 60, "H": 72},
        {"block_L": (1, 8, 40), "block_B": (1, 4, 12, 30, 60)},
    ),
    Case(
        "weights of 2 bits 36x540x960",
        three_values,
        {"M": 36, "N": 540, "K": 960},
        {"block_M": (1, 6, 36), "block_N": (6, 60, 540), "block_K": (16, 96, 960)},
    ),
    Case(
        "margins of classes 150x6000, float16",
        margin_loss,
        {"M": 150, "N": 6000},
        {"block_M": (1, 3, 15, 150), "block_N": (8, 60, 500, 6000)},
    ),
)
