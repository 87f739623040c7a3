"""Transposes, rows of tables and planes of another size."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import ELEMENTS, Case


def transpose(M: int, N: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`Y = X.T` of an (M, N) float32 matrix, a tile at a time."""

    @T.prim_func
    def transpose(X: T.Tensor((M, N), "float32")):
        Y = T.empty((N, M), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], tile)
            for j, i in T.Parallel(block_N, block_M):
                Y[bx * block_N + j, by * block_M + i] = tile[i, j]
        return Y

    return transpose


def channels_last(B: int, C: int, P: int, block_C: int, block_P: int) -> Any:
    """`(X * s + t).mT` of X (B, C, P), bfloat16, s and t (C,), as float32 (B, P, C)."""

    @T.prim_func
    def channels_last(
        X: T.Tensor((B, C, P), "bfloat16"),
        s: T.Tensor((C,), "float32"),
        t: T.Tensor((C,), "float32"),
    ):
        Y = T.empty((B, P, C), "float32")
        with T.Kernel(T.ceildiv(P, block_P), T.ceildiv(C, block_C), B) as (bx, by, b):
            tile = T.alloc_shared((block_C, block_P), "float32")
            turned = T.alloc_shared((block_P, block_C), "float32")
            for i, j in T.Parallel(block_C, block_P):
                channel = by * block_C + i
                x = T.cast(X[b, channel, bx * block_P + j], "float32")
                tile[i, j] = x * s[channel] + t[channel]
            T.transpose(tile, turned)
            T.copy(turned, Y[b, bx * block_P, by * block_C])
        return Y

    return channels_last


