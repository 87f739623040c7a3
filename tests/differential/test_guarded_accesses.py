"""Vectors, guards and casts: wide accesses of every dtype, what lies outside a tensor, values kept
by name, conversions of special values, elements that share bytes. The same on every executor.
"""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from functools import partial

import ml_dtypes
import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.cases import F16, F32, I32, Case, Cases, small
from tests.differential.harness import (
    check_executors,
    equals,
    random_array,
    storage,
)

case = Cases()


@case
def a_scalar_variable_is_index_and_value() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F32), N: T.Tensor((1,), I32)):
        B = T.empty((64, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            shift = T.alloc_var(I32, 1)
            shift = shift + N[0]
            for i, j in T.Parallel(64, 32):
                B[i, j] = A[(i + shift) % 64, j] + shift
            shift = shift * 2
            for i, j in T.Parallel(64, 32):
                B[i, j] = B[i, j] * shift
        return B

    a = small(64, 32)
    return kernel, {"A": a, "N": np.array([4], I32)}, equals(B=(np.roll(a, -5, 0) + 5) * 10)


FILLS = ["float8_e4m3fn", "float8_e5m2", "int8", "uint8", "bool", "bfloat16", "float16", "int64"]


@pytest.mark.parametrize("dtype", FILLS)
def test_fills_of_every_dtype_are_vectors(dtype):
    value = True if dtype == "bool" else 3

    @T.prim_func
    def kernel(N: T.Tensor((1,), dtype)):
        B, C = T.empty((16, 64), dtype), T.empty((16, 64), dtype)
        with T.Kernel(1, threads=32) as bx:
            s, f = T.alloc_shared((16, 64), dtype), T.alloc_fragment((16, 64), dtype)
            T.fill(s, value)
            T.copy(s, B)
            T.fill(f, N[0])
            T.copy(f, C)
        return B, C

    n = np.array([2]).astype(storage(dtype))
    b, c = np.full((16, 64), value).astype(n.dtype), np.full((16, 64), n[0], n.dtype)
    check_executors(kernel, {"N": n}, equals(B=b, C=c))


@case
def neighbours_in_front_and_behind() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((40, 64), F32)):
        B = T.empty((40, 64), F32)
        with T.Kernel(5, threads=32) as bx:
            for i, j in T.Parallel(8, 64):
                row = bx * 8 + i
                B[row, j] = A[row - 1, j] + 2.0 * A[row + 1, j] + 4.0 * A[row, j - 2]
                if j == 63:
                    B[row, j] = B[row, -1] + A[-1, -2]
        return B

    a = small(40, 64)
    wide = np.zeros((42, 68), F32)
    wide[1:41, 2:66] = a
    b = wide[:40, 2:66] + 2 * wide[2:, 2:66] + 4 * wide[1:41, :64]
    b[:, 63] += a[-1, -2]
    return kernel, {"A": a}, equals(B=b)


@case
def choices_between_dtypes_for_each_lane() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((32, 64), F16), B: T.Tensor((32, 64), "int8")):
        C, D = T.empty((32, 64), F32), T.empty((32, 64), "int8")
        with T.Kernel(1, threads=64) as bx:
            for i, j in T.Parallel(32, 64):
                C[i, j] = T.if_then_else(B[i, j] > 0, A[i, j], B[i, j])
                D[i, j] = T.Select(A[i, j] > 0, B[i, j], T.cast(A[i, j], "int8"))
        return C, D

    a, b = small(32, 64, dtype=F16), small(32, 64, dtype="int8")
    c = np.where(b > 0, a, b.astype(F16)).astype(F32)
    return kernel, {"A": a, "B": b}, equals(C=c, D=np.where(a > 0, b, a.astype("int8")))


@case
def indices_of_64_bits() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F32), At: T.Tensor((16,), "int64")):
        B = T.empty((16, 32), F32)
        with T.Kernel(1, threads=32) as bx:
            s, at = T.alloc_shared((16, 32), F32), T.alloc_shared((16,), "int64")
            T.copy(At, at)
            for i, j in T.Parallel(16, 32):
                s[i, j] = A[at[i], j]
            for i, j in T.Parallel(16, 32):
                B[i, j] = s[15 - i, j] + A[At[i] - 1, j]
        return B

    a, i = small(64, 32), small(16, dtype="int64", low=0, high=64)
    before = np.where(i[:, None] > 0, a[i - 1], 0)
    return kernel, {"A": a, "At": i}, equals(B=a[i][::-1] + before)


