"""Kernels with pipelines, for the tests of what is told of them."""

# Annotations are evaluated where kernels are defined: no `from __future__ import annotations`.

from functools import cache

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.kernels import flash_attention, matmul


@cache
def product(stages: int = 3, target: str = "sim:sm_80", size: int = 256) -> tw.Kernel:
    """A matrix product of `size` x `size` in tiles of 128 x 128 x 32."""
    return tw.compile(matmul(size, size, size, "float16", num_stages=stages), target=target)


@cache
def attention(target: str = "sim:sm_80") -> tw.Kernel:
    """Attention with a loop whose trip count depends on the block."""
    made = flash_attention(1, 2, 512, 512, 64, causal=True, dtype="float16")
    return tw.compile(made, target=target)


@cache
def roles(target: str = "sim:sm_90", steps: int = 8) -> tw.Kernel:
    """A role that fills two stages, and a role that multiplies."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 32 * steps), "float16"),
        B: T.Tensor((32 * steps, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
    ):
        with T.Kernel(1, threads=256):
            A_shared = T.alloc_shared((2, 64, 32), "float16")
            B_shared = T.alloc_shared((2, 32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            loaded = T.alloc_barrier([128, 128])
            used = T.alloc_barrier([128, 128])
            with T.ws(1):
                for k in range(steps):
                    T.mbarrier_wait_parity(used[k % 2], (k // 2) % 2 ^ 1)
                    T.copy(A[:, k * 32 : k * 32 + 32], A_shared[k % 2, :, :])
                    T.copy(B[k * 32 : k * 32 + 32, :], B_shared[k % 2, :, :])
                    T.mbarrier_arrive(loaded[k % 2])
            with T.ws(0):
                T.clear(acc)
                for k in range(steps):
                    T.mbarrier_wait_parity(loaded[k % 2], (k // 2) % 2)
                    T.gemm(A_shared[k % 2, :, :], B_shared[k % 2, :, :], acc)
                    T.mbarrier_arrive(used[k % 2])
                T.copy(acc, C)

    return tw.compile(kernel, target=target)


@cache
def meeting() -> tw.Kernel:
    """Two roles of 128 threads, and 128 threads without one; in the end all of them meet."""

    @T.prim_func
    def kernel(
        A: T.Tensor((64, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((64, 64), "float32"),
        D: T.Tensor((64, 32), "float16"),
    ):
        with T.Kernel(1, threads=384):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            loaded = T.alloc_barrier(128)
            used = T.alloc_barrier(128)
            with T.ws(1):
                for k in range(4):
                    T.mbarrier_wait_parity(used, k % 2 ^ 1)
                    T.copy(A[:, k * 32 : k * 32 + 32], A_shared)
                    T.copy(B[k * 32 : k * 32 + 32, :], B_shared)
                    T.mbarrier_arrive(loaded)
            with T.ws(0):
                T.clear(acc)
                for k in range(4):
                    T.mbarrier_wait_parity(loaded, k % 2)
                    T.gemm(A_shared, B_shared, acc)
                    T.mbarrier_arrive(used)
                T.copy(acc, C)
            T.sync_threads()
            with T.ws(1):
                T.copy(A_shared, D)

    return tw.compile(kernel, target="sim:sm_80")


@cache
def repeated(target: str = "sim:sm_80") -> tw.Kernel:
    """A pipelined loop that is executed twice."""

    @T.prim_func
    def kernel(
        A: T.Tensor((128, 128), "float16"),
        B: T.Tensor((128, 64), "float16"),
        C: T.Tensor((128, 64), "float32"),
    ):
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            acc = T.alloc_fragment((64, 64), "float32")
            for row in T.serial(2):
                T.clear(acc)
                for k in T.Pipelined(4, num_stages=2):
                    T.copy(A[row * 64, k * 32], A_shared)
                    T.copy(B[k * 32, 0], B_shared)
                    T.gemm(A_shared, B_shared, acc)
                T.copy(acc, C[row * 64, 0])

    return tw.compile(kernel, target=target)


@cache
def launched_twice() -> tw.Kernel:
    """Two launches, each with a pipeline of its own."""

    @T.prim_func
    def two(
        A: T.Tensor((256, 256), "float16"),
        B: T.Tensor((256, 256), "float16"),
        C: T.Tensor((256, 256), "float32"),
        D: T.Tensor((256,), "float32"),
    ):
        with T.Kernel(4, 4, threads=128) as (bx, by):
            A_shared = T.alloc_shared((64, 32), "float16")
            B_shared = T.alloc_shared((32, 64), "float16")
            C_local = T.alloc_fragment((64, 64), "float32")
            T.clear(C_local)
            for k in T.Pipelined(8, num_stages=3):
                T.copy(A[by * 64, k * 32], A_shared)
                T.copy(B[k * 32, bx * 64], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 64, bx * 64])
        with T.Kernel(4, threads=64) as bx:
            T_shared = T.alloc_shared((64, 64), "float32")
            sums = T.alloc_fragment((64,), "float32")
            T.clear(sums)
            for r in T.Pipelined(4, num_stages=2):
                T.copy(C[r * 64, bx * 64], T_shared)
                for j in T.Parallel(64):
                    for i in T.serial(64):
                        sums[j] += T_shared[i, j]
            T.copy(sums, D[bx * 64])

    return tw.compile(two, target="sim:sm_80")
