"""Floor division of sums by constants: what ranges and multiples decide."""

from __future__ import annotations

from math import gcd

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import add, binary, const, const_int
from tileworkbench.compiler.ir.expr import Binary, Expr, Var
from tileworkbench.compiler.ir.types import DType


def divide(division: Binary, ranges: Ranges) -> Expr | None:
    """A simpler form of `x // c` or `x % c` (Python's, with a constant c > 0), or None."""
    if (const_int(division.b) or 0) <= 0 or not division.dtype.is_int:
        return None
    for rule in DIVISIONS:
        made = rule(division, ranges)
        if made is not None:
            return made
    return None


def drop_small(division: Binary, ranges: Ranges) -> Expr | None:
    """`x // c` is 0, and `x % c` is `x`, where 0 <= x < c."""
    dtype = division.dtype
    linear = ranges.linear(division.a)
    if not _below(linear, _divisor(division), ranges, dtype):
        return None
    return to_expr(linear, dtype) if division.op == "floormod" else const(0, dtype)


def take_out_multiples(division: Binary, ranges: Ranges) -> Expr | None:
    """`(a * c + x) // c` is `a + x // c`, and `(a * c + x) % c` is `x % c`; `drop_small` for x."""
    divisor, dtype = _divisor(division), division.dtype
    whole, rest = _parts(ranges.linear(division.a), divisor)
    if not whole.terms and not whole.constant:
        return None
    inside = _below(rest, divisor, ranges, dtype)
    digits = None if inside else _split_digit(rest, divisor, ranges, dtype)
    if division.op == "floormod":
        return to_expr(rest, dtype) if inside else _remainder(rest, digits, divisor, dtype)
    quotient = to_expr(_scaled(whole, divisor), dtype)
    return quotient if inside else add(quotient, _quotient(rest, digits, divisor, dtype))


def drop_low_digit(division: Binary, ranges: Ranges) -> Expr | None:
    """`(a * g + x) // c` is `a // (c / g)`, and `% c` is `a * g % c + x`, where g divides c and
    0 <= x < g: x is a digit below all that the rest counts in.
    """
    divisor, dtype = _divisor(division), division.dtype
    linear = ranges.linear(division.a)
    digits = _split_digit(linear, divisor, ranges, dtype)
    if digits is None:
        return None
    of = _remainder if division.op == "floormod" else _quotient
    return of(linear, digits, divisor, dtype)


def divide_variable(division: Binary, ranges: Ranges) -> Expr | None:
    """`x // c` and `x % c` of another name of a variable are those of the variable: whoever puts
    digits in its place finds it.
    """
    value = to_expr(ranges.linear(division.a), division.dtype)
    if value is division.a or not isinstance(value, Var):
        return None
    return binary(division.op, value, division.b)


DIVISIONS = (drop_small, take_out_multiples, drop_low_digit, divide_variable)


def _divisor(division: Binary) -> int:
    return const_int(division.b) or 0


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
