"""Bounds, linear forms, divisibility and what they prove; the facts against brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.linear import Interval
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Store

PROGRAM = """
@T.program(stage="tile", symbols={{"n": "int32"}})
def kernel(
    A: T.Tensor((n,), "int32"),
    x: T.int32,
):
    {assume}
    with T.Kernel((n + 63) // 64, 8, threads=128) as (bx, by):
        for i in T.serial(16):
            for j in T.serial(0, 64, 4):
                for k in T.serial(7, 2, -1):
                    y = i * 2 + 1
                    A[{index}] = 0
"""


def index_of(text: str, assume: str = "T.assume(n > 0)") -> tuple[Expr, Ranges]:
    program = parse(PROGRAM.format(index=text, assume=assume))
    store = next(stmt for stmt in statements(program.body) if isinstance(stmt, Store))
    return store.indices[0], Ranges(program)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("by * 128 + i", 0, 911),
        ("i - j", -63, 15),
        ("k", 3, 7),
        ("y", 1, 31),
        ("y - i * 2", 1, 1),
        ("(i + j) // 4", 0, 19),
        ("(i - 3) // 4", -1, 3),
        ("(i - 3) % 4", 0, 3),
        ("i % 32", 0, 15),
        ("T.min(i, by)", 0, 7),
        ("T.max(i, by)", 0, 15),
        ("i ^ by", 0, 15),
        ("i * by", 0, 105),
        ("x & 7", 0, 7),
        ("x % 10", 0, 9),
        ("T.int32(T.uint8(x))", 0, 255),
        ("T.int32(T.uint8(i) - T.uint8(3))", 0, 255),
        ("T.int32(T.uint8(i) + T.uint8(3))", 3, 18),
    ],
)
def test_bounds(text: str, low: int, high: int) -> None:
    index, ranges = index_of(text)
    found = ranges.bounds(index)
    assert found.low is not None and found.low <= low
    assert found.high is not None and found.high >= high
    assert (found.high - found.low) - (high - low) <= 3  # the last step of j is not excluded


def test_a_tile_is_inside_where_the_extent_is_a_multiple() -> None:
    index, ranges = index_of("bx * 64 + j")
    assert ranges.in_range(index, Var("n", int_const(0).dtype)) == (True, False)
    index, ranges = index_of("bx * 64 + j", "T.assume(n % 64 == 0)")
    assert ranges.in_range(index, Var("n", int_const(0).dtype)) == (True, True)
    index, ranges = index_of("bx * 64 + j", "T.assume(n % 32 == 0)")
    assert ranges.in_range(index, Var("n", int_const(0).dtype)) == (True, False)


def test_assumed_bounds() -> None:
    _, ranges = index_of("i", "T.assume(x >= 3 and x < 9)")
    assert ranges.bounds(Var("x", int_const(0).dtype)) == Interval(3, 8)


def test_divisibility_of_products() -> None:
    """Constants, symbols and extents that were widened all count."""
    index, ranges = index_of("T.cast(n * 2, 'int64') * T.cast(x, 'int64')", "T.assume(n % 4 == 0)")
    assert ranges.divides(8, index)
    assert not ranges.divides(16, index)


def test_divisibility() -> None:
    index, ranges = index_of("n * 2 + j * 2 + 8", "T.assume(n % 4 == 0)")
    assert ranges.divides(8, index)
    assert not ranges.divides(16, index)


def test_divisibility_of_remainders() -> None:
    index, ranges = index_of("(i * 8 + 16) % 12")
    assert ranges.divides(4, index)
    assert not ranges.divides(8, index)


VARIABLES = {"by": range(8), "i": range(16), "k": range(7, 2, -1)}


WRAPPING = ("int8", "uint8", "uint32")


def wrapped(parts: tuple[tuple[str, str], str, str]) -> str:
    """Arithmetic in a dtype whose numbers wrap around."""
    (a, b), dtype, op = parts
    return f"T.int32(T.{dtype}({a}) {op} T.{dtype}({b}))"


def expressions() -> st.SearchStrategy[str]:
    leaves = st.sampled_from([*VARIABLES, "3", "0", "-5", "17", "4"])

    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        both = st.tuples(inner, inner)
        return st.one_of(
            *(both.map(lambda p, o=o: f"({p[0]} {o} {p[1]})") for o in "+-*"),  # type: ignore[misc]
            both.map(lambda p: f"T.min({p[0]}, {p[1]})"),
            both.map(lambda p: f"T.max({p[0]}, {p[1]})"),
            st.tuples(inner, st.sampled_from("1234")).map(lambda p: f"({p[0]} // {p[1]})"),
            st.tuples(inner, st.sampled_from("1234")).map(lambda p: f"({p[0]} % {p[1]})"),
            st.tuples(both, st.sampled_from(WRAPPING), st.sampled_from("+-*")).map(wrapped),
        )

    return st.recursive(leaves, extend, max_leaves=6)


@given(expressions(), st.sampled_from(["lt", "le", "gt", "ge", "eq", "ne"]), st.integers(-40, 40))
def test_nothing_false_is_proved(text: str, op: str, limit: int) -> None:
    index, ranges = index_of(text)
    points = [
        dict(zip(VARIABLES, at, strict=True)) for at in itertools.product(*VARIABLES.values())
    ]
    values = {int(evaluate(index, point)) for point in points}
    found = ranges.bounds(index)
    assert found.low is None or found.low <= min(values)
    assert found.high is None or found.high >= max(values)
    cond = binary(op, index, int_const(limit))
    known = ranges.proves(cond)
    if known is not None:
        assert all(bool(evaluate(cond, point)) is known for point in points)
    for divisor in (2, 3, 4):
        if ranges.divides(divisor, index):
            assert all(value % divisor == 0 for value in values)


def test_a_name_of_three_values_stands_for_none_of_them() -> None:
    program = parse(
        """
@T.program(stage="tile")
def kernel(A: T.Tensor((64,), "int32")):
    with T.Kernel(1, threads=128) as bx:
        for i in T.serial(8):
            at = i + 1
            A[at] = 0
        for i_1 in T.serial(8):
            at = i_1 + 9
            A[at] = 0
        at = 40
        A[at] = 0
"""
    )
    ranges = Ranges(program)
    for store in statements(program.body):
        if isinstance(store, Store):
            assert ranges.linear(store.indices[0]).terms
            assert ranges.bounds(store.indices[0]) == Interval(1, 40)


def test_a_name_of_what_is_read_has_the_bounds_of_its_value() -> None:
    program = parse(
        """
@T.program(stage="tile")
def kernel(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "uint8")):
    with T.Kernel(1, threads=128) as bx:
        code = T.int32(B[bx]) & 15
        A[code - 8] = 0
"""
    )
    ranges = Ranges(program)
    (store,) = (each for each in statements(program.body) if isinstance(each, Store))
    assert ranges.bounds(store.indices[0]) == Interval(-8, 7)
