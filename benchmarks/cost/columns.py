"""Reductions of columns."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import COLUMNS, Case
from tileworkbench.kernels.flash_attention import LOWEST


def column_sums(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = sum(X[i, j] for i)` of an (M, N) float32 matrix, a tile of rows at a time."""

    @T.prim_func
    def column_sums(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return column_sums


def weighted_columns(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = sum(w[i] * X[i, j] for i)` of an (M, N) float32 matrix (a transposed gemv)."""

    @T.prim_func
    def weighted_columns(X: T.Tensor((M, N), "float32"), w: T.Tensor((M,), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = X[k * block_M + i, bx * block_N + j] * w[k * block_M + i]
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, y[bx * block_N])
        return y

    return weighted_columns


def column_errors(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Mean absolute differences of the columns of X and Y (M, N), float32."""

    @T.prim_func
    def column_errors(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        e = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            left = T.alloc_fragment((block_M, block_N), "float32")
            right = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], left)
                T.copy(Y[k * block_M, bx * block_N], right)
                for i, j in T.Parallel(block_M, block_N):
                    left[i, j] = T.abs(left[i, j] - right[i, j])
                T.reduce_sum(left, total, dim=0, clear=False)
            for j in T.Parallel(block_N):
                e[bx * block_N + j] = total[j] / M
        return e

    return column_errors


def column_max(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[j] = max(abs(X[i, j]) for i)` of an (M, N) float32 matrix, a tile of rows at a time."""

    @T.prim_func
    def column_max(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.clear(most)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_absmax(tile, most, dim=0, clear=False)
            T.copy(most, y[bx * block_N])
        return y

    return column_max


def column_ranges(M: int, N: int, block_M: int = 64, block_N: int = 64) -> Any:
    """Largest less smallest elements of the columns of X (M, N), float32."""

    @T.prim_func
    def column_ranges(X: T.Tensor((M, N), "float32")):
        y = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            least = T.alloc_fragment((block_N,), "float32")
            T.fill(most, -1e30)
            T.fill(least, 1e30)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_max(tile, most, dim=0, clear=False)
                T.reduce_min(tile, least, dim=0, clear=False)
            for j in T.Parallel(block_N):
                y[bx * block_N + j] = most[j] - least[j]
        return y

    return column_ranges


def column_moments(M: int, N: int, block_M: int = 64, block_N: int = 64) -> Any:
    """Means and largest elements of the columns of X (M, N), float32."""

    @T.prim_func
    def column_moments(X: T.Tensor((M, N), "float32")):
        means, largest = T.empty((N,), "float32"), T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            T.fill(most, -1e30)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, total, dim=0, clear=False)
                T.reduce_max(tile, most, dim=0, clear=False)
            for j in T.Parallel(block_N):
                means[bx * block_N + j] = total[j] / float(M)
                largest[bx * block_N + j] = most[j]
        return means, largest

    return column_moments


def column_variance(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`mean(x * x) - mean(x) ** 2` of the columns of an (M, N) float32 matrix."""

    @T.prim_func
    def column_variance(X: T.Tensor((M, N), "float32")):
        V = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_N,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            T.clear(first)
            T.clear(second)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_sum(tile, first, dim=0, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = tile[i, j] * tile[i, j]
                T.reduce_sum(tile, second, dim=0, clear=False)
            for j in T.Parallel(block_N):
                V[bx * block_N + j] = second[j] / M - (first[j] / M) * (first[j] / M)
        return V

    return column_variance


def middle_max(M: int, S: int, N: int, block_S: int = 8, block_N: int = 64) -> Any:
    """`X.amax(1)` of X (M, S, N), float32, `block_S` of S at a time."""

    @T.prim_func
    def middle_max(X: T.Tensor((M, S, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), M) as (bx, by):
            tile = T.alloc_fragment((block_S, block_N), "float32")
            most = T.alloc_fragment((block_N,), "float32")
            T.fill(most, -1e30)
            for k in T.serial(T.ceildiv(S, block_S)):
                for i, j in T.Parallel(block_S, block_N):
                    tile[i, j] = X[by, k * block_S + i, bx * block_N + j]
                T.reduce_max(tile, most, dim=0, clear=False)
            T.copy(most, Y[by, bx * block_N])
        return Y

    return middle_max


def diagonal_sums(H: int, L: int, block_M: int, block_N: int) -> Any:
    """`Y[h, d] = sum(X[h, i, i + d - L + 1] for i)` of X (H, L, L), float32: the gradient of a bias
    for each distance.
    """

    @T.prim_func
    def diagonal_sums(X: T.Tensor((H, L, L), "float32")):
        Y = T.empty((H, 2 * L - 1), "float32")
        with T.Kernel(T.ceildiv(2 * L - 1, block_N), H) as (bx, h):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(L, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    row = k * block_M + i
                    column = row + bx * block_N + j - L + 1
                    inside = T.And(column >= 0, column < L)
                    tile[i, j] = T.if_then_else(inside, X[h, row, column], 0.0)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, Y[h, bx * block_N])
        return Y

    return diagonal_sums


def correlations(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`sum(y * x) / sqrt(M * variance(x))` of each column x of X (M, N) with y (M,), float32, whose
    mean is 0 and length 1.
    """

    @T.prim_func
    def correlations(X: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "float32")):
        r = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            square = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            first = T.alloc_fragment((block_N,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            common = T.alloc_fragment((block_N,), "float32")
            T.clear(first)
            T.clear(second)
            T.clear(common)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i, j in T.Parallel(block_M, block_N):
                    square[i, j] = tile[i, j] * tile[i, j]
                    product[i, j] = tile[i, j] * y[k * block_M + i]
                T.reduce_sum(tile, first, dim=0, clear=False)
                T.reduce_sum(square, second, dim=0, clear=False)
                T.reduce_sum(product, common, dim=0, clear=False)
            for j in T.Parallel(block_N):
                spread = second[j] - first[j] * first[j] / M
                r[bx * block_N + j] = common[j] * T.rsqrt(spread + 1e-12)
        return r

    return correlations


def largest_of_columns(M: int, N: int, block_M: int, block_N: int) -> Any:
    """The largest element of each column of X (M, N), float32, and its row, int32."""

    @T.prim_func
    def largest_of_columns(X: T.Tensor((M, N), "float32")):
        y, place = T.empty((N,), "float32"), T.empty((N,), "int32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            row = T.alloc_fragment((block_M, block_N), "int32")
            most = T.alloc_fragment((block_N,), "float32")
            first = T.alloc_fragment((block_N,), "int32")
            best = T.alloc_fragment((block_N,), "float32")
            where = T.alloc_fragment((block_N,), "int32")
            T.fill(best, -T.infinity("float32"))
            T.clear(where)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                T.reduce_max(tile, most, dim=0)
                for i, j in T.Parallel(block_M, block_N):
                    row[i, j] = T.if_then_else(tile[i, j] == most[j], k * block_M + i, M)
                T.reduce_min(row, first, dim=0)
                for j in T.Parallel(block_N):
                    where[j] = T.if_then_else(most[j] > best[j], first[j], where[j])
                    best[j] = T.max(most[j], best[j])
            T.copy(best, y[bx * block_N])
            T.copy(where, place[bx * block_N])
        return y, place

    return largest_of_columns


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


CASES = (
    Case("column sums 2048x1024", column_sums, {"M": 2048, "N": 1024}, COLUMNS),
    Case("weighted columns 1024x2048", weighted_columns, {"M": 1024, "N": 2048}, COLUMNS),
    Case(
        "errors of columns 2560x1920",
        column_errors,
        {"M": 2560, "N": 1920},
        {"block_M": (1, 8, 64, 512, 2560), "block_N": (8, 64, 384, 1920)},
    ),
    Case("column max 1024x2048", column_max, {"M": 1024, "N": 2048}, COLUMNS),
    Case("ranges of columns 1024x2048", column_ranges, {"M": 1024, "N": 2048}, COLUMNS),
    Case("means and maxima of columns 1024x1024", column_moments, {"M": 1024, "N": 1024}, COLUMNS),
    Case("variances of columns 1024x2048", column_variance, {"M": 1024, "N": 2048}, COLUMNS),
    Case(
        "maxima of the middle 64x64x512",
        middle_max,
        {"M": 64, "S": 64, "N": 512},
        {"block_S": (1, 4, 16, 64), "block_N": (16, 64, 256, 512)},
    ),
    Case(
        "sums of diagonals 12x480x480",
        diagonal_sums,
        {"H": 12, "L": 480},
        {"block_M": (1, 8, 60, 480), "block_N": (8, 32, 137, 959)},
    ),
    Case(
        "correlations of columns 2000x760",
        correlations,
        {"M": 2000, "N": 760},
        {"block_M": (1, 8, 40, 250, 2000), "block_N": (8, 40, 190, 760)},
    ),
    Case(
        "places of maxima of columns 1200x1000",
        largest_of_columns,
        {"M": 1200, "N": 1000},
        {"block_M": (1, 8, 60, 1200), "block_N": (8, 40, 200, 1000)},
    ),
    Case(
        "log_sum_exp of columns 1200x720",
        column_log_sums,
        {"M": 1200, "N": 720},
        {"block_M": (1, 8, 60, 1200), "block_N": (8, 48, 240, 720)},
    ),
    Case(
        "skewness of columns 900x720",
        skewness,
        {"M": 900, "N": 720},
        {"block_M": (1, 9, 60, 900), "block_N": (8, 48, 240, 720)},
    ),
)
