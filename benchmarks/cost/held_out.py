"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


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


def packed_signs(M: int, W: int, block_M: int, block_W: int) -> Any:
    """Bits `X[m, 32 * w + b] > t[32 * w + b]` of words (M, W), int32, and how many are set in each
    row, (M,), int32, of X (M, 32 * W), float16, and t (32 * W,), float32, in pieces.
    """

    @T.prim_func
    def packed_signs(X: T.Tensor((M, 32 * W), "float16"), t: T.Tensor((32 * W,), "float32")):
        words, count = T.empty((M, W), "int32"), T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            bits = T.alloc_fragment((block_M, block_W, 32), "int32")
            word = T.alloc_fragment((block_M, block_W), "int32")
            ones = T.alloc_fragment((block_M,), "int32")
            T.clear(ones)
            for k in T.serial(T.ceildiv(W, block_W)):
                for i, j, b in T.Parallel(block_M, block_W, 32):
                    column = (k * block_W + j) * 32 + b
                    is_above = T.cast(X[bx * block_M + i, column], "float32") > t[column]
                    bits[i, j, b] = T.cast(is_above, "int32") << b
                T.reduce_bitor(bits, word, dim=2)
                T.copy(word, words[bx * block_M, k * block_W])
                for i, j in T.Parallel(block_M, block_W):
                    word[i, j] = T.popcount(word[i, j])
                T.reduce_sum(word, ones, dim=1, clear=False)
            T.copy(ones, count[bx * block_M])
        return words, count

    return packed_signs