def embed(M: int, N: int, words: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y[i] = W[words[i]] * scale + P[i]`: rows of a table and places, (M, N) of float32."""

    @T.prim_func
    def embed(
        index: T.Tensor((M,), "int32"),
        W: T.Tensor((words, N), "float32"),
        P: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = W[index[row], column] * 8.0 + P[row, column]
        return Y

    return embed


def bags(M: int, N: int, bag: int, words: int, block_M: int, block_N: int) -> Any:
    """`sum(w[i, t] * E[words[i, t]])` over the `bag` words of each i, of a table E, float32."""

    @T.prim_func
    def bags(
        index: T.Tensor((M, bag), "int32"),
        w: T.Tensor((M, bag), "float32"),
        E: T.Tensor((words, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(bag):
                for i, j in T.Parallel(block_M, block_N):
                    row = by * block_M + i
                    value = E[index[row, t], bx * block_N + j]
                    total[i, j] = total[i, j] + w[row, t] * value
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return bags


def enlarge(C: int, H: int, W: int, block_C: int, block_H: int, block_W: int) -> Any:
    """Planes of twice the height and width by bilinear interpolation, X (C, H, W), float32."""

    @T.prim_func
    def enlarge(X: T.Tensor((C, H, W), "float32")):
        Y = T.empty((C, 2 * H, 2 * W), "float32")
        grid = T.ceildiv(2 * W, block_W), T.ceildiv(2 * H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                near, beside = row // 2, column // 2
                far = T.clamp(near + 2 * (row % 2) - 1, 0, H - 1)
                away = T.clamp(beside + 2 * (column % 2) - 1, 0, W - 1)
                first = 0.75 * X[c, near, beside] + 0.25 * X[c, near, away]
                second = 0.75 * X[c, far, beside] + 0.25 * X[c, far, away]
                Y[c, row, column] = 0.75 * first + 0.25 * second
        return Y

    return enlarge


def warp(C: int, H: int, W: int, block_C: int, block_H: int, block_W: int) -> Any:
    """Planes X (C, H, W) at places moved by F (2, H, W), float32, down and along, that lie between
    four elements; outside is as at the edge.
    """

    @T.prim_func
    def warp(X: T.Tensor((C, H, W), "float32"), F: T.Tensor((2, H, W), "float32")):
        Y = T.empty((C, H, W), "float32")
        grid = T.ceildiv(W, block_W), T.ceildiv(H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                down = T.clamp(F[0, row, column] + T.cast(row, "float32"), 0.0, H - 1.0)
                along = T.clamp(F[1, row, column] + T.cast(column, "float32"), 0.0, W - 1.0)
                above, left = T.floor(down), T.floor(along)
                y, x = T.cast(above, "int32"), T.cast(left, "int32")
                below, right = T.min(y + 1, H - 1), T.min(x + 1, W - 1)
                share = along - left
                upper = X[c, y, x] + share * (X[c, y, right] - X[c, y, x])
                lower = X[c, below, x] + share * (X[c, below, right] - X[c, below, x])
                Y[c, row, column] = upper + (down - above) * (lower - upper)
        return Y

    return warp


def pixel_shuffle(C: int, H: int, W: int, r: int, block_C: int, block_H: int, block_W: int) -> Any:
    """`Y[c, r * h + i, r * w + j] = X[(c * r + i) * r + j, h, w]` of X (C * r * r, H, W),
    bfloat16: channels become squares of r by r pixels.
    """

    @T.prim_func
    def pixel_shuffle(X: T.Tensor((C * r * r, H, W), "bfloat16")):
        Y = T.empty((C, r * H, r * W), "bfloat16")
        grid = T.ceildiv(r * W, block_W), T.ceildiv(r * H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                channel = (c * r + row % r) * r + column % r
                Y[c, row, column] = X[channel, row // r, column // r]
        return Y

    return pixel_shuffle


def shifted_windows(
    H: int, W: int, C: int, S: int, block_B: int, block_P: int, block_C: int
) -> Any:
    """Windows of S by S pixels, (H * W // S**2, S * S, C), of an image X (H, W, C), float32,
    after its pixels went up and to the left by S // 2, around its edges.
    """
    wide = W // S

    @T.prim_func
    def shifted_windows(X: T.Tensor((H, W, C), "float32")):
        Y = T.empty((H // S * wide, S * S, C), "float32")
        grid = (T.ceildiv(C, block_C), T.ceildiv(S * S, block_P), T.ceildiv(H // S * wide, block_B))
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_B, block_P, block_C):
                window, pixel, channel = bz * block_B + a, by * block_P + i, bx * block_C + j
                row = (window // wide * S + pixel // S + S // 2) % H
                column = (window % wide * S + pixel % S + S // 2) % W
                Y[window, pixel, channel] = X[row, column, channel]
        return Y

    return shifted_windows


def turned_image(H: int, W: int, block_H: int, block_W: int) -> Any:
    """`Y[j, H - 1 - i] = X[i, j]` of the pixels X (H, W, 3), uint8: a quarter turn clockwise."""

    @T.prim_func
    def turned_image(X: T.Tensor((H, W, 3), "uint8")):
        Y = T.empty((W, H, 3), "uint8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            for j, i, c in T.Parallel(block_W, block_H, 3):
                row, column = by * block_H + i, bx * block_W + j
                Y[column, H - 1 - row, c] = X[row, column, c]
        return Y

    return turned_image


def graded_colours(H: int, W: int, S: int, block_H: int, block_W: int) -> Any:
    """Colours (3, H, W) of a table (S, S, S, 3) for those of X (3, H, W), float32, from the eight
    entries around each: `X / 4 + 0.5` is cut to 0 ... 1, the ends of the table.
    """

    @T.prim_func
    def graded_colours(X: T.Tensor((3, H, W), "float32"), table: T.Tensor((S, S, S, 3), "float32")):
        Y = T.empty((3, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            entry = T.alloc_shared((3, block_H, block_W), "int32")
            share = T.alloc_shared((3, block_H, block_W), "float32")
            total = T.alloc_fragment((3, block_H, block_W), "float32")
            T.clear(total)
            for c, i, j in T.Parallel(3, block_H, block_W):
                x = X[c, by * block_H + i, bx * block_W + j]
                place = T.clamp(0.25 * x + 0.5, 0.0, 1.0) * (S - 1.0)
                entry[c, i, j] = T.min(T.cast(place, "int32"), S - 2)
                share[c, i, j] = place - T.cast(entry[c, i, j], "float32")
            for r, g, b in T.grid(2, 2, 2):
                for c, i, j in T.Parallel(3, block_H, block_W):
                    red = T.if_then_else(r == 1, share[0, i, j], 1.0 - share[0, i, j])
                    green = T.if_then_else(g == 1, share[1, i, j], 1.0 - share[1, i, j])
                    blue = T.if_then_else(b == 1, share[2, i, j], 1.0 - share[2, i, j])
                    value = table[entry[0, i, j] + r, entry[1, i, j] + g, entry[2, i, j] + b, c]
                    total[c, i, j] = total[c, i, j] + red * green * blue * value
            T.copy(total, Y[0, by * block_H, bx * block_W])
        return Y

    return graded_colours


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


CASES = (
    Case(
        "transpose 1024x1024",
        transpose,
        {"M": 1024, "N": 1024},
        {"block_M": (8, 32, 128), "block_N": (8, 32, 128)},
    ),
    Case(
        "channels last 8x192x784, bfloat16",
        channels_last,
        {"B": 8, "C": 192, "P": 784},
        {"block_C": (1, 8, 48, 192), "block_P": (1, 8, 56, 392, 784)},
    ),
    Case("rows of a table 1024x1024", embed, {"M": 1024, "N": 1024, "words": 16}, ELEMENTS),
    Case(
        "bags of 12 rows 768x320",
        bags,
        {"M": 768, "N": 320, "bag": 12, "words": 16},
        {"block_M": (1, 8, 50, 768), "block_N": (8, 32, 96, 320)},
    ),
    Case(
        "twice as large 12x48x72",
        enlarge,
        {"C": 12, "H": 48, "W": 72},
        {"block_C": (1, 4, 12), "block_H": (1, 8, 96), "block_W": (8, 48, 144)},
    ),
    Case(
        "warp by a flow 12x96x136",
        warp,
        {"C": 12, "H": 96, "W": 136},
        {"block_C": (1, 3, 12), "block_H": (1, 8, 32, 96), "block_W": (8, 136)},
    ),
    Case(
        "pixel shuffle by 3, 10x72x100, bfloat16",
        pixel_shuffle,
        {"C": 10, "H": 72, "W": 100, "r": 3},
        {"block_C": (1, 5, 10), "block_H": (1, 9, 216), "block_W": (10, 60, 300)},
    ),
    Case(
        "shifted windows of 8x8, 96x120x96",
        shifted_windows,
        {"H": 96, "W": 120, "C": 96, "S": 8},
        {"block_B": (1, 12, 180), "block_P": (1, 8, 64), "block_C": (8, 96)},
    ),
    Case(
        "quarter turn of an image 480x640",
        turned_image,
        {"H": 480, "W": 640},
        {"block_H": (1, 8, 60, 480), "block_W": (1, 8, 80, 640)},
    ),
    Case(
        "graded colours 180x240, table of 17",
        graded_colours,
        {"H": 180, "W": 240, "S": 17},
        {"block_H": (1, 4, 30, 180), "block_W": (8, 40, 120, 240)},
    ),
    Case(
        "boxes of a map 60x7x7x96, float16",
        pooled_boxes,
        {"R": 60, "H": 50, "W": 64, "C": 96, "P": 7},
        {"block_P": (1, 7, 49), "block_C": (8, 16, 32, 48, 96)},
    ),
    Case(
        "features of 8 grids at 6000 places, float16",
        hashed_grids,
        {"N": 6000, "G": 8, "S": 4096},
        {"block_N": (1, 20, 300, 6000), "block_G": (1, 2, 8)},
    ),
)
