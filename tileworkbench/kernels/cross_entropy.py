"""Cross entropy of logits and class indices, in one pass over the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def cross_entropy_reference(logits: Tensor, labels: Tensor, *, ignore_index: int = -100) -> Tensor:
    """The loss of each row in float64."""
    import torch.nn.functional as F

    return F.cross_entropy(
        logits.double(), labels.long(), ignore_index=ignore_index, reduction="none"
    )


@compared_with(cross_entropy_reference)
def cross_entropy(
    M: Extent,
    N: int,
    dtype: Any = T.float32,
    label_dtype: Any = T.int64,
    ignore_index: int = -100,
    block_M: int = TABLE,
    block_N: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`loss[i] = log(sum(exp(logits[i]))) - logits[i, labels[i]]`, 0 where the label is
    `ignore_index`.

    logits are (M, N) of a float dtype, labels are (M,) of an integer dtype within 0 ... N - 1,
    loss is (M,) of float32. The sum is kept relative to the maximum so far, as in `online_softmax`.
    """

    @T.prim_func
    def cross_entropy(logits: T.Tensor((M, N), dtype), labels: T.Tensor((M,), label_dtype)):
        loss = T.empty((M,), T.float32)
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_fragment((block_M, block_N), T.float32)
            row_max = T.alloc_fragment((block_M,), T.float32)
            previous_max = T.alloc_fragment((block_M,), T.float32)
            row_sum = T.alloc_fragment((block_M,), T.float32)
            piece_sum = T.alloc_fragment((block_M,), T.float32)
            T.fill(row_max, T.min_value(T.float32))  # finite: a piece may hold infinities alone
            T.clear(row_sum)
            T.annotate_safe_value({logits: -T.infinity(dtype)})
            for k in T.Pipelined(T.ceildiv(N, block_N), num_stages=2):
                T.copy(logits[bx * block_M, k * block_N], tile)
                T.copy(row_max, previous_max)
                T.reduce_max(tile, row_max, dim=1, clear=False)
                for i, j in T.Parallel(block_M, block_N):
                    tile[i, j] = T.exp(tile[i, j] - row_max[i])
                T.reduce_sum(tile, piece_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * T.exp(previous_max[i] - row_max[i]) + piece_sum[i]
            for i in T.Parallel(block_M):
                row = bx * block_M + i
                if labels[row] == ignore_index:
                    loss[row] = 0
                else:
                    loss[row] = T.log(row_sum[i]) + row_max[i] - logits[row, labels[row]]
        return loss

    return cross_entropy
