"""States, each computed from the one before it."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


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


def gated_unit(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(1 - z) * tanh(X @ W[2] + r * (H @ U[2])) + z * H`, r and z the sigmoids of `X @ W[i] + H @
    U[i]` for i = 0 and 1, of X (M, K), H (M, N), W (3, K, N) and U (3, N, N), float32 (a GRU).
    """

    @T.prim_func
    def gated_unit(
        X: T.Tensor((M, K), "float32"),
        H: T.Tensor((M, N), "float32"),
        W: T.Tensor((3, K, N), "float32"),
        U: T.Tensor((3, N, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "float32")
            right = T.alloc_shared((block_K, block_N), "float32")
            reset = T.alloc_fragment((block_M, block_N), "float32")
            kept = T.alloc_fragment((block_M, block_N), "float32")
            new = T.alloc_fragment((block_M, block_N), "float32")
            old = T.alloc_fragment((block_M, block_N), "float32")
            for each in (reset, kept, new, old):
                T.clear(each)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], left)
                for gate, total in enumerate((reset, kept, new)):
                    T.copy(W[gate, k * block_K, bx * block_N], right)
                    T.gemm(left, right, total)
            for k in T.serial(T.ceildiv(N, block_K)):
                T.copy(H[by * block_M, k * block_K], left)
                for gate, total in enumerate((reset, kept, old)):
                    T.copy(U[gate, k * block_K, bx * block_N], right)
                    T.gemm(left, right, total)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                made = T.tanh(new[i, j] + T.sigmoid(reset[i, j]) * old[i, j])
                Y[row, column] = made + T.sigmoid(kept[i, j]) * (H[row, column] - made)
        return Y

    return gated_unit


