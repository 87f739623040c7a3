"""Bounds of index expressions, from the ranges of loop variables: enough to see that an index is
negative.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Expr, Var

Interval = tuple[int | None, int | None]
_UNKNOWN: Interval = (None, None)


def _unknown(_: Expr) -> Interval:
    return _UNKNOWN


def bounds(
    value: Expr,
    ranges: Mapping[Var, Interval],
    leaf: Callable[[Expr], Interval] = _unknown,
) -> Interval:
    """Inclusive lower and upper bound of an integer expression, as if nothing in it wrapped around.
    `leaf` gives them for operands that are no arithmetic, None where nothing is known.
    """
    number = build.const_int(value)
    if number is not None:
        return number, number

    def of(operand: Expr) -> Interval:
        return bounds(operand, ranges, leaf)

    match value:
        case Var() if value in ranges:
            return ranges[value]
        case ir.Unary("neg", a):
            low, high = of(a)
            return _negated(high), _negated(low)
        case ir.Binary("add", a, b):
            (a_low, a_high), (b_low, b_high) = of(a), of(b)
            return _sum(a_low, b_low), _sum(a_high, b_high)
        case ir.Binary("sub", a, b):
            (a_low, a_high), (b_low, b_high) = of(a), of(b)
            return _sum(a_low, _negated(b_high)), _sum(a_high, _negated(b_low))
        case ir.Binary("mul", a, b):
            return _product(of(a), of(b))
        case ir.Binary("floordiv", a, b) if (build.const_int(b) or 0) > 0:
            divisor = build.const_int(b) or 1
            low, high = of(a)
            return _quotient(low, divisor), _quotient(high, divisor)
        case ir.Binary("floormod", _, b) if (build.const_int(b) or 0) > 0:
            return 0, (build.const_int(b) or 1) - 1
        case ir.Select(_, then, other):
            (a_low, a_high), (b_low, b_high) = of(then), of(other)
            return _least(a_low, b_low), _most(a_high, b_high)
        case ir.Cast(inner, dtype) if inner.dtype.is_int and dtype.bits > inner.dtype.bits:
            return of(inner) if dtype.is_signed else leaf(value)
    return leaf(value)


def _negated(value: int | None) -> int | None:
    return None if value is None else -value


def _quotient(value: int | None, divisor: int) -> int | None:
    return None if value is None else value // divisor


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _product(a: Interval, b: Interval) -> Interval:
    if b[0] is not None and b[0] == b[1]:
        return _scaled(a, b[0])
    if a[0] is not None and a[0] == a[1]:
        return _scaled(b, a[0])
    ends = [x * y for x in a for y in b if x is not None and y is not None]
    return (min(ends), max(ends)) if len(ends) == 4 else _UNKNOWN


def _scaled(interval: Interval, factor: int) -> Interval:
    low, high = interval if factor > 0 else (interval[1], interval[0])
    return None if low is None else low * factor, None if high is None else high * factor


def _least(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else min(a, b)


def _most(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else max(a, b)
