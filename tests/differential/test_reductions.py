"""Reductions along every dimension, scans, and the kernels that are made of them."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import math

import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import (
    check_everywhere,
    check_executors,
    equals,
    named,
    random_array,
    storage,
)
from tests.tolerances import assert_reduction, assert_ulp

REDUCE = {
    "sum": T.reduce_sum,
    "max": T.reduce_max,
    "min": T.reduce_min,
    "absmax": T.reduce_absmax,
    "abssum": T.reduce_abssum,
    "bitand": T.reduce_bitand,
    "bitor": T.reduce_bitor,
    "bitxor": T.reduce_bitxor,
    "prod": T.reduce_prod,
}
NUMPY = {
    "sum": np.add.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "absmax": lambda x, axis: np.abs(x).max(axis),
    "abssum": lambda x, axis: np.abs(x).sum(axis, dtype=x.dtype),
    "bitand": np.bitwise_and.reduce,
    "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
    "prod": lambda x, axis: np.multiply.reduce(x, axis, dtype=x.dtype),
}
COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "absmax": np.maximum}
COMBINE["prod"] = np.multiply


def reductions(kinds, shape, dim, dtype, out=None, scope="fragment", clear=True):
    """(a kernel whose B holds the reduction of A of each kind in turn, the shape of one)."""
    out = out or dtype
    kept = tuple(extent for axis, extent in enumerate(shape) if axis != dim)
    options = {"clear": clear}
    alloc = T.alloc_fragment if scope == "fragment" else T.alloc_shared

    def reduce_each(src, dst, target):
        for which, kind in enumerate(kinds):
            T.copy(target[(which, *[slice(None)] * len(kept))], dst)
            REDUCE[kind](src, dst, dim=dim, **({} if kind == "abssum" else options))
            T.copy(dst, target[(which, *[slice(None)] * len(kept))])

    @T.prim_func
    def kernel(A: T.Tensor(shape, dtype), B: T.Tensor((len(kinds), *kept), out)):
        with T.Kernel(1, threads=128) as bx:
            src = alloc(shape, dtype)
            dst = T.alloc_fragment(kept, out)
            T.copy(A, src)
            reduce_each(src, dst, B)

    return kernel, kept


def each_kind(kinds, check):
    """`check(kind, result)` holds for every kind."""

    def run(arrays):
        for which, kind in enumerate(kinds):
            with named(f"reduction '{kind}'"):
                check(kind, arrays["B"][which])

    return run


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(16, 32), (5, 19)], ids=str)
def test_integers(dim, shape):
    a = random_array(shape, "int32")
    a[0, 0] = 5
    kinds = list(REDUCE)
    kernel, _ = reductions(kinds, shape, dim, "int32")
    expected = np.stack([NUMPY[kind](a, axis=dim).astype(np.int32) for kind in kinds])
    given = {"A": a, "B": random_array(expected.shape, "int32")}
    check_everywhere(kernel, given, equals(B=expected))


@pytest.mark.covering(1)
@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_floats_of_three_dimensions(dim, dtype):
    shape, kinds = (6, 7, 20), ["sum", "max", "min", "absmax", "abssum"]
    a = random_array(shape, dtype)
    wide = a.astype(np.float64)
    kernel, kept = reductions(kinds, shape, dim, dtype, scope="shared")

    def check(kind, result):
        expected = NUMPY[kind](wide, axis=dim)
        if "sum" in kind:
            assert_reduction(result, expected, np.abs(wide).sum(dim), shape[dim])
        else:
            np.testing.assert_array_equal(result, expected.astype(storage(dtype)))

    given = {"A": a, "B": np.zeros((len(kinds), *kept), storage(dtype))}
    check_everywhere(kernel, given, each_kind(kinds, check))


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_reductions_that_add_to_what_is_there(dtype):
    kinds = [kind for kind in COMBINE if kind != "prod" or dtype == "int32"]
    a, b = random_array((9, 33), dtype, 1), random_array((len(kinds), 9), dtype, 2)
    if dtype == "float32":
        a, b = np.round(a * 8), np.round(b * 8)  # exact sums
    kernel, _ = reductions(kinds, (9, 33), 1, dtype, clear=False)
    rows = [COMBINE[kind](b[i], NUMPY[kind](a, axis=1)) for i, kind in enumerate(kinds)]
    check_everywhere(kernel, {"A": a, "B": b}, equals(B=np.stack(rows).astype(dtype)))


@pytest.mark.parametrize(
    ("shape", "dim"), [((9, 192), 0), ((5, 300), 0), ((3, 4, 272), 1), ((7, 2, 130), 0)], ids=str
)
def test_long_rows_are_combined_by_parts(shape, dim):
    """Strips that go up, and strips that leave columns over."""
    kinds = ["sum", "max", "absmax"]
    kept = tuple(extent for axis, extent in enumerate(shape) if axis != dim)
    a = np.round(random_array(shape, "float32", 1) * 8)  # exact sums
    b = np.round(random_array((len(kinds), *kept), "float32", 2) * 8)
    kernel, _ = reductions(kinds, shape, dim, "float32", clear=False)
    expected = [COMBINE[kind](b[i], NUMPY[kind](a, axis=dim)) for i, kind in enumerate(kinds)]
    check_everywhere(kernel, {"A": a, "B": b}, equals(B=np.stack(expected).astype(np.float32)))


@pytest.mark.parametrize(
    ("source", "target"),
    [("float16", "float32"), ("int8", "int32"), ("bfloat16", "float32"), ("int32", "int64")],
)
def test_elements_are_converted_first(source, target):
    a = random_array((8, 40), source)
    kernel, kept = reductions(["sum"], (8, 40), 1, source, target)
    wide = a.astype(np.float64) if "float" in target else a.astype(target)
    given = {"A": a, "B": np.zeros((1, *kept), target)}
    check_everywhere(
        kernel,
        given,
        lambda arrays: assert_reduction(arrays["B"][0], wide.sum(1), np.abs(wide).sum(1), 40),
    )


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_products(dim, dtype):
    """Powers of two, whose products are exact; integers keep the low bits."""
    rng = np.random.default_rng(7)
    powers = rng.choice([0.5, 1, 1, 2], (9, 19)) * rng.choice([-1, 1], (9, 19))
    a = powers if dtype in ("float32", "float16") else rng.integers(-9, 10, (9, 19))
    a = (rng.random((9, 19)) < 0.9 if dtype == "bool" else a).astype(dtype)
    expected = np.stack([np.multiply.reduce(a, axis=dim, dtype=dtype)])
    kernel, kept = reductions(["prod"], (9, 19), dim, dtype)
    given = {"A": a, "B": np.zeros((1, *kept), dtype)}
    check_everywhere(kernel, given, equals(B=expected))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("source", ["bool", "float32"])
def test_sums_of_truth_values(source, dim):
    """What is true of any is true of the sum."""
    a = np.zeros((6, 20), source)
    a[:2], a[3, 3] = 1, 1
    kernel, kept = reductions(["sum", "abssum"], a.shape, dim, source, "bool")
    expected = np.stack([a.any(dim)] * 2)
    check_everywhere(kernel, {"A": a, "B": np.zeros((2, *kept), bool)}, equals(B=expected))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("propagate", [False, True])
def test_nan_in_maxima(dtype, propagate):
    a = random_array((6, 34), dtype)
    a[1, 3], a[2, 33], a[3, :], a[4, 0] = math.nan, math.nan, math.nan, math.nan

    @T.prim_func
    def kernel(A: T.Tensor((6, 34), dtype)):
        High = T.empty((6,), dtype)
        Low = T.empty((6,), dtype)
        with T.Kernel(1, threads=128) as bx:
            src = T.alloc_fragment((6, 34), dtype)
            high = T.alloc_fragment((6,), dtype)
            low = T.alloc_fragment((6,), dtype)
            T.copy(A, src)
            T.reduce_max(src, high, dim=1, nan_propagate=propagate)
            T.reduce_min(src, low, dim=1, nan_propagate=propagate)
            T.copy(high, High)
            T.copy(low, Low)
        return High, Low

    wide = a.astype(np.float32)
    high, low = (np.maximum, np.minimum) if propagate else (np.fmax, np.fmin)
    expected = {
        "High": high.reduce(wide, axis=1, initial=-math.inf).astype(storage(dtype)),
        "Low": low.reduce(wide, axis=1, initial=math.inf).astype(storage(dtype)),
    }
    check_everywhere(kernel, {"A": a}, equals(**expected))


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", ["cumsum", "cummax"])
def test_scans(name, dim, reverse):
    scan = getattr(T, name)

    @T.prim_func
    def kernel(A: T.Tensor((11, 21), "int32")):
        B = T.empty((11, 21), "int32")
        C = T.empty((11, 21), "int32")
        with T.Kernel(1, threads=128) as bx:
            src = T.alloc_shared((11, 21), "int32")
            dst = T.alloc_shared((11, 21), "int32")
            T.copy(A, src)
            scan(src, dst, dim=dim, reverse=reverse)
            T.copy(dst, B)
            scan(src, dim=dim, reverse=reverse)
            T.copy(src, C)
        return B, C

    a = random_array((11, 21), "int32")
    ufunc = np.add if name == "cumsum" else np.maximum
    ordered = np.flip(a, dim) if reverse else a
    expected = ufunc.accumulate(ordered, dim, dtype=np.int32)
    expected = np.flip(expected, dim).copy() if reverse else expected
    check_everywhere(kernel, {"A": a}, equals(B=expected, C=expected))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_scans_of_floats_round_at_every_step(dtype):
    @T.prim_func
    def kernel(A: T.Tensor((7, 40), dtype)):
        B = T.empty((7, 40), dtype)
        with T.Kernel(1, threads=128) as bx:
            tile = T.alloc_fragment((7, 40), dtype)
            T.copy(A, tile)
            T.cumsum(tile, dim=1)
            T.copy(tile, B)
        return B

    a = random_array((7, 40), dtype)
    check_everywhere(kernel, {"A": a}, equals(B=np.add.accumulate(a, 1)))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_softmax(dtype):
    @T.prim_func
    def kernel(X: T.Tensor((21, 45), dtype)):
        Y = T.empty((21, 45), dtype)
        with T.Kernel(T.ceildiv(21, 8), threads=128) as bx:
            x = T.alloc_fragment((8, 45), "float32")
            high = T.alloc_fragment((8,), "float32")
            total = T.alloc_fragment((8,), "float32")
            T.copy(X[bx * 8, 0], x)
            T.reduce_max(x, high, dim=1)
            for i, j in T.Parallel(8, 45):
                x[i, j] = T.exp(x[i, j] - high[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(8, 45):
                x[i, j] /= total[i]
            T.copy(x, Y[bx * 8, 0])
        return Y

    x = random_array((21, 45), dtype) * storage(dtype).type(3)
    wide = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    expected = wide / wide.sum(1, keepdims=True)
    check_everywhere(kernel, {"X": x}, lambda arrays: assert_ulp(arrays["Y"], expected, 24))


def test_online_softmax_in_pieces():
    """The running maximum and sum of flash attention."""

    @T.prim_func
    def kernel(X: T.Tensor((10, 64), "float32")):
        Sum = T.empty((10,), "float32")
        with T.Kernel(1, threads=128) as bx:
            x = T.alloc_fragment((10, 16), "float32")
            high = T.alloc_fragment((10,), "float32")
            before = T.alloc_fragment((10,), "float32")
            piece = T.alloc_fragment((10,), "float32")
            total = T.alloc_fragment((10,), "float32")
            T.fill(high, -T.infinity("float32"))
            T.clear(total)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(X[:, k * 16 : (k + 1) * 16], x)
                T.copy(high, before)
                T.reduce_max(x, high, dim=1, clear=False)
                for i, j in T.Parallel(10, 16):
                    x[i, j] = T.exp2((x[i, j] - high[i]) * 1.44269504)
                T.reduce_sum(x, piece, dim=1)
                for i in T.Parallel(10):
                    total[i] = total[i] * T.exp2((before[i] - high[i]) * 1.44269504) + piece[i]
            T.copy(total, Sum)
        return Sum

    x = random_array((10, 64), "float32")
    expected = np.exp(x.astype(np.float64) - x.max(1, keepdims=True)).sum(1)
    check_everywhere(kernel, {"X": x}, lambda arrays: assert_ulp(arrays["Sum"], expected, 32))


def test_parts_of_tiles():
    """Slices as sources and destinations, which keep the dimensions of single indices."""

    @T.prim_func
    def kernel(A: T.Tensor((64, 64), "float32"), n: T.int32):
        Rows, Columns = T.empty((16,), "float32"), T.empty((4, 16), "float32")
        One, Added = T.empty((1,), "float32"), T.empty((8,), "float32")
        with T.Kernel(1, threads=64):
            S, F = T.alloc_shared((64, 64), "float32"), T.alloc_fragment((64, 64), "float32")
            rows, columns = T.alloc_fragment((16,), "float32"), T.alloc_shared((4, 16), "float32")
            one, added = T.alloc_fragment((1,), "float32"), T.alloc_fragment((8,), "float32")
            T.copy(A, S)
            T.copy(A, F)
            T.reduce_sum(S[n : n + 16, 3:40], rows, dim=1)
            T.copy(rows, Rows)
            for w in T.serial(4):
                T.reduce_max(S[0:16, w * 16 : w * 16 + 16], columns[w : w + 1, :], dim=0)
            T.copy(columns, Columns)
            T.reduce_absmax(S[5, :], one, dim=1)
            T.copy(one, One)
            T.fill(added, 1.0)
            T.reduce_sum(F[0:4, :], added[2:6], dim=1, clear=False)
            T.reduce_sum(F[4:6, :], added[6:8], dim=1)
            T.copy(added, Added)
        return Rows, Columns, One, Added

    a = np.round(random_array((64, 64), "float32") * 8)
    added = np.ones(8, np.float32)
    added[2:6] += a[:4].sum(1)
    added[6:8] = a[4:6].sum(1)
    expected = equals(
        Rows=a[7:23, 3:40].sum(1),
        Columns=a[:16].reshape(16, 4, 16).max(0),
        One=abs(a[5]).max(keepdims=True),
        Added=added,
    )
    check_executors(kernel, {"A": a, "n": 7}, expected)
