"""Host-side values of scalar expressions."""

from __future__ import annotations

import pytest

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir.build import binary, call, cast, const, select, unary
from tileworkbench.compiler.ir.expr import Buffer, Load, Var
from tileworkbench.compiler.ir.types import INT32, DType

N = Var("n", INT32)


def test_a_grid_extent() -> None:
    grid = binary("floordiv", binary("add", N, const(127, INT32)), const(128, INT32))
    assert evaluate(grid, {"n": 1000}) == 8


def test_division_rounds_as_its_name_says() -> None:
    minus_seven = unary("neg", N)
    two = const(2, INT32)
    for op, expected in (("floordiv", -4), ("floormod", 1), ("truncdiv", -3), ("truncmod", -1)):
        assert evaluate(binary(op, minus_seven, two), {"n": 7}) == expected


def test_integers_wrap_and_floats_round() -> None:
    assert evaluate(binary("add", N, const(1, INT32)), {"n": 2**31 - 1}) == -(2**31)
    assert evaluate(cast(N, "uint8"), {"n": 300}) == 44
    assert evaluate(cast(N, "float16"), {"n": 2049}) == 2048.0
    assert evaluate(cast(Var("f", DType("float32")), "int32"), {"f": -2.7}) == -2


def test_only_what_is_needed_is_evaluated() -> None:
    quotient = binary("floordiv", const(8, INT32), N)
    positive = binary("gt", N, const(0, INT32))
    assert evaluate(select(positive, quotient, const(0, INT32)), {"n": 0}) == 0
    both = binary("logical_and", positive, binary("gt", quotient, const(1, INT32)))
    assert evaluate(both, {"n": 0}) is False
    either = binary("logical_or", unary("not", positive), binary("gt", quotient, const(1, INT32)))
    assert evaluate(either, {"n": 0}) is True


def test_functions() -> None:
    value = Var("x", DType("float32"))
    assert evaluate(call("sqrt", value), {"x": 9.0}) == 3.0
    assert evaluate(call("floor", value), {"x": -1.5}) == -2.0


def test_what_has_no_value() -> None:
    with pytest.raises(KeyError):
        evaluate(N, {})
    buffer = Buffer("A", INT32, (const(4, INT32),), "global")
    with pytest.raises(ValueError, match="a 'Load' has no value on the host"):
        evaluate(Load(buffer, (const(0, INT32),)), {})
    with pytest.raises(ZeroDivisionError):
        evaluate(binary("floordiv", const(1, INT32), N), {"n": 0})


def test_both_roundings_of_ties() -> None:
    values = [-2.5, -1.5, -0.5, 0.49999999999999994, 0.5, 1.5, 2.5, 2.4]
    dtype = DType("float64")
    away, even = (
        [evaluate(call(name, const(value, dtype)), {}) for value in values]
        for name in ("round", "nearbyint")
    )
    assert away == [-3, -2, -1, 0, 1, 2, 3, 2]
    assert even == [-2, -2, 0, 0, 0, 2, 2, 2]
