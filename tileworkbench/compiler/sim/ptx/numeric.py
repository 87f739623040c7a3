"""Arithmetic with the rounding that PTX prescribes, on numpy vectors.

numpy has no fused multiply-add, no directed rounding and no bfloat16; all three are built here from
binary64 and "round to odd" (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums:
proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008): a value
rounded to odd with two bits more than the final format can be rounded again without error.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

# The numpy type a value of each PTX type is computed in; the brain formats travel as bits.
DTYPES: dict[str, Any] = {
    **{"b8": np.uint8, "b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "pred": np.bool_},
    **{"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64},
    **{"s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64},
    **{"f16": np.float16, "f32": np.float32, "f64": np.float64},
    **{"f16x2": np.uint32, "bf16x2": np.uint32, "bf16": np.uint16, "tf32": np.uint32},
    **{"e4m3x2": np.uint16, "e5m2x2": np.uint16, "u16x2": np.uint32, "s16x2": np.uint32},
}
UNSIGNED: dict[int, Any] = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, Any] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

_FLOAT8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
FLOAT8_MAX = {"e4m3": 448.0, "e5m2": 57344.0}
_SMALLEST_NORMAL = np.float32(2.0**-126)


def flush(x: Array) -> Array:
    """Subnormal binary32 values become zeros of the same sign (``.ftz``)."""
    return np.asarray(np.where(np.abs(x) < _SMALLEST_NORMAL, np.copysign(np.float32(0), x), x))


def saturate(x: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes +0 (``.sat``)."""
    one, zero = x.dtype.type(1), x.dtype.type(0)
    return np.asarray(np.where(x > 0, np.minimum(x, one), zero))


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded sum and its exact error (Knuth, TAOCP volume 2, 4.2.2)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def sum_to_odd(a: Array, b: Array) -> Array:
    """a + b in binary64, rounded to odd: an inexact result has its last bit set."""
    total, error = two_sum(np.asarray(a), np.asarray(b))
    bits = total.view(np.int64)
    wrong = (error != 0) & np.isfinite(total) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.asarray(np.where(wrong, bits + step, bits)).view(np.float64)


def fma32(a: Array, b: Array, c: Array, mode: str = "rn") -> Array:
    """a * b + c of binary32 values, rounded once."""
    product = np.multiply(a, b, dtype=np.float64)  # 48 bits: exact
    return narrow(sum_to_odd(product, np.asarray(c, dtype=np.float64)), "f32", mode)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product of binary64 values and its exact error (Dekker 1971)."""
    product = a * b

    def split(x: Array) -> tuple[Array, Array]:
        scaled = x * 134217729.0
        high = scaled - (scaled - x)
        return high, x - high

    a_high, a_low = split(a)
    b_high, b_low = split(b)
    error = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, np.where(np.isfinite(error), error, 0.0)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c of binary64 values, rounded once to nearest (products that neither overflow nor
    underflow)."""
    a, b, c = (np.asarray(x, dtype=np.float64) for x in (a, b, c))
    high, low = _two_product(a, b)
    low_high, low_low = two_sum(c, low)
    top, rest = two_sum(high, low_high)
    fused = top + sum_to_odd(low_low, rest)
    return np.where(np.isfinite(fused), fused, high + c)


def narrow(x: Array, kind: str, mode: str = "rn") -> Array:
    """A binary64 value (exact, or rounded to odd) in the format `kind`: "f64", "f32", "f16", or
    "bf16" as bits."""
    x = np.asarray(x)
    if kind == "f64":
        return x
    if kind == "bf16":
        return bfloat16_bits(float32_to_odd(x), mode)
    rounded: Array = x.astype(DTYPES[kind])
    if mode in ("rn", "rna"):
        return rounded
    zero = rounded.dtype.type(0)
    infinity = rounded.dtype.type(np.inf)
    wide = rounded.astype(np.float64)
    if mode == "rz":
        return np.where(np.abs(wide) > np.abs(x), np.nextafter(rounded, zero), rounded)
    if mode == "rm":
        return np.where(wide > x, np.nextafter(rounded, -infinity), rounded)
    return np.where(wide < x, np.nextafter(rounded, infinity), rounded)


