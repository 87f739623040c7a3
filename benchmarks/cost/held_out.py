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


def dice_loss(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`1 - (2 * sum(p * t) + 1) / (sum(p) + sum(t) + 1)`, p = sigmoid(x), of the rows x of X (M,
    N), float16, and t, 0 or 1, of `on` (M, N), uint8, in pieces.
    """

    @T.prim_func
    def dice_loss(X: T.Tensor((M, N), "float16"), on: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            chance = T.alloc_fragment((block_M, block_N), "float32")
            wanted = T.alloc_fragment((block_M, block_N), "float32")
            both = T.alloc_fragment((block_M,), "float32")
            either = T.alloc_fragment((block_M,), "float32")
            T.clear(both)
            T.clear(either)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], chance)
                T.copy(on[bx * block_M, k * block_N], wanted)
                for i, j in T.Parallel(block_M, block_N):
                    p = T.sigmoid(chance[i, j])
                    chance[i, j] = p + wanted[i, j]
                    wanted[i, j] = p * wanted[i, j]
                T.reduce_sum(wanted, both, dim=1, clear=False)
                T.reduce_sum(chance, either, dim=1, clear=False)
            for i in T.Parallel(block_M):
                loss[bx * block_M + i] = 1.0 - (2.0 * both[i] + 1.0) / (either[i] + 1.0)
        return loss

    return dice_loss


def order_loss(M: int, N: int, block_I: int, block_J: int) -> Any:
    """`sum(log(1 + exp(s[j] - s[i])) for i, j where g[i] > g[j])` of the rows s of S (M, N),
    float32, and g of G (M, N), uint8: scores of N documents that are to be ordered as their grades.
    """

    @T.prim_func
    def order_loss(S: T.Tensor((M, N), "float32"), G: T.Tensor((M, N), "uint8")):
        loss = T.empty((M,), "float32")
        with T.Kernel(M) as bx:
            part = T.alloc_fragment((block_I, block_J), "float32")
            total = T.alloc_fragment((block_I,), "float32")
            every = T.alloc_fragment((1,), "float32")
            T.clear(total)
            for m, n in T.grid(T.ceildiv(N, block_I), T.ceildiv(N, block_J)):
                for i, j in T.Parallel(block_I, block_J):
                    better, worse = m * block_I + i, n * block_J + j
                    cost = T.log(1.0 + T.exp(S[bx, worse] - S[bx, better]))
                    part[i, j] = T.if_then_else(G[bx, better] > G[bx, worse], cost, 0.0)
                T.reduce_sum(part, total, dim=1, clear=False)
            T.reduce_sum(total, every, dim=0)
            T.copy(every, loss[bx])
        return loss

    return order_loss


def attentive_statistics(B: int, L: int, C: int, block_L: int, block_C: int) -> Any:
    """Means of the columns of X (B, L, C), bfloat16, and roots of their mean squares about them,
    with the weights `softmax(S, dim=1)` of S (B, L, C), float32: (B, C) each, float32.
    """

    @T.prim_func
    def attentive_statistics(X: T.Tensor((B, L, C), "bfloat16"), S: T.Tensor((B, L, C), "float32")):
        mean, spread = T.empty((B, C), "float32"), T.empty((B, C), "float32")
        with T.Kernel(T.ceildiv(C, block_C), B) as (bx, b):
            value = T.alloc_fragment((block_L, block_C), "float32")
            weight = T.alloc_fragment((block_L, block_C), "float32")
            square = T.alloc_fragment((block_L, block_C), "float32")
            most = T.alloc_fragment((block_C,), "float32")
            before = T.alloc_fragment((block_C,), "float32")
            first = T.alloc_fragment((block_C,), "float32")
            second = T.alloc_fragment((block_C,), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            T.fill(most, LOWEST)
            T.clear(first)
            T.clear(second)
            T.clear(total)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[b, k * block_L, bx * block_C], value)
                T.copy(S[b, k * block_L, bx * block_C], weight)
                T.copy(most, before)
                T.reduce_max(weight, most, dim=0, clear=False)
                for j in T.Parallel(block_C):
                    shrink = T.exp(before[j] - most[j])
                    total[j] = total[j] * shrink
                    first[j] = first[j] * shrink
                    second[j] = second[j] * shrink
                for i, j in T.Parallel(block_L, block_C):
                    weight[i, j] = T.exp(weight[i, j] - most[j])
                    square[i, j] = weight[i, j] * value[i, j] * value[i, j]
                    value[i, j] = weight[i, j] * value[i, j]
                T.reduce_sum(weight, total, dim=0, clear=False)
                T.reduce_sum(value, first, dim=0, clear=False)
                T.reduce_sum(square, second, dim=0, clear=False)
            for j in T.Parallel(block_C):
                middle = first[j] / total[j]
                mean[b, bx * block_C + j] = middle
                variance = second[j] / total[j] - middle * middle
                spread[b, bx * block_C + j] = T.sqrt(T.max(variance, 1e-6))
        return mean, spread

    return attentive_statistics


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


def likely_paths(L: int, B: int, S: int, block_L: int, block_B: int) -> Any:
    """`v[j] = max(v[i] + A[i, j] for i) + E[l, b, j]` for L steps from v = 0, and the first such i,
    int32, of A (S, S) and E (L, B, S), float32, both (L, B, S): Viterbi's way through S states.
    """

    @T.prim_func
    def likely_paths(A: T.Tensor((S, S), "float32"), E: T.Tensor((L, B, S), "float32")):
        V, place = T.empty((L, B, S), "float32"), T.empty((L, B, S), "int32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            moves = T.alloc_shared((S, S), "float32")
            seen = T.alloc_shared((block_L, block_B, S), "float32")
            state = T.alloc_shared((block_B, S), "float32")
            best = T.alloc_fragment((block_B, S), "float32")
            first = T.alloc_fragment((block_B, S), "int32")
            T.copy(A, moves)
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(E[k * block_L, bx * block_B, 0], seen)
                for n in T.serial(block_L):
                    T.fill(best, -T.infinity("float32"))
                    T.clear(first)
                    for i in T.serial(S):
                        for b, j in T.Parallel(block_B, S):
                            value = state[b, i] + moves[i, j]
                            first[b, j] = T.if_then_else(value > best[b, j], i, first[b, j])
                            best[b, j] = T.max(value, best[b, j])
                    for b, j in T.Parallel(block_B, S):
                        state[b, j] = best[b, j] + seen[n, b, j]
                    T.copy(state, V[k * block_L + n, bx * block_B, 0])
                    T.copy(first, place[k * block_L + n, bx * block_B, 0])
        return V, place

    return likely_paths


def spiking_neurons(L: int, N: int, block_L: int, block_N: int) -> Any:
    """`v = 0.9 * v + X[l]`, a spike where `v > t`, of which v loses t, and `t = 0.95 * t + 0.05 +
    0.2 * spike` for L steps from v = 0 and t = 1, of X (L, N), float16: spikes (L, N), uint8, and
    their shares (N,), float32.
    """

    @T.prim_func
    def spiking_neurons(X: T.Tensor((L, N), "float16")):
        spikes, share = T.empty((L, N), "uint8"), T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_L, block_N), "float32")
            charge = T.alloc_fragment((block_N,), "float32")
            bound = T.alloc_fragment((block_N,), "float32")
            count = T.alloc_fragment((block_N,), "float32")
            T.clear(charge)
            T.fill(bound, 1.0)
            T.clear(count)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_N], tile)
                for n in T.serial(block_L):
                    for j in T.Parallel(block_N):
                        charged = 0.9 * charge[j] + tile[n, j]
                        spike = T.if_then_else(charged > bound[j], 1.0, 0.0)
                        charge[j] = charged - spike * bound[j]
                        bound[j] = 0.95 * bound[j] + 0.05 + 0.2 * spike
                        count[j] = count[j] + spike
                        tile[n, j] = spike
                for i, j in T.Parallel(block_L, block_N):
                    spikes[k * block_L + i, bx * block_N + j] = T.cast(tile[i, j], "uint8")
            for j in T.Parallel(block_N):
                share[bx * block_N + j] = count[j] / L
        return spikes, share

    return spiking_neurons


def escape_times(M: int, N: int, steps: int, block_M: int, block_N: int) -> Any:
    """How many z of `z = z * z + c` from z = 0 have a square of at most 4, of `steps`, int32 (M,
    N), c of a (N,) + 1j * b (M,), float32: Mandelbrot's set.
    """

    @T.prim_func
    def escape_times(a: T.Tensor((N,), "float32"), b: T.Tensor((M,), "float32")):
        Y = T.empty((M, N), "int32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            real = T.alloc_fragment((block_M, block_N), "float32")
            imaginary = T.alloc_fragment((block_M, block_N), "float32")
            count = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(real)
            T.clear(imaginary)
            T.clear(count)
            for _ in T.serial(steps):
                for i, j in T.Parallel(block_M, block_N):
                    x, y = real[i, j], imaginary[i, j]
                    is_near = x * x + y * y <= 4.0
                    next_x = x * x - y * y + a[bx * block_N + j]
                    next_y = 2.0 * x * y + b[by * block_M + i]
                    count[i, j] = count[i, j] + T.if_then_else(is_near, 1, 0)
                    real[i, j] = T.if_then_else(is_near, next_x, x)
                    imaginary[i, j] = T.if_then_else(is_near, next_y, y)
            T.copy(count, Y[by * block_M, bx * block_N])
        return Y

    return escape_times


def sparse_step(M: int, K: int, block_M: int, block_K: int) -> Any:
    """`x + (b - A @ x) / d`, Jacobi's step, of x, b and d (M,) and A, K elements V of each row in
    the columns C, (M, K), int32, the others float32; in pieces of K.
    """

    @T.prim_func
    def sparse_step(
        V: T.Tensor((M, K), "float32"),
        C: T.Tensor((M, K), "int32"),
        x: T.Tensor((M,), "float32"),
        b: T.Tensor((M,), "float32"),
        d: T.Tensor((M,), "float32"),
    ):
        y = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            product = T.alloc_fragment((block_M, block_K), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    row, column = bx * block_M + i, k * block_K + j
                    product[i, j] = V[row, column] * x[C[row, column]]
                T.reduce_sum(product, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                row = bx * block_M + i
                y[row] = x[row] + (b[row] - total[i]) / d[row]
        return y

    return sparse_step


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


CASES: tuple[Case, ...] = (
    Case(
        "dice loss of rows 160x3600, float16",
        dice_loss,
        {"M": 160, "N": 3600},
        {"block_M": (1, 4, 20, 160), "block_N": (8, 48, 240, 900, 3600)},
    ),
    Case(
        "loss of orders 12x180",
        order_loss,
        {"M": 12, "N": 180},
        {"block_I": (1, 6, 30, 180), "block_J": (4, 12, 60, 180)},
    ),
    Case(
        "attentive statistics 4x300x360, bfloat16",
        attentive_statistics,
        {"B": 4, "L": 300, "C": 360},
        {"block_L": (1, 10, 60, 300), "block_C": (8, 40, 120, 360)},
    ),
    Case(
        "blurred bytes 480x600",
        blurred_bytes,
        {"H": 480, "W": 600},
        {"block_H": (1, 6, 48, 480), "block_W": (8, 60, 200, 600)},
    ),
    Case(
        "likely paths 60x40, 20 states",
        likely_paths,
        {"L": 60, "B": 40, "S": 20},
        {"block_L": (1, 6, 60), "block_B": (1, 4, 10, 40)},
    ),
    Case(
        "spiking neurons 300x1200, float16",
        spiking_neurons,
        {"L": 300, "N": 1200},
        {"block_L": (1, 10, 60, 300), "block_N": (8, 40, 240, 1200)},
    ),
    Case(
        "escape times 200x360, 24 steps",
        escape_times,
        {"M": 200, "N": 360, "steps": 24},
        {"block_M": (1, 4, 25, 200), "block_N": (8, 40, 120, 360)},
    ),
    Case(
        "step of a sparse system 2400x60",
        sparse_step,
        {"M": 2400, "K": 60},
        {"block_M": (1, 8, 60, 240, 2400), "block_K": (4, 12, 60)},
    ),
    Case(
        "colours of video 360x480",
        colours_of_video,
        {"H": 360, "W": 480},
        {"block_H": (1, 6, 60, 360), "block_W": (8, 48, 160, 480)},
    ),
)
