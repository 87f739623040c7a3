"""Filters of images, and what is found in them: each pixel from those around it."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import IMAGES, Case


def edges(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """Lengths of gradients by central differences, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def edges(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                down = X[row + 2, column + 1] - X[row, column + 1]
                along = X[row + 1, column + 2] - X[row + 1, column]
                Y[row, column] = T.sqrt(down * down + along * along)
        return Y

    return edges


def bilateral(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Means of 5 x 5 neighbours x of each element c with the weights `exp(-d**2 / 10 - 2 * (x -
    c)**2)` for a distance d, of X (H + 4, W + 4), float32.
    """

    @T.prim_func
    def bilateral(X: T.Tensor((H + 4, W + 4), "float32")):
        Y = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            value = T.alloc_fragment((block_H, block_W), "float32")
            total = T.alloc_fragment((block_H, block_W), "float32")
            T.clear(value)
            T.clear(total)
            for down, along in T.grid(5, 5):
                far = 0.1 * ((down - 2) * (down - 2) + (along - 2) * (along - 2))
                for i, j in T.Parallel(block_H, block_W):
                    row, column = by * block_H + i, bx * block_W + j
                    x = X[row + down, column + along]
                    off = x - X[row + 2, column + 2]
                    weight = T.exp(-2.0 * off * off - far)
                    value[i, j] = value[i, j] + weight * x
                    total[i, j] = total[i, j] + weight
            for i, j in T.Parallel(block_H, block_W):
                value[i, j] = value[i, j] / total[i, j]
            T.copy(value, Y[by * block_H, bx * block_W])
        return Y

    return bilateral


def closing(H: int, W: int, block_H: int, block_W: int) -> Any:
    """The least of 3 x 3 neighbours of the largest of 3 x 3 neighbours, X (H + 4, W + 4) to (H, W)
    of float32; each block has what is between with an edge of 1.
    """

    @T.prim_func
    def closing(X: T.Tensor((H + 4, W + 4), "float32")):
        Y = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            most = T.alloc_shared((block_H + 2, block_W + 2), "float32")
            least = T.alloc_fragment((block_H, block_W), "float32")
            T.fill(most, -T.infinity("float32"))
            T.fill(least, T.infinity("float32"))
            for down, along in T.grid(3, 3):
                for i, j in T.Parallel(block_H + 2, block_W + 2):
                    x = X[by * block_H + i + down, bx * block_W + j + along]
                    most[i, j] = T.max(most[i, j], x)
            for down, along in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    least[i, j] = T.min(least[i, j], most[i + down, j + along])
            T.copy(least, Y[by * block_H, bx * block_W])
        return Y

    return closing


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


def corners(H: int, W: int, block_H: int, block_W: int) -> Any:
    """`det(S) - 0.05 * trace(S)**2` of the sums S of `g g.T` of 3 x 3 neighbours, g their gradients
    by differences (Harris's corners): X (H + 4, W + 4) to (H, W) of float32.
    """

    @T.prim_func
    def corners(X: T.Tensor((H + 4, W + 4), "float32")):
        Y = T.empty((H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            down = T.alloc_shared((block_H + 2, block_W + 2), "float32")
            along = T.alloc_shared((block_H + 2, block_W + 2), "float32")
            sums = T.alloc_fragment((3, block_H, block_W), "float32")
            T.clear(sums)
            for i, j in T.Parallel(block_H + 2, block_W + 2):
                row, column = by * block_H + i, bx * block_W + j
                down[i, j] = X[row + 2, column + 1] - X[row, column + 1]
                along[i, j] = X[row + 1, column + 2] - X[row + 1, column]
            for a, b in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    y, x = down[i + a, j + b], along[i + a, j + b]
                    sums[0, i, j] = sums[0, i, j] + y * y
                    sums[1, i, j] = sums[1, i, j] + x * y
                    sums[2, i, j] = sums[2, i, j] + x * x
            for i, j in T.Parallel(block_H, block_W):
                trace = sums[0, i, j] + sums[2, i, j]
                area = sums[0, i, j] * sums[2, i, j] - sums[1, i, j] * sums[1, i, j]
                Y[by * block_H + i, bx * block_W + j] = area - 0.05 * trace * trace
        return Y

    return corners


def disparities(H: int, W: int, D: int, block_H: int, block_W: int) -> Any:
    """The d below D with the least `sum(|A[i + a, j + b] - B[i + a, j + b + d]|)` over 5 x 5 places
    (a, b), int32, for each (i, j): A (H + 4, W + 4) and B (H + 4, W + D + 3), uint8, two eyes.
    """

    @T.prim_func
    def disparities(A: T.Tensor((H + 4, W + 4), "uint8"), B: T.Tensor((H + 4, W + D + 3), "uint8")):
        Y = T.empty((H, W), "int32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            off = T.alloc_fragment((block_H, block_W), "int32")
            least = T.alloc_fragment((block_H, block_W), "int32")
            place = T.alloc_fragment((block_H, block_W), "int32")
            T.fill(least, 100000)
            T.clear(place)
            for d in T.serial(D):
                T.clear(off)
                for a, b in T.grid(5, 5):
                    for i, j in T.Parallel(block_H, block_W):
                        row, column = by * block_H + i + a, bx * block_W + j + b
                        left = T.cast(A[row, column], "int32")
                        off[i, j] = off[i, j] + T.abs(left - T.cast(B[row, column + d], "int32"))
                for i, j in T.Parallel(block_H, block_W):
                    place[i, j] = T.if_then_else(off[i, j] < least[i, j], d, place[i, j])
                    least[i, j] = T.min(off[i, j], least[i, j])
            T.copy(place, Y[by * block_H, bx * block_W])
        return Y

    return disparities


def blurred_bytes(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Sums of 5 x 5 neighbours of X (H + 4, W + 4) with the weights 1, 4, 6, 4 and 1 down, then
    along, over 256 and rounded: (H, W), both uint8.
    """

    def byte(X: Any, row: Any, column: Any) -> Any:
        return T.cast(X[row, column], "int32")

    @T.prim_func
    def blurred_bytes(X: T.Tensor((H + 4, W + 4), "uint8")):
        Y = T.empty((H, W), "uint8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            down = T.alloc_shared((block_H, block_W + 4), "int32")
            for i, j in T.Parallel(block_H, block_W + 4):
                row, column = by * block_H + i, bx * block_W + j
                ends = byte(X, row, column) + byte(X, row + 4, column)
                sides = byte(X, row + 1, column) + byte(X, row + 3, column)
                down[i, j] = ends + 4 * sides + 6 * byte(X, row + 2, column)
            for i, j in T.Parallel(block_H, block_W):
                sides = down[i, j + 1] + down[i, j + 3]
                total = down[i, j] + down[i, j + 4] + 4 * sides + 6 * down[i, j + 2]
                Y[by * block_H + i, bx * block_W + j] = T.cast((total + 128) >> 8, "uint8")
        return Y

    return blurred_bytes


def colours_of_video(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Pixels (H, W, 3), red, green and blue, of the lightness Y (H, W) and the two differences UV
    (H // 2, W // 2, 2) of squares of 2 x 2, all uint8, in whole numbers.
    """

    @T.prim_func
    def colours_of_video(Y: T.Tensor((H, W), "uint8"), UV: T.Tensor((H // 2, W // 2, 2), "uint8")):
        Z = T.empty((H, W, 3), "uint8")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            for i, j in T.Parallel(block_H, block_W):
                row, column = by * block_H + i, bx * block_W + j
                light = 298 * (T.cast(Y[row, column], "int32") - 16) + 128
                u = T.cast(UV[row // 2, column // 2, 0], "int32") - 128
                v = T.cast(UV[row // 2, column // 2, 1], "int32") - 128
                red = T.clamp((light + 409 * v) >> 8, 0, 255)
                green = T.clamp((light - 100 * u - 208 * v) >> 8, 0, 255)
                blue = T.clamp((light + 516 * u) >> 8, 0, 255)
                Z[row, column, 0] = T.cast(red, "uint8")
                Z[row, column, 1] = T.cast(green, "uint8")
                Z[row, column, 2] = T.cast(blue, "uint8")
        return Z

    return colours_of_video


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


CASES = (
    Case("edges of an image 512x1024", edges, {"M": 512, "N": 1024}, IMAGES),
    Case(
        "bilateral filter 180x320",
        bilateral,
        {"H": 180, "W": 320},
        {"block_H": (1, 4, 20, 180), "block_W": (8, 40, 128, 320)},
    ),
    Case(
        "closing of an image 240x360",
        closing,
        {"H": 240, "W": 360},
        {"block_H": (1, 4, 24, 240), "block_W": (8, 40, 120, 360)},
    ),
    Case(
        "medians of an image 300x400",
        medians,
        {"H": 300, "W": 400},
        {"block_H": (1, 4, 30, 300), "block_W": (8, 40, 200, 400)},
    ),
    Case(
        "corners of an image 200x320",
        corners,
        {"H": 200, "W": 320},
        {"block_H": (1, 5, 40, 200), "block_W": (8, 40, 160, 320)},
    ),
    Case(
        "disparities of two images 160x240",
        disparities,
        {"H": 160, "W": 240, "D": 10},
        {"block_H": (1, 4, 32, 160), "block_W": (8, 40, 120, 240)},
    ),
    Case(
        "blurred bytes 480x600",
        blurred_bytes,
        {"H": 480, "W": 600},
        {"block_H": (1, 6, 48, 480), "block_W": (8, 60, 200, 600)},
    ),
    Case(
        "colours of video 360x480",
        colours_of_video,
        {"H": 360, "W": 480},
        {"block_H": (1, 6, 60, 360), "block_W": (8, 48, 160, 480)},
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
)
