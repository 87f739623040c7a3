"""Matrix products: transpositions, dtypes, whole and ragged tiles, static and dynamic shapes."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import ALL_LEVELS, check_everywhere, equals, random_array
from tests.tolerances import assert_contraction, assert_within, contraction_bound, epsilon

DTYPES = {
    "float64": "float64",
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
}


def matmul(m, n, k, dtype, acc, out, trans_a=False, trans_b=False, tile=(32, 32, 16), stages=2):
    bm, bn, bk = tile

    @T.prim_func
    def kernel(
        A: T.Tensor((k, m) if trans_a else (m, k), dtype),
        B: T.Tensor((n, k) if trans_b else (k, n), dtype),
    ):
        C = T.empty((m, n), out)
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            A_shared = T.alloc_shared((bk, bm) if trans_a else (bm, bk), dtype)
            B_shared = T.alloc_shared((bn, bk) if trans_b else (bk, bn), dtype)
            C_local = T.alloc_fragment((bm, bn), acc)
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=stages):
                if trans_a:
                    T.copy(A[ko * bk, by * bm], A_shared)
                else:
                    T.copy(A[by * bm, ko * bk], A_shared)
                if trans_b:
                    T.copy(B[bx * bn, ko * bk], B_shared)
                else:
                    T.copy(B[ko * bk, bx * bn], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=trans_a, transpose_B=trans_b)
            T.copy(C_local, C[by * bm, bx * bn])
        return C

    return kernel


def operands(m, n, k, dtype, trans_a=False, trans_b=False):
    a, b = random_array((m, k), dtype, 1), random_array((k, n), dtype, 2)
    given = {"A": a.T.copy() if trans_a else a, "B": b.T.copy() if trans_b else b}
    return a, b, given


@pytest.mark.covering(1)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("trans_a", "trans_b"), [(False, False), (False, True), (True, False), (True, True)]
)
def test_every_transposition_and_dtype_on_a_ragged_shape(dtype, trans_a, trans_b):
    m, n, k = 37, 45, 21
    a, b, given = operands(m, n, k, dtype, trans_a, trans_b)
    acc = DTYPES[dtype]
    kernel = matmul(m, n, k, dtype, acc, acc, trans_a, trans_b)
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_shapes_that_the_tiles_divide(dtype):
    a, b, given = operands(64, 32, 48, dtype)
    acc = DTYPES[dtype]
    kernel = matmul(64, 32, 48, dtype, acc, acc)
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


TILES = [(16, 16, 16), (48, 24, 8), (64, 16, 32), (8, 64, 4), (1, 32, 16), (5, 7, 3), (16, 1, 16)]


@pytest.mark.covering(1)
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tiles_of_any_shape(tile, dtype):
    m, n, k = 19, 25, 9
    a, b, given = operands(m, n, k, dtype)
    acc = DTYPES[dtype]
    kernel = matmul(m, n, k, dtype, acc, acc, tile=tile)
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (1, 64, 7), (64, 1, 7), (3, 5, 1), (32, 32, 17)], ids=str
)
def test_thin_shapes(shape):
    m, n, k = shape
    a, b, given = operands(m, n, k, "float32")
    kernel = matmul(m, n, k, "float32", "float32", "float32")
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_results_are_rounded_once_to_a_16_bit_output(dtype):
    m, n, k = 40, 36, 50
    a, b, given = operands(m, n, k, dtype)
    kernel = matmul(m, n, k, dtype, "float32", dtype)
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_16_bit_accumulator_is_rounded_after_each_product(dtype):
    m, n, k, bk = 32, 32, 48, 16
    a, b, given = operands(m, n, k, dtype)
    kernel = matmul(m, n, k, dtype, dtype, dtype, tile=(32, 32, bk))
    reference = a.astype(np.float64) @ b.astype(np.float64)
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    bound = contraction_bound(a, b, reference, dtype_of(a)) + k // bk * epsilon(a.dtype) * magnitude
    check_everywhere(kernel, given, lambda arrays: assert_within(arrays["C"], reference, bound))


def dtype_of(array):
    return array.dtype


def test_dynamic_shapes():
    m, n, k = T.dynamic("m, n, k")

    @T.prim_func
    def kernel(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            A_shared = T.alloc_shared((32, 16), "float32")
            B_shared = T.alloc_shared((16, 32), "float32")
            C_local = T.alloc_fragment((32, 32), "float32")
            T.clear(C_local)
            for ko in T.Pipelined(T.ceildiv(k, 16), num_stages=3):
                T.copy(A[by * 32, ko * 16], A_shared)
                T.copy(B[ko * 16, bx * 32], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * 32, bx * 32])

    for shape in [(32, 32, 16), (33, 70, 5), (1, 31, 40)]:
        a, b, given = operands(*shape, "float32")
        given["C"] = np.full((shape[0], shape[1]), np.nan, np.float32)
        check_everywhere(
            kernel, given, lambda arrays, a=a, b=b: assert_contraction(arrays["C"], a, b)
        )


def test_batches_and_a_clear_that_is_computed():
    @T.prim_func
    def kernel(A: T.Tensor((3, 40, 24), "float32"), B: T.Tensor((3, 24, 20), "float32")):
        C = T.empty((3, 40, 20), "float32")
        with T.Kernel(2, 3, threads=128) as (bx, batch):
            A_shared = T.alloc_shared((1, 20, 8), "float32")
            B_shared = T.alloc_shared((8, 20), "float32")
            C_local = T.alloc_fragment((20, 20), "float32")
            for ko in T.serial(3):
                T.copy(A[batch, bx * 20 : (bx + 1) * 20, ko * 8 : (ko + 1) * 8], A_shared)
                T.copy(B[batch, ko * 8 : (ko + 1) * 8, :], B_shared)
                T.gemm(A_shared, B_shared, C_local, clear_accum=ko == 0)
            T.copy(C_local, C[batch, bx * 20, 0])
        return C

    a, b = random_array((3, 40, 24), "float32", 1), random_array((3, 24, 20), "float32", 2)

    def check(arrays):
        for batch in range(3):
            assert_contraction(arrays["C"][batch], a[batch], b[batch])

    check_everywhere(kernel, {"A": a, "B": b}, check)


def test_a_product_of_a_product():
    """The first result, cast to the operands' dtype, is the second product's left side."""

    @T.prim_func
    def kernel(
        Q: T.Tensor((32, 16), "float16"),
        K: T.Tensor((48, 16), "float16"),
        V: T.Tensor((48, 24), "float16"),
    ):
        Out = T.empty((32, 24), "float32")
        with T.Kernel(1, threads=128) as bx:
            Q_shared = T.alloc_shared((32, 16), "float16")
            K_shared = T.alloc_shared((16, 16), "float16")
            V_shared = T.alloc_shared((16, 24), "float16")
            S = T.alloc_fragment((32, 16), "float32")
            S_cast = T.alloc_fragment((32, 16), "float16")
            result = T.alloc_fragment((32, 24), "float32")
            T.copy(Q, Q_shared)
            T.clear(result)
            for ko in T.Pipelined(3, num_stages=2):
                T.copy(K[ko * 16 : ko * 16 + 16, :], K_shared)
                T.clear(S)
                T.gemm(Q_shared, K_shared, S, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)
                T.copy(S, S_cast)
                T.copy(V[ko * 16 : ko * 16 + 16, :], V_shared)
                T.gemm(S_cast, V_shared, result)
            T.copy(result, Out)
        return Out

    q, k, v = (
        random_array(shape, "float16", i) for i, shape in enumerate([(32, 16), (48, 16), (48, 24)])
    )
    scores = q.astype(np.float64) @ k.astype(np.float64).T
    reference = scores @ v.astype(np.float64)
    bound = 2 * epsilon(np.float16) * (np.abs(scores) @ np.abs(v.astype(np.float64))) + 1e-4
    check_everywhere(
        kernel,
        {"Q": q, "K": k, "V": v},
        lambda arrays: assert_within(arrays["Out"], reference, bound),
    )


OTHER_DTYPES = [
    ("uint8", "int32"),
    ("int16", "int32"),
    ("int64", "int64"),
    ("int8", "int8"),
    ("float16", "float64"),
    ("int8", "float32"),
]


@pytest.mark.parametrize(("dtype", "acc"), OTHER_DTYPES)
def test_other_pairs_of_dtypes(dtype, acc):
    m, n, k = 21, 18, 24
    a, b, given = operands(m, n, k, dtype)
    if dtype == "int8" and acc == "float32":
        a, b = a.astype(np.float32), b.astype(np.float32)
    kernel = matmul(m, n, k, dtype, acc, acc, tile=(16, 16, 8))
    check_everywhere(
        kernel, given, lambda arrays: assert_contraction(arrays["C"], a, b), ALL_LEVELS
    )


def test_operands_in_fragments_and_parts_of_tiles():
    @T.prim_func
    def kernel(A: T.Tensor((24, 40), "float32"), B: T.Tensor((40, 24), "float32")):
        C = T.empty((24, 24), "float32")
        with T.Kernel(1, threads=128) as bx:
            a = T.alloc_fragment((24, 40), "float32")
            b = T.alloc_shared((40, 24), "float32")
            c = T.alloc_shared((24, 24), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.fill(c, 1.0)
            T.gemm(a, b, c)
            T.gemm(a[0:8, 0:16], b[8:24, 0:24], c[8:16, :])
            T.copy(c, C)
        return C

    a, b, _ = operands(24, 24, 40, "float32")
    a, b = np.round(a * 4), np.round(b * 4)  # exact products
    expected = a @ b + 1
    expected[8:16] += a[0:8, 0:16] @ b[8:24]
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=expected))


def test_bfloat16_panels_that_change_after_packing():
    """The second factor becomes denormal in its tile: a product that flushed it would be zero."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "bfloat16"), B: T.Tensor((64, 128), "bfloat16")):
        C = T.empty((64, 128), "float32")
        with T.Kernel(1, threads=128):
            A_shared = T.alloc_shared((64, 64), "bfloat16")
            B_shared = T.alloc_shared((64, 128), "bfloat16")
            C_local = T.alloc_fragment((64, 128), "float32")
            T.copy(A, A_shared)
            T.copy(B, B_shared)
            for i, j in T.Parallel(64, 128):
                B_shared[i, j] = B_shared[i, j] * T.bfloat16(2.0**-120)
            T.gemm(A_shared, B_shared, C_local, clear_accum=True)
            T.copy(C_local, C)
        return C

    a = np.full((64, 64), 2.0**100, np.float32).astype(ml_dtypes.bfloat16)
    b = np.full((64, 128), 2.0**-10, np.float32).astype(ml_dtypes.bfloat16)
    check_everywhere(
        kernel, {"A": a, "B": b}, equals(C=np.full((64, 128), 64 * 2.0**-30, np.float32))
    )
