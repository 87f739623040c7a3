"""Bounds of index expressions, from the ranges of loop variables: enough to see that an index is
negative.
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Expr, Var

Interval = tuple[int | None, int | None]
_UNKNOWN: Interval = (None, None)


def bounds(value: Expr, ranges: Mapping[Var, tuple[int, int]]) -> Interval:
    """Inclusive lower and upper bound of an integer expression, None where nothing is known."""
    number = build.const_int(value)
    if number is not None:
        return number, number
    match value:
        case Var():
            return ranges.get(value, _UNKNOWN)
        case ir.Unary("neg", a):
            low, high = bounds(a, ranges)
            return _negated(high), _negated(low)
        case ir.Binary("add", a, b):
            (a_low, a_high), (b_low, b_high) = bounds(a, ranges), bounds(b, ranges)
            return _sum(a_low, b_low), _sum(a_high, b_high)
        case ir.Binary("sub", a, b):
            (a_low, a_high), (b_low, b_high) = bounds(a, ranges), bounds(b, ranges)
            return _sum(a_low, _negated(b_high)), _sum(a_high, _negated(b_low))
        case ir.Binary("mul" | "floordiv" as op, a, b):
            return _scaled(op, bounds(a, ranges), build.const_int(b))
        case ir.Binary("floormod", _, b):
            divisor = build.const_int(b)
            return (0, divisor - 1) if divisor is not None and divisor > 0 else _UNKNOWN
    return _UNKNOWN


def _negated(value: int | None) -> int | None:
    return None if value is None else -value


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _scaled(op: str, interval: Interval, factor: int | None) -> Interval:
    """`interval` times or floor-divided by a constant."""
    if not factor:
        return _UNKNOWN
    low, high = interval if factor > 0 else (interval[1], interval[0])

    def scale(value: int | None) -> int | None:
        if value is None:
            return None
        return value * factor if op == "mul" else value // factor

    return scale(low), scale(high)