def kepler_places(M: int, N: int, steps: int, block_M: int, block_N: int) -> Any:
    """Places (2, M, N), `(cos(E) - e, sqrt(1 - e * e) * sin(E))`, of bodies with e = 0.8 *
    sigmoid(s), s (M,), on their ellipses: E of `E - e * sin(E) = r * t`, by Newton's steps from
    r * t, of r (M,) and times t (N,), float32.
    """

    @T.prim_func
    def kepler_places(
        s: T.Tensor((M,), "float32"), r: T.Tensor((M,), "float32"), t: T.Tensor((N,), "float32")
    ):
        Y = T.empty((2, M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            flat = T.alloc_fragment((block_M,), "float32")
            angle = T.alloc_fragment((block_M, block_N), "float32")
            for i in T.Parallel(block_M):
                flat[i] = 0.8 * T.sigmoid(s[by * block_M + i])
            for i, j in T.Parallel(block_M, block_N):
                angle[i, j] = r[by * block_M + i] * t[bx * block_N + j]
            for _ in T.serial(steps):
                for i, j in T.Parallel(block_M, block_N):
                    mean = r[by * block_M + i] * t[bx * block_N + j]
                    away = angle[i, j] - flat[i] * T.sin(angle[i, j]) - mean
                    angle[i, j] = angle[i, j] - away / (1.0 - flat[i] * T.cos(angle[i, j]))
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                Y[0, row, column] = T.cos(angle[i, j]) - flat[i]
                Y[1, row, column] = T.sqrt(1.0 - flat[i] * flat[i]) * T.sin(angle[i, j])
        return Y

    return kepler_places


def warped_distances(L: int, S: int, B: int, block_L: int, block_B: int) -> Any:
    """`d[l, s] = |X[l] - Y[s]| + min(d[l - 1, s], d[l, s - 1], d[l - 1, s - 1])` to the ends of
    pairs of series, the columns of X (L, B) and Y (S, B), float32: (B,), dynamic time warping.
    """

    @T.prim_func
    def warped_distances(X: T.Tensor((L, B), "float32"), Y: T.Tensor((S, B), "float32")):
        Z = T.empty((B,), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            first = T.alloc_shared((block_L, block_B), "float32")
            second = T.alloc_shared((S, block_B), "float32")
            row = T.alloc_shared((S, block_B), "float32")
            corner = T.alloc_fragment((block_B,), "float32")
            before = T.alloc_fragment((block_B,), "float32")
            T.copy(Y[0, bx * block_B], second)
            T.fill(row, 1e30)
            T.clear(corner)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B], first)
                for n in T.serial(block_L):
                    T.fill(before, 1e30)
                    for s in T.serial(S):
                        for j in T.Parallel(block_B):
                            above = row[s, j]
                            least = T.min(T.min(above, before[j]), corner[j])
                            corner[j] = above
                            before[j] = T.abs(first[n, j] - second[s, j]) + least
                            row[s, j] = before[j]
                    T.fill(corner, 1e30)
            T.copy(before, Z[bx * block_B])
        return Z

    return warped_distances


def alignment_losses(L: int, B: int, C: int, S: int, block_L: int, block_B: int) -> Any:
    """Losses (B,) of all ways to spread the S classes y (B, S), int32, with blanks, class 0,
    between them over L steps, of X (L, B, C), float32, logarithms of chances (CTC).
    """
    W, far = 2 * S + 1, -1e30

    @T.prim_func
    def alignment_losses(X: T.Tensor((L, B, C), "float32"), y: T.Tensor((B, S), "int32")):
        loss = T.empty((B,), "float32")
        with T.Kernel(T.ceildiv(B, block_B)) as bx:
            seen = T.alloc_shared((block_L, block_B, C), "float32")
            label = T.alloc_shared((block_B, W), "int32")
            skip = T.alloc_fragment((block_B, W), "float32")
            state = T.alloc_shared((block_B, W + 2), "float32")
            new = T.alloc_fragment((block_B, W), "float32")
            for b, s in T.Parallel(block_B, W):
                own = y[bx * block_B + b, T.min(s // 2, S - 1)]
                before = y[bx * block_B + b, T.max(s // 2 - 1, 0)]
                label[b, s] = T.if_then_else(s % 2 == 1, own, 0)
                may = (s % 2 == 1) & (own != before)
                skip[b, s] = T.if_then_else(may, 0.0, far)
            for b, s in T.Parallel(block_B, W + 2):
                state[b, s] = T.if_then_else(s == 2, 0.0, far)
            for k in T.serial(T.ceildiv(L, block_L)):
                T.copy(X[k * block_L, bx * block_B, 0], seen)
                for n in T.serial(block_L):
                    for b, s in T.Parallel(block_B, W):
                        one, two = state[b, s + 2], state[b, s + 1]
                        three = state[b, s] + skip[b, s]
                        most = T.max(T.max(one, two), three)
                        total = T.exp(one - most) + T.exp(two - most) + T.exp(three - most)
                        new[b, s] = most + T.log(total) + seen[n, b, label[b, s]]
                    for b, s in T.Parallel(block_B, W):
                        state[b, s + 2] = new[b, s]
            for b in T.Parallel(block_B):
                one, two = state[b, W + 1], state[b, W]
                most = T.max(one, two)
                loss[bx * block_B + b] = -most - T.log(T.exp(one - most) + T.exp(two - most))
        return loss

    return alignment_losses


CASES = (
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
        "gated unit 50x240x120",
        gated_unit,
        {"M": 50, "N": 240, "K": 120},
        {"block_M": (1, 5, 50), "block_N": (8, 48, 240), "block_K": (8, 40, 120)},
    ),
    Case(
        "places on ellipses 120x400, 5 steps",
        kepler_places,
        {"M": 120, "N": 400, "steps": 5},
        {"block_M": (1, 4, 24, 120), "block_N": (8, 40, 200, 400)},
    ),
    Case(
        "warped distances 48x60, 240 pairs",
        warped_distances,
        {"L": 48, "S": 60, "B": 240},
        {"block_L": (1, 8, 48), "block_B": (1, 8, 24, 80, 240)},
    ),
    Case(
        "losses of alignments 80x48x40, 20 classes",
        alignment_losses,
        {"L": 80, "B": 48, "C": 40, "S": 20},
        {"block_L": (1, 8, 80), "block_B": (1, 4, 16, 48)},
    ),
)
