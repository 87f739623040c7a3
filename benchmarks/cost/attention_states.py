"""Attention by products of keys with values instead of scores."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from cost.case import Case


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


def linear_attention(H: int, L: int, D: int, E: int, block_L: int, block_E: int) -> Any:
    """`q @ (k.T @ V) / (q @ sum(k))`, q and k `x + 1` where x > 0, else `exp(x)`, of the heads of Q
    and K (H, L, D) and V (H, L, E), bfloat16, as float32 (H, L, E).
    """

    def positive(x: Any) -> Any:
        return T.if_then_else(x > 0.0, x + 1.0, T.exp(x))

    @T.prim_func
    def linear_attention(
        Q: T.Tensor((H, L, D), "bfloat16"),
        K: T.Tensor((H, L, D), "bfloat16"),
        V: T.Tensor((H, L, E), "bfloat16"),
    ):
        Y = T.empty((H, L, E), "float32")
        with T.Kernel(T.ceildiv(E, block_E), H) as (bx, h):
            rows = T.alloc_shared((block_L, D), "float32")
            values = T.alloc_shared((block_L, block_E), "float32")
            state = T.alloc_fragment((D, block_E), "float32")
            held = T.alloc_shared((D, block_E), "float32")
            weight = T.alloc_fragment((D,), "float32")
            share = T.alloc_fragment((block_L,), "float32")
            out = T.alloc_fragment((block_L, block_E), "float32")
            T.clear(state)
            T.clear(weight)
            for n in T.serial(T.ceildiv(L, block_L)):
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = positive(T.cast(K[h, n * block_L + i, d], "float32"))
                T.copy(V[h, n * block_L, bx * block_E], values)
                T.gemm(rows, values, state, transpose_A=True)
                T.reduce_sum(rows, weight, dim=0, clear=False)
            T.copy(state, held)
            for n in T.serial(T.ceildiv(L, block_L)):
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = positive(T.cast(Q[h, n * block_L + i, d], "float32"))
                T.gemm(rows, held, out, clear_accum=True)
                for i, d in T.Parallel(block_L, D):
                    rows[i, d] = rows[i, d] * weight[d]
                T.reduce_sum(rows, share, dim=1)
                for i, e in T.Parallel(block_L, block_E):
                    Y[h, n * block_L + i, bx * block_E + e] = out[i, e] / share[i]
        return Y

    return linear_attention


CASES = (
    Case(
        "retention 4x320, D 48 and 96",
        retention,
        {"H": 4, "L": 320, "D": 48, "E": 96},
        {"block_L": (1, 8, 32, 80, 320), "block_E": (8, 32, 96)},
    ),
    Case(
        "linear attention 6x360, 48 to 72, bfloat16",
        linear_attention,
        {"H": 6, "L": 360, "D": 48, "E": 72},
        {"block_L": (1, 8, 60, 360), "block_E": (6, 24, 72)},
    ),
)