def kepler_places(M: int, N: int, steps: int, block_M: int, block_N: int) -> Any:
    """Places (2, M, N), `(cos(E) - e, sqrt(1 - e * e) * sin(E))`, of bodies with e = 0.8 *
    sigmoid(s), s (M,), on their ellipses: E of `E - e * sin(E) = r * t`, by Newton's steps from
    r * t, of r (M,) and times t (N,), float32.
    """

    @T.prim_func
    def kepler_places(
        s: T.Tensor((M,), "float32"), r: T.Tensor((M,), "float32"), t: T.Tensor((N,), "float32")
    ):
        Y = T.empty((2, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            flat = T.alloc_fragment((block_M,), "float32")
            angle = T.alloc_fragment((block_M, block_N), "float32")
            for i in T.Parallel(block_M):
                flat[i] = 0.8 * T.sigmoid(s[by * block_M + i])
            for i, j in T.Parallel(block_M, block_N):
                angle[i, j] = r[by * block_M + i] * t[bx * block_N + j]
            for _ in T.serial(steps):
                for i, j in T.Parallel(block_M, block_N):
                    mean = r[by * block_M + i] * t[bx * block_N + j]
                    away = angle[i, j] - flat[i] * T.sin(angle[i, j]) - mean
                    angle[i, j] = angle[i, j] - away / (1.0 - flat[i] * T.cos(angle[i, j]))
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[0, row, column] = T.cos(angle[i, j]) - flat[i]
                Y[1, row, column] = T.sqrt(1.0 - flat[i] * flat[i]) * T.sin(angle[i, j])
        return Y

    return kepler_places


def structural_likeness(H: int, W: int, block_H: int, block_W: int) -> Any:
    """`(2 * a * b + 6.5) * (2 * c + 58.5) / ((a**2 + b**2 + 6.5) * (v + 58.5))` of 7 x 7 neighbours
    in X and Y (H + 6, W + 6), uint8: their means a and b, their covariance c and the sum v of their
    variances (SSIM), as float32 (H, W).
    """

    @T.prim_func
    def structural_likeness(
        X: T.Tensor((H + 6, W + 6), "uint8"), Y: T.Tensor((H + 6, W + 6), "uint8")
    ):
        Z = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            down = T.alloc_shared((4, block_H, block_W + 6), "int32")
            total = T.alloc_fragment((4, block_H, block_W), "int32")
            T.clear(down)
            T.clear(total)
            for t in T.serial(7):
                for i, j in T.Parallel(block_H, block_W + 6):
                    x = T.cast(X[by * block_H + i + t, bx * block_W + j], "int32")
                    y = T.cast(Y[by * block_H + i + t, bx * block_W + j], "int32")
                    down[0, i, j] = down[0, i, j] + x
                    down[1, i, j] = down[1, i, j] + y
                    down[2, i, j] = down[2, i, j] + x * y
                    down[3, i, j] = down[3, i, j] + (x * x + y * y)
            for t in T.serial(7):
                for q, i, j in T.Parallel(4, block_H, block_W):
                    total[q, i, j] = total[q, i, j] + down[q, i, j + t]
            for i, j in T.Parallel(block_H, block_W):
                a = T.cast(total[0, i, j], "float32") / 49.0
                b = T.cast(total[1, i, j], "float32") / 49.0
                both = T.cast(total[2, i, j], "float32") / 49.0 - a * b
                squares = a * a + b * b
                each = T.cast(total[3, i, j], "float32") / 49.0 - squares
                above = (2.0 * a * b + 6.5) * (2.0 * both + 58.5)
                below = (squares + 6.5) * (each + 58.5)
                Z[by * block_H + i, bx * block_W + j] = above / below
        return Z

    return structural_likeness


def mosaic_colours(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Planes (3, H, W), uint8, of the raw pixels X (H + 2, W + 2) of a camera, int16 of 10 bits:
    red at even rows and columns of the inside, blue at odd ones, else green; the colours that a
    pixel lacks are the means of those of its neighbours.
    """

    @T.prim_func
    def mosaic_colours(X: T.Tensor((H + 2, W + 2), "int16")):
        Y = T.empty((3, H, W), "uint8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            raw = T.alloc_shared((block_H + 2, block_W + 2), "int32")
            for i, j in T.Parallel(block_H + 2, block_W + 2):
                raw[i, j] = T.cast(X[by * block_H + i, bx * block_W + j], "int32")
            for i, j in T.Parallel(block_H, block_W):
                row, column = by * block_H + i, bx * block_W + j
                own = 4 * raw[i + 1, j + 1]
                beside = 2 * (raw[i + 1, j] + raw[i + 1, j + 2])
                above = 2 * (raw[i, j + 1] + raw[i + 2, j + 1])
                corners = raw[i, j] + raw[i, j + 2] + raw[i + 2, j] + raw[i + 2, j + 2]
                sides = (beside + above) >> 1
                is_odd, is_right = row % 2 == 1, column % 2 == 1
                first = T.if_then_else(is_right, beside, own)
                second = T.if_then_else(is_right, corners, above)
                third = T.if_then_else(is_right, above, corners)
                fourth = T.if_then_else(is_right, own, beside)
                green = T.if_then_else((row + column) % 2 == 1, own, sides)
                Y[0, row, column] = T.cast(T.if_then_else(is_odd, second, first) >> 4, "uint8")
                Y[1, row, column] = T.cast(green >> 4, "uint8")
                Y[2, row, column] = T.cast(T.if_then_else(is_odd, fourth, third) >> 4, "uint8")
        return Y

    return mosaic_colours


def warped_distances(L: int, S: int, B: int, block_L: int, block_B: int) -> Any:
    """`d[l, s] = |X[l] - Y[s]| + min(d[l - 1, s], d[l, s - 1], d[l - 1, s - 1])` to the ends of
    pairs of series, the columns of X (L, B) and Y (S, B), float32: (B,), dynamic time warping.
    """

    @T.prim_func
    def warped_distances(X: T.Tensor((L, B), "float32"), Y: T.Tensor((S, B), "float32")):
        Z = T.empty((B,), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            first = T.alloc_shared((block_L, block_B), "float32")
            second = T.alloc_shared((S, block_B), "float32")
            row = T.alloc_shared((S, block_B), "float32")
            corner = T.alloc_fragment((block_B,), "float32")
            before = T.alloc_fragment((block_B,), "float32")
            T.copy(Y[0, bx * block_B], second)
            T.fill(row, 1e30)
            T.clear(corner)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B], first)
                for n in T.serial(block_L):
                    T.fill(before, 1e30)
                    for s in T.serial(S):
                        for j in T.Parallel(block_B):
                            above = row[s, j]
                            least = T.min(T.min(above, before[j]), corner[j])
                            corner[j] = above
                            before[j] = T.abs(first[n, j] - second[s, j]) + least
                            row[s, j] = before[j]
                    T.fill(corner, 1e30)
            T.copy(before, Z[bx * block_B])
        return Z

    return warped_distances


def pooled_boxes(R: int, H: int, W: int, C: int, P: int, block_P: int, block_C: int) -> Any:
    """P by P points of each of R boxes in a map X (H, W, C), float16, as float32 (R, P * P, C),
    each from the four elements around it; boxes (R, 4), float32, have their top, left, bottom and
    right as shares `x / 8 + 0.5` of the map.
    """

    def place(start: Any, end: Any, at: Any, extent: int) -> Any:
        share = (start + (end - start) * (T.cast(at, "float32") + 0.5) / P) / 8.0 + 0.5
        return T.clamp(share * (extent - 1.0), 0.0, extent - 1.0)

    @T.prim_func
    def pooled_boxes(X: T.Tensor((H, W, C), "float16"), boxes: T.Tensor((R, 4), "float32")):
        Y = T.empty((R, P * P, C), "float32")
        with T.Kernel(T.ceildiv(C, block_C), T.ceildiv(P * P, block_P), R) as (bx, by, b):
            for i, j in T.Parallel(block_P, block_C):
                point, channel = by * block_P + i, bx * block_C + j
                down = place(boxes[b, 0], boxes[b, 2], point // P, H)
                along = place(boxes[b, 1], boxes[b, 3], point % P, W)
                y, x = T.cast(T.floor(down), "int32"), T.cast(T.floor(along), "int32")
                below, right = T.min(y + 1, H - 1), T.min(x + 1, W - 1)
                share = along - T.floor(along)
                upper = (1.0 - share) * X[y, x, channel] + share * X[y, right, channel]
                lower = (1.0 - share) * X[below, x, channel] + share * X[below, right, channel]
                Y[b, point, channel] = upper + (down - T.floor(down)) * (lower - upper)
        return Y

    return pooled_boxes


def clipped_sums(G: int, M: int, N: int, block_M: int, block_N: int) -> Any:
    """`sum(min(1, 9 / |x|) * x)` of the rows x of each of G parts of X (G, M, N), float16, as
    float32 (G, N): rows are read in pieces for their lengths, then again.
    """

    @T.prim_func
    def clipped_sums(X: T.Tensor((G, M, N), "float16")):
        Y = T.empty((G, N), "float32")
        with T.Kernel(G) as g:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            length = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_shared((N,), "float32")
            T.clear(total)
            for m in T.serial(T.ceildiv(M, block_M)):
                T.clear(length)
                for k in T.serial(T.ceildiv(N, block_N)):
                    T.copy(X[g, m * block_M, k * block_N], tile)
                    for i, j in T.Parallel(block_M, block_N):
                        tile[i, j] = tile[i, j] * tile[i, j]
                    T.reduce_sum(tile, length, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    length[i] = T.min(9.0 * T.rsqrt(length[i]), 1.0)
                for k in T.serial(T.ceildiv(N, block_N)):
                    T.copy(X[g, m * block_M, k * block_N], tile)
                    for i, j in T.Parallel(block_M, block_N):
                        tile[i, j] = tile[i, j] * length[i]
                    T.reduce_sum(tile, part, dim=0)
                    for j in T.Parallel(block_N):
                        total[k * block_N + j] = total[k * block_N + j] + part[j]
            T.copy(total, Y[g, 0])
        return Y

    return clipped_sums


def centres_of_groups(M: int, N: int, C: int, block_M: int, block_N: int) -> Any:
    """Means of the rows of X (M, N), bfloat16, in each of C groups, (C, N), float32, of which
    `group` (M,), int32, has one for each row; 0 for a group without rows (a step of k-means).
    """

    @T.prim_func
    def centres_of_groups(X: T.Tensor((M, N), "bfloat16"), group: T.Tensor((M,), "int32")):
        Y = T.empty((C, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            rows = T.alloc_shared((block_M, block_N), "float32")
            total = T.alloc_shared((C, block_N), "float32")
            count = T.alloc_shared((C,), "float32")
            T.clear(total)
            T.clear(count)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], rows)
                for i in T.serial(block_M):
                    own = group[k * block_M + i]
                    for c in T.Parallel(C):
                        count[c] = count[c] + T.if_then_else(c == own, 1.0, 0.0)
                    for j in T.Parallel(block_N):
                        total[own, j] = total[own, j] + rows[i, j]
            for c, j in T.Parallel(C, block_N):
                Y[c, bx * block_N + j] = total[c, j] / T.max(count[c], 1.0)
        return Y

    return centres_of_groups


CASES: tuple[Case, ...] = (
    Case(
        "triplet loss of rows 240x2000, bfloat16",
        triplet_loss,
        {"M": 240, "N": 2000},
        {"block_M": (1, 4, 24, 240), "block_N": (8, 80, 400, 2000)},
    ),
    Case(
        "packed signs 300x90 words, float16",
        packed_signs,
        {"M": 300, "W": 90},
        {"block_M": (1, 6, 50, 300), "block_W": (1, 9, 30, 90)},
    ),
    Case(
        "places on ellipses 120x400, 5 steps",
        kepler_places,
        {"M": 120, "N": 400, "steps": 5},
        {"block_M": (1, 4, 24, 120), "block_N": (8, 40, 200, 400)},
    ),
    Case(
        "likeness of images 200x320",
        structural_likeness,
        {"H": 200, "W": 320},
        {"block_H": (1, 5, 40, 200), "block_W": (8, 40, 160, 320)},
    ),
    Case(
        "colours of a mosaic 360x640",
        mosaic_colours,
        {"H": 360, "W": 640},
        {"block_H": (1, 6, 60, 360), "block_W": (8, 64, 160, 640)},
    ),
    Case(
        "warped distances 48x60, 240 pairs",
        warped_distances,
        {"L": 48, "S": 60, "B": 240},
        {"block_L": (1, 8, 48), "block_B": (1, 8, 24, 80, 240)},
    ),
    Case(
        "boxes of a map 60x7x7x96, float16",
        pooled_boxes,
        {"R": 60, "H": 50, "W": 64, "C": 96, "P": 7},
        {"block_P": (1, 7, 49), "block_C": (8, 16, 32, 48, 96)},
    ),
    Case(
        "sums of clipped rows 4x150x1200, float16",
        clipped_sums,
        {"G": 4, "M": 150, "N": 1200},
        {"block_M": (1, 6, 30, 150), "block_N": (8, 60, 300, 1200)},
    ),
    Case(
        "centres of 24 groups 1200x480, bfloat16",
        centres_of_groups,
        {"M": 1200, "N": 480, "C": 24},
        {"block_M": (1, 20, 150, 1200), "block_N": (8, 32, 120, 480)},
    ),
)
