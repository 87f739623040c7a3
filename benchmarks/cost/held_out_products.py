"""Products, a recurrence and counts of bits that the model has not been fitted to."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def power_spectrum(
    M: int, F: int, Q: int, hop: int, block_M: int, block_N: int, block_K: int
) -> Any:
    """`(x * w @ C)**2 + (x * w @ S)**2` of M frames x of F samples, `hop` after each other, of a
    sound X ((M - 1) * hop + F,), with the window w (F,) and the waves C and S (F, Q), float32.
    """

    @T.prim_func
    def power_spectrum(
        X: T.Tensor(((M - 1) * hop + F,), "float32"),
        w: T.Tensor((F,), "float32"),
        C: T.Tensor((F, Q), "float32"),
        S: T.Tensor((F, Q), "float32"),
    ):
        Y = T.empty((M, Q), "float32")
        with T.Kernel(T.ceildiv(Q, block_N), T.ceildiv(M, block_M)) as (bx, by):
            frames = T.alloc_shared((block_M, block_K), "float32")
            waves = T.alloc_shared((block_K, block_N), "float32")
            real = T.alloc_fragment((block_M, block_N), "float32")
            imaginary = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(real)
            T.clear(imaginary)
            for k in T.serial(T.ceildiv(F, block_K)):
                for i, j in T.Parallel(block_M, block_K):
                    at = k * block_K + j
                    frames[i, j] = X[(by * block_M + i) * hop + at] * w[at]
                T.copy(C[k * block_K, bx * block_N], waves)
                T.gemm(frames, waves, real)
                T.copy(S[k * block_K, bx * block_N], waves)
                T.gemm(frames, waves, imaginary)
            for i, j in T.Parallel(block_M, block_N):
                real[i, j] = real[i, j] * real[i, j] + imaginary[i, j] * imaginary[i, j]
            T.copy(real, Y[by * block_M, bx * block_N])
        return Y

    return power_spectrum


def chosen_adapters(
    B: int, L: int, N: int, K: int, R: int, block_L: int, block_N: int, block_K: int
) -> Any:
    """`X[b] @ U[c] @ V[c] / R`, c = choice[b], of X (B, L, K), U (16, K, R) and V (16, R, N),
    float16, and choice (B,), int32: of adapters of rank R each request has its own.
    """

    @T.prim_func
    def chosen_adapters(
        X: T.Tensor((B, L, K), "float16"),
        U: T.Tensor((16, K, R), "float16"),
        V: T.Tensor((16, R, N), "float16"),
        choice: T.Tensor((B,), "int32"),
    ):
        Y = T.empty((B, L, N), "float16")
        grid = T.ceildiv(N, block_N), T.ceildiv(L, block_L), B
        with T.Kernel(*grid) as (bx, by, b):
            x = T.alloc_shared((block_L, block_K), "float16")
            u = T.alloc_shared((block_K, R), "float16")
            v = T.alloc_shared((R, block_N), "float16")
            inner = T.alloc_fragment((block_L, R), "float32")
            held = T.alloc_shared((block_L, R), "float16")
            out = T.alloc_fragment((block_L, block_N), "float32")
            T.clear(inner)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[b, by * block_L, k * block_K], x)
                T.copy(U[choice[b], k * block_K, 0], u)
                T.gemm(x, u, inner)
            for i, j in T.Parallel(block_L, R):
                held[i, j] = inner[i, j] / R
            T.copy(V[choice[b], 0, bx * block_N], v)
            T.gemm(held, v, out, clear_accum=True)
            T.copy(out, Y[b, by * block_L, bx * block_N])
        return Y

    return chosen_adapters


def weight_gradient(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X.T @ where(Y > 0, G, 0)` of X (M, K) and Y and G (M, N), bfloat16, as float32 (K, N): the
    gradient of the weights before a relu.
    """

    @T.prim_func
    def weight_gradient(
        X: T.Tensor((M, K), "bfloat16"),
        Y: T.Tensor((M, N), "bfloat16"),
        G: T.Tensor((M, N), "bfloat16"),
    ):
        D = T.empty((K, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(K, block_K)) as (bx, by):
            inputs = T.alloc_shared((block_M, block_K), "bfloat16")
            passed = T.alloc_shared((block_M, block_N), "bfloat16")
            total = T.alloc_fragment((block_K, block_N), "float32")
            T.clear(total)
            for m in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[m * block_M, by * block_K], inputs)
                for i, j in T.Parallel(block_M, block_N):
                    row, column = m * block_M + i, bx * block_N + j
                    passed[i, j] = T.if_then_else(Y[row, column] > 0.0, G[row, column], 0.0)
                T.gemm(inputs, passed, total, transpose_A=True)
            T.copy(total, D[by * block_K, bx * block_N])
        return D

    return weight_gradient


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


CASES: tuple[Case, ...] = (
    Case(
        "power spectrum of 150 frames of 400",
        power_spectrum,
        {"M": 150, "F": 400, "Q": 200, "hop": 160},
        {"block_M": (1, 10, 150), "block_N": (8, 40, 200), "block_K": (16, 80, 400)},
    ),
    Case(
        "adapters chosen 6x30x240x320, rank 16, float16",
        chosen_adapters,
        {"B": 6, "L": 30, "N": 240, "K": 320, "R": 16},
        {"block_L": (1, 6, 30), "block_N": (8, 40, 240), "block_K": (16, 320)},
    ),
    Case(
        "gradient of weights 320x360x200, bfloat16",
        weight_gradient,
        {"M": 320, "N": 360, "K": 200},
        {"block_M": (16, 320), "block_N": (8, 72, 360), "block_K": (1, 20, 200)},
    ),
    Case(
        "delta rule 4x120, D 48 and 72",
        delta_rule,
        {"H": 4, "L": 120, "D": 48, "E": 72},
        {"block_L": (1, 10, 120), "block_E": (1, 3, 8, 24, 72)},
    ),
    Case(
        "likeness of 1024 bits 120x500",
        likeness,
        {"M": 120, "N": 500, "K": 32},
        {"block_M": (1, 12, 120), "block_N": (8, 50, 500), "block_K": (4, 32)},
    ),
)
