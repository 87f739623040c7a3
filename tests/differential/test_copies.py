"""Every form of copy, between all scopes, inside and over the edge; fills; conversions."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    equals,
    random_array,
    storage,
)

A4 = random_array((3, 20, 4, 12), "float32", 3)
A2 = random_array((20, 12), "float32", 4)


def tile_of(scope, shape, dtype):
    return {"shared": T.alloc_shared, "fragment": T.alloc_fragment, "local": T.alloc_local}[scope](
        shape, dtype
    )


@pytest.mark.parametrize("first", ["shared", "fragment", "local"])
@pytest.mark.parametrize("second", ["shared", "fragment", "local"])
def test_a_tile_travels_through_the_scopes(first, second):
    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32")):
        B = T.empty((20, 12), "float32")
        with T.Kernel(2, 3, threads=128) as (bx, by):
            one = tile_of(first, (8, 8), "float32")
            two = tile_of(second, (8, 8), "float32")
            T.copy(A[by * 8, bx * 8], one)
            T.copy(one, two)
            T.copy(two, B[by * 8, bx * 8])
        return B

    check_everywhere(kernel, {"A": A2}, equals(B=A2))


@pytest.mark.parametrize(
    "dtype", ["float64", "float16", "bfloat16", "int8", "uint32", "int64", "bool"]
)
def test_every_dtype(dtype):
    a = random_array((20, 12), dtype)

    @T.prim_func
    def kernel(A: T.Tensor((20, 12), dtype)):
        B = T.empty((20, 12), dtype)
        with T.Kernel(2, threads=128) as bx:
            S = T.alloc_shared((11, 12), dtype)
            T.copy(A[bx * 11, 0], S)
            T.copy(S, B[bx * 11, 0])
        return B

    check_everywhere(kernel, {"A": a}, equals(B=a))


def test_slices_of_four_dimensions():
    @T.prim_func
    def kernel(A: T.Tensor((3, 20, 4, 12), "float32")):
        B = T.empty((3, 4, 20, 12), "float32")
        with T.Kernel(3, 4, 3, threads=128) as (b, h, m):
            S = T.alloc_shared((7, 12), "float32")
            T.copy(A[b, m * 7 : (m + 1) * 7, h, :], S)
            T.copy(S, B[b, h, m * 7 : (m + 1) * 7, :])
        return B

    check_everywhere(kernel, {"A": A4}, equals(B=A4.transpose(0, 2, 1, 3).copy()))


def test_rows_and_columns():
    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32")):
        R = T.empty((20, 12), "float32")
        C = T.empty((12, 20), "float32")
        with T.Kernel(20, threads=128) as i:
            row = T.alloc_fragment((12,), "float32")
            T.copy(A[i, 0], row)
            T.copy(row, R[i, 0:12])
            T.copy(row, C[0:12, i])
        return R, C

    check_everywhere(kernel, {"A": A2}, equals(R=A2, C=A2.T.copy()))


def test_from_global_to_global():
    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32"), B: T.Tensor((20, 12), "float32")):
        with T.Kernel(1, threads=128) as bx:
            T.copy(A[2:7, 0:5], B[10:15, 7:12])
            T.copy(A[19, 11], B[0, 0])
            T.copy(A[4, :], B[5, :])

    expected = np.zeros((20, 12), np.float32)
    expected[10:15, 7:12] = A2[2:7, 0:5]
    expected[0, 0] = A2[19, 11]
    expected[5] = A2[4]
    check_everywhere(kernel, {"A": A2, "B": np.zeros_like(A2)}, equals(B=expected))


@pytest.mark.parametrize("offset", [-5, -1, 0, 3, 17, 40])
def test_over_the_edge_on_all_sides(offset):
    """Elements outside read as zero and are not written; the offset is known only at run time."""

    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32"), B: T.Tensor((20, 12), "float32"), at: T.int32):
        with T.Kernel(1, threads=128) as bx:
            S = T.alloc_shared((8, 16), "float32")
            T.copy(A[at : at + 8, at - 2 : at + 14], S)
            T.copy(S, B[at + 1 : at + 9, at - 2 : at + 14])

    padded = np.zeros((120, 120), np.float32)
    padded[50:70, 50:62] = A2
    result = np.full((120, 120), -1, np.float32)
    result[51 + offset : 59 + offset, 48 + offset : 64 + offset] = padded[
        50 + offset : 58 + offset, 48 + offset : 64 + offset
    ]
    given = {"A": A2, "B": np.full_like(A2, -1), "at": offset}
    check_everywhere(kernel, given, equals(B=result[50:70, 50:62].copy()))


def test_the_safe_value_is_read_outside():
    @T.prim_func
    def kernel(A: T.Tensor((20, 12), "float32")):
        B = T.empty((24, 16), "float32")
        with T.Kernel(1, threads=128) as bx:
            T.annotate_safe_value({A: -7.5})
            S = T.alloc_shared((24, 16), "float32")
            T.copy(A[0:24, 0:16], S)
            T.copy(S, B)
        return B

    expected = np.full((24, 16), -7.5, np.float32)
    expected[:20, :12] = A2
    check_everywhere(kernel, {"A": A2}, equals(B=expected))


CONVERSIONS = [
    ("float32", "float16"),
    ("float32", "bfloat16"),
    ("float16", "float32"),
    ("float64", "float32"),
    ("int32", "int8"),
    ("int8", "int32"),
    ("int32", "float32"),
    ("bool", "int32"),
    ("float32", "bool"),
]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_copies_convert(source, target):
    a = random_array((9, 21), source)

    @T.prim_func
    def kernel(A: T.Tensor((9, 21), source)):
        B = T.empty((9, 21), target)
        with T.Kernel(1, threads=128) as bx:
            S = T.alloc_shared((9, 21), source)
            F = T.alloc_fragment((9, 21), target)
            T.copy(A, S)
            T.copy(S, F)
            T.copy(F, B)
        return B

    wide = a.astype(np.float32) if source.endswith("float16") else a
    check_everywhere(kernel, {"A": a}, equals(B=wide.astype(storage(target))))


@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16"])
def test_floats_truncate_toward_zero(source):
    a = np.linspace(0, 100, 9 * 21).reshape(9, 21).astype(storage(source))

    @T.prim_func
    def kernel(A: T.Tensor((9, 21), source)):
        I8 = T.empty((9, 21), "int8")
        U8 = T.empty((9, 21), "uint8")
        I32 = T.empty((9, 21), "int32")
        I64 = T.empty((9, 21), "int64")
        with T.Kernel(1, threads=128) as bx:
            for i, j in T.Parallel(9, 21):
                I8[i, j] = T.cast(-A[i, j], "int8")
                U8[i, j] = T.cast(A[i, j], "uint8")
                I32[i, j] = T.cast(-A[i, j], "int32")
                I64[i, j] = T.cast(-A[i, j], "int64")
        return I8, U8, I32, I64

    whole = np.trunc(a.astype(np.float64))
    expected = {"U8": whole.astype("uint8")}
    expected |= {f"I{bits}": (-whole).astype(f"int{bits}") for bits in (8, 32, 64)}
    check_everywhere(kernel, {"A": a}, equals(**expected))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_fills(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((10, 14), dtype), n: T.int32):
        with T.Kernel(1, threads=128) as bx:
            S = T.alloc_shared((10, 14), dtype)
            T.clear(S)
            T.fill(S[2:5, 3:14], 1)
            T.copy(S, A)
            T.fill(A[7, :], 1)
            T.fill(A[8 : 8 + n, 0:2], 1)

    expected = np.zeros((10, 14), dtype)
    expected[2:5, 3:] = 1
    expected[7] = 1
    expected[8:, :2] = 1
    given = {"A": np.ones((10, 14), dtype), "n": 5}
    check_everywhere(kernel, given, equals(A=expected))


def test_strided_tensors():
    stride = T.dynamic("stride")

    @T.prim_func
    def kernel(A: T.StridedTensor((20, 12), (stride, 1), "float32")):
        B = T.empty((20, 12), "float32")
        with T.Kernel(3, threads=128) as bx:
            S = T.alloc_shared((8, 12), "float32")
            T.copy(A[bx * 8, 0], S)
            T.copy(S, B[bx * 8, 0])
        return B

    a = np.arange(20 * 30, dtype=np.float32).reshape(20, 30)[:, 5:17]
    check_everywhere(kernel, {"A": a}, equals(B=a.copy()))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("shape", [(64, 48), (70, 50)], ids=str)
def test_tiles_that_are_read_down_their_columns(shape, dtype):
    """Of whole vectors of rows, of fewer, and one that another nest reads along its rows."""
    a = random_array(shape, dtype)
    rows, columns = shape

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype)):
        B, C = T.empty((columns, rows), dtype), T.empty((columns, rows), dtype)
        D = T.empty(shape, dtype)
        with T.Kernel(T.ceildiv(columns, 24), T.ceildiv(rows, 32), threads=128) as (bx, by):
            turned, both = (T.alloc_fragment((32, 24), dtype) for _ in range(2))
            few = T.alloc_shared((4, 24), dtype)
            T.copy(A[by * 32, bx * 24], turned)
            T.copy(A[by * 32, bx * 24], both)
            for j, i in T.Parallel(24, 32):
                B[bx * 24 + j, by * 32 + i] = turned[i, j]
            for k in T.serial(8):
                T.copy(A[by * 32 + k * 4, bx * 24], few)
                for i, j in T.Parallel(4, 24):
                    C[bx * 24 + j, by * 32 + k * 4 + i] = few[i, j] + both[k * 4 + i, j]
            for i, j in T.Parallel(32, 24):
                D[by * 32 + i, bx * 24 + j] = both[i, j]
        return B, C, D

    twice = (a.T + a.T).astype(storage(dtype))
    check_everywhere(kernel, {"A": a}, equals(B=a.T, C=twice, D=a))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float16", "int8"])
@pytest.mark.parametrize("block", [(16, 40), (80, 128)], ids=str)
def test_tensors_that_are_read_down_their_columns(block, dtype):
    """In every matrix of some, shifted beyond the edge, under a name, and along rows as well."""
    rows, columns = block
    a = random_array((2, 70, 70), dtype)

    @T.prim_func
    def kernel(A: T.Tensor((2, 70, 70), dtype)):
        B, C = T.empty((2, 70, 70), dtype), T.empty((2, 70, 70), dtype)
        with T.Kernel(T.ceildiv(70, columns), T.ceildiv(70, rows), 2) as (bx, by, bz):
            for i, j in T.Parallel(rows, columns):
                row, column = by * rows + i, bx * columns + j
                B[bz, column, row] = A[bz, row, column]
            for j, i in T.Parallel(columns, rows):
                C[bz, bx * columns + j, by * rows + i] = (
                    A[bz, by * rows + i + 3, bx * columns + j - 2]
                    + A[bz, bx * columns + j, by * rows + i]
                )
        return B, C

    turned = a.transpose(0, 2, 1)
    shifted = np.zeros_like(turned)
    shifted[:, 2:, :-3] = turned[:, :-2, 3:]
    expected = (shifted + a).astype(storage(dtype))
    check_everywhere(kernel, {"A": a}, equals(B=turned, C=expected))


@pytest.mark.parametrize(("shape", "threads"), [((20, 12), 128), ((4, 24), 32), ((3, 32), 64)])
def test_transposes(shape, threads):
    """Also where only some threads have an element to move: no barrier can be there."""

    @T.prim_func
    def kernel(A: T.Tensor(shape, "float32")):
        B = T.empty(shape[::-1], "float32")
        with T.Kernel(1, threads=threads) as bx:
            S = T.alloc_shared(shape, "float32")
            R = T.alloc_shared(shape[::-1], "float32")
            T.copy(A, S)
            T.transpose(S, R)
            T.copy(R, B)
        return B

    a = random_array(shape, "float32")
    check_executors(kernel, {"A": a}, equals(B=a.T.copy()))
