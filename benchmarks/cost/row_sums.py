"""Sums, extrema and counts of rows, of one tensor or of two."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import PIECES, ROWS, SHORT_PIECES, Case


def moments(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """The sums of x and of its squares of rows of an (M, N) float32 matrix, in pieces."""

    @T.prim_func
    def moments(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, 2), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            square = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, first, dim=1, clear=False)
                T.reduce_sum(square, second, dim=1, clear=False)
            for i in T.Parallel(block_M):
                Y[bx * block_M + i, 0] = first[i]
                Y[bx * block_M + i, 1] = second[i]
        return Y

    return moments


def row_statistics(M: int, N: int, block_M: int = 1) -> Any:
    """Means, and roots of mean squares about them, of rows of X (M, N), float32, whole rows."""

    @T.prim_func
    def row_statistics(X: T.Tensor((M, N), "float32")):
        mean, deviation = T.empty((M,), "float32"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            squares = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.reduce_sum(tile, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                away = tile[i, j] - total[i] / float(N)
                tile[i, j] = away * away
            T.reduce_sum(tile, squares, dim=1)
            for i in T.Parallel(block_M):
                mean[bx * block_M + i] = total[i] / float(N)
                deviation[bx * block_M + i] = T.sqrt(squares[i] / float(N))
        return mean, deviation

    return row_statistics


def row_range(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`max(x) - min(x)` of rows of an (M, N) float32 matrix, in pieces."""

    @T.prim_func
    def row_range(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            least = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -T.infinity("float32"))
            T.fill(least, T.infinity("float32"))
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.reduce_max(tile, most, dim=1, clear=False)
                T.reduce_min(tile, least, dim=1, clear=False)
            for i in T.Parallel(block_M):
                y[bx * block_M + i] = most[i] - least[i]
        return y

    return row_range


