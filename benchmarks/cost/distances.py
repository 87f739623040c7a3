"""Distances of all rows of a matrix to all rows or columns of another."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def distances(M: int, N: int, K: int, block_M: int = 32, block_N: int = 32) -> Any:
    """`D[i, j] = |a_i - b_j|**2` of rows of A (M, K) and B (N, K), float32, by one product."""

    @T.prim_func
    def distances(A: T.Tensor((M, K), "float32"), B: T.Tensor((N, K), "float32")):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_fragment((block_M, K), "float32")
            right = T.alloc_fragment((block_N, K), "float32")
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(A[by * block_M, 0], left)
            T.copy(B[bx * block_N, 0], right)
            T.clear(product)
            T.gemm(left, right, product, transpose_B=True)
            for i, k in T.Parallel(block_M, K):
                left[i, k] = left[i, k] * left[i, k]
            for j, k in T.Parallel(block_N, K):
                right[j, k] = right[j, k] * right[j, k]
            T.reduce_sum(left, first, dim=1)
            T.reduce_sum(right, second, dim=1)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                D[row, column] = first[i] + second[j] - 2.0 * product[i, j]
        return D

    return distances


def city_distances(M: int, N: int, K: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`D[i, j] = sum(|A[i, k] - B[k, j]| for k)` of A (M, K) and B (K, N), float32."""

    @T.prim_func
    def city_distances(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(K):
                for i, j in T.Parallel(block_M, block_N):
                    a, b = A[by * block_M + i, k], B[k, bx * block_N + j]
                    total[i, j] = total[i, j] + T.abs(a - b)
            T.copy(total, D[by * block_M, bx * block_N])
        return D

    return city_distances


def longest_paths(M: int, N: int, K: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`C[i, j] = max(A[i, k] + B[k, j] for k)` of A (M, K) and B (K, N), float32."""

    @T.prim_func
    def longest_paths(A: T.Tensor((M, K), "float32"), B: T.Tensor((K, N), "float32")):
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, 32), "float32")
            right = T.alloc_shared((32, block_N), "float32")
            most = T.alloc_fragment((block_M, block_N), "float32")
            T.fill(most, -1e30)
            for step in T.serial(K // 32):
                T.copy(A[by * block_M, step * 32], left)
                T.copy(B[step * 32, bx * block_N], right)
                for k in T.serial(32):
                    for i, j in T.Parallel(block_M, block_N):
                        most[i, j] = T.max(most[i, j], left[i, k] + right[k, j])
            T.copy(most, C[by * block_M, bx * block_N])
        return C

    return longest_paths


def radial_kernel(M: int, N: int, D: int, block_M: int, block_N: int, block_D: int) -> Any:
    """`exp(-|a - b|**2)` of the rows a of A (M, D) and b of B (N, D), whose squares are given."""

    @T.prim_func
    def radial_kernel(
        A: T.Tensor((M, D), "float32"),
        B: T.Tensor((N, D), "float32"),
        a: T.Tensor((M,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        K = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_D), "float32")
            right = T.alloc_shared((block_N, block_D), "float32")
            dot = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(dot)
            for k in T.Pipelined(T.ceildiv(D, block_D), num_stages=2):
                T.copy(A[by * block_M, k * block_D], left)
                T.copy(B[bx * block_N, k * block_D], right)
                T.gemm(left, right, dot, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                far = a[by * block_M + i] + b[bx * block_N + j] - 2.0 * dot[i, j]
                dot[i, j] = T.exp(-T.max(far, 0.0) / D)
            T.copy(dot, K[by * block_M, bx * block_N])
        return K

    return radial_kernel


def nearest(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """`min(|b|**2 - 2 a.b)` over rows of B (N, K) for each a of A (M, K), given |b|**2, float32."""

    @T.prim_func
    def nearest(
        A: T.Tensor((M, K), "float32"), B: T.Tensor((N, K), "float32"), b: T.Tensor((N,), "float32")
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, K), "float32")
            right = T.alloc_shared((block_N, K), "float32")
            far = T.alloc_fragment((block_M, block_N), "float32")
            least = T.alloc_fragment((block_M,), "float32")
            T.copy(A[bx * block_M, 0], left)
            T.fill(least, T.infinity("float32"))
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(B[n * block_N, 0], right)
                T.gemm(left, right, far, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    far[i, j] = b[n * block_N + j] - 2.0 * far[i, j]
                T.reduce_min(far, least, dim=1, clear=False)
            T.copy(least, y[bx * block_M])
        return y

    return nearest


def overlaps(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Intersections over unions of the boxes A (M, 4) and B (4, N), float32: their middles, then
    their widths and heights but for the sign.
    """

    @T.prim_func
    def overlaps(A: T.Tensor((M, 4), "float32"), B: T.Tensor((4, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            least = T.alloc_fragment((2, block_N), "float32")
            most = T.alloc_fragment((2, block_N), "float32")
            area = T.alloc_fragment((block_N,), "float32")
            for d, j in T.Parallel(2, block_N):
                half = 0.5 * T.abs(B[2 + d, bx * block_N + j])
                least[d, j] = B[d, bx * block_N + j] - half
                most[d, j] = B[d, bx * block_N + j] + half
            for j in T.Parallel(block_N):
                area[j] = (most[0, j] - least[0, j]) * (most[1, j] - least[1, j])
            for i, j in T.Parallel(block_M, block_N):
                row = by * block_M + i
                x, y = A[row, 0], A[row, 1]
                width, height = T.abs(A[row, 2]), T.abs(A[row, 3])
                along = T.min(x + 0.5 * width, most[0, j]) - T.max(x - 0.5 * width, least[0, j])
                down = T.min(y + 0.5 * height, most[1, j]) - T.max(y - 0.5 * height, least[1, j])
                common = T.max(along, 0.0) * T.max(down, 0.0)
                whole = width * height + area[j] - common
                Y[row, bx * block_N + j] = common / (whole + 1e-6)
        return Y

    return overlaps


def great_circles(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Distances on a sphere of radius 1 of the places A (2, M) from B (2, N), float32: latitudes,
    then longitudes, in radians.
    """

    @T.prim_func
    def great_circles(A: T.Tensor((2, M), "float32"), B: T.Tensor((2, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            first = T.alloc_fragment((block_M,), "float32")
            second = T.alloc_fragment((block_N,), "float32")
            for i in T.Parallel(block_M):
                first[i] = T.cos(A[0, by * block_M + i])
            for j in T.Parallel(block_N):
                second[j] = T.cos(B[0, bx * block_N + j])
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                down = T.sin(0.5 * (A[0, row] - B[0, column]))
                along = T.sin(0.5 * (A[1, row] - B[1, column]))
                near = down * down + first[i] * second[j] * along * along
                ratio = T.max(near, 0.0) / T.max(1.0 - near, 1e-7)
                Y[row, column] = 2.0 * T.atan(T.sqrt(ratio))
        return Y

    return great_circles


def likeness(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """Bits in both over bits in either (Tanimoto's likeness of molecules), float32, of the rows of
    A (M, K) and the columns of B (K, N), words of 32 bits, int32.
    """

    @T.prim_func
    def likeness(A: T.Tensor((M, K), "int32"), B: T.Tensor((K, N), "int32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "int32")
            right = T.alloc_shared((block_K, block_N), "int32")
            both = T.alloc_fragment((block_M, block_N), "int32")
            either = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(both)
            T.clear(either)
            for n in T.serial(T.ceildiv(K, block_K)):
                T.copy(A[by * block_M, n * block_K], left)
                T.copy(B[n * block_K, bx * block_N], right)
                for k in T.serial(block_K):
                    for i, j in T.Parallel(block_M, block_N):
                        both[i, j] = both[i, j] + T.popcount(left[i, k] & right[k, j])
                        either[i, j] = either[i, j] + T.popcount(left[i, k] | right[k, j])
            for i, j in T.Parallel(block_M, block_N):
                some = T.cast(T.max(either[i, j], 1), "float32")
                Y[by * block_M + i, bx * block_N + j] = T.cast(both[i, j], "float32") / some
        return Y

    return likeness


def gaussian_densities(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`-0.5 * sum(exp(-S[k, n]) * (X[m, k] - U[k, n])**2 + S[k, n] for k)` of X (M, K), U and S (K,
    N), float32: logarithms of densities of N Gaussians, by products of X and of its squares.
    """

    @T.prim_func
    def gaussian_densities(
        X: T.Tensor((M, K), "float32"),
        U: T.Tensor((K, N), "float32"),
        S: T.Tensor((K, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            square = T.alloc_shared((block_M, block_K), "float32")
            sharp = T.alloc_shared((block_K, block_N), "float32")
            middle = T.alloc_shared((block_K, block_N), "float32")
            own = T.alloc_fragment((block_K, block_N), "float32")
            fixed = T.alloc_fragment((block_N,), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(fixed)
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], x)
                for i, j in T.Parallel(block_M, block_K):
                    square[i, j] = -0.5 * x[i, j] * x[i, j]
                for i, j in T.Parallel(block_K, block_N):
                    row, column = k * block_K + i, bx * block_N + j
                    sharp[i, j] = T.exp(-S[row, column])
                    middle[i, j] = U[row, column] * sharp[i, j]
                    own[i, j] = U[row, column] * middle[i, j] + S[row, column]
                T.gemm(square, sharp, total)
                T.gemm(x, middle, total)
                T.reduce_sum(own, fixed, dim=0, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] - 0.5 * fixed[j]
        return Y

    return gaussian_densities


def matched_features(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """The row b of B (N, K) with the least `|a - b|**2` for each row a of A (M, K), int8, where it
    is below 0.64 of the next, else -1; and the least: (M,) each, int32.
    """
    far = 2**30

    @T.prim_func
    def matched_features(A: T.Tensor((M, K), "int8"), B: T.Tensor((N, K), "int8")):
        match, least = T.empty((M,), "int32"), T.empty((M,), "int32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, K), "int8")
            right = T.alloc_shared((block_N, K), "int8")
            square = T.alloc_fragment((block_M, K), "int32")
            squares = T.alloc_fragment((block_N, K), "int32")
            own = T.alloc_fragment((block_M,), "int32")
            size = T.alloc_fragment((block_N,), "int32")
            off = T.alloc_fragment((block_M, block_N), "int32")
            place = T.alloc_fragment((block_M, block_N), "int32")
            near = T.alloc_fragment((block_M,), "int32")
            at = T.alloc_fragment((block_M,), "int32")
            later = T.alloc_fragment((block_M,), "int32")
            first = T.alloc_fragment((block_M,), "int32")
            second = T.alloc_fragment((block_M,), "int32")
            best = T.alloc_fragment((block_M,), "int32")
            T.copy(A[bx * block_M, 0], left)
            for i, d in T.Parallel(block_M, K):
                square[i, d] = T.cast(left[i, d], "int32") * T.cast(left[i, d], "int32")
            T.reduce_sum(square, own, dim=1)
            T.fill(first, far)
            T.fill(second, far)
            T.fill(best, -1)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(B[n * block_N, 0], right)
                for j, d in T.Parallel(block_N, K):
                    squares[j, d] = T.cast(right[j, d], "int32") * T.cast(right[j, d], "int32")
                T.reduce_sum(squares, size, dim=1)
                T.gemm(left, right, off, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    off[i, j] = own[i] + size[j] - 2 * off[i, j]
                T.reduce_min(off, near, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    place[i, j] = T.if_then_else(off[i, j] == near[i], n * block_N + j, N)
                T.reduce_min(place, at, dim=1)
                for i, j in T.Parallel(block_M, block_N):
                    off[i, j] = T.if_then_else(n * block_N + j == at[i], far, off[i, j])
                T.reduce_min(off, later, dim=1)
                for i in T.Parallel(block_M):
                    second[i] = T.min(T.max(first[i], near[i]), T.min(second[i], later[i]))
                    best[i] = T.if_then_else(near[i] < first[i], at[i], best[i])
                    first[i] = T.min(first[i], near[i])
            for i in T.Parallel(block_M):
                is_clear = T.cast(first[i], "float32") < 0.64 * T.cast(second[i], "float32")
                match[bx * block_M + i] = T.if_then_else(is_clear, best[i], -1)
                least[bx * block_M + i] = first[i]
        return match, least

    return matched_features


CASES = (
    Case(
        "squared distances 256x512, K 128",
        distances,
        {"M": 256, "N": 512, "K": 128},
        {"block_M": (16, 32, 64), "block_N": (16, 32, 64)},
    ),
    Case(
        "city distances 128x512, K 64",
        city_distances,
        {"M": 128, "N": 512, "K": 64},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256)},
    ),
    Case(
        "longest paths 128x256, K 128",
        longest_paths,
        {"M": 128, "N": 256, "K": 128},
        {"block_M": (1, 4, 16, 64), "block_N": (16, 64, 256)},
    ),
    Case(
        "radial kernel 256x384, D 128",
        radial_kernel,
        {"M": 256, "N": 384, "D": 128},
        {"block_M": (16, 32, 64, 128), "block_N": (16, 64, 128), "block_D": (32, 128)},
    ),
    Case(
        "nearest of 384 rows 512x96",
        nearest,
        {"M": 512, "N": 384, "K": 96},
        {"block_M": (8, 16, 32, 64, 128), "block_N": (16, 32, 64, 128)},
    ),
    Case(
        "overlaps of boxes 600x1500",
        overlaps,
        {"M": 600, "N": 1500},
        {"block_M": (1, 8, 60, 600), "block_N": (10, 50, 128, 500, 1500)},
    ),
    Case(
        "great circles 600x1000",
        great_circles,
        {"M": 600, "N": 1000},
        {"block_M": (1, 8, 60, 600), "block_N": (8, 40, 200, 1000)},
    ),
    Case(
        "likeness of 1024 bits 120x500",
        likeness,
        {"M": 120, "N": 500, "K": 32},
        {"block_M": (1, 12, 120), "block_N": (8, 50, 500), "block_K": (4, 32)},
    ),
    Case(
        "densities of Gaussians 150x320x60",
        gaussian_densities,
        {"M": 150, "N": 320, "K": 60},
        {"block_M": (1, 15, 150), "block_N": (8, 40, 320), "block_K": (4, 60)},
    ),
    Case(
        "features matched 90x150x128, int8",
        matched_features,
        {"M": 90, "N": 150, "K": 128},
        {"block_M": (1, 9, 90), "block_N": (3, 15, 50, 150)},
    ),
)
