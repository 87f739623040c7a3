"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def peaks_of_rows(M: int, N: int, block_M: int, block_N: int) -> Any:
    """How many x of a row are above 400, above the one before and not below the one after, int32
    (M,), and their mean above 400, or 0, float32 (M,), of X (M, N + 2), int16.
    """

    @T.prim_func
    def peaks_of_rows(X: T.Tensor((M, N + 2), "int16")):
        number, height = T.empty((M,), "int32"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            is_peak = T.alloc_fragment((block_M, block_N), "int32")
            above = T.alloc_fragment((block_M, block_N), "int32")
            count = T.alloc_fragment((block_M,), "int32")
            total = T.alloc_fragment((block_M,), "int32")
            T.clear(count)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    x = T.cast(X[row, column + 1], "int32")
                    before, after = X[row, column], X[row, column + 2]
                    is_high = (x > 400) & (x > before) & (x >= after)
                    is_peak[i, j] = T.if_then_else(is_high, 1, 0)
                    above[i, j] = T.if_then_else(is_high, x - 400, 0)
                T.reduce_sum(is_peak, count, dim=1, clear=False)
                T.reduce_sum(above, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                mean = T.cast(total[i], "float32") / T.max(count[i], 1)
                number[bx * block_M + i] = count[i]
                height[bx * block_M + i] = mean
        return number, height

    return peaks_of_rows


def median_bytes(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Medians (the lower ones) of the columns of X (M, N), uint8, as uint8 (N,), a bit at a time:
    each is kept where at most `(M - 1) // 2` of the column are below what it makes.
    """

    @T.prim_func
    def median_bytes(X: T.Tensor((M, N), "uint8")):
        Y = T.empty((N,), "uint8")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            below = T.alloc_fragment((block_M, block_N), "int32")
            count = T.alloc_fragment((block_N,), "int32")
            middle = T.alloc_fragment((block_N,), "int32")
            T.clear(middle)
            for bit in T.serial(8):
                T.clear(count)
                for k in T.serial(T.ceildiv(M, block_M)):
                    for i, j in T.Parallel(block_M, block_N):
                        x = T.cast(X[k * block_M + i, bx * block_N + j], "int32")
                        below[i, j] = T.if_then_else(x < middle[j] + (128 >> bit), 1, 0)
                    T.reduce_sum(below, count, dim=0, clear=False)
                for j in T.Parallel(block_N):
                    is_set = count[j] <= (M - 1) // 2
                    middle[j] = middle[j] + T.if_then_else(is_set, 128 >> bit, 0)
            for j in T.Parallel(block_N):
                Y[bx * block_N + j] = T.cast(middle[j], "uint8")
        return Y

    return median_bytes


def layered_images(S: int, H: int, W: int, block_H: int, block_W: int) -> Any:
    """S images (S, H, W, 4), uint8, over each other, the last on top, over black, (H, W, 3), uint8:
    `(a * colour + (255 - a) * under + 127) // 255`, a the fourth number of a pixel.
    """

    @T.prim_func
    def layered_images(X: T.Tensor((S, H, W, 4), "uint8")):
        Y = T.empty((H, W, 3), "uint8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            under = T.alloc_fragment((block_H, block_W, 3), "int32")
            T.clear(under)
            for s in T.serial(S):
                for i, j, c in T.Parallel(block_H, block_W, 3):
                    row, column = by * block_H + i, bx * block_W + j
                    cover = T.cast(X[s, row, column, 3], "int32")
                    colour = T.cast(X[s, row, column, c], "int32")
                    total = cover * colour + (255 - cover) * under[i, j, c]
                    under[i, j, c] = (total + 127) // 255
            for i, j, c in T.Parallel(block_H, block_W, 3):
                row, column = by * block_H + i, bx * block_W + j
                Y[row, column, c] = T.cast(under[i, j, c], "uint8")
        return Y

    return layered_images


def decoded_sound(M: int, L: int, block_M: int, block_L: int) -> Any:
    """Sound (M, L), int16, of codes of 4 bits, two in a byte of P (M, L // 2), uint8, with the
    sizes of steps (89,) and changes of their places (8,), int32, from 0 and place 0 (IMA ADPCM).
    """

    @T.prim_func
    def decoded_sound(
        P: T.Tensor((M, L // 2), "uint8"),
        steps: T.Tensor((89,), "int32"),
        changes: T.Tensor((8,), "int32"),
    ):
        Y = T.empty((M, L), "int16")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            code = T.alloc_shared((block_M, block_L), "int32")
            sound = T.alloc_shared((block_M, block_L), "int16")
            value = T.alloc_fragment((block_M,), "int32")
            place = T.alloc_fragment((block_M,), "int32")
            T.clear(value)
            T.clear(place)
            for k in T.serial(T.ceildiv(L, block_L)):
                for i, j in T.Parallel(block_M, block_L):
                    step = k * block_L + j
                    both = T.cast(P[bx * block_M + i, step // 2], "int32")
                    code[i, j] = (both >> (step % 2 * 4)) & 15
                for n in T.serial(block_L):
                    for i in T.Parallel(block_M):
                        size, bits = steps[place[i]], code[i, n]
                        change = ((2 * (bits & 7) + 1) * size) >> 3
                        new = value[i] + T.if_then_else(bits > 7, -change, change)
                        value[i] = T.clamp(new, -32768, 32767)
                        place[i] = T.clamp(place[i] + changes[bits & 7], 0, 88)
                        sound[i, n] = T.cast(value[i], "int16")
                T.copy(sound, Y[bx * block_M, k * block_L])
        return Y

    return decoded_sound


def mixed_times(L: int, C: int, block_L: int, block_C: int) -> Any:
    """Means of V (L, C) up to each step with the weights `exp(K[s] - (l - 1 - s) * w)` for s < l
    and `exp(K[l] + u)`, w = exp(decay), of K (L, C), bfloat16 as V and Y, decay and u (C,), float32
    (RWKV): sums by the largest exponent so far.
    """

    @T.prim_func
    def mixed_times(
        K: T.Tensor((L, C), "bfloat16"),
        V: T.Tensor((L, C), "bfloat16"),
        decay: T.Tensor((C,), "float32"),
        u: T.Tensor((C,), "float32"),
    ):
        Y = T.empty((L, C), "bfloat16")
        with T.Kernel(T.ceildiv(C, block_C)) as bx:
            keys = T.alloc_shared((block_L, block_C), "float32")
            values = T.alloc_shared((block_L, block_C), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            weights = T.alloc_fragment((block_C,), "float32")
            most = T.alloc_fragment((block_C,), "float32")
            T.clear(total)
            T.clear(weights)
            T.fill(most, -1e30)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(K[k * block_L, bx * block_C], keys)
                T.copy(V[k * block_L, bx * block_C], values)
                for n in T.serial(block_L):
                    for j in T.Parallel(block_C):
                        key, value, column = keys[n, j], values[n, j], bx * block_C + j
                        own = key + u[column]
                        top = T.max(most[j], own)
                        old, new = T.exp(most[j] - top), T.exp(own - top)
                        mean = (old * total[j] + new * value) / (old * weights[j] + new)
                        values[n, j] = mean
                        kept = most[j] - T.exp(decay[column])
                        most[j] = T.max(kept, key)
                        before, now = T.exp(kept - most[j]), T.exp(key - most[j])
                        total[j] = before * total[j] + now * value
                        weights[j] = before * weights[j] + now
                T.copy(values, Y[k * block_L, bx * block_C])
        return Y

    return mixed_times


def edge_maxima(M: int, N: int, R: int, block_M: int, block_N: int) -> Any:
    """`max(leaky(A[i] + B[near[i, r]]) for r)`, leaky(x) = max(x, 0.2 * x), of A and B (M, N),
    float16, and R neighbours of each row, near (M, R), int32: float16 (M, N), and the first such
    r, uint8 (M, N) (a convolution of edges between points).
    """

    @T.prim_func
    def edge_maxima(
        A: T.Tensor((M, N), "float16"),
        B: T.Tensor((M, N), "float16"),
        near: T.Tensor((M, R), "int32"),
    ):
        Y, place = T.empty((M, N), "float16"), T.empty((M, N), "uint8")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            most = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_M, block_N), "int32")
            T.fill(most, -1e30)
            T.clear(first)
            for r in T.serial(R):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = by * block_M + i, bx * block_N + j
                    total = T.cast(A[row, column], "float32") + B[near[row, r], column]
                    edge = T.max(total, 0.2 * total)
                    is_more = edge > most[i, j]
                    first[i, j] = T.if_then_else(is_more, r, first[i, j])
                    most[i, j] = T.if_then_else(is_more, edge, most[i, j])
            T.copy(most, Y[by * block_M, bx * block_N])
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                place[row, column] = T.cast(first[i, j], "uint8")
        return Y, place

    return edge_maxima


def poisson_sweeps(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Four times the mean of the four neighbours less F / 4, of U and F (H + 8, W + 8), float32, as
    (H, W): a tile with four around it goes through all, each time one less (Jacobi's sweeps).
    """

    @T.prim_func
    def poisson_sweeps(
        U: T.Tensor((H + 8, W + 8), "float32"), F: T.Tensor((H + 8, W + 8), "float32")
    ):
        Y = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            one = T.alloc_shared((block_H + 8, block_W + 8), "float32")
            other = T.alloc_shared((block_H + 8, block_W + 8), "float32")
            T.copy(U[by * block_H, bx * block_W], one)
            for sweep, (old, new) in enumerate([(one, other), (other, one)] * 2):
                for i, j in T.Parallel(block_H + 6 - 2 * sweep, block_W + 6 - 2 * sweep):
                    down, along = i + sweep + 1, j + sweep + 1
                    total = old[down - 1, along] + old[down + 1, along]
                    total += old[down, along - 1] + old[down, along + 1]
                    source = F[by * block_H + down, bx * block_W + along]
                    new[down, along] = 0.25 * (total - source)
            for i, j in T.Parallel(block_H, block_W):
                Y[by * block_H + i, bx * block_W + j] = one[i + 4, j + 4]
        return Y

    return poisson_sweeps


def survival_losses(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`sum(log(sum(exp(x[:j + 1]))) - x[j] for j with on)` of the rows x of X (M, N), float16, and
    `on` (M, N), uint8, 0 or 1, (M,), float32: those who lived longer come first (Cox).
    """

    @T.prim_func
    def survival_losses(X: T.Tensor((M, N), "float16"), on: T.Tensor((M, N), "uint8")):
        Y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_shared((block_M, block_N), "float32")
            risk = T.alloc_shared((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            loss = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -1e30)
            T.clear(before)
            T.clear(loss)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.reduce_max(tile, most, dim=1, clear=False)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    risk[i, j] = T.exp(tile[i, j] - most[i])
                T.cumsum(risk, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    lost = T.log(before[i] + risk[i, j]) + most[i] - tile[i, j]
                    tile[i, j] = lost * on[bx * block_M + i, k * block_N + j]
                T.reduce_sum(tile, loss, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    before[i] = before[i] + risk[i, block_N - 1]
            T.copy(loss, Y[bx * block_M])
        return Y

    return survival_losses


def walsh_transforms(M: int, G: int, D: int, block_M: int, block_G: int) -> Any:
    """`X[i, g] @ W / sqrt(D)`, W Walsh's signs in Hadamard's order, of X (M, G, D), float16, as
    float16: log2(D) steps of sums and differences of numbers 1, 2, 4, ... apart.
    """

    @T.prim_func
    def walsh_transforms(X: T.Tensor((M, G, D), "float16")):
        Y = T.empty((M, G, D), "float16")
        with T.Kernel(T.ceildiv(G, block_G), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_shared((block_M, block_G, D), "float32")
            T.copy(X[by * block_M, bx * block_G, 0], tile)
            for step in [2**bit for bit in range(D.bit_length() - 1)]:
                for i, g, p, q in T.Parallel(block_M, block_G, D // (2 * step), step):
                    low = 2 * step * p + q
                    one, other = tile[i, g, low], tile[i, g, low + step]
                    tile[i, g, low] = one + other
                    tile[i, g, low + step] = one - other
            for i, g, d in T.Parallel(block_M, block_G, D):
                Y[by * block_M + i, bx * block_G + g, d] = tile[i, g, d] * D**-0.5
        return Y

    return walsh_transforms


CASES: tuple[Case, ...] = (
    Case(
        "peaks of rows 160x3000, int16",
        peaks_of_rows,
        {"M": 160, "N": 3000},
        {"block_M": (1, 8, 160), "block_N": (12, 60, 600, 3000)},
    ),
    Case(
        "medians of bytes in columns 75x2400",
        median_bytes,
        {"M": 75, "N": 2400},
        {"block_M": (1, 15, 75), "block_N": (8, 40, 240, 2400)},
    ),
    Case(
        "6 layers of images 120x200, bytes",
        layered_images,
        {"S": 6, "H": 120, "W": 200},
        {"block_H": (1, 12, 120), "block_W": (1, 8, 40, 200)},
    ),
    Case(
        "sound of 4 bits 96x1000",
        decoded_sound,
        {"M": 96, "L": 1000},
        {"block_M": (1, 4, 16, 96), "block_L": (1, 20, 200, 1000)},
    ),
    Case(
        "times mixed 120x480, bfloat16",
        mixed_times,
        {"L": 120, "C": 480},
        {"block_L": (1, 12, 120), "block_C": (1, 8, 40, 120, 480)},
    ),
    Case(
        "maxima of edges 600x96, 12 neighbours, float16",
        edge_maxima,
        {"M": 600, "N": 96, "R": 12},
        {"block_M": (1, 6, 40, 600), "block_N": (4, 24, 96)},
    ),
    Case(
        "four sweeps of Jacobi 240x360",
        poisson_sweeps,
        {"H": 240, "W": 360},
        {"block_H": (1, 6, 40, 240), "block_W": (12, 60, 360)},
    ),
    Case(
        "survival losses of rows 120x1500, float16",
        survival_losses,
        {"M": 120, "N": 1500},
        {"block_M": (1, 12, 120), "block_N": (4, 20, 60, 300, 1500)},
    ),
    Case(
        "transforms of Walsh 150x20x64, float16",
        walsh_transforms,
        {"M": 150, "G": 20, "D": 64},
        {"block_M": (1, 5, 30, 150), "block_G": (1, 4, 20)},
    ),
)
