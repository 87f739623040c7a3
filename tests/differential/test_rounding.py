"""Directed rounding, against exact rational arithmetic."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from fractions import Fraction
from functools import cache
from math import isqrt

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, run_native, storage

MODES = ("rn", "rz", "ru", "rd")


def interesting(dtype, seed):
    """Numbers of all sizes, neighbours of powers of two, and the ends of the range."""
    rng = np.random.default_rng(seed)
    info = ml_dtypes.finfo(dtype)
    part = 3 if np.dtype(dtype) == np.float64 else 2
    low = int(np.log2(float(info.tiny))) // part + 2
    high = int(np.log2(float(info.max))) // part - 2
    scale = 2.0 ** rng.integers(low, high, 220)
    values = (rng.uniform(-2, 2, 220) * scale).astype(dtype)
    ends = np.array([1, -1, 1.5, 3, 0.1, -7, float(info.max), -float(info.max)])
    near = np.nextafter(np.array([1, 2, -4, 0.5], dtype), np.array(0, dtype))
    return np.resize(np.concatenate([ends.astype(dtype), near, values]), 128).astype(dtype)


def rounded(exact, mode, dtype):
    """The number of `dtype` next to a rational number in a direction."""
    dtype = np.dtype(dtype)
    largest = Fraction(float(ml_dtypes.finfo(dtype).max))
    if abs(exact) > largest:
        top = np.array(float(largest), dtype)
        outwards = (mode == "ru") == (exact > 0) and mode != "rz"
        if mode == "rn":
            ulp = largest - Fraction(float(np.nextafter(top, np.array(0, dtype))))
            outwards = abs(exact) >= largest + ulp / 2
        size = np.array(np.inf, dtype) if outwards else top
        return size if exact > 0 else -size
    found = np.array(float(exact), dtype) if dtype != np.float64 else np.float64(exact)
    found = np.array(found, dtype)
    while Fraction(float(found)) > exact:
        found = np.nextafter(found, np.array(-np.inf, dtype))
    above = np.nextafter(found, np.array(np.inf, dtype))
    if Fraction(float(found)) == exact or mode == "rd" or (mode == "rz" and exact > 0):
        return found
    if mode in ("ru", "rz"):
        return above
    low, high = exact - Fraction(float(found)), Fraction(float(above)) - exact
    if low != high:
        return found if low < high else above
    return found if not int(found.view(f"u{dtype.itemsize}")) & 1 else above


def root(value, mode, dtype):
    """The square root: exact to more bits than any dtype has."""
    return rounded(exact_root(value), mode, dtype)


@cache  # it is the same in every direction
def exact_root(value):
    scaled = value * (1 << 4000)
    whole = isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(whole, 1 << 2000)
    return exact if exact * exact == value else exact + Fraction(1, 1 << 2001)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arithmetic_in_every_direction(dtype):
    a, b, c = (interesting(np.dtype(dtype), seed) for seed in range(3))
    with np.errstate(over="ignore"):
        products = np.nan_to_num((-a.astype(np.float64) * b).astype(dtype))
    c[::2] = products[::2]  # so that sums lose almost all

    @T.prim_func
    def kernel(A: T.Tensor((128,), dtype), B: T.Tensor((128,), dtype), C: T.Tensor((128,), dtype)):
        R = T.empty((7, 4, 128), dtype)
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                for m, mode in enumerate(MODES):
                    R[0, m, i] = T.ieee_add(A[i], B[i], mode)
                    R[1, m, i] = T.ieee_sub(A[i], B[i], mode)
                    R[2, m, i] = T.ieee_mul(A[i], B[i], mode)
                    R[3, m, i] = T.ieee_fdiv(A[i], B[i], rounding_mode=mode)
                    R[4, m, i] = T.ieee_fsqrt(T.abs(A[i]), mode)
                    R[5, m, i] = T.ieee_fmaf(A[i], B[i], C[i], mode)
                    R[6, m, i] = T.ieee_frsqrt(T.abs(A[i]), mode)
        return R

    x, y, z = ([Fraction(float(v)) for v in values] for values in (a, b, c))
    rows = []
    for exact in (
        [p + q for p, q in zip(x, y, strict=True)],
        [p - q for p, q in zip(x, y, strict=True)],
        [p * q for p, q in zip(x, y, strict=True)],
        [p / q for p, q in zip(x, y, strict=True)],
    ):
        rows.append([[rounded(v, mode, dtype) for v in exact] for mode in MODES])
    rows.append([[root(abs(v), mode, dtype) for v in x] for mode in MODES])
    sums = [p * q + r for p, q, r in zip(x, y, z, strict=True)]
    rows.append([[rounded(v, mode, dtype) for v in sums] for mode in MODES])
    rows.append([[root(1 / abs(v), mode, dtype) for v in x] for mode in MODES])
    check_exactly(kernel, {"A": a, "B": b, "C": c}, np.array(rows).astype(dtype))


def test_reciprocal_roots_of_all_doubles():
    rng = np.random.default_rng(5)
    ends = [5e-324, 2.2e-308, 1.7976931348623157e308, 4.0, 0.25, 4.0**-500, 2.0**1023, 1 - 2.0**-53]
    values = np.concatenate([ends, rng.integers(1, 0x7FEF << 48, 120).view(np.float64)])

    @T.prim_func
    def kernel(A: T.Tensor((128,), "float64"), R: T.Tensor((4, 128), "float64")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                for m, mode in enumerate(MODES):
                    R[m, i] = T.ieee_frsqrt(A[i], mode)

    rows = [[root(1 / Fraction(v), mode, "float64") for v in values.tolist()] for mode in MODES]
    check_exactly(kernel, {"A": values, "R": np.zeros((4, 128))}, np.array(rows))


def test_reciprocal_roots_that_are_no_numbers():
    values = np.array([0.0, np.inf, np.nan, -1.0])

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float64"), R: T.Tensor((4, 4), "float64")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(4):
                for m, mode in enumerate(MODES):
                    R[m, i] = T.ieee_frsqrt(A[i], mode)

    expected = np.tile(np.array([np.inf, 0.0, np.nan, np.nan]), (4, 1))
    check_exactly(kernel, {"A": values, "R": np.zeros((4, 4))}, expected)


def check_exactly(kernel, arguments, expected):
    """The output R is this, on processors and on simulated threads."""
    check = equals(R=expected)
    check_everywhere(kernel, arguments, check)
    check(run_native(kernel.program, arguments, "sim:sm_80"))


@pytest.mark.parametrize("dtype", ["float64", "int32", "int64", "uint64"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_wide_numbers_in_every_direction(dtype, name):
    if dtype == "float64":
        a = np.array([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-45, 1 + 3 * 2.0**-8 - 2.0**-45])
        small = [2.0**-25 + 2.0**-60, 2.0**-134 * (1 + 2.0**-30), 65519.99999, 65520.0, 1e300, 0.1]
        a = np.concatenate([a, -a, small, [1 + 2.0**-30, 0.0, -1e-50, 3.0]])
    else:
        top = np.iinfo(dtype).max
        near = [2**24 + 1, 2**24 + 3, 0x1008001, 5, 0, top // 2 + 1, 65503, 70000]
        near += [top, top - 64, top // 3, top // 5, 4097, 2**30 + 1, 2**31 - 1, 257]
        a = np.array(near, dtype)
        a[1::2] = a[1::2] if dtype == "uint64" else -a[1::2]
    target = storage(name)

    @T.prim_func
    def kernel(A: T.Tensor((16,), dtype)):
        R = T.empty((4, 16), name)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                for m, mode in enumerate(MODES):
                    R[m, i] = T.cast(A[i], name, round=mode)
        return R

    exact = [Fraction(float(v)) if dtype == "float64" else Fraction(int(v)) for v in a]
    expected = [[rounded(v, mode, target) for v in exact] for mode in MODES]
    check_exactly(kernel, {"A": a}, np.array(expected).astype(target))


CASTS = ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float6_e3m2fn"]


@pytest.mark.parametrize("name", CASTS)
def test_casts_in_every_direction(name):
    dtype = storage(name)
    rng = np.random.default_rng(9)
    values = (rng.uniform(-2, 2, 504) * 2.0 ** rng.integers(-12, 9, 504)).astype(np.float32)
    extra = [0.0, 1.0, -2.0, 1e9, -1e9, float(ml_dtypes.finfo(dtype).max), 0.75, 1 + 2.0**-20]
    a = np.concatenate([values, np.array(extra, np.float32)])
    noise = rng.integers(0, 1 << 32, 512, dtype=np.uint64).astype(np.uint32)

    @T.prim_func
    def kernel(A: T.Tensor((512,), "float32"), U: T.Tensor((512,), "uint32")):
        R = T.empty((5, 512), "float32")
        with T.Kernel(1, threads=128):
            for i in T.Parallel(512):
                for m, mode in enumerate(("rn", "rz", "rp", "rm")):
                    R[m, i] = T.cast(A[i], name, round=mode)
                R[4, i] = T.cast(A[i], name, round="rs", rbits=U[i])
        return R

    def check(arrays):
        found, exact = np.asarray(arrays["R"], np.float64), a.astype(np.float64)
        limit = float(ml_dtypes.finfo(dtype).max)
        inner = np.abs(exact) <= limit
        nearest = found[0][inner]
        np.testing.assert_array_equal(nearest, a[inner].astype(dtype).astype(np.float64))
        down, up = found[3][inner], found[2][inner]
        assert (down <= exact[inner]).all() and (up >= exact[inner]).all()
        assert ((nearest == down) | (nearest == up)).all()
        adjacent = np.nextafter(down.astype(dtype), np.array(limit, dtype)).astype(np.float64)
        assert ((up == down) | (up == adjacent)).all()
        np.testing.assert_array_equal(found[1][inner], np.where(exact[inner] > 0, down, up))
        assert ((found[4][inner] == down) | (found[4][inner] == up)).all()
        between, cut = up != down, found[1][inner]
        away = found[4][inner][between] != cut[between]
        share = np.abs(exact[inner] - cut)[between] / (up - down)[between]
        assert abs(away.sum() - share.sum()) < 2.5 * np.sqrt((share * (1 - share)).sum())
        if name.startswith(("float6", "float8")):
            assert (np.abs(found[:, ~inner]) == limit).all()

    check_everywhere(kernel, {"A": a, "U": noise}, check)


def test_saturation_on_request():
    values = [1.0, 464.0, 465.0, 480.0, -1e9, 61439.0, 61440.0, 70000.0, -70000.0, 65519.0, 65520.0]
    a = np.array([*values, np.inf, -np.inf, np.nan, 0.0, -3.0], np.float32)

    @T.prim_func
    def kernel(A: T.Tensor((16,), "float32")):
        R = T.empty((3, 16), "float32")
        S = T.empty((5, 16), "int32")
        E = T.empty((2, 16), "float8_e8m0fnu")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                R[0, i] = T.cast(A[i], "float8_e4m3fn", sat=False)
                R[1, i] = T.cast(A[i], "float8_e5m2", sat=False)
                R[2, i] = T.cast(A[i], "float16", sat=True)
                x = (i - 8) * 0.5
                S[0, i] = T.cast(x, "int32")
                for m, mode in enumerate(MODES):
                    S[m + 1, i] = T.cast(x, "int32", round=mode)
                E[0, i] = T.cast(T.abs(x) + 0.25, "float8_e8m0fnu", round="rz")
                E[1, i] = T.cast(T.abs(x) + 0.25, "float8_e8m0fnu", round="rp")
        return R, S, E

    with np.errstate(over="ignore"):
        fn, e5 = a.astype(ml_dtypes.float8_e4m3fn), a.astype(ml_dtypes.float8_e5m2)
        half = np.clip(a.astype(np.float16), -65504, 65504)
    x = (np.arange(16) - 8) * 0.5
    s = [np.trunc(x), np.rint(x), np.trunc(x), np.ceil(x), np.floor(x)]
    powers = np.log2(abs(x) + 0.25)
    e = np.array([2.0 ** np.floor(powers), 2.0 ** np.ceil(powers)]).astype(
        storage("float8_e8m0fnu")
    )
    expected = equals(
        R=np.array([fn.astype(np.float32), e5.astype(np.float32), half.astype(np.float32)]),
        S=np.array(s).astype(np.int32),
        E=e,
    )
    check_everywhere(kernel, {"A": a}, expected)
