"""Expressions as maps of digits and back: how an index moves with the loop variables."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.ir.build import add, binary, int_const, mul
from tileworkbench.compiler.ir.expr import Binary, Cast, Const, Expr, Select, Var
from tileworkbench.compiler.layout.digits import DigitSum, NotDigitsError
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import IndexMap, build_map

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": operator.floordiv,
    "truncmod": operator.mod,
    "xor": operator.xor,
    "and": operator.and_,
    "shl": operator.lshift,
    "shr": operator.rshift,
}
_ARRAYS = {"min": "minimum", "max": "maximum", "or": "bitwise_or"}
_COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


class UntraceableError(Exception):
    """An index depends on memory, or on variables whose range is not known."""


def trace(value: Expr, values: Mapping[Var, Any]) -> Any:
    """`value` at `values`: `Index` objects, integers or numpy arrays.

    Raises `UntraceableError` where it reads memory or another variable, `NotDigitsError` where
    digits do not express it.
    """
    match value:
        case Const():
            return int(value.value)
        case Var():
            if value not in values:
                raise UntraceableError
            return values[value]
        case Cast(inner, dtype) if dtype.is_int and inner.dtype.is_int:
            return trace(inner, values)
        case Binary(op, a, b):
            return _combine(op, trace(a, values), trace(b, values))
        case Select(cond, then, other):
            return _choose(trace(cond, values), trace(then, values), trace(other, values))
    raise UntraceableError


def _combine(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, Index):
        if op in ("mul", "add", "xor"):
            a, b = b, a
        elif op == "sub":
            return b * -1 + a
        else:
            raise NotDigitsError
    if op in _OPERATORS:
        if op.startswith("trunc") and _may_be_negative(a):
            raise NotDigitsError
        return _OPERATORS[op](a, b)
    if isinstance(a, Index) or isinstance(b, Index):
        raise NotDigitsError
    import numpy as np

    if op in _COMPARED:
        return _COMPARED[op](a, b)
    if op in _ARRAYS:
        return getattr(np, _ARRAYS[op])(a, b)
    if op in ("logical_and", "logical_or"):
        return getattr(np, op)(a, b)
    raise UntraceableError


def _may_be_negative(value: Any) -> bool:
    if isinstance(value, Index):
        return value.sum.minimum < 0
    return bool((value < 0).any()) if hasattr(value, "any") else value < 0


def _choose(cond: Any, then: Any, other: Any) -> Any:
    if any(isinstance(value, Index) for value in (cond, then, other)):
        raise NotDigitsError
    import numpy as np

    return np.where(cond, then, other)


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
        return tuple(trace(index, shifted) for index in indices)

    return Layout.from_map(build_map(tuple(extents), place))


class Formula:
    """An expression with Python's operators, for the formulas of layouts."""

    __slots__ = ("expr",)

    def __init__(self, expr: Expr) -> None:
        self.expr = expr

    def __add__(self, other: Formula | int) -> Formula:
        return Formula(add(self.expr, as_expr(other)))

    def __sub__(self, other: Formula | int) -> Formula:
        return Formula(binary("sub", self.expr, as_expr(other)))

    def __mul__(self, other: Formula | int) -> Formula:
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
    result: Expr | None = None
    for term in total.terms:
        factor: Expr | None = None
        for digit in term.digits:
            value = values[digit.dim]
            if digit.divisor > 1:
                value = binary("floordiv", value, int_const(digit.divisor))
            if digit.divisor * digit.extent < shape[digit.dim]:
                value = binary("floormod", value, int_const(digit.extent))
            factor = value if factor is None else binary("xor", factor, value)
        if factor is None:
            continue
        if term.stride != 1:
            factor = mul(factor, int_const(abs(term.stride)))
        if result is None:
            result = factor if term.stride > 0 else binary("sub", int_const(0), factor)
        else:
            result = binary("add" if term.stride > 0 else "sub", result, factor)
    if result is None:
        return int_const(total.constant)
    return add(result, int_const(total.constant)) if total.constant else result


def map_exprs(mapping: IndexMap, values: Sequence[Expr]) -> tuple[Expr, ...]:
    """The outputs of a map at expressions.

    Raises `LayoutError` for a map without a formula.
    """
    return tuple(as_expr(found) for found in mapping.evaluate([Formula(v) for v in values]))
