"""The value of an integer expression at many points at once, or at symbolic ones.

The integers are exact: nothing wraps around, because what is asked for is an index or a condition,
which the front end has given a dtype that holds it. `evaluate.py` differs where a call needs the
kernel's own arithmetic: there integers wrap, floats are rounded, and a branch that is not taken is
not evaluated. `sim/expressions.py` is independent of both, because it is what they are tested with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tileworkbench.compiler.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var
from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.index import Index

Operation = Callable[[Any, Any], Any]
_OPERATORS: dict[str, Operation] = {  # of integers, arrays and digits
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
_OF_NUMBERS: dict[str, Operation] = {  # of integers and arrays
    "min": np.minimum,
    "max": np.maximum,
    "or": operator.or_,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
}
_COMMUTATIVE = ("mul", "add", "xor")


class UntraceableError(Exception):
    """A value depends on memory, or on variables whose values are not known."""


class Trace:
    """Values of expressions where variables have the given `values`: integers, numpy arrays of one
    shape or `Index` objects. `definitions` are what other variables stand for.
    """

    def __init__(
        self, values: Mapping[Var, Any], definitions: Mapping[Var, Expr] | None = None
    ) -> None:
        self.values, self.definitions = values, definitions or {}
        self._known: dict[Expr, Any] = {}

    def __call__(self, value: Expr) -> Any:
        """The value of `value`.

        Raises `UntraceableError` where it reads memory or a variable that is not known,
        `NotDigitsError` where digits do not express it, and `ZeroDivisionError`.
        """
        if value not in self._known:
            self._known[value] = self._computed(value)
        return self._known[value]

    def _computed(self, value: Expr) -> Any:
        match value:
            case Const(number, dtype) if not dtype.is_float:
                return int(number)
            case Var() if value in self.values:
                return self.values[value]
            case Var() if value in self.definitions:
                return self(self.definitions[value])
            case Cast(inner, dtype) if dtype.is_int and inner.dtype.is_int:
                return self(inner)
            case Binary(op, a, b):
                return _combined(op, self(a), self(b))
            case Unary("not", a):
                return np.logical_not(_number(self(a)))
            case Select(cond, then, other):
                return np.where(*(_number(self(part)) for part in (cond, then, other)))
        raise UntraceableError


def _combined(op: str, a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, Index):
        if op == "sub":
            return b * -1 + a
        if op not in _COMMUTATIVE:
            raise NotDigitsError
        a, b = b, a
    if op in _OPERATORS:
        if op.startswith("trunc") and _may_be_negative(a):
            raise NotDigitsError
        return _OPERATORS[op](a, b)
    if op in _OF_NUMBERS:
        return _OF_NUMBERS[op](_number(a), _number(b))
    raise UntraceableError


def _number(value: Any) -> Any:
    if isinstance(value, Index):
        raise NotDigitsError
    return value


def _may_be_negative(value: Any) -> bool:
    if isinstance(value, Index):
        return value.sum.minimum < 0
    return bool((value < 0).any()) if hasattr(value, "any") else value < 0
