"""Floor division of sums by constants: what ranges and multiples decide."""

from __future__ import annotations

from math import gcd

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import add, binary, const, const_int
from tileworkbench.compiler.ir.expr import Binary, Expr
from tileworkbench.compiler.ir.types import DType


def divide(division: Binary, ranges: Ranges) -> Expr | None:
    """A simpler form of `x // c` or `x % c` (Python's, with a constant c > 0), or None.

    - `(a * c + b) // c` is `a + b // c`, and `% c` is `b % c`;
    - `b // c` is 0 and `b % c` is `b` where 0 <= b < c;
    - `(a * g + b) // c` is `a // (c / g)`, and `% c` is `a * g % c + b`, where g divides c and
      0 <= b < g: b is a digit below all that the rest counts in.
    """
    divisor = const_int(division.b) or 0
    if divisor <= 0 or not division.dtype.is_int:
        return None
    linear = ranges.linear(division.a)
    whole, rest = _parts(linear, divisor)
    inside = _below(rest, divisor, ranges, division.dtype)
    digits = None if inside else _split_digit(rest, divisor, ranges, division.dtype)
    if not inside and not whole.terms and not whole.constant and digits is None:
        return None
    if division.op == "floormod":
        if inside:
            return to_expr(rest, division.dtype)
        return _remainder(rest, digits, divisor, division.dtype)
    quotient = to_expr(_scaled(whole, divisor), division.dtype)
    if inside:
        return quotient
    return add(quotient, _quotient(rest, digits, divisor, division.dtype))


def _parts(linear: Linear, unit: int) -> tuple[Linear, Linear]:
    """The multiples of `unit` in a sum, and the rest."""
    multiples = tuple(term for term in linear.terms if term[1] % unit == 0)
    others = tuple(term for term in linear.terms if term[1] % unit)
    constant = linear.constant % unit
    return Linear(multiples, linear.constant - constant), Linear(others, constant)


def _scaled(linear: Linear, divisor: int) -> Linear:
    terms = tuple((atom, factor // divisor) for atom, factor in linear.terms)
    return Linear(terms, linear.constant // divisor)


def _below(linear: Linear, limit: int, ranges: Ranges, dtype: DType) -> bool:
    bounds = ranges.bounds(to_expr(linear, dtype))
    low, high = bounds.low, bounds.high
    return low is not None and high is not None and low >= 0 and high < limit


def _split_digit(
    linear: Linear, divisor: int, ranges: Ranges, dtype: DType
) -> tuple[Linear, Linear, int] | None:
    """(a * g, b, g) with a sum of multiples of g, or None: g is the largest that any term gives."""
    for unit in sorted({gcd(factor, divisor) for _, factor in linear.terms}, reverse=True):
        high, low = _parts(linear, unit)
        if unit > 1 and high.terms and _below(low, unit, ranges, dtype):
            return high, low, unit
    return None


def _quotient(
    rest: Linear, digits: tuple[Linear, Linear, int] | None, divisor: int, dtype: DType
) -> Expr:
    if digits is None:
        return binary("floordiv", to_expr(rest, dtype), const(divisor, dtype))
    high, _, unit = digits
    return binary("floordiv", to_expr(_scaled(high, unit), dtype), const(divisor // unit, dtype))


def _remainder(
    rest: Linear, digits: tuple[Linear, Linear, int] | None, divisor: int, dtype: DType
) -> Expr:
    if digits is None:
        return binary("floormod", to_expr(rest, dtype), const(divisor, dtype))
    high, low, _ = digits
    return add(binary("floormod", to_expr(high, dtype), const(divisor, dtype)), to_expr(low, dtype))
