"""Atomic accesses: sums of integers are exact whatever the order, sums of floats are kept exact."""
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
    storage,
)

A1000 = random_array((1000,), "int32")


def test_histogram_in_shared_memory():
    @T.prim_func
    def kernel(A: T.Tensor((1000,), "int32"), H: T.Tensor((16,), "int32")):
        with T.Kernel(4, threads=128) as bx:
            S = T.alloc_shared((16,), "int32")
            T.clear(S)
            for i in T.Parallel(256):
                if bx * 256 + i < 1000:
                    T.atomic_add(S[A[bx * 256 + i] % 16], 1)
            T.atomic_add(H, S)

    expected = np.bincount(A1000 % 16, minlength=16).astype(np.int32)
    arguments = {"A": A1000, "H": np.full(16, 7, np.int32)}
    check_everywhere(kernel, arguments, equals(H=expected + 7))


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "dtype",
    ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "uint64", "int64"],
)
@pytest.mark.parametrize("kind", ["add", "max", "min"])
def test_many_blocks_meet_in_one_element(kind, dtype):
    a = (random_array((8, 40), "int32") % 5 - 2 * (not dtype.startswith("u"))).astype(
        storage(dtype)
    )
    atomic = {"add": T.atomic_add, "max": T.atomic_max, "min": T.atomic_min}[kind]

    @T.prim_func
    def kernel(A: T.Tensor((8, 40), dtype), C: T.Tensor((3,), dtype)):
        with T.Kernel(8, threads=32) as bx:
            for j in T.Parallel(40):
                atomic(C[1], A[bx, j])

    start = np.ones(3, storage(dtype))
    wide = a.astype(np.float64)
    total = {"add": wide.sum() + 1, "max": max(wide.max(), 1), "min": min(wide.min(), 1)}[kind]
    expected = start.copy()
    expected[1] = np.float64(total).astype(storage(dtype))
    check_everywhere(kernel, {"A": a, "C": start}, equals(C=expected))


def test_maximum_and_minimum_ignore_nan():
    a = np.array([np.nan, -2, 5, np.nan], np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32"), C: T.Tensor((2,), "float32")):
        with T.Kernel(4, threads=32) as bx:
            for _ in T.Parallel(1):
                T.atomic_max(C[0], A[bx])
                T.atomic_min(C[1], A[bx])

    arguments = {"A": a, "C": np.zeros(2, np.float32)}
    check_everywhere(kernel, arguments, equals(C=np.array([5, -2], np.float32)))


def test_tiles_outside_the_tensor_are_skipped():
    a = random_array((20, 12), "int32")

    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "int32"), C: T.Tensor((20, 12), "int32")):
        with T.Kernel(3, 2, threads=32) as (bx, by):
            F = T.alloc_fragment((8, 8), "int32")
            T.copy(A[bx * 8, by * 8], F)
            T.atomic_add(C[bx * 8, by * 8], F)
            T.atomic_add(C[bx * 8 : bx * 8 + 8, by * 8 : by * 8 + 8], 3)
            T.atomic_max(C[bx * 8, 0], A[bx * 8 : bx * 8 + 1, 0:4])

    expected = a + a + 3
    for row in (0, 8, 16):
        expected[row, :4] = np.maximum(expected[row, :4], a[row, :4])
    check_everywhere(kernel, {"A": a, "C": a.copy()}, equals(C=expected))


def test_previous_values_are_distinct_places():
    a = random_array((300,), "int32")

    @T.prim_func
    def kernel(
        A: T.Tensor((300,), "int32"), N: T.Tensor((1,), "int32"), C: T.Tensor((300,), "int32")
    ):
        with T.Kernel(3, threads=128) as bx:
            for i in T.Parallel(128):
                if bx * 128 + i < 300 and A[bx * 128 + i] > 0:
                    place = T.atomic_add(N[0], 1, return_prev=True)
                    C[place] = A[bx * 128 + i]

    positive = np.sort(a[a > 0])

    def check(arrays):
        assert arrays["N"][0] == len(positive)
        np.testing.assert_array_equal(np.sort(arrays["C"][: len(positive)]), positive)

    arguments = {"A": a, "N": np.zeros(1, np.int32), "C": np.zeros(300, np.int32)}
    check_everywhere(kernel, arguments, check)