def float32_to_odd(x: Array) -> Array:
    """binary64 to binary32, inexact results with their last bit set."""
    cut = narrow(x, "f32", "rz")
    inexact = (cut.astype(np.float64) != x) & np.isfinite(x)
    odd: Array = np.asarray(cut).view(np.uint32) | inexact.astype(np.uint32)
    return odd.view(np.float32)


def bfloat16_bits(x: Array, mode: str = "rn") -> Array:
    """binary32 to the bits of bfloat16; NaN becomes the canonical 0x7fff."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    if mode == "rz":
        rounded = bits >> np.uint32(16)
    else:
        even = (bits >> np.uint32(16)) & np.uint32(1)
        rounded = (bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
    return np.where(np.isnan(x), np.uint32(0x7FFF), rounded).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    """The bits of bfloat16 as binary32."""
    wide: Array = np.asarray(bits).astype(np.uint32) << np.uint32(16)
    return wide.view(np.float32)


def from_float8(bits: Array, kind: str) -> Array:
    """Bytes of the 8-bit format "e4m3" or "e5m2" as binary32."""
    small: Array = np.asarray(bits, dtype=np.uint8).view(_FLOAT8[kind])
    return small.astype(np.float32)


def float8_bits(x: Array, kind: str) -> Array:
    """binary32 to bytes of an 8-bit format, rounded to nearest even and saturated to the largest
    finite value (``.satfinite``); NaN stays NaN."""
    limit = np.float32(FLOAT8_MAX[kind])
    clipped = np.where(np.isnan(x), x, np.clip(x, -limit, limit)).astype(np.float32)
    bits = clipped.astype(_FLOAT8[kind]).view(np.uint8)
    return np.where(np.isnan(x), np.uint8(0x7F), bits)


def tfloat32_bits(x: Array, mode: str) -> Array:
    """binary32 to tf32 (10 fraction bits) in the upper bits of a word; "rna" rounds ties away."""
    bits = np.asarray(x, dtype=np.float32).view(np.uint32)
    if mode == "rna":
        rounded = bits + np.uint32(0x1000)
    elif mode == "rn":
        rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    else:
        rounded = bits
    return np.where(np.isfinite(x), rounded & np.uint32(0xFFFFE000), bits)


def multiply_high(a: Array, b: Array) -> Array:
    """The upper half of the product of two integers of the same type of up to 64 bits."""
    a, b = np.asarray(a), np.asarray(b)
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        product: Array = (a.astype(wide) * b.astype(wide)) >> wide(bits)
        return product.astype(a.dtype)
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    half, low_mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1, y0, y1 = x & low_mask, x >> half, y & low_mask, y >> half
    middle = x1 * y0 + ((x0 * y0) >> half)
    carry = (middle & low_mask) + x0 * y1
    high: Array = x1 * y1 + (middle >> half) + (carry >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, y, np.uint64(0)) - np.where(b < 0, x, np.uint64(0))
    return high.astype(a.dtype)


def divide_truncated(a: Array, b: Array) -> tuple[Array, Array]:
    """Quotient rounded toward zero and remainder of integers; by zero all bits are set, as the
    hardware leaves them."""
    a, b = np.asarray(a), np.asarray(b)
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    if a.dtype.kind == "u":
        quotient = a // safe
    else:
        quotient = np.floor_divide(a, safe)
        remainder = a - quotient * safe
        quotient = quotient + ((remainder != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    ones = np.array(-1).astype(a.dtype)
    remainder = a - quotient * safe
    return np.where(zero, ones, quotient), np.where(zero, a, remainder)
