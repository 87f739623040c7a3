"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case
from tileworkbench.kernels.flash_attention import LOWEST


def sparsemax(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`max(x - t, 0)` of the rows x of X (M, N), float32, with t such that the sum is 1: it is
    halved 20 times where t can be, and each time a row is read in pieces.
    """

    @T.prim_func
    def sparsemax(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            part = T.alloc_fragment((block_M, block_N), "float32")
            low = T.alloc_fragment((block_M,), "float32")
            middle = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(low, LOWEST)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], part)
                T.reduce_max(part, low, dim=1, clear=False)
            for i in T.Parallel(block_M):
                low[i] = low[i] - 1.0
            for step in T.serial(20):
                T.clear(total)
                for i in T.Parallel(block_M):
                    middle[i] = low[i] + T.exp2(-1.0 - T.cast(step, "float32"))
                for k in T.serial(T.ceildiv(N, block_N)):
                    for i, j in T.Parallel(block_M, block_N):
                        x = X[bx * block_M + i, k * block_N + j]
                        part[i, j] = T.max(x - middle[i], 0.0)
                    T.reduce_sum(part, total, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    low[i] = T.if_then_else(total[i] >= 1.0, middle[i], low[i])
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    Y[row, column] = T.max(X[row, column] - low[i], 0.0)
        return Y

    return sparsemax


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


def gated_norm(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`y / rms(y) * g`, y = x * silu(z), of rows x and z of X and Z (M, N), bfloat16, and g (N,),
    float32: read twice, in pieces.
    """

    @T.prim_func
    def gated_norm(
        X: T.Tensor((M, N), "bfloat16"),
        Z: T.Tensor((M, N), "bfloat16"),
        g: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            z = T.alloc_fragment((block_M, block_N), "float32")
            rate = T.alloc_fragment((block_M,), "float32")
            T.clear(rate)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Z[bx * block_M, k * block_N], z)
                for i, j in T.Parallel(block_M, block_N):
                    x[i, j] = x[i, j] * z[i, j] * T.sigmoid(z[i, j])
                    x[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(x, rate, dim=1, clear=False)
            for i in T.Parallel(block_M):
                rate[i] = T.rsqrt(rate[i] / N + 1e-6)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Z[bx * block_M, k * block_N], z)
                for i, j in T.Parallel(block_M, block_N):
                    column = k * block_N + j
                    x[i, j] = x[i, j] * z[i, j] * T.sigmoid(z[i, j]) * rate[i] * g[column]
                T.copy(x, Y[bx * block_M, k * block_N])
        return Y

    return gated_norm


def batch_norm_backward(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`w * r * (G - mean(G) - x * mean(G * x))`, x = (X - m) * r, by columns of X and G (M, N),
    with w, means m and r, one over deviations, (N,), float32; and the sums of G * x and of G.
    """

    @T.prim_func
    def batch_norm_backward(
        X: T.Tensor((M, N), "float32"),
        G: T.Tensor((M, N), "float32"),
        w: T.Tensor((N,), "float32"),
        m: T.Tensor((N,), "float32"),
        r: T.Tensor((N,), "float32"),
    ):
        D = T.empty((M, N), "float32")
        dw, db = T.empty((N,), "float32"), T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            gradient = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, block_N), "float32")
            scale = T.alloc_fragment((block_N,), "float32")
            shift = T.alloc_fragment((block_N,), "float32")
            T.clear(scale)
            T.clear(shift)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(G[k * block_M, bx * block_N], gradient)
                for i, j in T.Parallel(block_M, block_N):
                    row, column = k * block_M + i, bx * block_N + j
                    product[i, j] = gradient[i, j] * (X[row, column] - m[column]) * r[column]
                T.reduce_sum(product, scale, dim=0, clear=False)
                T.reduce_sum(gradient, shift, dim=0, clear=False)
            T.copy(scale, dw[bx * block_N])
            T.copy(shift, db[bx * block_N])
            for k in T.serial(T.ceildiv(M, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = k * block_M + i, bx * block_N + j
                    x = (X[row, column] - m[column]) * r[column]
                    part = G[row, column] - (shift[j] + x * scale[j]) / M
                    D[row, column] = w[column] * r[column] * part
        return D, dw, db

    return batch_norm_backward


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


def lattice_flow(H: int, W: int, block_H: int, block_W: int) -> Any:
    """A step of a fluid on a lattice (Boltzmann's with nine velocities): what moves to a place of
    |F| (9, H + 2, W + 2) becomes 1.2 of its equilibrium less 0.2 of itself, (9, H, W), float32.
    """

    def weight(a: Any) -> Any:
        return T.if_then_else(a == 1, 2.0 / 3.0, 1.0 / 6.0)

    @T.prim_func
    def lattice_flow(F: T.Tensor((9, H + 2, W + 2), "float32")):
        Y = T.empty((9, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            density = T.alloc_fragment((block_H, block_W), "float32")
            down = T.alloc_fragment((block_H, block_W), "float32")
            along = T.alloc_fragment((block_H, block_W), "float32")
            T.clear(density)
            T.clear(down)
            T.clear(along)
            for a, b in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    f = T.abs(F[3 * a + b, by * block_H + i + 2 - a, bx * block_W + j + 2 - b])
                    density[i, j] = density[i, j] + f
                    down[i, j] = down[i, j] + (a - 1) * f
                    along[i, j] = along[i, j] + (b - 1) * f
            for a, b in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    row, column = by * block_H + i, bx * block_W + j
                    y, x = down[i, j] / density[i, j], along[i, j] / density[i, j]
                    move = 3.0 * ((a - 1) * y + (b - 1) * x)
                    shape = 1.0 + move + 0.5 * move * move - 1.5 * (x * x + y * y)
                    goal = weight(a) * weight(b) * density[i, j] * shape
                    f = T.abs(F[3 * a + b, row + 2 - a, column + 2 - b])
                    Y[3 * a + b, row, column] = f + 1.2 * (goal - f)
        return Y

    return lattice_flow


CASES: tuple[Case, ...] = (
    Case(
        "sparsemax 96x1500",
        sparsemax,
        {"M": 96, "N": 1500},
        {"block_M": (1, 4, 96), "block_N": (10, 30, 60, 150, 500, 1500)},
    ),
    Case(
        "autocorrelations 60x1200, 40 lags",
        autocorrelations,
        {"M": 60, "N": 1200, "L": 40},
        {"block_M": (1, 6, 60), "block_L": (1, 8, 40), "block_N": (8, 100, 1200)},
    ),
    Case(
        "gated rms norm 400x1600, bfloat16",
        gated_norm,
        {"M": 400, "N": 1600},
        {"block_M": (1, 5, 400), "block_N": (8, 16, 40, 80, 200, 1600)},
    ),
    Case(
        "batch norm backward 1500x640",
        batch_norm_backward,
        {"M": 1500, "N": 640},
        {"block_M": (1, 10, 100, 1500), "block_N": (8, 40, 160, 640)},
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
        "flow on a lattice 200x240",
        lattice_flow,
        {"H": 200, "W": 240},
        {"block_H": (1, 4, 25, 200), "block_W": (8, 48, 240)},
    ),
)
