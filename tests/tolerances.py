"""How close a result must be to its reference: the one place where tests take tolerances from.

References are computed in float64 from the inputs as given. Integers, copies and casts must agree
to the bit.
"""

from __future__ import annotations

from math import sqrt
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

# Largest error of an elementary function in units in the last place of float32 (of the result's own
# dtype when that is wider); narrower results may differ by one more rounding.
FUNCTION_ULP = {
    **dict.fromkeys(("exp", "exp2", "log", "sqrt", "rsqrt"), 2),
    **dict.fromkeys(("tanh", "erf", "sin", "cos"), 4),
}
DEFAULT_ULP = 4


def epsilon(dtype: Any) -> float:
    """The distance from 1 to the next larger value of a float dtype; 0 for integers."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return 0.0
    return float(ml_dtypes.finfo(dtype).eps)


def accumulator(dtype: Any) -> np.dtype[Any]:
    """The dtype in which sums for a result of `dtype` are formed: float32 for narrower floats."""
    dtype = np.dtype(dtype)
    if dtype.kind not in "iub" and dtype.itemsize < 4:
        return np.dtype(np.float32)
    return dtype


def contraction_bound(a: Array, b: Array, reference: Array, dtype: Any) -> Array:
    """`4 sqrt(K) eps(accumulator) (|A| |B|) + eps(result) |reference|`, element by element.

    A result of 8 bits is the nearest value to such a sum: half of that eps, and half a step of the
    smallest values.
    """
    magnitude = np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64))
    summed = 4 * sqrt(a.shape[-1]) * epsilon(accumulator(dtype)) * magnitude
    if np.dtype(dtype).itemsize > 1 or np.dtype(dtype).kind in "iub":
        return np.asarray(summed + epsilon(dtype) * np.abs(reference))
    half = epsilon(dtype) / 2
    least = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    return np.asarray(summed * (1 + half) + np.maximum(half * np.abs(reference), least / 2))


def assert_contraction(c: Array, a: Array, b: Array, start: Array | None = None) -> None:
    """`c` is `start + a @ b`: exact (modulo the range) for integers, else within bounds."""
    c, a, b = np.asarray(c), np.asarray(a), np.asarray(b)
    if c.dtype.kind in "iu":
        expected = a.astype(np.int64) @ b.astype(np.int64)
        if start is not None:
            expected = expected + np.asarray(start).astype(np.int64)
        np.testing.assert_array_equal(c, expected.astype(c.dtype))
        return
    reference = a.astype(np.float64) @ b.astype(np.float64)
    extra: Array | float = 0.0
    if start is not None:
        added = np.asarray(start).astype(np.float64)
        reference, extra = reference + added, epsilon(accumulator(c.dtype)) * np.abs(added)
    bound = contraction_bound(a, b, reference, c.dtype) + extra
    assert_within(c, reference, bound)


def assert_reduction(result: Array, reference: Array, magnitude: Array, length: int) -> None:
    """A sum of `length` terms whose absolute values sum to `magnitude`."""
    result = np.asarray(result)
    if result.dtype.kind in "iu":
        np.testing.assert_array_equal(result, np.asarray(reference).astype(result.dtype))
        return
    summed = 4 * sqrt(length) * epsilon(accumulator(result.dtype)) * np.asarray(magnitude)
    assert_within(result, reference, summed + epsilon(result.dtype) * np.abs(reference))


def assert_ulp(result: Array, reference: Array, ulp: float) -> None:
    """`result` is within `ulp` units in the last place of float32 (float64 for float64) of
    `reference`.

    A result narrower than float32 may moreover be rounded to its own dtype.
    """
    result, reference = np.asarray(result), np.asarray(reference, np.float64)
    unit = accumulator(result.dtype)
    with np.errstate(over="ignore"):
        bound = ulp * np.abs(np.spacing(reference.astype(unit))).astype(np.float64)
    if unit != result.dtype:
        tiny = float(ml_dtypes.finfo(result.dtype).smallest_subnormal)
        bound = bound + np.maximum(epsilon(result.dtype) * np.abs(reference), tiny)
    assert_within(result, reference, bound)


def assert_function(name: str, result: Array, reference: Array) -> None:
    """`result` is the elementary function `name`, whose exact value is `reference`."""
    assert_ulp(result, reference, FUNCTION_ULP.get(name, DEFAULT_ULP))


def assert_within(result: Array, reference: Array, bound: Array) -> None:
    """`|result - reference| <= bound` element by element; NaN and infinities must agree."""
    found = np.asarray(result).astype(np.float64)
    reference, bound = np.broadcast_arrays(np.asarray(reference, np.float64), bound)
    assert found.shape == reference.shape, f"shape {found.shape}, expected {reference.shape}"
    finite = np.isfinite(reference) & np.isfinite(found)
    special = ~finite & ~_overflow(result, found, reference)
    np.testing.assert_array_equal(found[special], reference[special])
    with np.errstate(invalid="ignore"):
        error = np.where(finite, np.abs(found - reference), 0.0)
    wrong = error > bound
    if wrong.any():
        worst = np.unravel_index(
            np.argmax(np.where(wrong, error / np.maximum(bound, 1e-300), 0)), error.shape
        )
        raise AssertionError(
            f"{np.count_nonzero(wrong)} of {wrong.size} elements are off; "
            f"the worst is {tuple(map(int, worst))}: "
            f"{found[worst]!r}, expected {reference[worst]!r} within {bound[worst]:.3g}"
        )


def _overflow(result: Array, found: Array, reference: Array) -> Array:
    """Where an infinite result stands for a finite value that its dtype cannot hold."""
    dtype = np.asarray(result).dtype
    if dtype.kind in "iub":
        return np.zeros(found.shape, np.bool_)
    largest = float(ml_dtypes.finfo(dtype).max)
    same_sign = np.sign(found) == np.sign(reference)
    return np.isinf(found) & np.isfinite(reference) & same_sign & (np.abs(reference) >= largest)
