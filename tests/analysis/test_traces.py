"""Exact values of integer expressions: at arrays of points, and at symbolic ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.traces import Trace, UntraceableError
from tileworkbench.compiler.ir.build import add, binary, cast, const, int_const, select, unary
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.types import FLOAT32, INT32
from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.index import Index

X, Y = Var("x", INT32), Var("y", INT32)
POINTS = np.arange(-6, 7)

BINARY = (
    *("add", "sub", "mul", "floordiv", "floormod", "min", "max", "and", "or", "xor"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
)


def at_points(value: Expr, points: Any = POINTS) -> list[Any]:
    return [evaluate(value, {"x": int(point)}) for point in points]


@pytest.mark.parametrize("op", BINARY)
def test_arrays_are_worth_what_the_host_computes(op):
    value = binary(op, X, int_const(3))
    assert Trace({X: POINTS})(value).tolist() == at_points(value)


def test_conditions_and_choices():
    small = binary("lt", X, int_const(2))
    for value in (
        unary("not", small),
        select(small, X, int_const(9)),
        binary("logical_or", small, binary("eq", X, int_const(5))),
        cast(add(X, int_const(1)), "int64"),
    ):
        assert Trace({X: POINTS})(value).tolist() == at_points(value)


def test_division_towards_zero_is_known_for_natural_numbers():
    value = binary("truncdiv", X, int_const(4))
    assert Trace({X: np.arange(9)})(value).tolist() == at_points(value, range(9))
    with pytest.raises(NotDigitsError):
        Trace({X: POINTS})(value)


def test_a_definition_stands_for_its_variable():
    assert Trace({X: POINTS}, {Y: add(X, int_const(2))})(Y).tolist() == (POINTS + 2).tolist()


def test_digits_of_a_symbolic_index():
    (index,) = Index.variables((64,))
    trace = Trace({X: index})
    column = trace(binary("floormod", X, int_const(8)))
    assert column.sum.maximum == 7
    assert trace(binary("sub", int_const(63), X)).sum.minimum == 0
    for op in ("min", "lt"):
        with pytest.raises(NotDigitsError):
            trace(binary(op, X, int_const(8)))


def test_integers_do_not_wrap():
    assert Trace({X: 2**31 - 1})(add(X, int_const(1))) == 2**31


@pytest.mark.parametrize(
    "value",
    [Y, Load(Buffer("A", INT32, (int_const(4),), "global"), (X,)), const(1.5, FLOAT32)],
    ids=["a variable without a value", "memory", "a float"],
)
def test_what_is_not_known(value):
    with pytest.raises(UntraceableError):
        Trace({X: POINTS})(value)