@case
def a_name_keeps_what_was_read_before_an_update() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), F32)):
        B = T.empty((64, 32), F32)
        with T.Kernel(1, threads=64) as bx:
            f, s = T.alloc_fragment((64, 32), F32), T.alloc_shared((64, 32), F32)
            T.copy(A, f)
            T.copy(A, s)
            for i, j in T.Parallel(64, 32):
                x = f[i, j] * 2.0
                y = s[i, j] + x
                f[i, j] = y
                s[i, j] = x
                A[i, j] = A[i, j] + 1.0
                B[i, j] = x * 100.0 + y * 10.0 + f[i, j] + s[i, j] + A[i, j]
        return B

    a = small(64, 32)
    x, y = 2 * a, 3 * a
    return kernel, {"A": a}, equals(B=x * 100 + y * 10 + y + x + a + 1, A=a + 1)


@case
def a_condition_is_asked_again_after_a_branch_changed_it() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 32), I32)):
        B = T.empty((64, 32), I32)
        with T.Kernel(1, threads=64) as bx:
            f = T.alloc_fragment((64, 32), I32)
            T.copy(A, f)
            for i, j in T.Parallel(64, 32):
                if f[i, j] > 0:
                    f[i, j] = -f[i, j]
                if f[i, j] > 0:
                    f[i, j] = 100
                if A[i, j] == 0:
                    f[i, j] = 7
                if A[i, j] == 0:
                    f[i, j] = f[i, j] + 1
            T.copy(f, B)
        return B

    a = small(64, 32, dtype=I32)
    return kernel, {"A": a}, equals(B=np.where(a == 0, 8, -abs(a)))


@case
def a_condition_in_a_loop_depends_on_what_the_loop_changes() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64,), I32), N: T.Tensor((1,), I32)):
        B = T.empty((64,), I32)
        with T.Kernel(1, threads=64) as bx:
            f = T.alloc_fragment((64,), I32)
            T.copy(A, f)
            for k in T.serial(5):
                for i in T.Parallel(64):
                    if N[0] > 2:
                        f[i] = f[i] * 2
                    else:
                        f[i] = f[i] + k
                    if f[i] > 10:
                        f[i] = f[i] - 11
            T.copy(f, B)
        return B

    a = small(64, dtype=I32)
    f = a.copy()
    for _ in range(5):
        f = f * 2
        f = np.where(f > 10, f - 11, f)
    return kernel, {"A": a, "N": np.array([3], I32)}, equals(B=f)


@case
def safe_values_are_converted() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((30, 50), F16), Sum: T.Tensor((50,), F32)):
        B, Old = T.empty((32, 64), F32), T.empty((64,), F32)
        with T.Kernel(1, threads=64) as bx:
            T.annotate_safe_value({A: 2.5, Sum: 9.0})
            s = T.alloc_shared((32, 64), F32)
            T.copy(A[0:32, 0:64], s)
            for i, j in T.Parallel(32, 64):
                B[i, j] = s[i, j] + T.cast(A[i, j + 1], I32)
            for j in T.Parallel(64):
                Old[j] = T.atomic_add(Sum[j], 1.0, return_prev=True)
        return B, Old

    a, total = small(30, 50, dtype=F16), small(50)
    s = np.full((32, 65), 2.5, F32)
    s[:30, :50] = a
    old = np.full(64, 9, F32)
    old[:50] = total
    expected = {"B": s[:, :64] + np.trunc(s[:, 1:]), "Old": old, "Sum": total + 1}
    return kernel, {"A": a, "Sum": total}, equals(**expected)


@case
def rows_are_gathered_by_indices_that_may_lie_outside() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((20, 64), F16), At: T.Tensor((32,), I32)):
        B, C = T.empty((32, 64), F16), T.empty((32, 64), F16)
        with T.Kernel(1, threads=64) as bx:
            at, s = T.alloc_shared((32,), I32), T.alloc_shared((32, 64), F16)
            T.copy(At, at)
            for i, j in T.Parallel(32, 64):
                s[i, j] = A[at[i], j]
            for i, j in T.Parallel(32, 64):
                B[i, j] = s[i, 63 - j]
                C[i, j] = T.if_then_else(At[i] >= 0, A[At[i] * 2, j], T.float16(1.0))
        return B, C

    a, i = small(20, 64, dtype=F16), small(32, dtype=I32, low=-5, high=25)
    rows = np.zeros((64, 64), F16)
    rows[:20] = a
    b = np.where((i[:, None] >= 0), rows[i], 0)[:, ::-1].astype(F16)
    return kernel, {"A": a, "At": i}, equals(B=b, C=np.where(i[:, None] >= 0, rows[i * 2], 1))


