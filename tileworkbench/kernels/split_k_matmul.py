"""A matrix product whose inner dimension is shared among blocks: for few tiles and a long K."""

from __future__ import annotations

from typing import Any

import tileworkbench.language as T
from tileworkbench.kernels.matmul import accumulator, matmul_reference
from tileworkbench.kernels.page import TABLE, PrimFunc, compared_with


@compared_with(matmul_reference)
def split_k_matmul(
    M: int,
    N: int,
    K: int,
    dtype: Any = T.float32,
    splits: int = 4,
    block_M: int = TABLE,
    block_N: int = TABLE,
    block_K: int = TABLE,
    num_stages: int = 2,
    threads: int = 128,
    deterministic: bool = False,
) -> PrimFunc:
    """`C = A @ B`, each tile of C the sum of `splits` blocks' shares.

    A is (M, K), B is (K, N), both of `dtype`; C is (M, N) of `accumulator(dtype)`: int32 for
    integers, float64 for float64, else float32. Blocks add their shares atomically, in the order
    in which they end: sums of floats differ in their last bits from call to call. With
    `deterministic` the shares go to a workspace of `splits` times the size of C, and a second
    launch adds them in one order: equal arguments give equal bits.
    """
    accum_dtype = accumulator(dtype)

    @T.prim_func
    def split_k_matmul(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype)):
        C = T.empty((M, N), accum_dtype)
        tiles_n, tiles_m = T.ceildiv(N, block_N), T.ceildiv(M, block_M)
        if deterministic:
            shares = T.alloc_global((splits, M, N), accum_dtype)
        else:
            with T.Kernel(tiles_n, tiles_m, threads=threads) as (bx, by):
                for i, j in T.Parallel(block_M, block_N):
                    C[by * block_M + i, bx * block_N + j] = 0
        with T.Kernel(tiles_n, tiles_m, splits, threads=threads) as (bx, by, split):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            pieces = T.ceildiv(T.ceildiv(K, block_K), splits)
            T.clear(C_local)
            for k in T.Pipelined(pieces, num_stages=num_stages):
                first = (split * pieces + k) * block_K
                T.copy(A[by * block_M, first], A_shared)
                T.copy(B[first, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            if deterministic:
                T.copy(C_local, shares[split, by * block_M, bx * block_N])
            else:
                T.atomic_add(C[by * block_M, bx * block_N], C_local)
        if deterministic:
            with T.Kernel(tiles_n, tiles_m, threads=threads) as (bx, by):
                total = T.alloc_fragment((block_M, block_N), accum_dtype)
                T.clear(total)
                for split in T.serial(splits):
                    for i, j in T.Parallel(block_M, block_N):
                        total[i, j] += shares[split, by * block_M + i, bx * block_N + j]
                T.copy(total, C[by * block_M, bx * block_N])
        return C

    return split_k_matmul
