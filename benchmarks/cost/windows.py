"""Stencils, convolutions of channels and pooling: each element from its neighbours."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import ELEMENTS, IMAGES, Case


def stencil(M: int, N: int, block_M: int = 16, block_N: int = 256) -> Any:
    """The mean of an element and its four neighbours, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def stencil(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                beside = X[row + 1, column] + X[row + 1, column + 2]
                across = X[row, column + 1] + X[row + 2, column + 1]
                Y[row, column] = (X[row + 1, column + 1] + beside + across) * 0.2
        return Y

    return stencil


def wave(D: int, H: int, W: int, block_D: int, block_H: int, block_W: int) -> Any:
    """The next step of a wave, `2 U - before + c * laplacian(U)`, of U (D + 2, H + 2, W + 2),
    before and c (D, H, W), float32.
    """

    @T.prim_func
    def wave(
        U: T.Tensor((D + 2, H + 2, W + 2), "float32"),
        before: T.Tensor((D, H, W), "float32"),
        c: T.Tensor((D, H, W), "float32"),
    ):
        Y = T.empty((D, H, W), "float32")
        grid = T.ceildiv(W, block_W), T.ceildiv(H, block_H), T.ceildiv(D, block_D)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_D, block_H, block_W):
                z, y, x = bz * block_D + a, by * block_H + i, bx * block_W + j
                here = U[z + 1, y + 1, x + 1]
                sides = U[z, y + 1, x + 1] + U[z + 2, y + 1, x + 1]
                sides = sides + U[z + 1, y, x + 1] + U[z + 1, y + 2, x + 1]
                sides = sides + U[z + 1, y + 1, x] + U[z + 1, y + 1, x + 2]
                Y[z, y, x] = 2.0 * here - before[z, y, x] + c[z, y, x] * (sides - 6.0 * here)
        return Y

    return wave


