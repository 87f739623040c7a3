"""Running sums and states."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import COLUMNS, ROWS, Case


def running_sums(M: int, N: int, block_M: int = 1) -> Any:
    """`Y[i, j] = sum(X[i, :j + 1])` of an (M, N) float32 matrix."""

    @T.prim_func
    def running_sums(X: T.Tensor((M, N), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, N), "float32")
            T.copy(X[bx * block_M, 0], tile)
            T.cumsum(tile, dim=1)
            T.copy(tile, Y[bx * block_M, 0])
        return Y

    return running_sums


def decaying_sums(M: int, N: int, block_M: int = 16, block_N: int = 64) -> Any:
    """`y[i, j] = a[j] * y[i - 1, j] + X[i, j]` down the columns of an (M, N) float32 matrix."""

    @T.prim_func
    def decaying_sums(X: T.Tensor((M, N), "float32"), a: T.Tensor((N,), "float32")):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            state = T.alloc_fragment((block_N,), "float32")
            decay = T.alloc_fragment((block_N,), "float32")
            T.copy(a[bx * block_N], decay)
            T.clear(state)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], tile)
                for i in T.serial(block_M):
                    for j in T.Parallel(block_N):
                        state[j] = state[j] * decay[j] + tile[i, j]
                        tile[i, j] = state[j]
                T.copy(tile, Y[k * block_M, bx * block_N])
        return Y

    return decaying_sums


def selective_scan(L: int, D: int, S: int, block_L: int, block_D: int) -> Any:
    """`h = exp(-dt * A) * h + dt * x * B`, `y = h @ C` for L steps: x and dt (L, D), dt through
    softplus, A (D, S) by its logarithms, B and C (L, S), float32; `block_L` steps are fetched at a
    time.
    """

    @T.prim_func
    def selective_scan(
        X: T.Tensor((L, D), "float32"),
        dt: T.Tensor((L, D), "float32"),
        A: T.Tensor((D, S), "float32"),
        B: T.Tensor((L, S), "float32"),
        C: T.Tensor((L, S), "float32"),
    ):
        Y = T.empty((L, D), "float32")
        with T.Kernel(T.ceildiv(D, block_D)) as bx:
            inputs = T.alloc_shared((block_L, block_D), "float32")
            steps = T.alloc_shared((block_L, block_D), "float32")
            rates = T.alloc_fragment((block_D, S), "float32")
            state = T.alloc_fragment((block_D, S), "float32")
            seen = T.alloc_fragment((block_D, S), "float32")
            out = T.alloc_fragment((block_D,), "float32")
            T.clear(state)
            for d, n in T.Parallel(block_D, S):
                rates[d, n] = -T.exp(A[bx * block_D + d, n])
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_D], inputs)
                for i, d in T.Parallel(block_L, block_D):
                    steps[i, d] = T.log(1.0 + T.exp(dt[k * block_L + i, bx * block_D + d]))
                for i in T.serial(block_L):
                    for d, n in T.Parallel(block_D, S):
                        kept = T.exp(steps[i, d] * rates[d, n]) * state[d, n]
                        state[d, n] = kept + steps[i, d] * inputs[i, d] * B[k * block_L + i, n]
                        seen[d, n] = state[d, n] * C[k * block_L + i, n]
                    T.reduce_sum(seen, out, dim=1)
                    T.copy(out, Y[k * block_L + i, bx * block_D])
        return Y

    return selective_scan


def diffusion(L: int, N: int, block_L: int, block_N: int) -> Any:
    """Columns x of `(1 + 2 k[i]) x[i] - k[i] (x[i - 1] + x[i + 1]) = U[i]`, k = |R|, of R and U (L,
    N), float32: down to eliminate, `block_L` rows at a time, and up again.
    """

    @T.prim_func
    def diffusion(U: T.Tensor((L, N), "float32"), R: T.Tensor((L, N), "float32")):
        Y = T.empty((L, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            value = T.alloc_fragment((block_L, block_N), "float32")
            rate = T.alloc_fragment((block_L, block_N), "float32")
            factor = T.alloc_shared((L, block_N), "float32")
            solved = T.alloc_shared((L, block_N), "float32")
            above = T.alloc_fragment((block_N,), "float32")
            state = T.alloc_fragment((block_N,), "float32")
            T.clear(above)
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(U[k * block_L, bx * block_N], value)
                T.copy(R[k * block_L, bx * block_N], rate)
                for i in T.serial(block_L):
                    for j in T.Parallel(block_N):
                        part = T.abs(rate[i, j])
                        pivot = 1.0 / (1.0 + part * (2.0 - above[j]))
                        above[j] = part * pivot
                        state[j] = (value[i, j] + part * state[j]) * pivot
                        factor[k * block_L + i, j] = above[j]
                        solved[k * block_L + i, j] = state[j]
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                for i in T.serial(block_L):
                    for j in T.Parallel(block_N):
                        row = L - 1 - k * block_L - i
                        state[j] = solved[row, j] + factor[row, j] * state[j]
                        value[block_L - 1 - i, j] = state[j]
                T.copy(value, Y[L - (k + 1) * block_L, bx * block_N])
        return Y

    return diffusion


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


def recurrent_layer(L: int, B: int, H: int, block_L: int, block_B: int) -> Any:
    """`h = tanh(X[l] + h @ U)` for L steps from h = 0, of X (L, B, H) and U (H, H), float32: all h,
    (L, B, H); `block_L` steps of X are fetched at a time.
    """

    @T.prim_func
    def recurrent_layer(X: T.Tensor((L, B, H), "float32"), U: T.Tensor((H, H), "float32")):
        Y = T.empty((L, B, H), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            weights = T.alloc_shared((H, H), "float32")
            inputs = T.alloc_shared((block_L, block_B, H), "float32")
            state = T.alloc_shared((block_B, H), "float32")
            total = T.alloc_fragment((block_B, H), "float32")
            T.copy(U, weights)
            T.clear(state)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B, 0], inputs)
                for n in T.serial(block_L):
                    T.gemm(state, weights, total, clear_accum=True)
                    for i, j in T.Parallel(block_B, H):
                        state[i, j] = T.tanh(total[i, j] + inputs[n, i, j])
                    T.copy(state, Y[k * block_L + n, bx * block_B, 0])
        return Y

    return recurrent_layer


def delta_rule(H: int, L: int, D: int, E: int, block_L: int, block_E: int) -> Any:
    """`S += r * (v - S @ k) * k`, `y = S @ q` for L steps of each head from S = 0 (E, D): q and k
    of Q and K (H, L, D), v of V (H, L, E) and r = sigmoid(rate) / D, rate (H, L), float32.
    """

    @T.prim_func
    def delta_rule(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, L, D), "float32"),
        V: T.Tensor((H, L, E), "float32"),
        rate: T.Tensor((H, L), "float32"),
    ):
        Y = T.empty((H, L, E), "float32")
        with T.Kernel(T.ceildiv(E, block_E), H) as (bx, h):
            queries = T.alloc_shared((block_L, D), "float32")
            keys = T.alloc_shared((block_L, D), "float32")
            state = T.alloc_fragment((block_E, D), "float32")
            seen = T.alloc_fragment((block_E, D), "float32")
            out = T.alloc_fragment((block_E,), "float32")
            T.clear(state)
            for n in T.serial(T.ceildiv(L, block_L)):
                T.copy(Q[h, n * block_L, 0], queries)
                T.copy(K[h, n * block_L, 0], keys)
                for i in T.serial(block_L):
                    step = n * block_L + i
                    for e, d in T.Parallel(block_E, D):
                        seen[e, d] = state[e, d] * keys[i, d]
                    T.reduce_sum(seen, out, dim=1)
                    for e in T.Parallel(block_E):
                        off = V[h, step, bx * block_E + e] - out[e]
                        out[e] = T.sigmoid(rate[h, step]) / D * off
                    for e, d in T.Parallel(block_E, D):
                        state[e, d] = state[e, d] + out[e] * keys[i, d]
                        seen[e, d] = state[e, d] * queries[i, d]
                    T.reduce_sum(seen, out, dim=1)
                    T.copy(out, Y[h, step, bx * block_E])
        return Y

    return delta_rule


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


CASES = (
    Case("running sums 1024x1024", running_sums, {"M": 1024, "N": 1024}, {"block_M": ROWS}),
    Case("decaying sums 1024x1024", decaying_sums, {"M": 1024, "N": 1024}, COLUMNS),
    Case(
        "selective scan 256x192x16",
        selective_scan,
        {"L": 256, "D": 192, "S": 16},
        {"block_L": (1, 16, 64, 256), "block_D": (1, 8, 48, 192)},
    ),
    Case(
        "implicit diffusion 192x1536",
        diffusion,
        {"L": 192, "N": 1536},
        {"block_L": (1, 8, 48, 192), "block_N": (8, 64, 384, 1536)},
    ),
    Case(
        "advantages 360x840",
        advantages,
        {"M": 360, "L": 840},
        {"block_M": (1, 8, 60, 360), "block_L": (1, 8, 56, 280, 840)},
    ),
    Case(
        "drawdowns 240x2400",
        drawdowns,
        {"M": 240, "L": 2400},
        {"block_M": (1, 2, 8, 240), "block_L": (8, 40, 240, 2400)},
    ),
    Case(
        "recurrent layer 40x60x72",
        recurrent_layer,
        {"L": 40, "B": 60, "H": 72},
        {"block_L": (1, 8, 40), "block_B": (1, 4, 12, 30, 60)},
    ),
    Case(
        "delta rule 4x120, D 48 and 72",
        delta_rule,
        {"H": 4, "L": 120, "D": 48, "E": 72},
        {"block_L": (1, 10, 120), "block_E": (1, 3, 8, 24, 72)},
    ),
    Case(
        "resonators 240x1000",
        resonators,
        {"M": 240, "L": 1000},
        {"block_M": (1, 3, 8, 24, 240), "block_L": (8, 40, 200, 1000)},
    ),
)
