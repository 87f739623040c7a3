"""Rotary position embedding (Su et al., arXiv 2104.09864)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, Extent, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def rope_reference(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool = False) -> Tensor:
    """Rotate the pairs of the last dimension of (batch, sequence, heads, dim) in float64."""
    import torch

    x = x.double()
    first, second = (x[..., ::2], x[..., 1::2]) if interleaved else x.chunk(2, -1)
    cos, sin = cos.double()[:, None, :], sin.double()[:, None, :]
    rotated = (first * cos - second * sin, first * sin + second * cos)
    return torch.stack(rotated, -1).flatten(-2) if interleaved else torch.cat(rotated, -1)


@compared_with(rope_reference)
def rope(
    batch: Extent,
    seq_len: Extent,
    heads: int,
    dim: int,
    dtype: Any = T.float32,
    interleaved: bool = False,
    block_S: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """Turn each pair of elements of `X` by the angle of its position and pair.

    X and Y are (batch, seq_len, heads, dim) of a float dtype; cos and sin are float32
    (seq_len, dim / 2). A pair is (d, d + dim / 2), or (2 d, 2 d + 1) when `interleaved`.
    """
    half = dim // 2

    @T.prim_func
    def rope(
        X: T.Tensor((batch, seq_len, heads, dim), dtype),
        cos: T.Tensor((seq_len, half), T.float32),
        sin: T.Tensor((seq_len, half), T.float32),
    ):
        Y = T.empty((batch, seq_len, heads, dim), dtype)
        with T.Kernel(T.ceildiv(seq_len, block_S), batch, threads=threads) as (bs, b):
            for i, h, d in T.Parallel(block_S, heads, half):
                s = bs * block_S + i
                first = 2 * d if interleaved else d
                second = 2 * d + 1 if interleaved else d + half
                x = T.cast(X[b, s, h, first], T.float32)
                y = T.cast(X[b, s, h, second], T.float32)
                Y[b, s, h, first] = x * cos[s, d] - y * sin[s, d]
                Y[b, s, h, second] = x * sin[s, d] + y * cos[s, d]
        return Y

    return rope
