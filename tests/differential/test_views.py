"""Other views of the same memory: T.reshape and T.view in every scope."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    equals,
    random_array,
    run_native,
)

A2 = random_array((20, 12), "float32", 4)


@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment])
def test_a_tile_is_written_in_one_shape_and_read_in_another(alloc):
    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32")):
        B = T.empty((40, 6), "float32")
        R = T.empty((2, 20), "float32")
        with T.Kernel(2, threads=128) as bx:
            S = alloc((10, 12), "float32")
            H = T.reshape(S, (20, 6))
            total = T.alloc_fragment((20,), "float32")
            T.copy(A[bx * 10, 0], S)
            T.copy(H, B[bx * 20, 0])
            T.reduce_max(H, total, dim=1)
            T.copy(total, R[bx, 0:20])
        return B, R

    halves = A2.reshape(40, 6)
    expected = equals(B=halves, R=halves.max(axis=1).reshape(2, 20))
    check_everywhere(kernel, {"A": A2}, expected)


def test_a_view_of_a_view_is_a_product_operand():
    a = random_array((1, 32, 16), "float32").round()

    @T.prim_func
    def kernel(A: T.Tensor((1, 32, 16), "float32")):
        C = T.empty((32, 32), "float32")
        with T.Kernel(1, threads=128) as bx:
            S = T.alloc_shared((1, 32, 16), "float32")
            flat = T.view(S, (512,))
            M = T.reshape(flat, (32, 16))
            acc = T.alloc_fragment((32, 32), "float32")
            T.copy(A, S)
            T.gemm(M, M, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
        return C

    check_everywhere(kernel, {"A": a}, equals(C=a[0] @ a[0].T))


@pytest.mark.parametrize(
    ("have", "want"),
    [("float32", "int32"), ("uint8", "int8"), ("uint8", "uint32"), ("int64", "float16")],
)
def test_bits_are_kept_in_another_dtype(have, want):
    a = random_array((4, 24), have)
    columns = 24 * np.dtype(have).itemsize // np.dtype(want).itemsize

    @T.prim_func
    def kernel(A: T.Tensor((4, 24), have)):
        B = T.empty((4, columns), want)
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((2, 24), have)
            V = T.view(S, dtype=want)
            T.copy(A[bx * 2, 0], S)
            T.copy(V, B[bx * 2, 0])
        return B

    check_everywhere(kernel, {"A": a}, equals(B=a.view(want)))


def test_a_parameter_is_seen_as_a_row():
    a = random_array((30, 12), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((T.dynamic("m"), 12), "int32"), C: T.Tensor((30, 12), "int32")):
        m = A.shape[0]
        row, out = T.reshape(A, (m * 12,)), T.view(C, (360,))
        T.annotate_safe_value({A: -5})
        with T.Kernel(6, threads=128) as bx:
            for i in T.Parallel(64):
                out[bx * 64 + i] = row[bx * 64 + i + 6]

    expected = np.append(a.reshape(-1)[6:], np.full(6, -5, np.int32)).reshape(30, 12)
    arguments = {"A": a, "C": np.zeros_like(a)}
    check_everywhere(kernel, arguments, equals(C=expected))
    equals(C=expected)(run_native(kernel.program, arguments, "sim:sm_80"))


def test_a_view_before_two_launches():
    a = random_array((8, 12), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((8, 12), "int32")):
        row = T.reshape(A, (96,))
        bytes_ = T.view(row, dtype="int8")
        B, C = T.empty((96,), "int32"), T.empty((96,), "int8")
        with T.Kernel(3, threads=32) as bx:
            for i in T.Parallel(32):
                B[bx * 32 + i] = row[95 - bx * 32 - i]
        with T.Kernel(3, threads=32) as bx:
            for i in T.Parallel(32):
                C[bx * 32 + i] = bytes_[bx * 32 + i] + T.cast(row[0], "int8")
        return B, C

    flat = a.reshape(-1)
    check = equals(B=flat[::-1], C=flat.view(np.int8)[:96] + flat[:1].astype(np.int8))
    check_everywhere(kernel, {"A": a}, check)
    check(run_native(kernel.program, {"A": a}, "sim:sm_80"))


def test_views_of_memory_that_threads_have_for_themselves():
    a = random_array((8, 4), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((8, 4), "float32")):
        B = T.empty((8, 4), "int32")
        C = T.empty((8, 8), "int16")
        with T.Kernel(2, threads=32) as bx:
            own = T.alloc_local((2, 2), "float32")
            bits = T.view(own, (4,), "int32")
            halves = T.view(own, dtype="int16")
            for i in T.Parallel(4):
                for j in T.serial(4):
                    own[j // 2, j % 2] = A[bx * 4 + i, j] * 2.0
                for j in T.serial(4):
                    B[bx * 4 + i, j] = bits[j]
                bits[0] = i
                for j in T.serial(8):
                    C[bx * 4 + i, j] = halves[j // 4, j % 4]
        return B, C

    doubled = a * np.float32(2)
    changed = doubled.view(np.int32).copy()
    changed[:, 0] = np.arange(8) % 4
    expected = equals(B=doubled.view(np.int32), C=changed.view(np.int16))
    check_everywhere(kernel, {"A": a}, expected)


def test_a_view_of_packed_elements_with_another_shape():
    a = random_array((4, 8), "uint8")

    @T.prim_func
    def kernel(A: T.Tensor((4, 16), "uint4")):
        B = T.empty((64,), "uint8")
        with T.Kernel(1, threads=32):
            S = T.alloc_shared((4, 16), "uint4")
            T.copy(T.reshape(A, (8, 8)), T.reshape(S, (8, 8)))
            T.copy(T.reshape(S, (64,)), B)
        return B

    elements = np.stack([a & 15, a >> 4], -1).reshape(64)
    check_everywhere(kernel, {"A": a}, equals(B=elements))


def test_views_with_strides_of_their_own():
    a = random_array((6, 8), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((6, 8), "float32"), D: T.Tensor((6, 8), "float32")):
        B = T.empty((6,), "float32")
        C = T.empty((3, 4), "int32")
        with T.Kernel(1, threads=32):
            diagonal = T.StridedTensor((6,), (9,), "float32", A.data)
            T.copy(diagonal, B)
            every_second = T.view(A, (3, 4), "int32", strides=(16, 2))
            T.copy(every_second, C)
            columns = T.view(D, (8, 6), strides=(1, 8))
            for j, i in T.Parallel(8, 6):
                columns[j, i] = A[i, j] + 1.0
        return B, C

    expected = equals(B=np.diagonal(a), C=a.view(np.int32)[::2, ::2], D=a + np.float32(1))
    check_everywhere(kernel, {"A": a, "D": np.zeros_like(a)}, expected)


def test_views_of_vectors():
    a = random_array((4, 24), "float32")

    @T.prim_func
    def kernel(A: T.Tensor((4, 24), "float32")):
        B = T.empty((4, 12), "float32")
        C = T.empty((4, 24), "float32")
        with T.Kernel(1, threads=32):
            pairs = T.view(A, (4, 12), "float32x2")
            source, target = T.view(A, dtype="float32x4"), T.view(C, dtype=T.float32x4)
            S = T.alloc_shared((4, 24), "float32")
            shared = T.view(S, (24,), "float32x4")
            for i, j in T.Parallel(4, 12):
                B[i, j] = pairs[i, j][0] - pairs[i, j][1]
            for i, j in T.Parallel(4, 6):
                shared[i * 6 + j] = source[3 - i, j]
            for i, j in T.Parallel(4, 6):
                target[i, j] = shared[i * 6 + j]
        return B, C

    halves = a.reshape(4, 12, 2)
    expected = equals(B=halves[..., 0] - halves[..., 1], C=a[::-1].copy())
    check_executors(kernel, {"A": a}, expected)
