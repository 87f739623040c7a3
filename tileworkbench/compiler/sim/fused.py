"""A fused multiply-add of float64 on numpy values, rounded once.

S. Boldo and G. Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
rounding to odd", IEEE Transactions on Computers 57 (2008), with T. J. Dekker's exact product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

_SPLIT = 2.0**27 + 1


def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, rounded once; twice where the exact product leaves its range."""
    a, b, c = (np.asarray(value, np.float64) for value in (a, b, c))
    plain = a * b + c
    high, low = _product(a, b)
    t_high, t_low = _sum(c, low)
    v_high, v_low = _sum(high, t_high)
    exact = v_high + _odd_sum(t_low, v_low)
    safe = np.isfinite(exact) & (np.abs(high) > 2.0**-960)
    return np.where(safe, exact, plain)[()]


def _sum(a: Any, b: Any) -> tuple[Any, Any]:
    """A sum and its error (Knuth)."""
    total = a + b
    virtual = total - a
    return total, (a - (total - virtual)) + (b - virtual)


def _product(a: Any, b: Any) -> tuple[Any, Any]:
    """A product and its error (Dekker)."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    error = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    return product, error


def _halves(a: Any) -> tuple[Any, Any]:
    scaled = _SPLIT * a
    high = scaled - (scaled - a)
    return high, a - high


def _odd_sum(a: Any, b: Any) -> Any:
    """A sum rounded to odd: an inexact one has its last bit set."""
    total, error = _sum(a, b)
    total = np.atleast_1d(np.asarray(total, np.float64)).copy()
    even = (total.view(np.int64) & 1 == 0) & np.isfinite(total) & (np.atleast_1d(error) != 0)
    towards = np.where(np.atleast_1d(error) > 0, np.inf, -np.inf)
    return np.where(even, np.nextafter(total, towards), total).reshape(np.shape(a))
