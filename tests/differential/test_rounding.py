"""Directed rounding, against exact rational arithmetic."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from fractions import Fraction
from math import isqrt

import ml_dtypes
import numpy as np
import pytest

import tileworkbench.language as T
from tests.differential.harness import check_everywhere, equals, storage

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
    scaled = value * (1 << 4000)
    whole = isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(whole, 1 << 2000)
    if exact * exact != value:
        exact += Fraction(1, 1 << 2001)
    return rounded(exact, mode, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_arithmetic_in_every_direction(dtype):
    a, b, c = (interesting(np.dtype(dtype), seed) for seed in range(3))
    with_fma = dtype != "float64"

    @T.prim_func
    def kernel(A: T.Tensor((128,), dtype), B: T.Tensor((128,), dtype), C: T.Tensor((128,), dtype)):
        R = T.empty((6, 4, 128), dtype)
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                for m, mode in enumerate(MODES):
                    R[0, m, i] = T.ieee_add(A[i], B[i], mode)
                    R[1, m, i] = T.ieee_sub(A[i], B[i], mode)
                    R[2, m, i] = T.ieee_mul(A[i], B[i], mode)
                    R[3, m, i] = T.ieee_fdiv(A[i], B[i], rounding_mode=mode)
                    R[4, m, i] = T.ieee_fsqrt(T.abs(A[i]), mode)
                    R[5, m, i] = T.ieee_fmaf(A[i], B[i], C[i], mode if with_fma else "rn")
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
    rows.append([[rounded(v, mode if with_fma else "rn", dtype) for v in sums] for mode in MODES])
    expected = np.array(rows).astype(dtype)
    check_everywhere(kernel, {"A": a, "B": b, "C": c}, equals(R=expected))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
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
        either = (up != down) & (found[4][inner] != found[1][inner])
        assert 0.3 < either.sum() / (up != down).sum() < 0.7
        if name.startswith("float8"):
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