def weighted_norms(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sqrt(sum(w * X * X))` of rows of X (M, N) with w (N,), float32, in pieces."""

    @T.prim_func
    def weighted_norms(X: T.Tensor((M, N), "float32"), w: T.Tensor((N,), "float32")):
        Y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            weight = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(w[k * block_N], weight)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = weight[j] * x[i, j] * x[i, j]
                T.reduce_sum(x, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                Y[bx * block_M + i] = T.sqrt(total[i])
        return Y

    return weighted_norms


def cosines(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`sum(x y) / sqrt(sum(x x) * sum(y y))` of rows of two (M, N) float32 matrices, in pieces."""

    @T.prim_func
    def cosines(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        C = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            both = T.alloc_fragment((block_M,), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_M,), "float32")
            T.clear(both)
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                for i, j in T.Parallel(block_M, block_N):
                    product[i, j] = x[i, j] * y[i, j]
                    x[i, j] = x[i, j] * x[i, j]
                    y[i, j] = y[i, j] * y[i, j]
                T.reduce_sum(product, both, dim=1, clear=False)
                T.reduce_sum(x, first, dim=1, clear=False)
                T.reduce_sum(y, second, dim=1, clear=False)
            for i in T.Parallel(block_M):
                C[bx * block_M + i] = both[i] / T.sqrt(first[i] * second[i])
        return C

    return cosines


def kernel_sums(M: int, N: int, block_M: int = 8, block_N: int = 64) -> Any:
    """`sum(w[j] * exp(-|a[i] - b[j]|))` over j, of a (M,), b and w (N,), float32."""

    @T.prim_func
    def kernel_sums(
        a: T.Tensor((M,), "float32"), b: T.Tensor((N,), "float32"), w: T.Tensor((N,), "float32")
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    away = T.abs(a[bx * block_M + i] - b[k * block_N + j])
                    part[i, j] = w[k * block_N + j] * T.exp(-away)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, y[bx * block_M])
        return y

    return kernel_sums


def counts(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """How many elements of each row of X (M, N), int32, are above those of t (M,), in pieces."""

    @T.prim_func
    def counts(X: T.Tensor((M, N), "int32"), t: T.Tensor((M,), "int32")):
        y = T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            above = T.alloc_fragment((block_M, block_N), "int32")
            total = T.alloc_fragment((block_M,), "int32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    is_above = X[bx * block_M + i, k * block_N + j] > t[bx * block_M + i]
                    above[i, j] = T.if_then_else(is_above, 1, 0)
                T.reduce_sum(above, total, dim=1, clear=False)
            T.copy(total, y[bx * block_M])
        return y

    return counts


def first_largest(M: int, N: int, block_M: int, block_N: int) -> Any:
    """The places of the largest elements of the rows of X (M, N), float32, in pieces; int32."""

    @T.prim_func
    def first_largest(X: T.Tensor((M, N), "float32")):
        y = T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            best = T.alloc_fragment((block_M, block_N), "float32")
            place = T.alloc_fragment((block_M, block_N), "int32")
            most = T.alloc_fragment((block_M,), "float32")
            first = T.alloc_fragment((block_M,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.clear(place)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    x = X[bx * block_M + i, k * block_N + j]
                    place[i, j] = T.if_then_else(x > best[i, j], k * block_N + j, place[i, j])
                    best[i, j] = T.max(x, best[i, j])
            T.reduce_max(best, most, dim=1)
            for i, j in T.Parallel(block_M, block_N):
                place[i, j] = T.if_then_else(best[i, j] == most[i], place[i, j], N)
            T.reduce_min(place, first, dim=1)
            T.copy(first, y[bx * block_M])
        return y

    return first_largest


def plane_means(C: int, M: int, N: int, block_M: int = 8, block_C: int = 1) -> Any:
    """Means of the planes of X (C, M, N), float32, `block_M` rows of `block_C` planes at a time."""

    @T.prim_func
    def plane_means(X: T.Tensor((C, M, N), "float32")):
        Y = T.empty((C,), "float32")
        with T.Kernel(T.ceildiv(C, block_C)) as bx:
            tile = T.alloc_fragment((block_C, N), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.clear(tile)
                for row in T.serial(block_M):
                    for i, j in T.Parallel(block_C, N):
                        tile[i, j] = tile[i, j] + X[bx * block_C + i, k * block_M + row, j]
                T.reduce_sum(tile, total, dim=1, clear=False)
            for i in T.Parallel(block_C):
                Y[bx * block_C + i] = total[i] / float(M * N)
        return Y

    return plane_means


def row_histograms(M: int, N: int, B: int, block_M: int, block_B: int, block_N: int) -> Any:
    """How often each of 0 ... B - 1 is in each row of X (M, N), uint8: (M, B) of int32. A block has
    some of the numbers, and goes through its rows in pieces.
    """

    @T.prim_func
    def row_histograms(X: T.Tensor((M, N), "uint8")):
        Y = T.empty((M, B), "int32")
        with T.Kernel(T.ceildiv(B, block_B), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "int32")
            same = T.alloc_fragment((block_M, block_N), "int32")
            count = T.alloc_fragment((block_M,), "int32")
            total = T.alloc_fragment((block_B, block_M), "int32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[by * block_M, k * block_N], tile)
                for b in T.serial(block_B):
                    for i, j in T.Parallel(block_M, block_N):
                        same[i, j] = T.if_then_else(tile[i, j] == bx * block_B + b, 1, 0)
                    T.reduce_sum(same, count, dim=1)
                    for i in T.Parallel(block_M):
                        total[b, i] = total[b, i] + count[i]
            for i, b in T.Parallel(block_M, block_B):
                Y[by * block_M + i, bx * block_B + b] = total[b, i]
        return Y

    return row_histograms


def autocorrelations(M: int, N: int, L: int, block_M: int, block_L: int, block_N: int) -> Any:
    """`Y[m, l] = sum(X[m, n] * X[m, n + l] for n in range(N)) / N` for L lags l, of X (M, N + L),
    float32, in pieces of N.
    """

    @T.prim_func
    def autocorrelations(X: T.Tensor((M, N + L), "float32")):
        Y = T.empty((M, L), "float32")
        with T.Kernel(T.ceildiv(L, block_L), T.ceildiv(M, block_M)) as (bx, by):
            now = T.alloc_shared((block_M, block_N), "float32")
            later = T.alloc_shared((block_M, block_N + block_L), "float32")
            total = T.alloc_fragment((block_M, block_L), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[by * block_M, k * block_N], now)
                T.copy(X[by * block_M, k * block_N + bx * block_L], later)
                for n in T.serial(block_N):
                    for i, lag in T.Parallel(block_M, block_L):
                        total[i, lag] = total[i, lag] + now[i, n] * later[i, n + lag]
            for i, lag in T.Parallel(block_M, block_L):
                Y[by * block_M + i, bx * block_L + lag] = total[i, lag] / N
        return Y

    return autocorrelations


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


CASES = (
    Case("two moments 512x8192", moments, {"M": 512, "N": 8192}, PIECES),
    Case(
        "statistics of rows 2048x768",
        row_statistics,
        {"M": 2048, "N": 768},
        {"block_M": (*ROWS, 64)},
    ),
    Case("range of rows 512x8192", row_range, {"M": 512, "N": 8192}, PIECES),
    Case("weighted norms of rows 512x4096", weighted_norms, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case("cosines of rows 512x4096", cosines, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case("kernel sums 512x4096", kernel_sums, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case("counts in rows 512x8192", counts, {"M": 512, "N": 8192}, SHORT_PIECES),
    Case("places of maxima of rows 512x4096", first_largest, {"M": 512, "N": 4096}, SHORT_PIECES),
    Case(
        "means of planes 256x64x64",
        plane_means,
        {"C": 256, "M": 64, "N": 64},
        {"block_M": (1, 4, 16, 64), "block_C": (1, 4, 16)},
    ),
    Case(
        "histograms of rows 96x4000, 20 numbers",
        row_histograms,
        {"M": 96, "N": 4000, "B": 20},
        {"block_M": (1, 8, 96), "block_B": (1, 5, 20), "block_N": (8, 400, 4000)},
    ),
    Case(
        "autocorrelations 60x1200, 40 lags",
        autocorrelations,
        {"M": 60, "N": 1200, "L": 40},
        {"block_M": (1, 6, 60), "block_L": (1, 8, 40), "block_N": (8, 100, 1200)},
    ),
    Case(
        "ranks in rows 80x480",
        ranks,
        {"M": 80, "N": 480},
        {"block_M": (1, 2, 10, 80), "block_N": (8, 30, 120, 480)},
    ),
    Case(
        "robust means of rows 160x1200",
        robust_means,
        {"M": 160, "N": 1200},
        {"block_M": (1, 8, 160), "block_N": (8, 24, 100, 400, 1200)},
    ),
)
