"""Kernels for `cost_cases.py` that were written, with their configurations, after the model had
followed those of `cost_fresh_kernels.py`, and before it or the clock had seen any.
"""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T


def entropy_backward(M: int, N: int, block_M: int, block_N: int) -> Any:
    """`(softmax(X) - onehot(y)) * g[:, None]` of X (M, N) and g (M,), float32, and y (M,), int32:
    rows in pieces, read for their sums and again for what is stored.
    """

    @T.prim_func
    def entropy_backward(
        X: T.Tensor((M, N), "float32"), y: T.Tensor((M,), "int32"), g: T.Tensor((M,), "float32")
    ):
        D = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block_M)) as bx:
            tile = T.alloc_fragment((block_M, block_N), "float32")
            most = T.alloc_fragment((block_M,), "float32")
            before = T.alloc_fragment((block_M,), "float32")
            part = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.fill(most, -1e30)
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                T.copy(X[bx * block_M, k * block_N], tile)
                T.copy(most, before)
                T.reduce_max(tile, most, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - most[i])
                T.reduce_sum(tile, part, dim=1)
                for i in T.Parallel(block_M):
                    total[i] = total[i] * T.exp(before[i] - most[i]) + part[i]
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    row, column = bx * block_M + i, k * block_N + j
                    p = T.exp(X[row, column] - most[i]) / total[i]
                    D[row, column] = g[row] * (p - T.if_then_else(column == y[row], 1.0, 0.0))
        return D

    return entropy_backward


def column_errors(M: int, N: int, block_M: int, block_N: int) -> Any:
    """Mean absolute differences of the columns of X and Y (M, N), float32."""

    @T.prim_func
    def column_errors(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        e = T.empty((N,), "float32")
        with T.Kernel(T.ceildiv(N, block_N)) as bx:
            left = T.alloc_fragment((block_M, block_N), "float32")
            right = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_N,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(M, block_M)):
                T.copy(X[k * block_M, bx * block_N], left)
                T.copy(Y[k * block_M, bx * block_N], right)
                for i, j in T.Parallel(block_M, block_N):
                    left[i, j] = T.abs(left[i, j] - right[i, j])
                T.reduce_sum(left, total, dim=0, clear=False)
            for j in T.Parallel(block_N):
                e[bx * block_N + j] = total[j] / M
        return e

    return column_errors


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


def channels_last(B: int, C: int, P: int, block_C: int, block_P: int) -> Any:
    """`(X * s + t).mT` of X (B, C, P), bfloat16, s and t (C,), as float32 (B, P, C)."""

    @T.prim_func
    def channels_last(
        X: T.Tensor((B, C, P), "bfloat16"),
        s: T.Tensor((C,), "float32"),
        t: T.Tensor((C,), "float32"),
    ):
        Y = T.empty((B, P, C), "float32")
        with T.Kernel(T.ceildiv(P, block_P), T.ceildiv(C, block_C), B) as (bx, by, b):
            tile = T.alloc_shared((block_C, block_P), "float32")
            turned = T.alloc_shared((block_P, block_C), "float32")
            for i, j in T.Parallel(block_C, block_P):
                channel = by * block_C + i
                x = T.cast(X[b, channel, bx * block_P + j], "float32")
                tile[i, j] = x * s[channel] + t[channel]
            T.transpose(tile, turned)
            T.copy(turned, Y[b, bx * block_P, by * block_C])
        return Y

    return channels_last


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


def bags(M: int, N: int, bag: int, words: int, block_M: int, block_N: int) -> Any:
    """`sum(w[i, t] * E[words[i, t]])` over the `bag` words of each i, of a table E, float32."""

    @T.prim_func
    def bags(
        index: T.Tensor((M, bag), "int32"),
        w: T.Tensor((M, bag), "float32"),
        E: T.Tensor((words, N), "float32"),
    ):
        Y = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M)) as (bx, by):
            total = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(total)
            for t in T.serial(bag):
                for i, j in T.Parallel(block_M, block_N):
                    row = by * block_M + i
                    value = E[index[row, t], bx * block_N + j]
                    total[i, j] = total[i, j] + w[row, t] * value
            T.copy(total, Y[by * block_M, bx * block_N])
        return Y

    return bags


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
