"""Copies of threads that a GPU may finish later, and what waits for them."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, random_array


def test_elements_are_copied_by_address_where_a_predicate_holds():
    a = random_array((40, 8), "float16")

    @T.prim_func
    def kernel(A: T.Tensor((40, 8), "float16"), n: T.int32, B: T.Tensor((64, 8), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64, 8), "float16")
            tx = T.get_thread_binding()
            with T.attr("default", "async_scope", 1):
                T.ptx_cp_async(
                    T.access_ptr(tile[tx, 0], "w", 8),
                    T.access_ptr(A[T.min(tx, 39), 0], "r", 8),
                    8,
                    tx < n,
                )
                T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.sync_threads()
            T.copy(tile, B)

    expected = np.zeros((64, 8), np.float16)
    expected[:33] = a[:33]
    given = {"A": a, "n": 33, "B": random_array((64, 8), "float16", 1)}
    check_everywhere(kernel, given, equals(B=expected))


def test_copies_by_address_in_a_parallel_loop():
    a = random_array((16, 32), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((16, 32), "float32"), B: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((16, 32), "float32")
            for i, j in T.Parallel(16, 8):
                source = T.address_of(A[i, j * 4])
                T.ptx_cp_async(T.access_ptr(tile[i, j * 4], "w", 4), source, 4)
            T.ptx_commit_group()
            T.ptx_wait_group(0)
            T.copy(tile, B)

    given = {"A": a, "B": np.zeros((16, 32), np.float32)}
    check_everywhere(kernel, given, equals(B=a))


def test_a_memory_barrier_is_arrived_at_once_copies_are_done():
    a = random_array((128,), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((128,), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tile = T.alloc_shared((128,), "float32")
            ready = T.alloc_barrier(64)
            tx = T.thread_binding(0, 128, thread="threadIdx.x")
            if tx < 64:
                T.ptx_cp_async(T.access_ptr(tile[tx * 2], "w", 2), T.access_ptr(A[tx * 2], "r"), 2)
                T.cp_async_barrier_noinc(ready)
            T.barrier_wait(ready, 0)
            B[127 - tx] = tile[tx]

    given = {"A": a, "B": np.zeros(128, np.float32)}
    check_everywhere(kernel, given, equals(B=a[::-1].copy()))


def test_fences_of_products_have_no_effect():
    a, b = random_array((16, 16), "float16"), random_array((16, 16), "float16", 1)
    a, b = np.round(a * 4), np.round(b * 4)

    @T.prim_func
    def kernel(
        A: T.Tensor((16, 16), "float16"),
        B: T.Tensor((16, 16), "float16"),
        C: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32):
            left, right = T.alloc_shared((16, 16), "float16"), T.alloc_shared((16, 16), "float16")
            total = T.alloc_fragment((16, 16), "float32")
            T.copy(A, left)
            T.copy(B, right)
            T.clear(total)
            T.warpgroup_fence_operand(total, num_regs=4)
            T.warpgroup_arrive()
            T.wgmma_gemm(left, right, total)
            T.warpgroup_commit_batch()
            T.warpgroup_wait(0)
            T.warpgroup_fence_operand(total, num_regs=4)
            T.copy(total, C)

    given = {"A": a, "B": b, "C": np.zeros((16, 16), np.float32)}
    check_everywhere(kernel, given, equals(C=a.astype(np.float32) @ b.astype(np.float32)))


@pytest.mark.parametrize("form", ["value", "loop", "expression"])
def test_thread_indices_have_three_forms(form):
    @T.prim_func
    def kernel(B: T.Tensor((32,), "int32")):
        with T.Kernel(1, threads=32):
            if form == "value":
                tx = T.thread_binding(0, 32, thread="threadIdx.x")
                B[tx] = tx * 3
            elif form == "expression":
                B[T.thread_binding(32, "threadIdx.x")] = T.thread_binding(32, "threadIdx.x") * 3
            else:
                for tx in T.thread_binding(32, thread="threadIdx.x"):
                    B[tx] = tx * 3

    expected = np.arange(32, dtype=np.int32) * 3
    check_everywhere(kernel, {"B": np.zeros(32, np.int32)}, equals(B=expected))