@case
def regions_whose_extents_are_values() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((64, 64), F16), N: T.Tensor((2,), I32)):
        B = T.empty((32, 64), F16)
        with T.Kernel(1, threads=64) as bx:
            s = T.alloc_shared((32, 64), F16)
            T.fill(s, 9.0)
            n, m = N[0], N[1]
            T.copy(A[m : m + n, 0:64], s[0:n, 0:64])
            T.fill(s[n : n + 3, 0:32], 1.0)
            T.copy(s, B)
        return B

    a = small(64, 64, dtype=F16)
    b = np.full((32, 64), 9, F16)
    b[:13], b[13:16, :32] = a[5:18], 1
    return kernel, {"A": a, "N": np.array([13, 5], I32)}, equals(B=b)


@pytest.mark.parametrize("stages", [0, 3])
@pytest.mark.parametrize(("m", "n", "k"), [(33, 40, 24), (31, 17, 37), (64, 64, 32)])
def test_nothing_beyond_the_edges_gets_into_a_product(stages, m, n, k):
    """The operands are parts of tensors whose other elements are NaN."""

    @T.prim_func
    def kernel(A: T.StridedTensor((m, k), (96, 1), F16), B: T.StridedTensor((k, n), (96, 1), F16)):
        C = T.empty((m, n), F32)
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=64) as (bx, by):
            a, b = T.alloc_shared((32, 32), F16), T.alloc_shared((32, 32), F16)
            c = T.alloc_fragment((32, 32), F32)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, 32), num_stages=stages):
                T.copy(A[by * 32, ko * 32], a)
                T.copy(B[ko * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])
        return C

    wide = [np.full((96, 96), np.nan, F16) for _ in range(2)]
    wide[0][:m, :k], wide[1][:k, :n] = small(m, k, dtype=F16), small(k, n, dtype=F16)
    a, b = wide[0][:m, :k], wide[1][:k, :n]
    expected = a.astype(F32) @ b.astype(F32)
    for target in ("cpu", "sim:sm_80"):
        np.testing.assert_array_equal(tw.compile(kernel, target=target)(a, b), expected)


SPECIAL = [0.0, -0.0, 1.0, -1.5, np.nan, np.inf, -np.inf, 65504.0, 65520.0, 1e-8, 6e-8, 448.0]
SPECIAL += [465.0, 3.3895e38, 2.0**-126, 2.0**-133, 2.0**-134, 1.00390625, 1.01171875, 240.0, 1e5]


