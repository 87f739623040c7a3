"""Integer helpers fold Python numbers to Python numbers; limits and choices on constants."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tileworkbench.language as T
from tileworkbench.compiler.frontend.bounds import bounds
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Unary, Var

integers = st.integers(-1000, 1000)
divisors = integers.filter(bool)


@given(integers, divisors)
def test_integer_division_folds(a: int, b: int) -> None:
    assert T.floordiv(a, b) == a // b
    assert T.floormod(a, b) == a % b
    assert T.truncdiv(a, b) == int(a / b)
    assert T.truncmod(a, b) == a - int(a / b) * b
    assert isinstance(T.truncdiv(a, b), int)


@given(integers, st.integers(1, 1000))
def test_rounding_up_folds(a: int, b: int) -> None:
    assert b * (T.ceildiv(a, b) - 1) < a <= b * T.ceildiv(a, b)
    assert T.align_up(a, b) == T.cdiv(a, b) * b


@given(integers, integers)
def test_bits_and_extremes_fold(a: int, b: int) -> None:
    assert T.bitwise_and(a, b) == a & b
    assert T.bitwise_or(a, b) == a | b
    assert T.bitwise_xor(a, b) == a ^ b
    assert T.bitwise_not(a) == ~a
    assert (T.max(a, b), T.min(a, b)) == (max(a, b), min(a, b))
    assert T.abs(a) == abs(a)
    assert T.clamp(a, -10, 10) == min(max(a, -10), 10)


def test_python_choices_fold() -> None:
    assert T.if_then_else(True, 1, "never built") == 1
    assert T.And(True, True, False) is False
    assert T.Or(False, True) is True
    assert T.Not(False) is True
    assert T.shift_left(1, 4) == 16
    assert T.shift_right(-16, 2) == -4
    assert T.pow(2, 10) == 1024
    assert T.likely(True) is True


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: T.infinity("float32"), 'T.float32("inf")'),
        (lambda: -T.infinity(T.float16), 'T.float16("-inf")'),
        (lambda: T.max_value("int8"), "T.int8(127)"),
        (lambda: T.min_value("int32"), "-2147483648"),
        (lambda: T.max_value("float16"), "T.float16(65504.0)"),
        (lambda: T.min_value("uint8"), "T.uint8(0)"),
    ],
)
def test_limits(made: Any, text: str) -> None:
    assert repr(made()) == text


# Bounds of index expressions

X, Y = Var("x", build.INT32), Var("y", build.INT32)
LEAVES = st.one_of(st.sampled_from([X, Y]), st.integers(-8, 8).map(build.int_const))


def _operate(parts: tuple[str, Expr, Expr]) -> Expr:
    op, a, b = parts
    if op == "neg":
        return build.unary("neg", a)
    if op in ("floordiv", "floormod"):
        b = build.int_const(3) if not isinstance(b, Const) or b.value == 0 else b
    return build.binary(op, a, b)


OPERATIONS = ("add", "sub", "mul", "floordiv", "floormod", "neg")
EXPRESSIONS = st.recursive(
    LEAVES, lambda inner: st.tuples(st.sampled_from(OPERATIONS), inner, inner).map(_operate)
)


def evaluate(value: Expr, x: int, y: int) -> int:
    match value:
        case Const():
            return int(value.value)
        case Var():
            return x if value is X else y
        case Unary("neg", a):
            return -evaluate(a, x, y)
        case Binary(op, a, b):
            left, right = evaluate(a, x, y), evaluate(b, x, y)
            return {
                "add": lambda: left + right,
                "sub": lambda: left - right,
                "mul": lambda: left * right,
                "floordiv": lambda: left // right,
                "floormod": lambda: left % right,
            }[op]()
    raise TypeError(value)


@given(EXPRESSIONS, st.integers(-4, 4), st.integers(0, 5), st.data())
def test_bounds_contain_every_value(value: Expr, low: int, width: int, data: st.DataObject) -> None:
    ranges = {X: (low, low + width), Y: (-2, 3)}
    least, greatest = bounds(value, ranges)
    x, y = data.draw(st.integers(low, low + width)), data.draw(st.integers(-2, 3))
    result = evaluate(value, x, y)
    assert least is None or least <= result
    assert greatest is None or result <= greatest
