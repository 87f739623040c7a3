"""Kernels with one planted bottleneck each, in the line that ends in ``# here``."""

from __future__ import annotations

import tileworkbench.language as T
from tileworkbench.kernels import matmul

N = 1024


def scalar_loop():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(N, threads=128) as row:
            for i in T.serial(N):
                C[row, i] = A[row, i] * A[row, i] * 3.0 + A[row, i] * 2.0 + 1.0  # here

    return kernel


def transposed_reads():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(N // 32, N // 32, threads=128) as (bx, by):
            for i, j in T.Parallel(32, 32):
                C[by * 32 + i, bx * 32 + j] = A[bx * 32 + j, by * 32 + i] * 2.0  # here

    return kernel


def transposed_halves():
    """Of elements that no packing of a processor turns."""

    @T.prim_func
    def kernel(A: T.Tensor((N, N), "bfloat16"), C: T.Tensor((N, N), "bfloat16")):
        with T.Kernel(N // 32, N // 32, threads=128) as (bx, by):
            for i, j in T.Parallel(32, 32):
                C[by * 32 + i, bx * 32 + j] = A[bx * 32 + j, by * 32 + i]  # here

    return kernel


def serial_sum():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(N, threads=32) as row:
            total = T.alloc_local((1,), "float32")
            total[0] = 0.0
            for i in T.serial(N):
                total[0] = total[0] + A[row, i]  # here
            C[row] = total[0]

    return kernel


def long_functions():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(N // 32, N // 32, threads=128) as (bx, by):
            tile = T.alloc_fragment((32, 32), "float32")
            T.copy(A[by * 32, bx * 32], tile)
            for i, j in T.Parallel(32, 32):
                tile[i, j] = T.tanh(T.sin(T.log(tile[i, j])) + T.cos(tile[i, j]))  # here
            T.copy(tile, C[by * 32, bx * 32])

    return kernel


def little_work():
    @T.prim_func
    def kernel(A: T.Tensor((64,), "float32"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):  # here
            for i in T.Parallel(64):
                C[i] = A[i] + 1.0

    return kernel


def one_block():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(1, threads=128):  # here
            for i, j in T.Parallel(N, N):
                C[i, j] = T.exp(A[i, j]) * T.exp(A[i, j] * 2.0)

    return kernel


def division():
    @T.prim_func
    def kernel(A: T.Tensor((N, N), "float32"), C: T.Tensor((N, N), "float32")):
        with T.Kernel(N // 32, N // 32, threads=128) as (bx, by):
            tile = T.alloc_fragment((32, 32), "float32")
            T.copy(A[by * 32, bx * 32], tile)
            for _ in T.serial(16):
                for i, j in T.Parallel(32, 32):
                    tile[i, j] = 1.0 / tile[i, j] + 1.0 / (tile[i, j] + 3.0)  # here
            T.copy(tile, C[by * 32, bx * 32])

    return kernel


def bank_conflicts():
    @T.prim_func
    def kernel(
        A: T.Tensor((4096, 4096), "float16"),
        B: T.Tensor((4096, 4096), "float16"),
        C: T.Tensor((4096, 4096), "float16"),
    ):
        with T.Kernel(32, 32, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 64), "float16")
            B_shared = T.alloc_shared((64, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.annotate_layout({A_shared: T.Layout((128, 64), lambda i, j: (i, j))})
            T.clear(C_local)
            for k in T.Pipelined(64, num_stages=3):
                T.copy(A[by * 128, k * 64], A_shared)
                T.copy(B[k * 64, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)  # here
            T.copy(C_local, C[by * 128, bx * 128])

    return kernel


def reloaded_weights():
    @T.prim_func
    def kernel(
        A: T.Tensor((108 * 16, 2048), "float16"),
        W: T.Tensor((128, 128), "float16"),
        C: T.Tensor((108 * 16, 2048), "float16"),
    ):
        with T.Kernel(108, threads=128) as block:
            A_shared = T.alloc_shared((16, 128), "float16")
            W_shared = T.alloc_shared((128, 128), "float16")
            C_local = T.alloc_fragment((16, 128), "float32")
            for k in T.Pipelined(16, num_stages=2):
                T.copy(A[block * 16, k * 128], A_shared)
                T.copy(W, W_shared)  # here
                T.clear(C_local)
                T.gemm(A_shared, W_shared, C_local)
                T.copy(C_local, C[block * 16, k * 128])

    return kernel


def nothing_ahead():
    @T.prim_func
    def kernel(
        A: T.Tensor((1280, 4096), "float16"),
        B: T.Tensor((4096, 1280), "float16"),
        C: T.Tensor((1280, 1280), "float16"),
    ):
        with T.Kernel(10, 10, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for k in T.serial(128):  # here
                T.copy(A[by * 128, k * 32], A_shared)
                T.copy(B[k * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 128, bx * 128])

    return kernel


def large_product_in_series():
    @T.prim_func
    def kernel(
        A: T.Tensor((8192, 8192), "float16"),
        B: T.Tensor((8192, 8192), "float16"),
        C: T.Tensor((8192, 8192), "float16"),
    ):
        with T.Kernel(64, 64, threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), "float16")
            B_shared = T.alloc_shared((32, 128), "float16")
            C_local = T.alloc_fragment((128, 128), "float32")
            T.clear(C_local)
            for k in T.serial(256):  # here
                T.copy(A[by * 128, k * 32], A_shared)
                T.copy(B[k * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 128, bx * 128])

    return kernel


def large_product(stages: int):
    return matmul(8192, 8192, 8192, "float16", num_stages=stages)


def small_tiles():
    @T.prim_func
    def kernel(
        A: T.Tensor((4096, 4096), "float16"),
        B: T.Tensor((4096, 4096), "float16"),
        C: T.Tensor((4096, 4096), "float16"),
    ):
        with T.Kernel(32, 256, threads=128) as (bx, by):
            A_shared = T.alloc_shared((16, 64), "float16")
            B_shared = T.alloc_shared((64, 128), "float16")
            C_local = T.alloc_fragment((16, 128), "float32")
            T.clear(C_local)
            for k in T.Pipelined(64, num_stages=3):
                T.copy(A[by * 16, k * 64], A_shared)
                T.copy(B[k * 64, bx * 128], B_shared)  # here
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 16, bx * 128])

    return kernel


def one_element():
    @T.prim_func
    def kernel(A: T.Tensor((N * N,), "float32"), C: T.Tensor((1,), "float32")):
        with T.Kernel(N, threads=128) as row:
            for i in T.Parallel(N):
                T.atomic_add(C[0], A[row * N + i])  # here

    return kernel