def test_previous_value_outside_the_tensor_is_the_safe_value():
    @T.prim_func
    def kernel(N: T.Tensor((2,), "int32"), C: T.Tensor((4,), "int32")):
        with T.Kernel(1, threads=32) as bx:
            T.annotate_safe_value({N: 9})
            for i in T.Parallel(4):
                C[i] = T.atomic_max(N[i], 5, return_prev=True)

    arguments = {"N": np.array([3, 8], np.int32), "C": np.zeros(4, np.int32)}
    expected = equals(N=np.array([5, 8], np.int32), C=np.array([3, 8, 9, 9], np.int32))
    check_everywhere(kernel, arguments, expected)


def test_neighbours_bits_loads_and_stores():
    a = random_array((4, 8), "float32").round()

    @T.prim_func
    def kernel(
        A: T.Tensor((4, 8), "float32"),
        C: T.Tensor((8,), "float32"),
        D: T.Tensor((2,), "uint32"),
        E: T.Tensor((4,), "float16"),
    ):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(2):
                T.atomic_addx4(C[i * 4], A[bx, i * 4])
            for i in T.Parallel(2):
                T.atomic_addx2(C[i * 2 + 4], A[bx, i * 2])
                T.atomic_or(D[i], T.uint32(1) << T.uint32(bx + 4 * i))
            old = T.atomic_load(A[bx, 3], memory_order="relaxed")
            T.atomic_store(E[bx], old * 2.0, memory_order="release")

    c = a.sum(axis=0)
    c[4:] += c[:4]
    arguments = {
        "A": a,
        "C": np.zeros(8, np.float32),
        "D": np.zeros(2, np.uint32),
        "E": np.zeros(4, np.float16),
    }
    expected = equals(C=c, D=np.array([0xF, 0xF0], np.uint32), E=(a[:, 3] * 2).astype(np.float16))
    check_everywhere(kernel, arguments, expected)


def test_dynamic_extents():
    a = random_array((50, 12), "int64")

    @T.prim_func
    def kernel(A: T.Tensor((T.dynamic("m"), 12), "int64"), C: T.Tensor((12,), "int64")):
        m = A.shape[0]
        with T.Kernel(T.ceildiv(m, 8), threads=32) as bx:
            for i, j in T.Parallel(8, 12):
                if bx * 8 + i < m:
                    T.atomic_add(C[j], A[bx * 8 + i, j])

    arguments = {"A": a, "C": np.zeros(12, np.int64)}
    check_everywhere(kernel, arguments, equals(C=a.sum(axis=0)))


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16"])
def test_blocks_that_run_at_once_lose_no_update(dtype):
    back = -1 if dtype == "float16" else 1  # float16 counts to 2048 only: up and down

    @T.prim_func
    def kernel(C: T.Tensor((1,), dtype), D: T.Tensor((512,), "int32")):
        with T.Kernel(512, threads=32) as bx:
            for k in T.serial(2000):
                for _ in T.Parallel(4):
                    T.atomic_add(C[0], T.if_then_else(k % 2 == 0, 1, back))
            for _ in T.Parallel(1):
                for k in T.serial(2000):
                    T.atomic_max(D[k % 512], bx)

    arguments = {"C": np.zeros(1, storage(dtype)), "D": np.zeros(512, np.int32)}
    found = run_native(kernel.program, arguments, "cpu")
    assert float(found["C"][0]) == 512 * 4 * 1000 * (1 + back)
    assert (found["D"] == 511).all()


