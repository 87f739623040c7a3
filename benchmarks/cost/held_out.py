"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench.kernels.flash_attention import LOG2_E, update_softmax


def two_experts(M: int, N: int, K: int, block_M: int, block_K: int) -> Any:
    """The places of the two largest of each row of `X @ W.T`, int32, and their softmax, of X (M, K)
    and W (N, K), float32.
    """

    @T.prim_func
    def two_experts(X: T.Tensor((M, K), "float32"), W: T.Tensor((N, K), "float32")):
        place, share = T.empty((M, 2), "int32"), T.empty((M, 2), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((N, block_K), "float32")
            total = T.alloc_fragment((block_M, N), "float32")
            column = T.alloc_fragment((block_M, N), "int32")
            most = T.alloc_fragment((2, block_M), "float32")
            first = T.alloc_fragment((2, block_M), "int32")
            value = T.alloc_fragment((block_M,), "float32")
            index = T.alloc_fragment((block_M,), "int32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[bx * block_M, k * block_K], left)
                T.copy(W[0, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for n in T.serial(2):
                T.reduce_max(total, value, dim=1)
                for i, j in T.Parallel(block_M, N):
                    column[i, j] = T.if_then_else(total[i, j] == value[i], j, N)
                T.reduce_min(column, index, dim=1)
                for i, j in T.Parallel(block_M, N):
                    total[i, j] = T.if_then_else(j == index[i], -1e30, total[i, j])
                for i in T.Parallel(block_M):
                    most[n, i] = value[i]
                    first[n, i] = index[i]
            for i, n in T.Parallel(block_M, 2):
                place[bx * block_M + i, n] = first[n, i]
                share[bx * block_M + i, n] = T.sigmoid(most[n, i] - most[1 - n, i])
        return place, share

    return two_experts


def covariance(M: int, N: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X - m).T @ (X - m) / (M - 1)` of X (M, N) and the means m (N,) of its columns, float32."""

    @T.prim_func
    def covariance(X: T.Tensor((M, N), "float32"), m: T.Tensor((N,), "float32")):
        C = T.empty((N, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(N, block_M)) as (bx, by):
            left = T.alloc_shared((block_K, block_M), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_K)):
                for i, j in T.Parallel(block_K, block_M):
                    column = by * block_M + j
                    left[i, j] = X[k * block_K + i, column] - m[column]
                for i, j in T.Parallel(block_K, block_N):
                    column = bx * block_N + j
                    right[i, j] = X[k * block_K + i, column] - m[column]
                T.gemm(left, right, total, transpose_A=True)
            for i, j in T.Parallel(block_M, block_N):
                C[by * block_M + i, bx * block_N + j] = total[i, j] / (M - 1.0)
        return C

    return covariance


def focal_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Sums over the rows of `-w * (1 - p)**2 * log(p)` of X (M, N), bfloat16, in pieces: p is
    sigmoid(x) and w is 0.25 where `on` (M, N), uint8, is; elsewhere sigmoid(-x) and 0.75.
    """

    @T.prim_func
    def focal_loss(X: T.Tensor((M, N), "bfloat16"), on: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    x, is_on = T.cast(X[row, column], "float32"), on[row, column] != 0
                    margin, weight = T.if_then_else(is_on, x, -x), T.if_then_else(is_on, 0.25, 0.75)
                    small = T.exp(-T.abs(margin))
                    missed = T.if_then_else(margin > 0.0, small, 1.0) / (1.0 + small)
                    logs = T.log(1.0 + small) - T.min(margin, 0.0)
                    part[i, j] = weight * missed * missed * logs
                T.reduce_sum(part, total, dim=1, clear=False)
            T.copy(total, loss[bx * block_M])
        return loss

    return focal_loss


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


def drawdowns(M: int, L: int, block_M: int, block_L: int) -> Any:
    """`1 - exp(x - p)`, p the largest x so far, along the rows of X (M, L), float32, logarithms of
    prices; and the largest of each row.
    """

    @T.prim_func
    def drawdowns(X: T.Tensor((M, L), "float32")):
        Y, deepest = T.empty((M, L), "float32"), T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_L), "float32")
            peak = T.alloc_fragment((block_M, block_L), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            T.fill(before, -1e30)
            T.clear(most)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[bx * block_M, k * block_L], tile)
                T.cummax(tile, peak, dim=1)
                for i, j in T.Parallel(block_M, block_L):
                    tile[i, j] = 1.0 - T.exp(tile[i, j] - T.max(peak[i, j], before[i]))
                T.copy(tile, Y[bx * block_M, k * block_L])
                T.reduce_max(tile, most, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    before[i] = T.max(before[i], peak[i, block_L - 1])
            T.copy(most, deepest[bx * block_M])
        return Y, deepest

    return drawdowns


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


def small_floats(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X @ W.T) * s` of X (M, K) and s (N,), float32, and W (N, K), whose bytes Q, uint8, are a
    sign, 4 bits of an exponent and 3 of a fraction; as float16 they are 256 times less.
    """

    @T.prim_func
    def small_floats(
        X: T.Tensor((M, K), "float32"), Q: T.Tensor((N, K), "uint8"), s: T.Tensor((N,), "float32")
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
                    code = T.cast(Q[bx * block_N + i, k * block_K + j], "int32")
                    bits = T.cast((code & 128) << 8 | (code & 127) << 7, "uint16")
                    right[i, j] = T.cast(T.reinterpret(bits, "float16"), "float32")
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                column = bx * block_N + j
                Y[by * block_M + i, column] = total[i, j] * (256.0 * s[column])
        return Y

    return small_floats


def capped_attention(H: int, L: int, S: int, D: int, block_M: int, block_N: int) -> Any:
    """Attention of Q (H, L, D) to K and V (H, S, D), float32, with scores s that are capped by `20
    * tanh(s / 20)`; a further key of each head has the score sink (H,) and the value 0.
    """

    @T.prim_func
    def capped_attention(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, S, D), "float32"),
        V: T.Tensor((H, S, D), "float32"),
        sink: T.Tensor((H,), "float32"),
    ):
        Y = T.empty((H, L, D), "float32")
        with T.Kernel(T.ceildiv(L, block_M), H) as (bx, h):
            q = T.alloc_shared((block_M, D), "float32")
            keys = T.alloc_shared((block_N, D), "float32")
            values = T.alloc_shared((block_N, D), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            out = T.alloc_fragment((block_M, D), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            T.copy(Q[h, bx * block_M, 0], q)
            T.clear(out)
            T.fill(total, 1.0)
            for i in T.Parallel(block_M):
                most[i] = sink[h]
            for n in T.serial(T.ceildiv(S, block_N)):
                T.copy(K[h, n * block_N, 0], keys)
                T.copy(V[h, n * block_N, 0], values)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = 20.0 * T.tanh(scores[i, j] * (D**-0.5 / 20.0))
                update_softmax(scores, out, most, total, rescale, part, LOG2_E, block_M, block_N, D)
                T.copy(scores, weights)
                T.gemm(weights, values, out)
            for i, d in T.Parallel(block_M, D):
                Y[h, bx * block_M + i, d] = out[i, d] / total[i]
        return Y

    return capped_attention


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


CASES: tuple[Case, ...] = (
    Case(
        "two of 120 experts 640x768",
        two_experts,
        {"M": 640, "N": 120, "K": 768},
        {"block_M": (1, 4, 16, 80, 640), "block_K": (16, 96, 768)},
    ),
    Case(
        "covariance of columns 1000x320",
        covariance,
        {"M": 1000, "N": 320},
        {"block_M": (8, 64, 320), "block_N": (8, 64, 320), "block_K": (8, 100, 1000)},
    ),
    Case(
        "focal loss 200x5000, bfloat16",
        focal_loss,
        {"M": 200, "N": 5000},
        {"block_M": (1, 4, 20, 200), "block_N": (8, 40, 100, 5000)},
    ),
    Case(
        "places of maxima of columns 1200x1000",
        largest_of_columns,
        {"M": 1200, "N": 1000},
        {"block_M": (1, 8, 60, 1200), "block_N": (8, 40, 200, 1000)},
    ),
    Case(
        "great circles 600x1000",
        great_circles,
        {"M": 600, "N": 1000},
        {"block_M": (1, 8, 60, 600), "block_N": (8, 40, 200, 1000)},
    ),
    Case(
        "closing of an image 240x360",
        closing,
        {"H": 240, "W": 360},
        {"block_H": (1, 4, 24, 240), "block_W": (8, 40, 120, 360)},
    ),
    Case(
        "drawdowns 240x2400",
        drawdowns,
        {"M": 240, "L": 2400},
        {"block_M": (1, 2, 8, 240), "block_L": (8, 40, 240, 2400)},
    ),
    Case(
        "histograms of rows 96x4000, 20 numbers",
        row_histograms,
        {"M": 96, "N": 4000, "B": 20},
        {"block_M": (1, 8, 96), "block_B": (1, 5, 20), "block_N": (8, 400, 4000)},
    ),
    Case(
        "floats of 8 bits 40x600x960",
        small_floats,
        {"M": 40, "N": 600, "K": 960},
        {"block_M": (1, 8, 40), "block_N": (8, 60, 600), "block_K": (16, 96, 960)},
    ),
    Case(
        "capped attention with a sink 3x240x360, D 40",
        capped_attention,
        {"H": 3, "L": 240, "S": 360, "D": 40},
        {"block_M": (1, 8, 40, 240), "block_N": (8, 40, 120, 360)},
    ),
    Case(
        "shifted windows of 8x8, 96x120x96",
        shifted_windows,
        {"H": 96, "W": 120, "C": 96, "S": 8},
        {"block_B": (1, 12, 180), "block_P": (1, 8, 64), "block_C": (8, 96)},
    ),
)
