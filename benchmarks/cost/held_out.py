"""Kernels that the model has not been fitted to.

They were written, with their configurations, before the model or the clock had seen any; the sizes
of tiles go from the smallest that one would try to the whole extent. Once they have been looked at
they move to the modules of their kinds.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


def adapted_linear(M: int, N: int, K: int, R: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`X @ W.T + 2 (X @ A.T) @ B.T` of X (M, K), W (N, K), A (R, K) and B (N, R), float32, with a
    small R.
    """

    @T.prim_func
    def adapted_linear(
        X: T.Tensor((M, K), "float32"),
        W: T.Tensor((N, K), "float32"),
        A: T.Tensor((R, K), "float32"),
        B: T.Tensor((N, R), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "float32")
            w = T.alloc_shared((block_N, block_K), "float32")
            a = T.alloc_shared((R, block_K), "float32")
            b = T.alloc_shared((block_N, R), "float32")
            held = T.alloc_shared((block_M, R), "float32")
            inner = T.alloc_fragment((block_M, R), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(inner)
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * block_K], w)
                T.copy(A[0, k * block_K], a)
                T.gemm(x, w, total, transpose_B=True)
                T.gemm(x, a, inner, transpose_B=True)
            for i, r in T.Parallel(block_M, R):
                held[i, r] = 2.0 * inner[i, r]
            T.copy(B[bx * block_N, 0], b)
            T.gemm(held, b, total, transpose_B=True)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return adapted_linear


