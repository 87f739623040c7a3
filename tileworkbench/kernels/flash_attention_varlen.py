"""Attention over sequences of different lengths, packed one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import (
    LOG2_E,
    LOWEST,
    attention_reference,
    update_softmax,
)
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def varlen_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts_q: Tensor,
    starts_kv: Tensor,
    longest: int,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """The output in float64, sequence by sequence; see `flash_attention_varlen`."""
    import torch

    out = torch.zeros(q.shape, dtype=torch.float64)
    bounds_q, bounds_kv = starts_q.tolist(), starts_kv.tolist()
    for b in range(len(bounds_q) - 1):
        rows, keys = slice(*bounds_q[b : b + 2]), slice(*bounds_kv[b : b + 2])
        out[rows] = attention_reference(
            q[rows][None], k[keys][None], v[keys][None], causal=causal, scale=scale
        )[0][0]
    return out


@compared_with(varlen_reference)
def flash_attention_varlen(
    batch: Extent,
    total_q: Extent,
    total_kv: Extent,
    heads: int,
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
    """`flash_attention` of each of `batch` sequences on its own.

    Q and Output are (total_q, heads, dim), K and V are (total_kv, heads_kv, dim), of one float
    dtype. Sequence b holds the queries starts_q[b] ... starts_q[b + 1] - 1 and the keys likewise;
    both starts are int32 (batch + 1,). `longest`, an int32 scalar, is the largest number of queries
    of any sequence. A query that sees no key gives zeros.
    """
    heads_kv = heads_kv or heads
    group = heads // heads_kv
    factor = (dim**-0.5 if scale is None else scale) * LOG2_E

    @T.prim_func
    def flash_attention_varlen(
        Q: T.Tensor((total_q, heads, dim), dtype),
        K: T.Tensor((total_kv, heads_kv, dim), dtype),
        V: T.Tensor((total_kv, heads_kv, dim), dtype),
        starts_q: T.Tensor((batch + 1,), T.int32),
        starts_kv: T.Tensor((batch + 1,), T.int32),
        longest: T.int32,
    ):
        Output = T.empty((total_q, heads, dim), dtype)
        with T.Kernel(T.ceildiv(longest, block_M), heads, batch, threads=threads) as (bx, h, b):
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
            first_q = starts_q[b]
            first_kv = starts_kv[b]
            seq_q = starts_q[b + 1] - first_q
            seq_kv = starts_kv[b + 1] - first_kv
            ahead = seq_kv - seq_q
            if bx * block_M < seq_q:
                row = first_q + bx * block_M
                T.copy(Q[row : row + block_M, h, :], Q_shared)
                T.clear(O_local)
                T.clear(row_sum)
                T.fill(row_max, LOWEST)
                visible = T.min(seq_kv, (bx + 1) * block_M + ahead) if causal else seq_kv
                for k in T.Pipelined(T.ceildiv(T.max(visible, 0), block_N), num_stages=num_stages):
                    key = first_kv + k * block_N
                    T.copy(K[key : key + block_N, h // group, :], K_shared)
                    # Past its end is the next sequence, whose values may be anything.
                    for j, d in T.Parallel(block_N, dim):
                        V_shared[j, d] = T.if_then_else(
                            k * block_N + j < seq_kv, V[key + j, h // group, d], 0
                        )
                    rows = T.GemmWarpPolicy.FullRow
                    T.gemm(Q_shared, K_shared, S_local, False, True, rows, clear_accum=True)
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
                    T.gemm(P_local, V_shared, O_local, policy=rows)
                for i, d in T.Parallel(block_M, dim):
                    if bx * block_M + i < seq_q:
                        Output[row + i, h, d] = T.if_then_else(
                            row_sum[i] > 0, O_local[i, d] / row_sum[i], 0
                        )
        return Output

    return flash_attention_varlen
