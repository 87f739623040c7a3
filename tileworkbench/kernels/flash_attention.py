"""Attention without the matrix of scores: FlashAttention-2 (Dao, arXiv 2307.08691), forward."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor

LOG2_E = log2(2.718281828459045)
LN_2 = 0.6931471805599453
LOWEST = -1e30  # below every score and finite: rows may see no key for a while, or at all


def attention_reference(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """(output, log of the sum of exponentials) in float64; see `flash_attention`."""
    import torch

    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[2] // k.shape[2]
    k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    if causal:
        visible = torch.ones(scores.shape[-2:]).tril(k.shape[1] - q.shape[1]).bool()
        scores = scores.masked_fill(~visible, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), scores.logsumexp(-1)


@T.macro
def update_softmax(S, acc, row_max, row_sum, rescale, piece_sum, scale, block_M, block_N, dim):
    """Turn a tile of scores `S` into weights relative to each row's maximum so far.

    When that maximum grows by d, what `row_sum` and the output `acc` hold shrinks by
    exp(-scale * d). Exponentials are taken base 2: `scale` includes log2(e).
    """
    T.copy(row_max, rescale)
    T.reduce_max(S, row_max, dim=1, clear=False)
    for i in T.Parallel(block_M):
        rescale[i] = T.exp2((rescale[i] - row_max[i]) * scale)
    for i, j in T.Parallel(block_M, block_N):
        # One fused multiplication and addition for each score.
        S[i, j] = T.exp2(S[i, j] * scale - row_max[i] * scale)
    T.reduce_sum(S, piece_sum, dim=1)
    for i in T.Parallel(block_M):
        row_sum[i] = row_sum[i] * rescale[i] + piece_sum[i]
    for i, d in T.Parallel(block_M, dim):
        acc[i, d] *= rescale[i]


@compared_with(attention_reference)
def flash_attention(
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
    """`Output = softmax(Q @ K.T * scale) @ V` for every batch and head.

    Q and Output are (batch, seq_q, heads, dim), K and V are (batch, seq_kv, heads_kv, dim), of one
    float dtype. `heads_kv` (default `heads`) divides `heads`: neighbouring query heads share one
    head of keys. When `causal`, the last query sees all keys, the one before it all but the last,
    and so on; a query that sees none gives zeros. `scale` is dim ** -0.5 by default. Returns
    [Output, L]: L is float32 (batch, heads, seq_q), the log of each row's sum of exponentials.
    """
    heads_kv = heads_kv or heads
    group = heads // heads_kv
    factor = (dim**-0.5 if scale is None else scale) * LOG2_E

    @T.prim_func
    def flash_attention(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),
        K: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        V: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
    ):
        Output = T.empty((batch, seq_q, heads, dim), dtype)
        L = T.empty((batch, heads, seq_q), T.float32)
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=threads) as (bx, h, b):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            S_local = T.alloc_fragment((block_M, block_N), T.float32)
            P_local = T.alloc_fragment((block_M, block_N), dtype)
            O_local = T.alloc_fragment((block_M, dim), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            rescale = T.alloc_fragment((block_M,), T.float32)
            piece_sum = T.alloc_fragment((block_M,), T.float32)
            T.copy(Q[b, bx * block_M : (bx + 1) * block_M, h, :], Q_shared)
            T.clear(O_local)
            T.clear(row_sum)
            T.fill(row_max, LOWEST)
            ahead = seq_kv - seq_q  # query i sees the keys up to i + ahead
            visible = T.min(seq_kv, (bx + 1) * block_M + ahead) if causal else seq_kv
            common = T.min(seq_kv, bx * block_M + ahead + 1) if causal else seq_kv
            for k in T.Pipelined(T.ceildiv(T.max(visible, 0), block_N), num_stages=num_stages):
                T.copy(K[b, k * block_N : (k + 1) * block_N, h // group, :], K_shared)
                T.gemm(
                    Q_shared,
                    K_shared,
                    S_local,
                    transpose_B=True,
                    policy=T.GemmWarpPolicy.FullRow,
                    clear_accum=True,
                )
                if (k + 1) * block_N > common:  # not every query sees all these keys
                    for i, j in T.Parallel(block_M, block_N):
                        last = T.min(seq_kv - 1, bx * block_M + i + ahead) if causal else seq_kv - 1
                        S_local[i, j] = T.if_then_else(
                            k * block_N + j <= last, S_local[i, j], -T.infinity(T.float32)
                        )
                update_softmax(
                    S_local, O_local, row_max, row_sum, rescale, piece_sum,
                    factor, block_M, block_N, dim,
                )  # fmt: skip
                T.copy(S_local, P_local)
                T.copy(V[b, k * block_N : (k + 1) * block_N, h // group, :], V_shared)
                T.gemm(P_local, V_shared, O_local, policy=T.GemmWarpPolicy.FullRow)
            for i, d in T.Parallel(block_M, dim):
                O_local[i, d] = T.if_then_else(row_sum[i] > 0, O_local[i, d] / row_sum[i], 0)
            T.copy(O_local, Output[b, bx * block_M : (bx + 1) * block_M, h, :])
            for i in T.Parallel(block_M):
                row_sum[i] = (T.log2(row_sum[i]) + row_max[i] * factor) * LN_2
            T.copy(row_sum, L[b, h, bx * block_M : (bx + 1) * block_M])
        return Output, L

    return flash_attention