def box_filter(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """The mean of 3 x 3 neighbours, (M + 2, N + 2) to (M, N) of float32."""

    @T.prim_func
    def box_filter(X: T.Tensor((M + 2, N + 2), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for down in T.serial(3):
                for along in T.serial(3):
                    for i, j in T.Parallel(block_M, block_N):
                        row, column = by * block_M + i + down, bx * block_N + j + along
                        total[i, j] = total[i, j] + X[row, column]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] / 9.0
        return Y

    return box_filter


def moving_average(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """The mean of eight rows that follow each other, (M + 7, N) to (M, N) of float32."""

    @T.prim_func
    def moving_average(X: T.Tensor((M + 7, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(8):
                for i, j in T.Parallel(block_M, block_N):
                    total[i, j] = total[i, j] + X[by * block_M + i + t, bx * block_N + j]
            for i, j in T.Parallel(block_M, block_N):
                Y[by * block_M + i, bx * block_N + j] = total[i, j] * 0.125
        return Y

    return moving_average


def causal_convolution(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y[i, j] = sum(W[t, j] * X[i + t, j] for t in range(4))`, X (M + 3, N), W (4, N), float32."""

    @T.prim_func
    def causal_convolution(X: T.Tensor((M + 3, N), "float32"), W: T.Tensor((4, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(4):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = by * block_M + i, bx * block_N + j
                    total[i, j] = total[i, j] + W[t, column] * X[row + t, column]
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return causal_convolution


def dilated(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`sum(w[t] * X[i, j + 4 * t])` over five taps, (M, N + 16) to (M, N) of float32."""

    @T.prim_func
    def dilated(X: T.Tensor((M, N + 16), "float32"), w: T.Tensor((5,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(5):
                for i, j in T.Parallel(block_M, block_N):
                    value = X[by * block_M + i, bx * block_N + j + 4 * t]
                    total[i, j] = total[i, j] + w[t] * value
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return dilated


def depthwise(H: int, W: int, C: int, block_H: int, block_W: int, block_C: int) -> Any:
    """3 x 3 convolution of each channel, X (H + 2, W + 2, C) and F (3, 3, C), float32."""

    @T.prim_func
    def depthwise(X: T.Tensor((H + 2, W + 2, C), "float32"), F: T.Tensor((3, 3, C), "float32")):
        Y = T.empty((H, W, C), "float32")
        with T.Kernel(T.ceildiv(C, block_C), T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (
            bx,
            by,
            bz,
        ):
            total = T.alloc_fragment((block_H, block_W, block_C), "float32")
            T.clear(total)
            for down, along in T.grid(3, 3):
                for i, j, c in T.Parallel(block_H, block_W, block_C):
                    row, column, channel = bz * block_H + i, by * block_W + j, bx * block_C + c
                    value = X[row + down, column + along, channel]
                    total[i, j, c] = total[i, j, c] + F[down, along, channel] * value
            T.copy(total, Y[bz * block_H, by * block_W, bx * block_C])
        return Y

    return depthwise


def downsample(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """The mean of squares of two by two elements, (2 M, 2 N) to (M, N) of float32."""

    @T.prim_func
    def downsample(X: T.Tensor((2 * M, 2 * N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                upper = X[2 * row, 2 * column] + X[2 * row, 2 * column + 1]
                lower = X[2 * row + 1, 2 * column] + X[2 * row + 1, 2 * column + 1]
                Y[row, column] = (upper + lower) * 0.25
        return Y

    return downsample


def max_pool(C: int, H: int, W: int, block_H: int, block_W: int) -> Any:
    """Maxima of 3 x 3 with stride 2, X (C, 2 * H + 1, 2 * W + 1) to (C, H, W), float32."""

    @T.prim_func
    def max_pool(X: T.Tensor((C, 2 * H + 1, 2 * W + 1), "float32")):
        Y = T.empty((C, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H), C) as (bx, by, c):
            most = T.alloc_fragment((block_H, block_W), "float32")
            T.fill(most, -T.infinity("float32"))
            for down, along in T.grid(3, 3):
                for i, j in T.Parallel(block_H, block_W):
                    row, column = 2 * (by * block_H + i) + down, 2 * (bx * block_W + j) + along
                    most[i, j] = T.max(most[i, j], X[c, row, column])
            T.copy(most, Y[c, by * block_H, bx * block_W])
        return Y

    return max_pool


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


CASES = (
    Case("five-point stencil 1024x1024", stencil, {"M": 1024, "N": 1024}, ELEMENTS),
    Case(
        "step of a wave 64x96x160",
        wave,
        {"D": 64, "H": 96, "W": 160},
        {"block_D": (1, 8, 64), "block_H": (1, 8, 96), "block_W": (8, 32, 160)},
    ),
    Case("box filter 512x1024", box_filter, {"M": 512, "N": 1024}, IMAGES),
    Case("moving average 512x1024", moving_average, {"M": 512, "N": 1024}, IMAGES),
    Case("causal convolution 1024x1024", causal_convolution, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("five taps apart 512x1024", dilated, {"M": 512, "N": 1024}, IMAGES),
    Case(
        "depthwise convolution 56x56x128",
        depthwise,
        {"H": 56, "W": 56, "C": 128},
        {"block_H": (1, 4), "block_W": (2, 8, 28), "block_C": (16, 64, 128)},
    ),
    Case("downsample 1024x1024", downsample, {"M": 1024, "N": 1024}, ELEMENTS),
    Case(
        "maxima of 3x3 with stride 2, 64x56x56",
        max_pool,
        {"C": 64, "H": 56, "W": 56},
        {"block_H": (1, 2, 8, 28, 56), "block_W": (8, 28, 56)},
    ),
    Case(
        "flow on a lattice 200x240",
        lattice_flow,
        {"H": 200, "W": 240},
        {"block_H": (1, 4, 25, 200), "block_W": (8, 48, 240)},
    ),
)
