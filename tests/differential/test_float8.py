"""8-bit floats natively: every code widens to its value, and every value rounds as it should."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_executors, equals, run_native
from tests.tolerances import assert_contraction

KINDS = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]


def saturated(values, dtype):
    limit = float(ml_dtypes.finfo(dtype).max)
    return np.clip(values.astype(np.float32), -limit, limit).astype(dtype)


@pytest.mark.parametrize("name", KINDS)
def test_every_code_and_every_rounding(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    codes = np.arange(256, dtype=np.uint8).view(dtype)
    # Each value, the middle between neighbours, and the float32 just beside it.
    exact = np.sort(codes.astype(np.float32)[np.isfinite(codes.astype(np.float32))])
    middles = (exact[1:] + exact[:-1]) / 2
    near = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30], np.float32)
    values = np.concatenate([exact, middles, *near, extremes]).astype(np.float32)
    values = np.resize(values, 1024)

    @T.prim_func
    def kernel(C: T.Tensor((256,), name), A: T.Tensor((1024,), "float32")):
        W = T.empty((256,), "float32")
        N = T.empty((1024,), name)
        with T.Kernel(1, threads=128) as bx:
            T.copy(C, W)
            T.copy(A, N)
        return W, N

    expected = equals(W=codes.astype(np.float32), N=saturated(values, dtype))
    check_everywhere(kernel, {"C": codes, "A": values}, expected)
    found = run_native(kernel.program, {"C": codes, "A": values}, "cpu")["N"]
    zero = found.astype(np.float32) == 0
    np.testing.assert_array_equal(
        found.view(np.uint8)[zero], saturated(values, dtype).view(np.uint8)[zero]
    )


@pytest.mark.parametrize("name", [*KINDS, "float8_e8m0fnu"])
def test_copies_keep_every_code(name):
    """NaN in all its forms, and infinity, which no cast gives."""
    codes = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))

    @T.prim_func
    def kernel(A: T.Tensor((256,), name)):
        B, C = T.empty((256,), name), T.empty((253,), name)
        with T.Kernel(1, threads=32):
            shared, fragment = T.alloc_shared((256,), name), T.alloc_fragment((256,), name)
            T.copy(A, shared)
            T.copy(shared, fragment)
            for i in T.Parallel(256):
                B[i] = fragment[i]
            T.copy(fragment[3:], C)
        return B, C

    def check(arrays):
        for found, expected in (("B", codes), ("C", codes[3:])):
            np.testing.assert_array_equal(arrays[found].view(np.uint8), expected.view(np.uint8))

    check_executors(kernel, {"A": codes}, check)


@pytest.mark.parametrize("name", [*KINDS, "float8_e8m0fnu", "float16", "bfloat16"])
def test_elements_one_by_one_keep_every_bit(name):
    """A choice between elements keeps all but the payload of NaN."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    word, n = f"uint{8 * dtype.itemsize}", 256
    codes = np.arange(n, dtype=word) + {"float16": 0x7C00, "bfloat16": 0x7F80}.get(name, 0)
    codes = codes.astype(word)

    @T.prim_func
    def kernel(A: T.Tensor((n,), name)):
        Single, Read = T.empty((n,), name), T.empty((n,), word)
        Chosen, Holds = T.empty((n,), name), T.empty((n,), "bool")
        with T.Kernel(1, threads=128):
            tile = T.alloc_fragment((n,), name)
            one = T.alloc_var(name)
            T.copy(A, tile)
            for i in T.Parallel(n):
                Read[i] = T.reinterpret(tile[i], word)
                Chosen[i] = tile[i] if i % 3 != 0 else A[i]
                Holds[i] = T.cast(tile[i], "bool")
            for i in T.serial(n):
                one = A[i]
                Single[i] = one
        return Single, Read, Chosen, Holds

    def check(arrays):
        for copied in ("Single", "Read"):
            np.testing.assert_array_equal(arrays[copied].view(codes.dtype), codes, err_msg=copied)
        values = codes.view(dtype).astype(np.float32)
        np.testing.assert_array_equal(arrays["Chosen"].astype(np.float32), values)
        np.testing.assert_array_equal(arrays["Holds"], values != 0)

    check_everywhere(kernel, {"A": codes.view(dtype)}, check)


