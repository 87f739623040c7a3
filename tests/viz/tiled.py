"""Kernels with tiles in shared memory, for the tests of the views of banks and sectors."""

from __future__ import annotations

from functools import cache
from typing import Any

import tileworkbench as tw
import tileworkbench.language as T


@tw.jit(target="sim:sm_80")
def mm(A, B, block_M: int = 64, block_N: int = 64, block_K: int = 32, stages: int = 3):
    M, N, K = T.const("M, N, K")
    A: T.Tensor((M, K), "float16")
    B: T.Tensor((K, N), "float16")
    C = T.empty((M, N), "float32")
    with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
        A_shared = T.alloc_shared((block_M, block_K), "float16")
        B_shared = T.alloc_shared((block_K, block_N), "float16")
        C_local = T.alloc_fragment((block_M, block_N), "float32")
        T.clear(C_local)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
            T.copy(A[by * block_M, k * block_K], A_shared)
            T.copy(B[k * block_K, bx * block_N], B_shared)
            T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * block_M, bx * block_N])
    return C


@tw.jit(target="sim:sm_80")
def transpose(A):
    A: T.Tensor((64, 64), "float32")
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=128) as _:
        tile = T.alloc_shared(
            (64, 64),
            "float32",
        )
        row = T.alloc_shared((64,), "float32")
        T.annotate_layout({tile: lambda i, j: (i, j)})
        T.copy(A, tile)
        for j in T.Parallel(64):
            row[j] = tile[0, j]
        for i, j in T.Parallel(64, 64):
            B[i, j] = tile[j, i] + row[j]
    return B


@tw.jit(target="sim:sm_80")
def conflicting(A, B):
    A: T.Tensor((128, 32), "float16")
    B: T.Tensor((32, 64), "float16")
    C = T.empty((128, 64), "float32")
    with T.Kernel(1, threads=128):
        A_shared = T.alloc_shared((128, 32), "float16")
        B_shared = T.alloc_shared((32, 64), "float16")
        C_local = T.alloc_fragment((128, 64), "float32")
        T.annotate_layout({A_shared: T.Layout((128, 32), lambda i, j: (i, j))})
        T.copy(A, A_shared)
        T.copy(B, B_shared)
        T.clear(C_local)
        T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C)
    return C


@tw.jit(target="sim:sm_80")
def ragged(A):
    A: T.Tensor((48, 96), "float16")
    B = T.empty((96, 48), "float16")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((48, 96), "float16")
        T.copy(A, tile)
        for i, j in T.Parallel(96, 48):
            B[i, j] = tile[j, i]
    return B


@tw.jit(target="cpu")
def askew(A):
    A: T.Tensor((64, 33), "float32")
    B = T.empty((64, 32), "float32")
    with T.Kernel(1, threads=128):
        for i, j in T.Parallel(64, 32):
            B[i, j] = A[i, j] * 2.0
    return B


@cache
def compiled(name: str, target: str = "sim:sm_80") -> tw.Kernel:
    """One of the kernels above."""
    constants: dict[str, Any] = dict(M=256, N=256, K=256) if name == "mm" else {}
    function: Any = globals()[name]
    return function.with_target(target).compile(**constants)
