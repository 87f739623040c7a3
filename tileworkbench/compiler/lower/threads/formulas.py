"""Expressions as maps of digits and back: how an index moves with the loop variables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileworkbench.compiler.analysis.traces import Trace
from tileworkbench.compiler.ir.build import add, binary, int_const, mul, sub
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.layout.digits import DigitSum
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import IndexMap, build_map, evaluate_sum


def index_map(
    indices: Sequence[Expr], variables: Sequence[Var], extents: Sequence[int], lows: Sequence[int]
) -> Layout:
    """The map from the box `extents` of `variables`, which start at `lows`, to `indices`.

    Raises `UntraceableError` or `LayoutError` where there is none.
    """

    def place(*x: Any) -> tuple[Any, ...]:
        shifted = {
            var: value + low if low else value
            for var, value, low in zip(variables, x, lows, strict=True)
        }
        return tuple(map(Trace(shifted), indices))

    return Layout.from_map(build_map(tuple(extents), place))


class Formula:
    """An expression with Python's operators, for the formulas of layouts."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: Formula | int) -> Formula:
        return Formula(add(self.expr, as_expr(other)))

    def __sub__(self, other: Formula | int) -> Formula:
        return Formula(sub(self.expr, as_expr(other)))

    def __mul__(self, other: Formula | int) -> Formula:
        if isinstance(other, int) and other < 0:
            return Formula(sub(int_const(0), mul(self.expr, int_const(-other))))
        return Formula(mul(self.expr, as_expr(other)))

    def __floordiv__(self, other: Formula | int) -> Formula:
        return Formula(binary("floordiv", self.expr, as_expr(other)))

    def __mod__(self, other: Formula | int) -> Formula:
        return Formula(binary("floormod", self.expr, as_expr(other)))

    def __xor__(self, other: Formula | int) -> Formula:
        return Formula(binary("xor", self.expr, as_expr(other)))

    __radd__ = __add__
    __rmul__ = __mul__
    __rxor__ = __xor__


def as_expr(value: Formula | Expr | int) -> Expr:
    """`value` as an expression."""
    if isinstance(value, Formula):
        return value.expr
    return value if isinstance(value, Expr) else int_const(value)


def sum_expr(shape: Sequence[int], total: DigitSum, values: Sequence[Expr]) -> Expr:
    """A sum of digits at `values`, each within its extent of `shape`."""
    return as_expr(evaluate_sum(tuple(shape), total, [Formula(value) for value in values]))


def map_exprs(mapping: IndexMap, values: Sequence[Expr]) -> tuple[Expr, ...]:
    """The outputs of a map at expressions.

    Raises `LayoutError` for a map without a formula.
    """
    return tuple(as_expr(formula) for formula in mapping.evaluate([Formula(v) for v in values]))
