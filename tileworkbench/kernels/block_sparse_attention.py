"""Attention that skips whole tiles of scores (in the manner of arXiv 2407.02490, MInference)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.flash_attention import LOG2_E, LOWEST, update_softmax
from tileworkbench.kernels.page import Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def block_sparse_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_M: int = 64,
    block_N: int = 64,
) -> Tensor:
    """The output in float64; see `block_sparse_attention`."""
    import torch

    q, k, v = q.double(), k.double(), v.double()
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    seq_q, seq_kv = scores.shape[-2:]
    visible = mask.repeat_interleave(block_M, 2).repeat_interleave(block_N, 3)[
        :, :, :seq_q, :seq_kv
    ]
    if causal:
        visible = visible & torch.ones(seq_q, seq_kv).tril(seq_kv - seq_q).bool()
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


@compared_with(block_sparse_reference)
def block_sparse_attention(
    batch: Extent,
    heads: int,
    seq_q: int,
    seq_kv: int,
    dim: int,
    dtype: Any = T.float32,
    causal: bool = False,
    scale: float | None = None,
    block_M: int = 64,
    block_N: int = 64,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`flash_attention` over the tiles of scores that `mask` selects.

    Q and Output are (batch, seq_q, heads, dim), K and V are (batch, seq_kv, heads, dim), of one
    float dtype; mask is bool (batch, heads, ceil(seq_q / block_M), ceil(seq_kv / block_N)). A query
    that sees no key gives zeros.
    """
    factor = (dim**-0.5 if scale is None else scale) * LOG2_E
    tiles_q, tiles_kv = -(-seq_q // block_M), -(-seq_kv // block_N)

    @T.prim_func
    def block_sparse_attention(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),
        K: T.Tensor((batch, seq_kv, heads, dim), dtype),
        V: T.Tensor((batch, seq_kv, heads, dim), dtype),
        mask: T.Tensor((batch, heads, tiles_q, tiles_kv), T.bool),
    ):
        Output = T.empty((batch, seq_q, heads, dim), dtype)
        with T.Kernel(tiles_q, heads, batch, threads=threads) as (bx, h, b):
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
            ahead = seq_kv - seq_q
            visible = T.min(seq_kv, (bx + 1) * block_M + ahead) if causal else seq_kv
            for k in T.Pipelined(T.ceildiv(T.max(visible, 0), block_N), num_stages=num_stages):
                if mask[b, h, bx, k]:
                    T.copy(K[b, k * block_N : (k + 1) * block_N, h, :], K_shared)
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
                    T.copy(V[b, k * block_N : (k + 1) * block_N, h, :], V_shared)
                    T.gemm(P_local, V_shared, O_local, policy=rows)
            for i, d in T.Parallel(block_M, dim):
                O_local[i, d] = T.if_then_else(row_sum[i] > 0, O_local[i, d] / row_sum[i], 0)
            T.copy(O_local, Output[b, bx * block_M : (bx + 1) * block_M, h, :])
        return Output

    return block_sparse_attention