def value_gradient(H: int, L: int, S: int, D: int, block_M: int, block_N: int) -> Any:
    """`exp(Q @ K.mT / sqrt(D) - l).mT @ G` of Q and G (H, L, D), K (H, S, D) and l (H, L), float32:
    the gradient of attention's values, from the logarithms of its sums; a block has some keys.
    """

    @T.prim_func
    def value_gradient(
        Q: T.Tensor((H, L, D), "float32"),
        K: T.Tensor((H, S, D), "float32"),
        G: T.Tensor((H, L, D), "float32"),
        logs: T.Tensor((H, L), "float32"),
    ):
        Y = T.empty((H, S, D), "float32")
        with T.Kernel(T.ceildiv(S, block_N), H) as (bx, h):
            keys = T.alloc_shared((block_N, D), "float32")
            q = T.alloc_shared((block_M, D), "float32")
            g = T.alloc_shared((block_M, D), "float32")
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_shared((block_M, block_N), "float32")
            out = T.alloc_fragment((block_N, D), "float32")
            T.copy(K[h, bx * block_N, 0], keys)
            T.clear(out)
            for m in T.serial(T.ceildiv(L, block_M)):
                T.copy(Q[h, m * block_M, 0], q)
                T.copy(G[h, m * block_M, 0], g)
                T.gemm(q, keys, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    weights[i, j] = T.exp(scores[i, j] * D**-0.5 - logs[h, m * block_M + i])
                T.gemm(weights, g, out, transpose_A=True)
            T.copy(out, Y[h, bx * block_N, 0])
        return Y

    return value_gradient


def rms_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(X / rms(X)) @ W.T` of X (M, K) and W (N, K), bfloat16: the squares of X are summed beside
    the product.
    """

    @T.prim_func
    def rms_linear(X: T.Tensor((M, K), "bfloat16"), W: T.Tensor((N, K), "bfloat16")):
        Y = T.empty((M, N), "bfloat16")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            x = T.alloc_shared((block_M, block_K), "bfloat16")
            w = T.alloc_shared((block_N, block_K), "bfloat16")
            square = T.alloc_fragment((block_M, block_K), "float32")
            squares = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(squares)
            T.clear(total)
            for k in T.serial(T.ceildiv(K, block_K)):
                T.copy(X[by * block_M, k * block_K], x)
                T.copy(W[bx * block_N, k * block_K], w)
                T.gemm(x, w, total, transpose_B=True)
                for i, j in T.Parallel(block_M, block_K):
                    square[i, j] = T.cast(x[i, j], "float32") * T.cast(x[i, j], "float32")
                T.reduce_sum(square, squares, dim=1, clear=False)
            for i, j in T.Parallel(block_M, block_N):
                total[i, j] = total[i, j] * T.rsqrt(squares[i] / K + 1e-6)
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return rms_linear


def bytes_linear(M: int, N: int, K: int, block_M: int, block_N: int, block_K: int) -> Any:
    """`(A @ W.T) * s[:, None] * t + b` of A (M, K) and W (N, K), int8, s (M,), t and b (N,),
    float32, with sums in int32.
    """

    @T.prim_func
    def bytes_linear(
        A: T.Tensor((M, K), "int8"),
        W: T.Tensor((N, K), "int8"),
        s: T.Tensor((M,), "float32"),
        t: T.Tensor((N,), "float32"),
        b: T.Tensor((N,), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            left = T.alloc_shared((block_M, block_K), "int8")
            right = T.alloc_shared((block_N, block_K), "int8")
            total = T.alloc_fragment((block_M, block_N), "int32")
            T.clear(total)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                T.copy(A[by * block_M, k * block_K], left)
                T.copy(W[bx * block_N, k * block_K], right)
                T.gemm(left, right, total, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                row, column = by * block_M + i, bx * block_N + j
                value = T.cast(total[i, j], "float32") * s[row]
                Y[row, column] = value * t[column] + b[column]
        return Y

    return bytes_linear


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


def response_norm(B: int, P: int, C: int, block_P: int, block_C: int) -> Any:
    """`X + g * X * n / mean(n) + b` with the lengths n of the columns of each X[i]: X (B, P, C), g
    and b (C,), float32 (global response normalisation).
    """

    @T.prim_func
    def response_norm(
        X: T.Tensor((B, P, C), "float32"),
        g: T.Tensor((C,), "float32"),
        b: T.Tensor((C,), "float32"),
    ):
        Y = T.empty((B, P, C), "float32")
        with T.Kernel(B) as bz:
            square = T.alloc_fragment((block_P, block_C), "float32")
            total = T.alloc_fragment((block_C,), "float32")
            lengths = T.alloc_shared((C,), "float32")
            mean = T.alloc_fragment((1,), "float32")
            for c in T.serial(T.ceildiv(C, block_C)):
                T.clear(total)
                for p in T.serial(T.ceildiv(P, block_P)):
                    for i, j in T.Parallel(block_P, block_C):
                        x = X[bz, p * block_P + i, c * block_C + j]
                        square[i, j] = x * x
                    T.reduce_sum(square, total, dim=0, clear=False)
                for j in T.Parallel(block_C):
                    lengths[c * block_C + j] = T.sqrt(total[j])
            T.reduce_sum(lengths, mean, dim=0)
            for p, c in T.grid(T.ceildiv(P, block_P), T.ceildiv(C, block_C)):
                for i, j in T.Parallel(block_P, block_C):
                    row, column = p * block_P + i, c * block_C + j
                    part = lengths[column] * C / mean[0]
                    x = X[bz, row, column]
                    Y[bz, row, column] = x + g[column] * x * part + b[column]
        return Y

    return response_norm


def smoothed_entropy(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Cross entropy of the rows of X (M, N), bfloat16, with a tenth of the weight on all classes
    and the rest on y (M,), int32; read once, in pieces.
    """

    @T.prim_func
    def smoothed_entropy(X: T.Tensor((M, N), "bfloat16"), y: T.Tensor((M,), "int32")):
        loss = T.empty((M,), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            powers = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -1e30)
            T.clear(powers)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.copy(most, before)
                T.reduce_max(tile, most, dim=1, clear=False)
                T.reduce_sum(tile, total, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    powers[i] = powers[i] * T.exp(before[i] - most[i])
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - most[i])
                T.reduce_sum(tile, powers, dim=1, clear=False)
            for i in T.Parallel(block_M):
                row = bx * block_M + i
                expected = 0.9 * T.cast(X[row, y[row]], "float32") + total[i] * (0.1 / N)
                loss[row] = most[i] + T.log(powers[i]) - expected
        return loss

    return smoothed_entropy


def enlarge(C: int, H: int, W: int, block_C: int, block_H: int, block_W: int) -> Any:
    """Planes of twice the height and width by bilinear interpolation, X (C, H, W), float32."""

    @T.prim_func
    def enlarge(X: T.Tensor((C, H, W), "float32")):
        Y = T.empty((C, 2 * H, 2 * W), "float32")
        grid = T.ceildiv(2 * W, block_W), T.ceildiv(2 * H, block_H), T.ceildiv(C, block_C)
        with T.Kernel(*grid) as (bx, by, bz):
            for a, i, j in T.Parallel(block_C, block_H, block_W):
                c, row, column = bz * block_C + a, by * block_H + i, bx * block_W + j
                near, beside = row // 2, column // 2
                far = T.clamp(near + 2 * (row % 2) - 1, 0, H - 1)
                away = T.clamp(beside + 2 * (column % 2) - 1, 0, W - 1)
                first = 0.75 * X[c, near, beside] + 0.25 * X[c, near, away]
                second = 0.75 * X[c, far, beside] + 0.25 * X[c, far, away]
                Y[c, row, column] = 0.75 * first + 0.25 * second
        return Y

    return enlarge


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


def diagonal_sums(H: int, L: int, block_M: int, block_N: int) -> Any:
    """`Y[h, d] = sum(X[h, i, i + d - L + 1] for i)` of X (H, L, L), float32: the gradient of a bias
    for each distance.
    """

    @T.prim_func
    def diagonal_sums(X: T.Tensor((H, L, L), "float32")):
        Y = T.empty((H, 2 * L - 1), "float32")
        with T.Kernel(T.ceildiv(2 * L - 1, block_N), H) as (bx, h):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(L, block_M)):
                for i, j in T.Parallel(block_M, block_N):
                    row = k * block_M + i
                    column = row + bx * block_N + j - L + 1
                    inside = T.And(column >= 0, column < L)
                    tile[i, j] = T.if_then_else(inside, X[h, row, column], 0.0)
                T.reduce_sum(tile, total, dim=0, clear=False)
            T.copy(total, Y[h, bx * block_N])
        return Y

    return diagonal_sums


CASES: tuple[Case, ...] = (
    Case(
        "adapted linear 192x448x640, rank 16",
        adapted_linear,
        {"M": 192, "N": 448, "K": 640, "R": 16},
        {"block_M": (1, 8, 48, 192), "block_N": (16, 64, 448), "block_K": (16, 80, 640)},
    ),
    Case(
        "gradient of values 3x384x320, D 80",
        value_gradient,
        {"H": 3, "L": 384, "S": 320, "D": 80},
        {"block_M": (1, 8, 32, 96, 384), "block_N": (8, 32, 80, 320)},
    ),
    Case(
        "rms norm and linear 224x512x640, bfloat16",
        rms_linear,
        {"M": 224, "N": 512, "K": 640},
        {"block_M": (1, 8, 32, 224), "block_N": (16, 128, 512), "block_K": (16, 128, 640)},
    ),
    Case(
        "int8 linear 48x256x2560",
        bytes_linear,
        {"M": 48, "N": 256, "K": 2560},
        {"block_M": (1, 4, 16, 48), "block_N": (8, 32, 256), "block_K": (16, 320, 2560)},
    ),
    Case(
        "step of Adamax 1200x1280",
        adamax,
        {"M": 1200, "N": 1280},
        {"block_M": (1, 4, 16, 60, 240, 1200), "block_N": (16, 1280)},
    ),
    Case(
        "response norm 6x196x384",
        response_norm,
        {"B": 6, "P": 196, "C": 384},
        {"block_P": (1, 7, 49, 196), "block_C": (8, 32, 128, 384)},
    ),
    Case(
        "smoothed cross entropy 90x12000, bfloat16",
        smoothed_entropy,
        {"M": 90, "N": 12000},
        {"block_M": (1, 9, 90), "block_N": (16, 40, 96, 240, 600, 1500, 3000, 12000)},
    ),
    Case(
        "twice as large 12x48x72",
        enlarge,
        {"C": 12, "H": 48, "W": 72},
        {"block_C": (1, 4, 12), "block_H": (1, 8, 96), "block_W": (8, 48, 144)},
    ),
    Case(
        "overlaps of boxes 600x1500",
        overlaps,
        {"M": 600, "N": 1500},
        {"block_M": (1, 8, 60, 600), "block_N": (10, 50, 128, 500, 1500)},
    ),
    Case(
        "implicit diffusion 192x1536",
        diffusion,
        {"L": 192, "N": 1536},
        {"block_L": (1, 8, 48, 192), "block_N": (8, 64, 384, 1536)},
    ),
    Case(
        "sums of diagonals 12x480x480",
        diagonal_sums,
        {"H": 12, "L": 480},
        {"block_M": (1, 8, 60, 480), "block_N": (8, 32, 137, 959)},
    ),
)