def conversions(dtype: str) -> Case:
    """To a small float and back, alone and in vectors, of values and of their negatives."""
    count = 64

    @T.prim_func
    def kernel(A: T.Tensor((count,), F32)):
        B, C = T.empty((count,), dtype), T.empty((count,), F32)
        D = T.empty((count,), dtype)
        with T.Kernel(1, threads=32) as bx:
            f, g = T.alloc_fragment((count,), F32), T.alloc_fragment((count,), dtype)
            T.copy(A, f)
            T.copy(f, g)
            T.copy(g, B)
            T.copy(g, C)
            for i in T.Parallel(count):
                D[i] = T.cast(A[count - 1 - i], dtype)
        return B, C, D

    a = np.resize(np.array(SPECIAL + [-x for x in SPECIAL], F32), count)
    b = tw.compile(kernel, target="cpu").simulate(a, stage="tile").outputs[0]
    assert np.isnan(b.astype(F32)[4]) and b.astype(F32)[3] == -1.5
    if dtype == "bfloat16":
        expected = a.astype(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(b.astype(F32), expected.astype(F32))
    return kernel, {"A": a}, equals(B=b, C=b.astype(F32), D=b[::-1].copy())


for _dtype in (F16, "bfloat16", "float8_e4m3fn", "float8_e5m2"):
    case[f"special_values_become_{_dtype}"] = partial(conversions, _dtype)


@case
def pairs_of_bytes_are_parts_of_registers() -> Case:
    """Wide elements arrive by two, and four bytes share a register."""

    @T.prim_func
    def kernel(A: T.Tensor((16, 32), "int64"), B: T.Tensor((16, 37), "float64")):
        C, D = T.empty((16, 32), "float64"), T.empty((16, 32), "int64")
        E = T.empty((16, 32), "int64")
        with T.Kernel(1, threads=64) as bx:
            c, d = T.alloc_fragment((16, 32), "float8_e5m2"), T.alloc_fragment((16, 32), "int8")
            e = T.alloc_fragment((16, 32), "uint8")
            T.copy(A, c)
            T.copy(A, d)
            T.copy(B[0:16, 2:34], e)
            for i, j in T.Parallel(16, 32):
                d[i, j] = d[i, j] + T.cast(c[i, j], "int8")
            T.copy(c, C)
            T.copy(d, D)
            T.copy(e, E)
        return C, D, E

    a, b = small(16, 32, dtype="int64"), small(16, 37, dtype="float64", low=0, high=9)
    expected = {"C": a.astype("float64"), "D": a * 2, "E": b[:, 2:34].astype("int64")}
    return kernel, {"A": a, "B": b}, equals(**expected)


@case
def codes_of_four_bits_are_unpacked_with_and_without_sign() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((16, 64), "int4"), B: T.Tensor((16, 64), "uint4")):
        C, D = T.empty((16, 64), I32), T.empty((16, 64), F16)
        with T.Kernel(1, threads=32) as bx:
            a, b = T.alloc_shared((16, 64), "int4"), T.alloc_fragment((16, 64), "uint4")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(16, 64):
                C[i, j] = T.cast(a[i, 63 - j], I32) + T.cast(b[i, j], I32)
                D[i, j] = T.cast(b[i, j], F16)
        return C, D

    codes = np.random.default_rng(0).integers(0, 256, (2, 16, 32), dtype=np.uint8)
    low, high = codes & 15, codes >> 4
    logical = np.stack([low, high], 3).reshape(2, 16, 64).astype(I32)
    signed = np.where(logical[0] > 7, logical[0] - 16, logical[0])
    check = equals(C=signed[:, ::-1] + logical[1], D=logical[1].astype(F16))
    return kernel, {"A": codes[0].view(np.int8), "B": codes[1]}, check


@case
def a_word_of_codes_is_taken_apart() -> Case:
    @T.prim_func
    def kernel(A: T.Tensor((16, 8), "uint32")):
        B, C = T.empty((16, 64), "int8"), T.empty((16, 8), I32)
        with T.Kernel(1, threads=32) as bx:
            f = T.alloc_fragment((16, 8), "uint32")
            T.copy(A, f)
            for i, j in T.Parallel(16, 64):
                code = (f[i, j // 8] >> T.cast(4 * (j % 8), "uint32")) & T.uint32(15)
                B[i, j] = T.cast(code, "int8") - T.int8(8)
            for i, j in T.Parallel(16, 8):
                C[i, j] = T.cast(f[i, j], I32) >> 28
        return B, C

    a = random_array((16, 8), "uint32")
    codes = (a[:, :, None] >> (4 * np.arange(8, dtype="uint32"))) & 15
    b = codes.reshape(16, 64).astype("int8") - np.int8(8)
    return kernel, {"A": a}, equals(B=b, C=a.view(I32) >> 28)


@pytest.mark.parametrize("at", [2**31 - 1, 2**31 - 3, 2**31 - 8, -(2**31), 3, -2])
def test_indices_that_wrap_around_are_outside(at):
    @T.prim_func
    def kernel(A: T.Tensor((4, 6), F32), At: T.Tensor((1,), I32), n: T.int32):
        B, C = T.empty((4, 6), F32), T.empty((4, 6), F32)
        with T.Kernel(1, threads=32):
            tile = T.alloc_fragment((8, 8), F32)
            T.fill(B, 1)
            T.fill(C, 1)
            T.fill(tile, 2)
            T.copy(tile, B[n, n])
            m = At[0]
            for i, j in T.Parallel(8, 8):
                C[m + i, m + j] = A[m + i, m + j]
        return B, C

    a = small(4, 6)
    inside = np.zeros((4, 6), bool)
    inside[max(at, 0) : max(at + 8, 0), max(at, 0) : max(at + 8, 0)] = True
    arguments = {"A": a, "At": np.array([at], I32), "n": at}
    expected = {"B": np.where(inside, np.float32(2), 1), "C": np.where(inside, a, 1)}
    check_executors(
        kernel, arguments, equals(**{name: v.astype(F32) for name, v in expected.items()})
    )


@pytest.mark.parametrize("name", case)
def test_results(name):
    case.check(name)


@pytest.mark.nvrtc
@pytest.mark.parametrize("name", case)
def test_executed_ptx(name):
    case.check_ptx(name)
