"""Matrix products, as in the TileLang paper (arXiv 2504.17577), figures 11 and 16."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tileworkbench.language as T
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with

if TYPE_CHECKING:
    from torch import Tensor

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: T.max(x, 0),
    "silu": lambda x: x * T.sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1.0 + T.erf(x * 0.7071067811865476)),
}


def accumulator(dtype: Any) -> Any:
    """The dtype that products of `dtype` are summed in: int32 for integers, float32 for narrow
    floats.
    """
    kind = T.dtype(dtype)
    if kind.is_int:
        return T.int32
    return T.float64 if kind == T.float64 else T.float32


def matmul_reference(
    a: Tensor, b: Tensor, *, trans_A: bool = False, trans_B: bool = False
) -> Tensor:
    """`op(a) @ op(b)` in float64; integers exactly."""
    import torch

    wide = torch.float64 if a.is_floating_point() else torch.int64
    a, b = a.to(wide), b.to(wide)
    return (a.mT if trans_A else a) @ (b.mT if trans_B else b)


@compared_with(matmul_reference)
def matmul(
    M: int,
    N: int,
    K: int,
    dtype: Any = T.float32,
    out_dtype: Any = None,
    accum_dtype: Any = None,
    trans_A: bool = False,
    trans_B: bool = False,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
    promote: bool = False,
) -> PrimFunc:
    """`C = op(A) @ op(B)`.

    A is (M, K), or (K, M) when `trans_A`; B is (K, N), or (N, K) when `trans_B`; both of `dtype`,
    any float or 8-bit integer. C is (M, N) of `out_dtype` (default: that of the accumulator),
    summed in `accum_dtype` (default: int32 for integers, float64 for float64, else float32).

    With `promote` the tensor cores sum `block_K` products at a time, and these sums are added to
    totals in ordinary registers. Tensor cores of sm_90a keep about 14 bits of sums of 8-bit floats
    (decision 105): a `block_K` of 128 is as exact as float32 then, for twice the accumulators.
    """
    accum_dtype = accum_dtype or accumulator(dtype)
    out_dtype = out_dtype or accum_dtype

    @T.prim_func
    def matmul(
        A: T.Tensor((K, M) if trans_A else (M, K), dtype),
        B: T.Tensor((N, K) if trans_B else (K, N), dtype),
    ):
        C = T.empty((M, N), out_dtype)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_shared = T.alloc_shared((block_K, block_M) if trans_A else (block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K) if trans_B else (block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            step = T.alloc_fragment((block_M, block_N), accum_dtype) if promote else C_local
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                if trans_A:
                    T.copy(A[k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[by * block_M, k * block_K], A_shared)
                if trans_B:
                    T.copy(B[bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, step, trans_A, trans_B, clear_accum=promote)
                if promote:
                    for i, j in T.Parallel(block_M, block_N):
                        C_local[i, j] += step[i, j]
            T.copy(C_local, C[by * block_M, bx * block_N])
        return C

    return matmul


def linear_reference(
    x: Tensor, weight: Tensor, bias: Tensor, *, activation: str = "none"
) -> Tensor:
    """`activation(x @ weight.T + bias)` in float64."""
    import torch.nn.functional as F

    y = F.linear(x.double(), weight.double(), bias.double())
    return y if activation == "none" else getattr(F, activation)(y)


@compared_with(linear_reference)
def linear(
    M: int,
    N: int,
    K: int,
    dtype: Any = T.float32,
    activation: str = "none",
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
) -> PrimFunc:
    """`Y = activation(X @ W.T + bias)`: a product with its epilogue.

    X is (M, K), W is (N, K), bias is (N,), Y is (M, N), all of the float type `dtype`;
    `activation` is "none", "relu", "silu" or "gelu", applied before rounding to `dtype`.
    """
    activate = ACTIVATIONS[activation]

    @T.prim_func
    def linear(
        X: T.Tensor((M, K), dtype),
        W: T.Tensor((N, K), dtype),
        bias: T.Tensor((N,), dtype),
    ):
        Y = T.empty((M, N), dtype)
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            X_shared = T.alloc_shared((block_M, block_K), dtype)
            W_shared = T.alloc_shared((block_N, block_K), dtype)
            bias_local = T.alloc_fragment((block_N,), accumulator(dtype))
            Y_local = T.alloc_fragment((block_M, block_N), accumulator(dtype))
            T.copy(bias[bx * block_N], bias_local)
            T.clear(Y_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(X[by * block_M, k * block_K], X_shared)
                T.copy(W[bx * block_N, k * block_K], W_shared)
                T.gemm(X_shared, W_shared, Y_local, transpose_B=True)
            for i, j in T.Parallel(block_M, block_N):
                Y_local[i, j] = activate(Y_local[i, j] + bias_local[j])
            T.copy(Y_local, Y[by * block_M, bx * block_N])
        return Y

    return linear