@pytest.mark.parametrize("name", KINDS[:2])
def test_quantised_product(name):
    dtype = np.dtype(getattr(ml_dtypes, name))
    rng = np.random.default_rng(3)
    a, b = (rng.integers(-4, 5, (32, 32)).astype(np.float32) for _ in range(2))

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), name)):
        C = T.empty((32, 32), "float32")
        S = T.empty((32,), name)
        with T.Kernel(1, threads=128) as bx:
            X = T.alloc_shared((32, 32), name)
            Y = T.alloc_shared((32, 32), name)
            largest = T.alloc_fragment((32,), name)
            acc = T.alloc_fragment((32, 32), "float32")
            T.copy(A, X)
            T.copy(B, Y)
            T.gemm(X, Y, acc, clear_accum=True)
            T.reduce_absmax(X, largest, dim=1)
            for i in T.Parallel(32):
                largest[i] = largest[i] * largest[i] + largest[i]
            T.copy(largest, S)
            T.copy(acc, C)
        return C, S

    top = np.abs(a).max(axis=1)
    scale = saturated(saturated(top * top, dtype).astype(np.float32) + top, dtype)
    arguments = {"A": a, "B": b.astype(dtype)}
    check_everywhere(kernel, arguments, equals(C=a @ b, S=scale))


def test_tfloat32_is_kept_as_float32():
    a = np.random.default_rng(4).integers(-9, 9, (32, 32)).astype(np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((32, 32), "float32")):
        C = T.empty((32, 32), "float32")
        with T.Kernel(1, threads=128) as bx:
            X = T.alloc_shared((32, 32), "tfloat32")
            acc = T.alloc_fragment((32, 32), "float32")
            T.copy(A, X)
            T.gemm(X, X, acc, clear_accum=True)
            T.copy(acc, C)
        return C

    check_everywhere(kernel, {"A": a}, equals(C=a @ a))


@pytest.mark.parametrize("names", [("float8_e4m3fn", "float8_e5m2"), ("float8_e5m2fnuz",) * 2])
def test_product_of_two_kinds(names):
    rng = np.random.default_rng(5)
    kinds = [np.dtype(getattr(ml_dtypes, name)) for name in names]
    a, b = (rng.integers(-4, 5, (48, 40)).astype(kind) for kind in kinds)

    @T.prim_func
    def kernel(A: T.Tensor((48, 40), names[0]), B: T.Tensor((48, 40), names[1])):
        C = T.empty((48, 48), "float32")
        with T.Kernel(1, threads=128):
            X = T.alloc_shared((48, 40), names[0])
            Y = T.alloc_fragment((48, 40), names[1])
            acc = T.alloc_fragment((48, 48), "float32")
            T.copy(A, X)
            T.copy(B, Y)
            T.gemm(X, Y, acc, transpose_B=True, clear_accum=True)
            T.copy(acc, C)
        return C

    exact = a.astype(np.float32) @ b.astype(np.float32).T
    check_everywhere(kernel, {"A": a, "B": b}, equals(C=exact))


@pytest.mark.parametrize("operand", ["float16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_a_sum_of_products_is_rounded_once(name, operand):
    kind = np.dtype(getattr(ml_dtypes, operand, operand))
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(kind) for shape in ((32, 64), (64, 32)))

    @T.prim_func
    def kernel(A: T.Tensor((32, 64), operand), B: T.Tensor((64, 32), operand)):
        C = T.empty((32, 32), name)
        with T.Kernel(1, threads=128):
            X, Y = T.alloc_shared((32, 64), operand), T.alloc_shared((64, 32), operand)
            acc = T.alloc_fragment((32, 32), name)
            T.copy(A, X)
            T.copy(B, Y)
            T.clear(acc)
            T.gemm(X, Y, acc)
            T.copy(acc, C)
        return C

    check_executors(kernel, {"A": a, "B": b}, lambda found: assert_contraction(found["C"], a, b))


@pytest.mark.parametrize("transposed", [False, True])
def test_every_product_of_a_loop_rounds(transposed):
    """Small integers, whose sums are exact: every executor rounds the same numbers."""
    kind = np.dtype(ml_dtypes.float8_e4m3fn)
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-3, 4, shape).astype(kind) for shape in ((32, 128), (128, 32)))
    expected = np.zeros((32, 32), kind)
    for k in range(0, 128, 32):
        step = a[:, k : k + 32].astype(np.float32) @ b[k : k + 32].astype(np.float32)
        expected = (expected.astype(np.float32) + step).astype(kind)
    given = np.ascontiguousarray(a.T) if transposed else a

    @T.prim_func
    def kernel(A: T.Tensor(given.shape, kind.name), B: T.Tensor((128, 32), kind.name)):
        C = T.empty((32, 32), kind.name)
        with T.Kernel(1, threads=128):
            X = T.alloc_shared((32, 32), kind.name)
            Y = T.alloc_shared((32, 32), kind.name)
            acc = T.alloc_fragment((32, 32), kind.name)
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=2):
                if transposed:
                    T.copy(A[k * 32, 0], X)
                else:
                    T.copy(A[0, k * 32], X)
                T.copy(B[k * 32, 0], Y)
                T.gemm(X, Y, acc, transpose_A=transposed)
            T.copy(acc, C)
        return C

    check_executors(kernel, {"A": given, "B": b}, equals(C=expected))