def test_what_neighbours_held_before():
    a, b = random_array((16,), "float32"), random_array((16,), "float32", 1)

    @T.prim_func
    def kernel(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        C = T.empty((16,), "float32")
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(2):
                first = bx * 8 + i * 4
                held = T.atomic_addx4(A[first], B[first], return_prev=True)
                pair = T.atomic_addx2(A[first], B[first], return_prev=True)
                C[first : first + 4] = held
                C[first + 2 : first + 4] = pair
        return C

    c, total = a.copy(), a + b
    c.reshape(4, 4)[:, 2:] = total.reshape(4, 4)[:, :2]
    total.reshape(4, 4)[:, :2] += b.reshape(4, 4)[:, :2]
    check_everywhere(kernel, {"A": a, "B": b}, equals(A=total, C=c))


def test_neighbours_outside_the_tensor_are_left_alone():
    a, b = random_array((6,), "float32").round(), np.full(6, 10, np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((6,), "float32"), B: T.Tensor((6,), "float32")):
        C = T.empty((4, 2), "float32")
        D = T.empty((2, 4), "float32")
        with T.Kernel(1, threads=32) as bx:
            T.annotate_safe_value({A: 9})
            for i in T.Parallel(4):
                C[i, 0:2] = T.atomic_addx2(A[i * 2], B[i * 2], return_prev=True)
            for i in T.Parallel(2):
                D[i, 0:4] = T.atomic_addx4(A[i * 4], B[i * 4], return_prev=True)
                T.atomic_addx4(A[i * 4], B[i * 4])
        return C, D

    nine = np.full(2, 9, np.float32)
    pairs = np.concatenate([a, nine]).reshape(4, 2)
    fours = np.concatenate([a + b, nine]).reshape(2, 4)
    expected = equals(A=a + 3 * b, C=pairs, D=fours)
    check_everywhere(kernel, {"A": a, "B": b}, expected)
    expected(run_native(kernel.program, {"A": a, "B": b}, "sim:sm_80"))


@pytest.mark.parametrize("return_prev", [False, True])
def test_neighbours_are_slices_vectors_or_tensors(return_prev):
    a = random_array((4, 8), "float32").round()

    @T.prim_func
    def kernel(
        A: T.Tensor((4, 8), "float32"), C: T.Tensor((8,), "float32"), D: T.Tensor((4,), "float32")
    ):
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(4):
                T.atomic_addx2(C[i * 2 : i * 2 + 2], A[bx, i * 2 : i * 2 + 2], return_prev)
                pair = A[bx, i * 2 : i * 2 + 2]
                T.atomic_addx2(C[i * 2], pair, return_prev)
            for i in T.Parallel(2):
                ramp = T.Ramp(i * 4, 1, 4)
                T.atomic_addx4(C[ramp], A[bx, ramp], return_prev)
                T.atomic_addx4(D, A[bx, ramp], return_prev)
            for _ in T.Parallel(1):
                T.atomic_addx2(D[0], T.Broadcast(1.0, 2), return_prev)

    d = a.reshape(8, 4).sum(axis=0) + np.array([4, 4, 0, 0], np.float32)
    arguments = {"A": a, "C": np.zeros(8, np.float32), "D": np.zeros(4, np.float32)}
    check_executors(kernel, arguments, equals(C=3 * a.sum(axis=0), D=d))


def test_private_memory_takes_atomic_accesses_as_plain_ones():
    a = random_array((4, 8), "int32") % 100

    @T.prim_func
    def kernel(A: T.Tensor((4, 8), "int32")):
        B = T.empty((4, 6), "int32")
        with T.Kernel(4, threads=32) as bx:
            ends = T.alloc_local((2,), "int32")
            count = T.alloc_var("int32", init=0)
            row, total = T.alloc_local((2,), "int32"), T.alloc_local((2,), "int32")
            T.atomic_store(ends[0], A[bx, 0])
            ends[1] = A[bx, 0]
            total[0] = 0
            total[1] = 0
            for i in T.serial(8):
                T.atomic_max(ends[0], A[bx, i])
                T.atomic_min(ends[1], A[bx, i])
                before = T.atomic_add(count, 2, return_prev=True)
                if before == 6:
                    T.atomic_or(count, 1)
            row[0] = A[bx, 2]
            row[1] = A[bx, 3]
            T.atomic_add(total, A[bx, 0:2])
            T.atomic_add(total, row)
            T.atomic_max(total, 0)
            B[bx, 0] = T.atomic_load(ends[0])
            B[bx, 1] = ends[1]
            B[bx, 2] = count
            for i in T.unroll(2):
                B[bx, 3 + i] = total[i]
            B[bx, 5] = 0
        return B

    total = np.maximum(a[:, 0:2] + a[:, 2:4], 0)
    count = np.full(4, 17, np.int32)
    b = np.stack([a.max(1), a.min(1), count, total[:, 0], total[:, 1], 0 * count], axis=1)
    check_executors(kernel, {"A": a}, equals(B=b))
