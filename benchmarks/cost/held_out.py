"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def gated_projection(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`R + (X * silu(Z)) @ W.T` of X and Z (M, K), W (N, K) and R (M, N), float32."""

    @T.prim_func
    def gated_projection(
        X: T.Tensor((M, K), "float32"),
        Z: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        R: T.Tensor((M, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_N, block_K), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.copy(R[by * block_M, bx * block_N], total)
            for k in T.serial(T.ceildiv(K, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    row, column = by * block_M + i, k * block_K + j
                    gate = Z[row, column]
                    left[i, j] = X[row, column] * gate / (1.0 + T.exp(-gate))
                T.copy(W[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return gated_projection


def linear_entropy(M: int, N: int, K: int, block_M: int, block_N: int) -> Any:
    """Cross entropy of the rows of X @ W.T with y (M,), int32, of X (M, K) and W (N, K), bfloat16;
    the logits are made in pieces and never stored.
    """

    @T.prim_func
    def linear_entropy(
        X: T.Tensor((M, K), "bfloat16"), W: T.Tensor((N, K), "bfloat16"), y: T.Tensor((M,), "int32")
    ):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_shared((block_M, K), "bfloat16")
            w = T.alloc_shared((block_N, K), "bfloat16")
            logits = T.alloc_fragment((block_M, block_N), "float32")
            product = T.alloc_fragment((block_M, K), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            wanted = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.fill(most, -1e30)
            T.clear(total)
            for n in T.serial(T.ceildiv(N, block_N)):
                T.copy(W[n * block_N, 0], w)
                T.gemm(x, w, logits, transpose_B=True, clear_accum=True)
                T.copy(most, before)
                T.reduce_max(logits, most, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp(before[i] - most[i])
                for i, j in T.Parallel(block_M, block_N):
                    logits[i, j] = T.exp(logits[i, j] - most[i])
                T.reduce_sum(logits, total, dim=1, clear=False)
            for i, k in T.Parallel(block_M, K):
                weight = T.cast(W[y[bx * block_M + i], k], "float32")
                product[i, k] = T.cast(x[i, k], "float32") * weight
            T.reduce_sum(product, wanted, dim=1)
            for i in T.Parallel(block_M):
                loss[bx * block_M + i] = most[i] + T.log(total[i]) - wanted[i]
        return loss

    return linear_entropy


def retention(H: int, L: int, D: int, E: int, block_L: int, block_E: int) -> Any:
    """`Y[l] = sum(g**(l - s) * (Q[l] @ K[s]) * V[s] for s <= l)` of each head, of Q and K (H, L, D)
    and V (H, L, E), float32, with g = exp(-|rate|) of rate (H,): what is in `block_L` steps by
    products of them, what was before by a state.
    """

    @T.prim_func
    def retention(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, L, D), "float32"),
        V: T.Tensor((H, L, E), "float32"),
        rate: T.Tensor((H,), "float32"),
    ):
        Y = T.empty((H, L, E), "float32")
        with T.Kernel(T.ceildiv(E, block_E), H) as (bx, h):
            q = T.alloc_shared((block_L, D), "float32")
            keys = T.alloc_shared((block_L, D), "float32")
            values = T.alloc_shared((block_L, block_E), "float32")
            scores = T.alloc_fragment((block_L, block_L), "float32")
            weights = T.alloc_shared((block_L, block_L), "float32")
            state = T.alloc_fragment((D, block_E), "float32")
            held = T.alloc_shared((D, block_E), "float32")
            out = T.alloc_fragment((block_L, block_E), "float32")
            T.clear(state)
            for n in T.serial(T.ceildiv(L, block_L)):
                T.copy(Q[h, n * block_L, 0], q)
                T.copy(K[h, n * block_L, 0], keys)
                T.copy(V[h, n * block_L, bx * block_E], values)
                T.copy(state, held)
                T.gemm(q, held, out, clear_accum=True)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, e in T.Parallel(block_L, block_E):
                    out[i, e] = out[i, e] * T.exp(-T.abs(rate[h]) * (i + 1))
                for i, j in T.Parallel(block_L, block_L):
                    kept = scores[i, j] * T.exp(-T.abs(rate[h]) * T.max(i - j, 0))
                    weights[i, j] = T.if_then_else(i >= j, kept, 0.0)
                T.gemm(weights, values, out)
                T.copy(out, Y[h, n * block_L, bx * block_E])
                for i, d in T.Parallel(block_L, D):
                    keys[i, d] = keys[i, d] * T.exp(-T.abs(rate[h]) * (block_L - 1 - i))
                for d, e in T.Parallel(D, block_E):
                    state[d, e] = state[d, e] * T.exp(-T.abs(rate[h]) * block_L)
                T.gemm(keys, values, state, transpose_A=True)
        return Y

    return retention


def packed_groups(M: int, G: int, D: int, block_M: int, block_G: int) -> Any:
    """Each `X[i, g]` of X (M, G, D), float32, as codes of 4 bits, two in a byte, (M, G, D // 2),
    uint8, with the step between codes and the least element, (M, G), float32.
    """

    @T.prim_func
    def packed_groups(X: T.Tensor((M, G, D), "float32")):
        codes = T.empty((M, G, D // 2), "uint8")
        steps, offsets = T.empty((M, G), "float32"), T.empty((M, G), "float32")
        with T.Kernel(T.ceildiv(G, block_G), T.ceildiv(M, block_M)) as (bx, by):
            tile = T.alloc_fragment((block_M, block_G, D), "float32")
            least = T.alloc_fragment((block_M, block_G), "float32")
            most = T.alloc_fragment((block_M, block_G), "float32")
            T.copy(X[by * block_M, bx * block_G, 0], tile)
            T.reduce_min(tile, least, dim=2)
            T.reduce_max(tile, most, dim=2)
            for i, g in T.Parallel(block_M, block_G):
                extent = most[i, g] - least[i, g]
                steps[by * block_M + i, bx * block_G + g] = extent / 15.0
                offsets[by * block_M + i, bx * block_G + g] = least[i, g]
                most[i, g] = 15.0 / extent
            for i, g, d in T.Parallel(block_M, block_G, D // 2):
                first = T.round((tile[i, g, 2 * d] - least[i, g]) * most[i, g])
                second = T.round((tile[i, g, 2 * d + 1] - least[i, g]) * most[i, g])
                byte = T.cast(first, "int32") | T.cast(second, "int32") << 4
                codes[by * block_M + i, bx * block_G + g, d] = T.cast(byte, "uint8")
        return codes, steps, offsets

    return packed_groups


def distillation(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Divergences of softmax(Y) from softmax(X), rows of X and Y (M, N), bfloat16: sums of
    `p * (log(p) - log(q))`, where both are read once, in pieces.
    """

    @T.prim_func
    def distillation(X: T.Tensor((M, N), "bfloat16"), Y: T.Tensor((M, N), "bfloat16")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            x = T.alloc_fragment((block_M, block_N), "float32")
            y = T.alloc_fragment((block_M, block_N), "float32")
            apart = T.alloc_fragment((block_M, block_N), "float32")
            most_x = T.alloc_fragment((block_M,), "float32")
            most_y = T.alloc_fragment((block_M,), "float32")
            before_x = T.alloc_fragment((block_M,), "float32")
            before_y = T.alloc_fragment((block_M,), "float32")
            total_x = T.alloc_fragment((block_M,), "float32")
            total_y = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most_x, -1e30)
            T.fill(most_y, -1e30)
            T.clear(total_x)
            T.clear(total_y)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], x)
                T.copy(Y[bx * block_M, k * block_N], y)
                T.copy(most_x, before_x)
                T.copy(most_y, before_y)
                T.reduce_max(x, most_x, dim=1, clear=False)
                T.reduce_max(y, most_y, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    shrink = T.exp(before_x[i] - most_x[i])
                    total_x[i] = total_x[i] * shrink
                    total[i] = total[i] * shrink
                    total_y[i] = total_y[i] * T.exp(before_y[i] - most_y[i])
                for i, j in T.Parallel(block_M, block_N):
                    apart[i, j] = T.exp(x[i, j] - most_x[i]) * (x[i, j] - y[i, j])
                    x[i, j] = T.exp(x[i, j] - most_x[i])
                    y[i, j] = T.exp(y[i, j] - most_y[i])
                T.reduce_sum(x, total_x, dim=1, clear=False)
                T.reduce_sum(y, total_y, dim=1, clear=False)
                T.reduce_sum(apart, total, dim=1, clear=False)
            for i in T.Parallel(block_M):
                logs = most_y[i] + T.log(total_y[i]) - most_x[i] - T.log(total_x[i])
                loss[bx * block_M + i] = total[i] / total_x[i] + logs
        return loss

    return distillation


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


def advantages(M: int, L: int, block_M: int, block_L: int) -> Any:
    """`a[l] = R[l] + g * V[l + 1] - V[l] + 0.95 * g * a[l + 1]` of the rows of R (M, L) and V (M,
    L + 1), float32, from their ends, where g is 0.99, or 0 where `on` (M, L), uint8, is.
    """

    @T.prim_func
    def advantages(
        R: T.Tensor((M, L), "float32"),
        V: T.Tensor((M, L + 1), "float32"),
        on: T.Tensor((M, L), "uint8"),
    ):
        Y = T.empty((M, L), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            gain = T.alloc_fragment((block_M, block_L), "float32")
            decay = T.alloc_fragment((block_M, block_L), "float32")
            state = T.alloc_fragment((block_M,), "float32")
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                start = L - (k + 1) * block_L
                for i, j in T.Parallel(block_M, block_L):
                    row, column = bx * block_M + i, start + j
                    kept = T.if_then_else(on[row, column] != 0, 0.99, 0.0)
                    gain[i, j] = R[row, column] + kept * V[row, column + 1] - V[row, column]
                    decay[i, j] = 0.95 * kept
                for j in T.serial(block_L):
                    for i in T.Parallel(block_M):
                        step = block_L - 1 - j
                        state[i] = gain[i, step] + decay[i, step] * state[i]
                        gain[i, step] = state[i]
                T.copy(gain, Y[bx * block_M, start])
        return Y

    return advantages


def warp(C: int, H: int, W: int, block_C: int, block_H: int, block_W: int) -> Any:
    """Planes X (C, H, W) at places moved by F (2, H, W), float32, down and along, that lie between
    four elements; outside is as at the edge.
    """

    @T.prim_func
    def warp(X: T.Tensor((C, H, W), "float32"), F: T.Tensor((2, H, W), "float32")):
        Y = T.empty((C, H, W), "float32")
        grid = T.ceildiv(W, block_W), T.ceildiv(H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                down = T.clamp(F[0, row, column] + T.cast(row, "float32"), 0.0, H - 1.0)
                along = T.clamp(F[1, row, column] + T.cast(column, "float32"), 0.0, W - 1.0)
                above, left = T.floor(down), T.floor(along)
                y, x = T.cast(above, "int32"), T.cast(left, "int32")
                below, right = T.min(y + 1, H - 1), T.min(x + 1, W - 1)
                share = along - left
                upper = X[c, y, x] + share * (X[c, y, right] - X[c, y, x])
                lower = X[c, below, x] + share * (X[c, below, right] - X[c, below, x])
                Y[c, row, column] = upper + (down - above) * (lower - upper)
        return Y

    return warp


def pixel_shuffle(C: int, H: int, W: int, r: int, block_C: int, block_H: int, block_W: int) -> Any:
    """`Y[c, r * h + i, r * w + j] = X[(c * r + i) * r + j, h, w]` of X (C * r * r, H, W),
    bfloat16: channels become squares of r by r pixels.
    """

    @T.prim_func
    def pixel_shuffle(X: T.Tensor((C * r * r, H, W), "bfloat16")):
        Y = T.empty((C, r * H, r * W), "bfloat16")
        grid = T.ceildiv(r * W, block_W), T.ceildiv(r * H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                channel = (c * r + row % r) * r + column % r
                Y[c, row, column] = X[channel, row // r, column // r]
        return Y

    return pixel_shuffle


CASES: tuple[Case, ...] = (
    Case(
        "gated projection 200x600x720",
        gated_projection,
        {"M": 200, "N": 600, "K": 720},
        {"block_M": (1, 8, 200), "block_N": (24, 120, 600), "block_K": (16, 90, 720)},
    ),
    Case(
        "linear and cross entropy 240x3000x120, bfloat16",
        linear_entropy,
        {"M": 240, "N": 3000, "K": 120},
        {"block_M": (1, 8, 40, 240), "block_N": (8, 40, 200, 1000, 3000)},
    ),
    Case(
        "retention 4x320, D 48 and 96",
        retention,
        {"H": 4, "L": 320, "D": 48, "E": 96},
        {"block_L": (1, 8, 32, 80, 320), "block_E": (8, 32, 96)},
    ),
    Case(
        "groups to 4 bits 800x30x40",
        packed_groups,
        {"M": 800, "G": 30, "D": 40},
        {"block_M": (1, 800), "block_G": (1, 2, 3, 5, 6, 10, 15, 30)},
    ),
    Case(
        "distillation 120x6000, bfloat16",
        distillation,
        {"M": 120, "N": 6000},
        {"block_M": (1, 8, 120), "block_N": (8, 24, 80, 200, 600, 6000)},
    ),
    Case(
        "correlations of columns 2000x760",
        correlations,
        {"M": 2000, "N": 760},
        {"block_M": (1, 8, 40, 250, 2000), "block_N": (8, 40, 190, 760)},
    ),
    Case(
        "prices of options 480x1000",
        option_prices,
        {"M": 480, "N": 1000},
        {"block_M": (1, 3, 6, 20, 40, 120, 480), "block_N": (8, 1000)},
    ),
    Case(
        "bilateral filter 180x320",
        bilateral,
        {"H": 180, "W": 320},
        {"block_H": (1, 4, 20, 180), "block_W": (8, 40, 128, 320)},
    ),
    Case(
        "advantages 360x840",
        advantages,
        {"M": 360, "L": 840},
        {"block_M": (1, 8, 60, 360), "block_L": (1, 8, 56, 280, 840)},
    ),
    Case(
        "warp by a flow 12x96x136",
        warp,
        {"C": 12, "H": 96, "W": 136},
        {"block_C": (1, 3, 12), "block_H": (1, 8, 32, 96), "block_W": (8, 136)},
    ),
    Case(
        "pixel shuffle by 3, 10x72x100, bfloat16",
        pixel_shuffle,
        {"C": 10, "H": 72, "W": 100, "r": 3},
        {"block_C": (1, 5, 10), "block_H": (1, 9, 216), "block_W": (10, 60, 300)},
    ),
)
