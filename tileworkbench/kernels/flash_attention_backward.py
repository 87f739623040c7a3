"""Gradients of attention without the matrix of scores (Dao, arXiv 2307.08691, algorithm 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E, attention_reference
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def attention_backward_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    do: Tensor,
    log_sum: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """(dQ, dK, dV) by automatic differentiation in float64; see `flash_attention_backward`."""
    import torch

    inputs = [x.double().detach().requires_grad_() for x in (q, k, v)]
    out, _ = attention_reference(*inputs, causal=causal, scale=scale)
    return torch.autograd.grad(out, inputs, do.double())


@T.macro
def weights_and_gradient(
    S, dS, Q_shared, K_shared, V_shared, dO_shared, log_sum, delta,
    first_query, first_key, seq_kv, ahead, causal, factor, scale, block_M, block_N,
):  # fmt: skip
    """`S` becomes the softmax weights of a tile and `dS` the gradient of its scores.

    `log_sum` and `delta` are one number per query: the log of its sum of exponentials, base 2, and
    the product of its output with the output's gradient.
    """
    T.gemm(Q_shared, K_shared, S, transpose_B=True, clear_accum=True)
    for i, j in T.Parallel(block_M, block_N):
        last = T.min(seq_kv - 1, first_query + i + ahead) if causal else seq_kv - 1
        S[i, j] = T.if_then_else(
            first_key + j <= last, T.exp2(S[i, j] * factor - log_sum[i]), T.float32(0)
        )
    T.gemm(dO_shared, V_shared, dS, transpose_B=True, clear_accum=True)
    for i, j in T.Parallel(block_M, block_N):
        dS[i, j] = S[i, j] * (dS[i, j] - delta[i]) * scale


@T.macro
def load_queries(
    Q, Output, dO, L, Q_shared, dO_shared, product, log_sum, delta, b, h, first_query, block_M, dim
):  # fmt: skip
    """A tile of queries and of output gradients, with their `log_sum` and `delta`."""
    T.copy(Q[b, first_query : first_query + block_M, h, :], Q_shared)
    T.copy(dO[b, first_query : first_query + block_M, h, :], dO_shared)
    T.copy(Output[b, first_query : first_query + block_M, h, :], product)
    for i, d in T.Parallel(block_M, dim):
        product[i, d] = product[i, d] * dO_shared[i, d]
    T.reduce_sum(product, delta, dim=1)
    T.copy(L[b, h, first_query : first_query + block_M], log_sum)
    for i in T.Parallel(block_M):
        log_sum[i] = log_sum[i] * LOG2_E


@compared_with(attention_backward_reference)
def flash_attention_backward(
    batch: Extent,
    heads: int,
    seq_q: Extent,
    seq_kv: Extent,
    dim: int,
    dtype: Any = T.float32,
    heads_kv: int | None = None,
    causal: bool = False,
    scale: float | None = None,
    block_M: int = TABLE,
    block_N: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """The gradients [dQ, dK, dV] of `flash_attention` with the same options.

    Q, Output and dO (the output and its gradient) are (batch, seq_q, heads, dim), K and V are
    (batch, seq_kv, heads_kv, dim), L is float32 (batch, heads, seq_q) as `flash_attention` returns
    it; the gradients are like Q, K and V. When `causal`, seq_q must not exceed seq_kv. One launch
    makes dQ from tiles of queries, another dK and dV from tiles of keys, so that no block adds to
    what another one writes.
    """
    heads_kv = heads_kv or heads
    group = heads // heads_kv
    scale = dim**-0.5 if scale is None else scale
    factor = scale * LOG2_E

    @T.prim_func
    def flash_attention_backward(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),
        K: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        V: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        Output: T.Tensor((batch, seq_q, heads, dim), dtype),
        dO: T.Tensor((batch, seq_q, heads, dim), dtype),
        L: T.Tensor((batch, heads, seq_q), T.float32),
    ):
        dQ = T.empty((batch, seq_q, heads, dim), dtype)
        dK = T.empty((batch, seq_kv, heads_kv, dim), dtype)
        dV = T.empty((batch, seq_kv, heads_kv, dim), dtype)
        ahead = seq_kv - seq_q
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, h, b):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            product = T.alloc_fragment((block_M, dim), T.float32)
            log_sum = T.alloc_fragment((block_M,), T.float32)
            delta = T.alloc_fragment((block_M,), T.float32)
            S = T.alloc_fragment((block_M, block_N), T.float32)
            dS = T.alloc_fragment((block_M, block_N), T.float32)
            dS_shared = T.alloc_shared((block_M, block_N), dtype)
            dQ_local = T.alloc_fragment((block_M, dim), T.float32)
            load_queries(
                Q, Output, dO, L, Q_shared, dO_shared, product, log_sum, delta,
                b, h, bx * block_M, block_M, dim,
            )  # fmt: skip
            T.clear(dQ_local)
            visible = T.min(seq_kv, (bx + 1) * block_M + ahead) if causal else seq_kv
            for k in T.Pipelined(T.ceildiv(visible, block_N), num_stages=num_stages):
                T.copy(K[b, k * block_N : (k + 1) * block_N, h // group, :], K_shared)
                T.copy(V[b, k * block_N : (k + 1) * block_N, h // group, :], V_shared)
                weights_and_gradient(
                    S, dS, Q_shared, K_shared, V_shared, dO_shared, log_sum, delta,
                    bx * block_M, k * block_N, seq_kv, ahead, causal, factor, scale,
                    block_M, block_N,
                )  # fmt: skip
                T.copy(dS, dS_shared)
                T.gemm(dS_shared, K_shared, dQ_local)
            T.copy(dQ_local, dQ[b, bx * block_M : (bx + 1) * block_M, h, :])
        with T.Kernel(T.ceildiv(seq_kv, block_N), heads_kv, batch, threads=threads) as (bx, hk, b):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            dO_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            weights = T.alloc_shared((block_M, block_N), dtype)
            product = T.alloc_fragment((block_M, dim), T.float32)
            log_sum = T.alloc_fragment((block_M,), T.float32)
            delta = T.alloc_fragment((block_M,), T.float32)
            S = T.alloc_fragment((block_M, block_N), T.float32)
            dS = T.alloc_fragment((block_M, block_N), T.float32)
            dK_local = T.alloc_fragment((block_N, dim), T.float32)
            dV_local = T.alloc_fragment((block_N, dim), T.float32)
            T.copy(K[b, bx * block_N : (bx + 1) * block_N, hk, :], K_shared)
            T.copy(V[b, bx * block_N : (bx + 1) * block_N, hk, :], V_shared)
            T.clear(dK_local)
            T.clear(dV_local)
            first = T.max(bx * block_N - ahead, 0) // block_M if causal else 0
            for g in T.serial(group):
                for m in T.Pipelined(first, T.ceildiv(seq_q, block_M), num_stages=num_stages):
                    load_queries(
                        Q, Output, dO, L, Q_shared, dO_shared, product, log_sum, delta,
                        b, hk * group + g, m * block_M, block_M, dim,
                    )  # fmt: skip
                    weights_and_gradient(
                        S, dS, Q_shared, K_shared, V_shared, dO_shared, log_sum, delta,
                        m * block_M, bx * block_N, seq_kv, ahead, causal, factor, scale,
                        block_M, block_N,
                    )  # fmt: skip
                    T.copy(S, weights)
                    T.gemm(weights, dO_shared, dV_local, transpose_A=True)
                    T.copy(dS, weights)
                    T.gemm(weights, Q_shared, dK_local, transpose_A=True)
            T.copy(dK_local, dK[b, bx * block_N : (bx + 1) * block_N, hk, :])
            T.copy(dV_local, dV[b, bx * block_N : (bx + 1) * block_N, hk, :])
        return dQ, dK, dV

    return flash_attention_backward
