"""Kernels that go element by element, with or without vectors for rows and columns."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import ELEMENTS, TILES, Case
from tileworkbench import kernels


def gated(M: int, N: int, block_M: int = 1, block_N: int = 512) -> Any:
    """`Y = A * sigmoid(A) * B` of (M, N) float32 matrices (SwiGLU)."""

    @T.prim_func
    def gated(A: T.Tensor((M, N), "float32"), B: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[row, column] = A[row, column] * T.sigmoid(A[row, column]) * B[row, column]
        return Y

    return gated


def polynomial(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`sum(x**n / (n + 1) for n in range(16))` of the elements of an (M, N) float32 matrix."""

    @T.prim_func
    def polynomial(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], x)
            T.fill(y, 1.0 / 16)
            for n in T.serial(15):
                for i, j in T.Parallel(block_M, block_N):
                    y[i, j] = y[i, j] * x[i, j] + 1.0 / (15.0 - T.cast(n, "float32"))
            T.copy(y, Y[by * block_M, bx * block_N])
        return Y

    return polynomial


def rank_one(M: int, N: int, block_M: int = 4, block_N: int = 256) -> Any:
    """`Y = A + x y.T` of an (M, N) float32 matrix, through a tile."""

    @T.prim_func
    def rank_one(
        A: T.Tensor((M, N), "float32"),
        x: T.Tensor((M,), "float32"),
        y: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            left = T.alloc_fragment((block_M,), "float32")
            right = T.alloc_fragment((block_N,), "float32")
            T.copy(A[by * block_M, bx * block_N], tile)
            T.copy(x[by * block_M], left)
            T.copy(y[bx * block_N], right)
            for i, j in T.Parallel(block_M, block_N):
                tile[i, j] = tile[i, j] + left[i] * right[j]
            T.copy(tile, Y[by * block_M, bx * block_N])
        return Y

    return rank_one


def outer_softplus(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`log(1 + exp(a[i] + b[j]))` of a (M,) and b (N,), float32."""

    @T.prim_func
    def outer_softplus(a: T.Tensor((M,), "float32"), b: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                total = a[by * block_M + i] + b[bx * block_N + j]
                Y[by * block_M + i, bx * block_N + j] = T.log(1.0 + T.exp(total))
        return Y

    return outer_softplus


def mixed(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`c[i] * X + (1 - c[i]) * Y` of X and Y (M, N) with c (M,), float32, from tiles."""

    @T.prim_func
    def mixed(
        X: T.Tensor((M, N), "float32"),
        Y: T.Tensor((M, N), "float32"),
        c: T.Tensor((M,), "float32"),
    ):
        Z = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(X[by * block_M, bx * block_N], x)
            T.copy(Y[by * block_M, bx * block_N], y)
            for i, j in T.Parallel(block_M, block_N):
                part = c[by * block_M + i]
                x[i, j] = part * x[i, j] + (1.0 - part) * y[i, j]
            T.copy(x, Z[by * block_M, bx * block_N])
        return Z

    return mixed


def residual_swish(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`R + hardswish(X + b)` of R and X (M, N) and b (N,), float32."""

    @T.prim_func
    def residual_swish(
        R: T.Tensor((M, N), "float32"), X: T.Tensor((M, N), "float32"), b: T.Tensor((N,), "float32")
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                x = X[row, column] + b[column]
                Y[row, column] = R[row, column] + x * T.clamp(x + 3.0, 0.0, 6.0) / 6.0
        return Y

    return residual_swish


def biased_silu(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`silu(X + b)` of X (M, N) of bfloat16 and b (N,) of float32, through a tile of float32."""

    @T.prim_func
    def biased_silu(X: T.Tensor((M, N), "bfloat16"), b: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            bias = T.alloc_fragment((block_N,), "float32")
            T.copy(X[by * block_M, bx * block_N], tile)
            T.copy(b[bx * block_N], bias)
            for i, j in T.Parallel(block_M, block_N):
                value = tile[i, j] + bias[j]
                tile[i, j] = value / (1.0 + T.exp(-value))
            T.copy(tile, Y[by * block_M, bx * block_N])
        return Y

    return biased_silu


def gated_update(M: int, N: int, block_M: int = 8, block_N: int = 256) -> Any:
    """`X + g * tanh(Z)` of X and Z (M, N) and g (N,), bfloat16."""

    @T.prim_func
    def gated_update(
        X: T.Tensor((M, N), "bfloat16"),
        Z: T.Tensor((M, N), "bfloat16"),
        g: T.Tensor((N,), "bfloat16"),
    ):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                gate = T.cast(g[column], "float32") * T.tanh(T.cast(Z[row, column], "float32"))
                Y[row, column] = T.cast(T.cast(X[row, column], "float32") + gate, "bfloat16")
        return Y

    return gated_update


def modulated(B: int, L: int, D: int, block_L: int, block_D: int) -> Any:
    """`R + sigmoid(g) * gelu(X * (1 + s) + t)` (by tanh) of R and X (B, L, D), bfloat16, and g, s
    and t (B, D), float32; a block goes down its columns.
    """

    @T.prim_func
    def modulated(
        R: T.Tensor((B, L, D), "bfloat16"),
        X: T.Tensor((B, L, D), "bfloat16"),
        g: T.Tensor((B, D), "float32"),
        s: T.Tensor((B, D), "float32"),
        t: T.Tensor((B, D), "float32"),
    ):
        Y = T.empty((B, L, D), "bfloat16")
        with T.Kernel(T.ceildiv(D, block_D), B) as (bx, b):
            tile = T.alloc_fragment((block_L, block_D), "float32")
            gate = T.alloc_fragment((block_D,), "float32")
            for j in T.Parallel(block_D):
                gate[j] = 0.5 / (1.0 + T.exp(-g[b, bx * block_D + j]))
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[b, k * block_L, bx * block_D], tile)
                for i, j in T.Parallel(block_L, block_D):
                    column = bx * block_D + j
                    x = tile[i, j] * (1.0 + s[b, column]) + t[b, column]
                    inner = 0.7978845608 * (x + 0.044715 * x * x * x)
                    value = gate[j] * x * (1.0 + T.tanh(inner))
                    tile[i, j] = T.cast(R[b, k * block_L + i, column], "float32") + value
                T.copy(tile, Y[b, k * block_L, bx * block_D])
        return Y

    return modulated


def adamax(M: int, N: int, block_M: int, block_N: int) -> Any:
    """A step of Adamax with decay and rates of rows, r (M,), of P, its gradient G and the states m
    and u (M, N), float32, and the new P in bfloat16.
    """

    @T.prim_func
    def adamax(
        P: T.Tensor((M, N), "float32"),
        G: T.Tensor((M, N), "float32"),
        m: T.Tensor((M, N), "float32"),
        u: T.Tensor((M, N), "float32"),
        r: T.Tensor((M,), "float32"),
    ):
        P_next, P_half = T.empty((M, N), "float32"), T.empty((M, N), "bfloat16")
        m_next, u_next = T.empty((M, N), "float32"), T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                first = 0.9 * m[row, column] + 0.1 * G[row, column]
                most = T.max(0.999 * u[row, column], T.abs(G[row, column]) + 1e-8)
                step = r[row] * (first / most + 0.01 * P[row, column])
                m_next[row, column] = first
                u_next[row, column] = most
                P_next[row, column] = P[row, column] - step
                P_half[row, column] = T.cast(P[row, column] - step, "bfloat16")
        return P_next, m_next, u_next, P_half

    return adamax


def option_prices(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Prices of call options over their strikes, and their deltas, after Black and Scholes: of X,
    logarithms of prices over strikes, volatilities |V| + 0.1 (M, N), times |t| + 0.05 (M,) and
    rates r / 20 (N,), float32.
    """

    @T.prim_func
    def option_prices(
        X: T.Tensor((M, N), "float32"),
        V: T.Tensor((M, N), "float32"),
        t: T.Tensor((M,), "float32"),
        r: T.Tensor((N,), "float32"),
    ):
        price, delta = T.empty((M, N), "float32"), T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                time, growth = T.abs(t[row]) + 0.05, 0.05 * r[column]
                spread = (T.abs(V[row, column]) + 0.1) * T.sqrt(time)
                upper = (X[row, column] + growth * time) / spread + 0.5 * spread
                share = 0.5 + 0.5 * T.erf(upper * 0.70710678)
                chance = 0.5 + 0.5 * T.erf((upper - spread) * 0.70710678)
                value = T.exp(X[row, column]) * share
                price[row, column] = value - T.exp(-growth * time) * chance
                delta[row, column] = share
        return price, delta

    return option_prices


def light_of_pixels(H: int, W: int, block_H: int, block_W: int) -> Any:
    """Three planes (3, H, W), float32, of the pixels X (H, W, 3), uint8: from bytes of sRGB to
    light.
    """

    @T.prim_func
    def light_of_pixels(X: T.Tensor((H, W, 3), "uint8")):
        Y = T.empty((3, H, W), "float32")
        with T.Kernel(T.ceildiv(W, block_W), T.ceildiv(H, block_H)) as (bx, by):
            for c, i, j in T.Parallel(3, block_H, block_W):
                row, column = by * block_H + i, bx * block_W + j
                x = T.cast(X[row, column, c], "float32") / 255.0
                bright = T.exp(2.4 * T.log((x + 0.055) / 1.055))
                Y[c, row, column] = T.if_then_else(x > 0.04045, bright, x / 12.92)
        return Y

    return light_of_pixels


def random_normals(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Normal numbers (M, N), float32, by the method of Box and Muller from places whose bits are
    mixed with the seeds (M,), int32, of their rows.
    """

    def mixed(x: Any, factor: int, shift: int) -> Any:
        return (x ^ x >> shift) * T.uint32(factor)

    @T.prim_func
    def random_normals(seeds: T.Tensor((M,), "int32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                start = T.cast(seeds[row], "uint32") + T.cast(column, "uint32")
                once = mixed(start, 0x7FEB352D, 16)
                first = mixed(once, 0x846CA68B, 15)
                again = mixed(first, 0x9E3779B1, 16)
                second = mixed(again, 0x85EBCA77, 15)
                chance = (T.cast(first >> 8, "float32") + 0.5) * 2.0**-24
                angle = T.cast(second >> 8, "float32") * (6.283185307179586 * 2.0**-24)
                Y[row, column] = T.sqrt(-2.0 * T.log(chance)) * T.cos(angle)
        return Y

    return random_normals


def pair_features(L: int, C: int, R: int, block_I: int, block_J: int) -> Any:
    """`relu(A[i] + B[j] + E[r])`, r = j - i cut to -R ... R, plus R, of A and B (L, C) and E (2 * R
    + 1, C), float16, and 0 where `on` (L,), uint8, is 0 at i or j, as float16 (L, L, C).
    """

    @T.prim_func
    def pair_features(
        A: T.Tensor((L, C), "float16"),
        B: T.Tensor((L, C), "float16"),
        E: T.Tensor((2 * R + 1, C), "float16"),
        on: T.Tensor((L,), "uint8"),
    ):
        Y = T.empty((L, L, C), "float16")
        with T.Kernel(T.ceildiv(L, block_J), T.ceildiv(L, block_I)) as (bx, by):
            for i, j, c in T.Parallel(block_I, block_J, C):
                first, second = by * block_I + i, bx * block_J + j
                place = T.clamp(second - first, -R, R) + R
                total = T.cast(A[first, c], "float32") + B[second, c] + E[place, c]
                is_on = (on[first] != 0) & (on[second] != 0)
                Y[first, second, c] = T.if_then_else(is_on, T.max(total, 0.0), 0.0)
        return Y

    return pair_features


CASES = (
    Case(
        "add 1024x1024",
        kernels.add,
        {"M": 1024, "N": 1024},
        {"block_M": (1, *TILES), "block_N": (16, 64, 256, 1024)},
    ),
    Case(
        "gelu 1024x512",
        kernels.gelu,
        {"M": 1024, "N": 512},
        {"block_M": (1, 4, 64), "block_N": (4, 16, 64, 512)},
    ),
    Case("swiglu 1024x1024", gated, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("polynomial 512x1024", polynomial, {"M": 512, "N": 1024}, ELEMENTS),
    Case("rank-one update 1024x1024", rank_one, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("outer softplus 512x1024", outer_softplus, {"M": 512, "N": 1024}, ELEMENTS),
    Case("mixed rows 1024x1024", mixed, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("residual hardswish 1024x1024", residual_swish, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("silu of bfloat16 with a bias 1024x1024", biased_silu, {"M": 1024, "N": 1024}, ELEMENTS),
    Case("gated update of bfloat16 1024x1024", gated_update, {"M": 1024, "N": 1024}, ELEMENTS),
    Case(
        "modulated gelu 4x480x640, bfloat16",
        modulated,
        {"B": 4, "L": 480, "D": 640},
        {"block_L": (1, 8, 60, 480), "block_D": (8, 32, 128, 640)},
    ),
    Case(
        "rope 1x512x8x64",
        kernels.rope,
        {"batch": 1, "seq_len": 512, "heads": 8, "dim": 64},
        {"block_S": (1, 2, 8, 32, 128), "interleaved": (False, True)},
    ),
    Case(
        "step of Adamax 1200x1280",
        adamax,
        {"M": 1200, "N": 1280},
        {"block_M": (1, 4, 16, 60, 240, 1200), "block_N": (16, 1280)},
    ),
    Case(
        "prices of options 480x1000",
        option_prices,
        {"M": 480, "N": 1000},
        {"block_M": (1, 3, 6, 20, 40, 120, 480), "block_N": (8, 1000)},
    ),
    Case(
        "light of pixels 200x320",
        light_of_pixels,
        {"H": 200, "W": 320},
        {"block_H": (1, 5, 40, 200), "block_W": (8, 40, 160, 320)},
    ),
    Case(
        "random normals 400x900",
        random_normals,
        {"M": 400, "N": 900},
        {"block_M": (1, 8, 50, 400), "block_N": (9, 60, 300, 900)},
    ),
    Case(
        "features of pairs 480x480x64, float16",
        pair_features,
        {"L": 480, "C": 64, "R": 32},
        {"block_I": (1, 12, 96), "block_J": (1, 8, 60, 480)},
    ),
)
