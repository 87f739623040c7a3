"""Products with weights of 2 or 4 bits, as in the TileLang paper's figures 15 and 17.

Weights are codes packed along K, the first in the lowest bits of a byte. A code stands for

- "uint4", "uint2": itself; "int4", "int2": itself in two's complement;
- "fp4": sign, two bits of exponent, one of mantissa (the OCP microscaling format E2M1);
- "nf4": a quantile of the normal distribution (QLoRA, arXiv 2305.14314, appendix E).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor

BITS = {"uint4": 4, "int4": 4, "uint2": 2, "int2": 2, "fp4": 4, "nf4": 4}
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


def values_of(kind: str) -> list[float]:
    """What each code of a format stands for."""
    if kind == "fp4":
        return [*FP4, *(-value for value in FP4)]
    if kind == "nf4":
        return list(NF4)
    count = 1 << BITS[kind]
    signed = not kind.startswith("u")
    return [float(c - count if signed and 2 * c >= count else c) for c in range(count)]


def pack(codes: Tensor, kind: str) -> Tensor:
    """Codes (N, K) as bytes (N, K * bits / 8) of uint8."""
    import torch

    bits = BITS[kind]
    parts = codes.to(torch.uint8).unflatten(-1, (-1, 8 // bits))
    return sum(part << (bits * i) for i, part in enumerate(parts.unbind(-1)))


def unpack(packed: Tensor, kind: str) -> Tensor:
    """The values (N, K) in float64 that packed codes stand for."""
    import torch

    bits = BITS[kind]
    codes = torch.stack([packed >> (bits * i) & (1 << bits) - 1 for i in range(8 // bits)], -1)
    return torch.tensor(values_of(kind), dtype=torch.float64)[codes.flatten(-2).long()]


def choose(code: Any, bit: int, values: list[float]) -> Any:
    """`values[code]` as a tree of choices, `bit` the highest one."""
    if bit < 0:
        return T.float32(values[0])
    half = len(values) // 2
    return T.if_then_else(
        code >> bit & 1 == 1,
        choose(code, bit - 1, values[half:]),
        choose(code, bit - 1, values[:half]),
    )


def decode(code: Any, kind: str) -> Any:
    """The value of a code, an int32 expression: an int32 for integers, else a float32."""
    bits = BITS[kind]
    if kind == "fp4":
        # Exponent and mantissa at the top of a float16's, whose bias of 15 is 14 more than E2M1's:
        # right for subnormal codes too.
        pattern = T.cast((code & 8) << 12 | (code & 7) << 9, T.uint16)
        return T.cast(T.reinterpret(pattern, T.float16), T.float32) * 16384.0
    if kind == "nf4":
        return choose(code, bits - 1, list(NF4))
    sign = 0 if kind.startswith("u") else 1 << bits - 1
    return (code ^ sign) - sign


def dequant_reference(a: Tensor, packed: Tensor, scales: Tensor, *, kind: str = "int4") -> Tensor:
    """The product in float64; see `dequant_matmul`."""
    weights = unpack(packed, kind)
    weights = weights * scales.double().repeat_interleave(weights.shape[1] // scales.shape[1], 1)
    return a.double() @ weights.to(a.dtype).double().mT


@compared_with(dequant_reference)
def dequant_matmul(
    M: int,
    N: int,
    K: int,
    kind: str = "int4",
    group_size: int = 128,
    dtype: Any = T.float16,
    out_dtype: Any = None,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`C = A @ W.T` with `W[n, k] = value(code[n, k]) * scales[n, k // group_size]`.

    A is (M, K) of the float `dtype`; B holds the codes, uint8 (N, K * bits / 8); scales are (N, K /
    group_size) of `dtype`; C is (M, N) of `out_dtype` (default `dtype`), summed in float32. Weights
    are rounded to `dtype` before the product. `group_size` divides K, codes fill whole bytes.
    """
    out_dtype = out_dtype or dtype
    bits = BITS[kind]
    per_byte = 8 // bits

    @T.prim_func
    def dequant_matmul(
        A: T.Tensor((M, K), dtype),
        B: T.Tensor((N, K // per_byte), T.uint8),
        scales: T.Tensor((N, K // group_size), dtype),
    ):
        C = T.empty((M, N), out_dtype)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K // per_byte), T.uint8)
            W_local = T.alloc_fragment((block_N, block_K), dtype)
            C_local = T.alloc_fragment((block_M, block_N), T.float32)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K // per_byte], B_shared)
                for i, j in T.Parallel(block_N, block_K):
                    byte = T.cast(B_shared[i, j // per_byte], T.int32)
                    code = byte >> j % per_byte * bits & (1 << bits) - 1
                    scale = T.cast(
                        scales[bx * block_N + i, (ko * block_K + j) // group_size], T.float32
                    )
                    W_local[i, j] = decode(code, kind) * scale
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])
        return C

    return dequant_matmul


def integer_dequant_reference(a: Tensor, packed: Tensor, *, kind: str = "int2") -> Tensor:
    """The exact product; see `integer_dequant_matmul`."""
    import torch

    return a.to(torch.int64) @ unpack(packed, kind).to(torch.int64).mT


@compared_with(integer_dequant_reference)
def integer_dequant_matmul(
    M: int,
    N: int,
    K: int,
    kind: str = "int2",
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`C = A @ W.T` for integer weights and activations: the paper's W_INT2 A_INT8.

    A is int8 (M, K); B holds the codes of "int2", "uint2", "int4" or "uint4", uint8
    (N, K * bits / 8); C is int32 (M, N).
    """
    bits = BITS[kind]
    per_byte = 8 // bits

    @T.prim_func
    def integer_dequant_matmul(
        A: T.Tensor((M, K), T.int8), B: T.Tensor((N, K // per_byte), T.uint8)
    ):
        C = T.empty((M, N), T.int32)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), T.int8)
            B_shared = T.alloc_shared((block_N, block_K // per_byte), T.uint8)
            W_local = T.alloc_fragment((block_N, block_K), T.int8)
            C_local = T.alloc_fragment((block_M, block_N), T.int32)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, ko * block_K], A_shared)
                T.copy(B[bx * block_N, ko * block_K // per_byte], B_shared)
                for i, j in T.Parallel(block_N, block_K):
                    byte = T.cast(B_shared[i, j // per_byte], T.int32)
                    W_local[i, j] = decode(byte >> j % per_byte * bits & (1 << bits) - 1, kind)
                T.gemm(A_shared, W_local, C_local, transpose_B=True)
            T.copy(C_local, C[by * block_M, bx * block_N])
        return C

    return integer_dequant_matmul
