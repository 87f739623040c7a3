"""Quotients and remainders of sums: the rules, and that they hold for every value."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tileworkbench.compiler.analysis.division import divide
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import add, const, int_const, mul
from tileworkbench.compiler.ir.expr import Binary, Expr, Var
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.stmt import Seq
from tileworkbench.compiler.ir.types import INT32

BLOCK, LANE, FREE = Var("block", INT32), Var("lane", INT32), Var("free", INT32)
EXTENTS = {BLOCK: 7, LANE: 16}


def ranges() -> Ranges:
    found = Ranges(Program("f", (), (), Seq(()), stage=Stage.TILE))
    for var, extent in EXTENTS.items():
        found.enter(var, int_const(0), int_const(extent), 1)
    return found


def total(*terms: tuple[Var, int], constant: int = 0) -> Expr:
    value: Expr = int_const(constant)
    for var, factor in terms:
        value = add(value, mul(var, int_const(factor)))
    return value


def shown(op: str, value: Expr, divisor: int) -> str | None:
    found = divide(Binary(op, value, int_const(divisor), INT32), ranges())
    return None if found is None else print_expr(found)


@pytest.mark.parametrize(
    ("op", "value", "divisor", "expected"),
    [
        ("floordiv", total((BLOCK, 16), (LANE, 1)), 2, "block * 8 + lane // 2"),
        ("floormod", total((BLOCK, 16), (LANE, 1)), 2, "lane % 2"),
        ("floordiv", total((BLOCK, 16), (LANE, 1)), 16, "block"),
        ("floormod", total((BLOCK, 16), (LANE, 1)), 16, "lane"),
        ("floordiv", total((BLOCK, 16), (LANE, 1)), 128, "0"),
        ("floordiv", total((FREE, 16), (LANE, 1)), 128, "free // 8"),
        ("floormod", total((FREE, 16), (LANE, 1)), 128, "free * 16 % 128 + lane"),
        ("floordiv", total((FREE, 8), (LANE, 1)), 128, None),
        ("floordiv", FREE, 2, None),
        ("floordiv", total((FREE, 128), (LANE, 1)), -2, None),
    ],
)
def test_rules(op: str, value: Expr, divisor: int, expected: str | None) -> None:
    assert shown(op, value, divisor) == expected


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.sampled_from(["floordiv", "floormod"]),
    st.tuples(*[st.integers(-40, 40)] * 3),
    st.integers(-70, 70),
    st.integers(1, 64),
)
def test_values_stay(op: str, factors: tuple[int, int, int], constant: int, divisor: int) -> None:
    value = total(*zip((BLOCK, LANE, FREE), factors, strict=True), constant=constant)
    whole = Binary(op, value, const(divisor, INT32), INT32)
    found = divide(whole, ranges())
    if found is None:
        return
    for block in range(7):
        for lane in range(16):
            for free in (-9, -1, 0, 5, 64):
                env = {"block": block, "lane": lane, "free": free}
                assert evaluate(found, env) == evaluate(whole, env)
