"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def ranks(M: int, N: int, block_M: int, block_N: int) -> Any:
    """How many elements of its row are below each of X (M, N), float32: int32."""

    @T.prim_func
    def ranks(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "int32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            rows = T.alloc_shared((block_M, N), "float32")
            below = T.alloc_fragment((block_M, block_N), "int32")
            T.copy(X[by * block_M, bx * block_N], tile)
            T.copy(X[by * block_M, 0], rows)
            T.clear(below)
            for n in T.serial(N):
                for i, j in T.Parallel(block_M, block_N):
                    below[i, j] = below[i, j] + T.if_then_else(rows[i, n] < tile[i, j], 1, 0)
            T.copy(below, Y[by * block_M, bx * block_N])
        return Y

    return ranks


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


def robust_means(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Means of the rows of X (M, N), float32, with weights `1 / (1 + (x - m)**2)` of the mean m
    before, six times from 0: elements far off hardly count.
    """

    @T.prim_func
    def robust_means(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            weight = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M,), "float32")
            products = T.alloc_fragment((block_M,), "float32")
            middle = T.alloc_fragment((block_M,), "float32")
            T.clear(middle)
            for _ in T.serial(6):
                T.clear(weights)
                T.clear(products)
                for k in T.serial(T.ceildiv(N, block_N)):
                    for i, j in T.Parallel(block_M, block_N):
                        x = X[bx * block_M + i, k * block_N + j]
                        off = x - middle[i]
                        weight[i, j] = 1.0 / (1.0 + off * off)
                        product[i, j] = weight[i, j] * x
                    T.reduce_sum(weight, weights, dim=1, clear=False)
                    T.reduce_sum(product, products, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    middle[i] = products[i] / weights[i]
            T.copy(middle, y[bx * block_M])
        return y

    return robust_means


def skewness(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`mean((x - m)**3) / mean((x - m)**2)**1.5`, m = mean(x), of the columns x of X (M, N),
    float32, which are read twice.
    """

    @T.prim_func
    def skewness(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            cube = T.alloc_fragment((block_M, block_N), "float32")
            middle = T.alloc_fragment((block_N,), "float32")
            squares = T.alloc_fragment((block_N,), "float32")
            cubes = T.alloc_fragment((block_N,), "float32")
            T.clear(middle)
            T.clear(squares)
            T.clear(cubes)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, middle, dim=0, clear=False)
            for j in T.Parallel(block_N):
                middle[j] = middle[j] / M
            for k in T.serial(T.ceildiv(M, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    off = X[k * block_M + i, bx * block_N + j] - middle[j]
                    tile[i, j] = off * off
                    cube[i, j] = off * off * off
                T.reduce_sum(tile, squares, dim=0, clear=False)
                T.reduce_sum(cube, cubes, dim=0, clear=False)
            for j in T.Parallel(block_N):
                variance = squares[j] / M
                y[bx * block_N + j] = cubes[j] / M / (variance * T.sqrt(variance))
        return y

    return skewness


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


def resonators(M: int, L: int, block_M: int, block_L: int) -> Any:
    """`y[l] = x[l + 2] - x[l] + 1.8 * cos(f) * y[l - 1] - 0.81 * y[l - 2]` along the rows x of X
    (M, L + 2), each with its own f of (M,), float32, in pieces.
    """

    @T.prim_func
    def resonators(X: T.Tensor((M, L + 2), "float32"), f: T.Tensor((M,), "float32")):
        Y = T.empty((M, L), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_L), "float32")
            rate = T.alloc_fragment((block_M,), "float32")
            last = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            T.clear(last)
            T.clear(before)
            for i in T.Parallel(block_M):
                rate[i] = 1.8 * T.cos(f[bx * block_M + i])
            for k in T.serial(T.ceildiv(L, block_L)):
                for i, j in T.Parallel(block_M, block_L):
                    row, column = bx * block_M + i, k * block_L + j
                    tile[i, j] = X[row, column + 2] - X[row, column]
                for j in T.serial(block_L):
                    for i in T.Parallel(block_M):
                        tile[i, j] = tile[i, j] + rate[i] * last[i] - 0.81 * before[i]
                        before[i] = last[i]
                        last[i] = tile[i, j]
                T.copy(tile, Y[bx * block_M, k * block_L])
        return Y

    return resonators


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


CASES: tuple[Case, ...] = (
    Case(
        "ranks in rows 80x480",
        ranks,
        {"M": 80, "N": 480},
        {"block_M": (1, 2, 10, 80), "block_N": (8, 30, 120, 480)},
    ),
    Case(
        "earth moved in rows 300x1800, float16",
        earth_movers,
        {"M": 300, "N": 1800},
        {"block_M": (1, 5, 30, 300), "block_N": (8, 36, 150, 450, 1800)},
    ),
    Case(
        "robust means of rows 160x1200",
        robust_means,
        {"M": 160, "N": 1200},
        {"block_M": (1, 8, 160), "block_N": (8, 24, 100, 400, 1200)},
    ),
    Case(
        "skewness of columns 900x720",
        skewness,
        {"M": 900, "N": 720},
        {"block_M": (1, 9, 60, 900), "block_N": (8, 48, 240, 720)},
    ),
    Case(
        "corners of an image 200x320",
        corners,
        {"H": 200, "W": 320},
        {"block_H": (1, 5, 40, 200), "block_W": (8, 40, 160, 320)},
    ),
    Case(
        "resonators 240x1000",
        resonators,
        {"M": 240, "L": 1000},
        {"block_M": (1, 3, 8, 24, 240), "block_L": (8, 40, 200, 1000)},
    ),
    Case(
        "disparities of two images 160x240",
        disparities,
        {"H": 160, "W": 240, "D": 10},
        {"block_H": (1, 4, 32, 160), "block_W": (8, 40, 120, 240)},
    ),
)
