"""Decoding with multi-head latent attention, the TileLang paper's listing B.3 (figure 18).

Keys and values are one compressed row per token (DeepSeek-V2, arXiv 2405.04434): the whole row is
the value, and with a few rotated positional elements it is the key, for all heads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def mla_reference(q: Tensor, q_pe: Tensor, kv: Tensor, k_pe: Tensor) -> Tensor:
    """The output in float64; see `mla_decode`."""
    import torch

    q, q_pe, kv, k_pe = q.double(), q_pe.double(), kv.double(), k_pe.double()
    group = q.shape[1] // kv.shape[2]
    kv, k_pe = kv.repeat_interleave(group, 2), k_pe.repeat_interleave(group, 2)
    scores = torch.einsum("bhd,bkhd->bhk", q, kv) + torch.einsum("bhd,bkhd->bhk", q_pe, k_pe)
    weights = (scores * (q.shape[-1] + q_pe.shape[-1]) ** -0.5).softmax(-1)
    return torch.einsum("bhk,bkhd->bhd", weights, kv)


@compared_with(mla_reference)
def mla_decode(
    batch: Extent,
    heads: int,
    seqlen_kv: Extent,
    dim: int = 512,
    pe_dim: int = 64,
    dtype: Any = T.float16,
    kv_head_num: int = 1,
    block_N: int = TABLE,
    block_H: int = TABLE,
    num_stages: int = 2,
    threads: int = TABLE,
) -> PrimFunc:
    """`Output = softmax((Q @ KV.T + Q_pe @ K_pe.T) / sqrt(dim + pe_dim)) @ KV`, one query each.

    Q and Output are (batch, heads, dim), Q_pe is (batch, heads, pe_dim), KV is (batch, seqlen_kv,
    kv_head_num, dim), K_pe is (batch, seqlen_kv, kv_head_num, pe_dim), of one float dtype. At most
    `block_H` query heads of one key head make a block; a larger group must be a multiple of it.
    """
    kv_group_num = heads // kv_head_num
    block_H = min(block_H, kv_group_num)
    scale = (dim + pe_dim) ** -0.5 * LOG2_E
    accum_dtype = T.float32

    @T.prim_func
    def mla_decode(
        Q: T.Tensor([batch, heads, dim], dtype),
        Q_pe: T.Tensor([batch, heads, pe_dim], dtype),
        KV: T.Tensor([batch, seqlen_kv, kv_head_num, dim], dtype),
        K_pe: T.Tensor([batch, seqlen_kv, kv_head_num, pe_dim], dtype),
    ):
        Output = T.empty([batch, heads, dim], dtype)
        with T.Kernel(batch, heads // block_H, threads=threads) as (bx, by):
            Q_shared = T.alloc_shared([block_H, dim], dtype)
            S_shared = T.alloc_shared([block_H, block_N], dtype)
            Q_pe_shared = T.alloc_shared([block_H, pe_dim], dtype)
            KV_shared = T.alloc_shared([block_N, dim], dtype)
            K_pe_shared = T.alloc_shared([block_N, pe_dim], dtype)
            acc_s = T.alloc_fragment([block_H, block_N], accum_dtype)
            acc_o = T.alloc_fragment([block_H, dim], accum_dtype)
            scores_max = T.alloc_fragment([block_H], accum_dtype)
            scores_max_prev = T.alloc_fragment([block_H], accum_dtype)
            scores_scale = T.alloc_fragment([block_H], accum_dtype)
            scores_sum = T.alloc_fragment([block_H], accum_dtype)
            logsum = T.alloc_fragment([block_H], accum_dtype)
            cur_kv_head = by // (kv_group_num // block_H)
            T.use_swizzle(10)
            T.copy(Q[bx, by * block_H : (by + 1) * block_H, :], Q_shared)
            T.copy(Q_pe[bx, by * block_H : (by + 1) * block_H, :], Q_pe_shared)
            T.fill(acc_o, 0)
            T.fill(logsum, 0)
            T.fill(scores_max, -T.infinity(accum_dtype))
            for k in T.Pipelined(T.ceildiv(seqlen_kv, block_N), num_stages=num_stages):
                T.copy(KV[bx, k * block_N : (k + 1) * block_N, cur_kv_head, :], KV_shared)
                T.copy(K_pe[bx, k * block_N : (k + 1) * block_N, cur_kv_head, :], K_pe_shared)
                T.clear(acc_s)
                full_col = T.GemmWarpPolicy.FullCol
                T.gemm(Q_shared, KV_shared, acc_s, transpose_B=True, policy=full_col)
                T.gemm(Q_pe_shared, K_pe_shared, acc_s, transpose_B=True, policy=full_col)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.if_then_else(
                        k * block_N + j < seqlen_kv, acc_s[i, j], -T.infinity(accum_dtype)
                    )
                T.copy(scores_max, scores_max_prev)
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_H):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_H, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                T.copy(acc_s, S_shared)
                for i in T.Parallel(block_H):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                for i, j in T.Parallel(block_H, dim):
                    acc_o[i, j] *= scores_scale[i]
                T.gemm(S_shared, KV_shared, acc_o, policy=full_col)
            for i, j in T.Parallel(block_H, dim):
                acc_o[i, j] /= logsum[i]
            T.copy(acc_o, Output[bx, by * block_H : (by + 1) * block_H, :])
        return Output

    return mla_decode
