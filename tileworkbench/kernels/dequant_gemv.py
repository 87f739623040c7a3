"""A vector times weights of 2 or 4 bits: one token of a quantised language model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.dequant_matmul import BITS, decode, unpack
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor


def dequant_gemv_reference(
    x: Tensor, packed: Tensor, scales: Tensor, *, kind: str = "int4"
) -> Tensor:
    """The product in float64; see `dequant_gemv`."""
    weights = unpack(packed, kind)
    weights = weights * scales.double().repeat_interleave(weights.shape[1] // scales.shape[1], 1)
    return weights @ x.double()


@compared_with(dequant_gemv_reference)
def dequant_gemv(
    N: int,
    K: int,
    kind: str = "int4",
    group_size: int = 128,
    dtype: Any = T.float16,
    out_dtype: Any = None,
    block_N: int = TABLE,
    block_K: int = TABLE,
    threads: int = 128,
) -> PrimFunc:
    """`y[n] = sum over k of value(code[n, k]) * scales[n, k // group_size] * x[k]`.

    x is (K,) of the float `dtype`; B holds the codes as in `dequant_matmul`, uint8 (N, K * bits /
    8); scales are (N, K / group_size) of `dtype`; y is (N,) of `out_dtype` (default `dtype`). All
    is computed in float32: a row's `block_K` partial sums, added at the end. `group_size` and
    `block_K` divide K, codes fill whole bytes.
    """
    out_dtype = out_dtype or dtype
    bits = BITS[kind]
    per_byte = 8 // bits

    @T.prim_func
    def dequant_gemv(
        x: T.Tensor((K,), dtype),
        B: T.Tensor((N, K // per_byte), T.uint8),
        scales: T.Tensor((N, K // group_size), dtype),
    ):
        y = T.empty((N,), out_dtype)
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bn:
            partial = T.alloc_fragment((block_N, block_K), T.float32)
            total = T.alloc_fragment((block_N,), T.float32)
            T.clear(partial)
            # Row by row, so that each is read from end to end.
            for i in T.serial(block_N):
                for ko in T.serial(K // block_K):
                    for j in T.Parallel(block_K):
                        n, k = bn * block_N + i, ko * block_K + j
                        byte = T.cast(B[n, k // per_byte], T.int32)
                        code = byte >> k % per_byte * bits & (1 << bits) - 1
                        scale = T.cast(scales[n, k // group_size], T.float32)
                        partial[i, j] += decode(code, kind) * (scale * T.cast(x[k], T.float32))
            T.reduce_sum(partial, total, dim=1)
            T.copy(total, y[bn * block_N])
        return y

    return dequant_gemv
