"""Attention of one new query per sequence to a long cache, split along the cache.

Flash-Decoding (Dao, Haziza, Massa and Sizov, 2023, crfm.stanford.edu/2023/10/12/flashdecoding).
"""

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


def decoding_reference(
    q: Tensor, k: Tensor, v: Tensor, lengths: Tensor, *, scale: float | None = None
) -> Tensor:
    """The output in float64; see `flash_decoding`."""
    import torch

    out = torch.zeros(q.shape, dtype=torch.float64)
    for b, length in enumerate(lengths.tolist()):
        keys, values = k[b : b + 1, :length], v[b : b + 1, :length]
        out[b] = attention_reference(q[b][None, None], keys, values, scale=scale)[0][0, 0]
    return out


@compared_with(decoding_reference)
def flash_decoding(
    batch: Extent,
    heads: int,
    seq_kv: Extent,
    dim: int,
    dtype: Any = T.float32,
    heads_kv: int | None = None,
    splits: int = 4,
    scale: float | None = None,
    block_N: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`Output[b] = softmax(Q[b] @ K[b].T * scale) @ V[b]` over the first `lengths[b]` keys.

    Q and Output are (batch, heads, dim), K and V are (batch, seq_kv, heads_kv, dim), of one float
    dtype; lengths are int32 (batch,), at most seq_kv; a length of 0 gives zeros. The first launch
    lets `splits` blocks share each cache, a group of query heads with one head of keys per block;
    the second combines their results.
    """
    heads_kv = heads_kv or heads
    group = heads // heads_kv
    factor = (dim**-0.5 if scale is None else scale) * LOG2_E

    @T.prim_func
    def flash_decoding(
        Q: T.Tensor((batch, heads, dim), dtype),
        K: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        V: T.Tensor((batch, seq_kv, heads_kv, dim), dtype),
        lengths: T.Tensor((batch,), T.int32),
    ):
        Output = T.empty((batch, heads, dim), dtype)
        partial = T.alloc_global((batch, heads, splits, dim), T.float32)
        log_sum = T.alloc_global((batch, heads, splits), T.float32)  # base 2
        with T.Kernel(splits, heads_kv, batch, threads=threads) as (split, hk, b):
            Q_shared = T.alloc_shared((group, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            S_local = T.alloc_fragment((group, block_N), T.float32)
            P_shared = T.alloc_shared((group, block_N), dtype)
            O_local = T.alloc_fragment((group, dim), T.float32)
            row_max = T.alloc_fragment((group,), T.float32)
            row_sum = T.alloc_fragment((group,), T.float32)
            rescale = T.alloc_fragment((group,), T.float32)
            piece_sum = T.alloc_fragment((group,), T.float32)
            T.copy(Q[b, hk * group : (hk + 1) * group, :], Q_shared)
            T.clear(O_local)
            T.clear(row_sum)
            T.fill(row_max, LOWEST)
            length = lengths[b]
            pieces = T.ceildiv(T.ceildiv(length, block_N), splits)  # of block_N keys, per split
            first = split * pieces * block_N
            present = T.max(T.min(length - first, pieces * block_N), 0)
            for k in T.Pipelined(T.ceildiv(present, block_N), num_stages=num_stages):
                key = first + k * block_N
                T.copy(K[b, key : key + block_N, hk, :], K_shared)
                # Past the length is memory that nobody has filled yet.
                for j, d in T.Parallel(block_N, dim):
                    V_shared[j, d] = T.if_then_else(key + j < length, V[b, key + j, hk, d], 0)
                T.gemm(Q_shared, K_shared, S_local, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(group, block_N):
                    S_local[i, j] = T.if_then_else(
                        key + j < length, S_local[i, j], -T.infinity(T.float32)
                    )
                update_softmax(
                    S_local, O_local, row_max, row_sum, rescale, piece_sum,
                    factor, group, block_N, dim,
                )  # fmt: skip
                T.copy(S_local, P_shared)
                T.gemm(P_shared, V_shared, O_local)
            for i, d in T.Parallel(group, dim):
                O_local[i, d] = T.if_then_else(row_sum[i] > 0, O_local[i, d] / row_sum[i], 0)
            for i in T.Parallel(group):
                row_sum[i] = T.log2(row_sum[i]) + row_max[i] * factor
            T.copy(O_local, partial[b, hk * group : (hk + 1) * group, split, :])
            T.copy(row_sum, log_sum[b, hk * group : (hk + 1) * group, split])
        with T.Kernel(heads, batch, threads=threads) as (h, b):
            weight = T.alloc_fragment((splits,), T.float32)
            most = T.alloc_fragment((1,), T.float32)
            total = T.alloc_fragment((1,), T.float32)
            combined = T.alloc_fragment((dim,), T.float32)
            T.copy(log_sum[b, h, :], weight)
            T.fill(most, LOWEST)  # all splits of an empty cache weigh exp2(-inf)
            T.reduce_max(weight, most, dim=0, clear=False)
            for s in T.Parallel(splits):
                weight[s] = T.exp2(weight[s] - most[0])
            T.reduce_sum(weight, total, dim=0)
            T.clear(combined)
            for s in T.serial(splits):
                for d in T.Parallel(dim):
                    combined[d] += weight[s] * partial[b, h, s, d]
            for d in T.Parallel(dim):
                Output[b, h, d] = T.if_then_else(total[0] > 0, combined[d] / total[0], 0)
        return Output

    return flash_decoding
