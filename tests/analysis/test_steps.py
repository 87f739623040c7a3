"""Estimates of how long loops take, and ranges of vectors of indices."""

from __future__ import annotations

import pytest

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.steps import (
    UNKNOWN_TRIPS,
    may_be_endless,
    runs_at_least_once,
    steps,
    trips,
)
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Ramp
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import For


def program(loops: str) -> Program:
    body = "\n".join("        " + line for line in loops.strip("\n").splitlines())
    return parse(
        f"""
@T.program(stage="cpu", symbols={{"n": "int32"}})
def kernel(A: T.Tensor((n,), "float32")):
    for block in T.blocks(1):
{body}
"""
    )


def first_loop(loops: str) -> For:
    found = program(loops)
    return next(s for s in statements(found.body) if isinstance(s, For) and s.var.name == "i")


@pytest.mark.parametrize(
    ("bounds", "count", "at_least_once"),
    [("4", 4, True), ("2, 10, 3", 3, True), ("5, 5", 0, False), ("n", UNKNOWN_TRIPS, False)],
)
def test_trips(bounds: str, count: int, at_least_once: bool) -> None:
    loop = first_loop(f"for i in T.serial({bounds}):\n    A[i] = 1.0")
    assert (trips(loop), runs_at_least_once(loop)) == (count, at_least_once)


@pytest.mark.parametrize(
    ("bounds", "vectors", "found"),
    [
        ("n", False, True),
        ("n", True, False),
        ("65536", False, False),
        ("134217728", False, False),
        ("1073741824", True, True),
        ("T.int64(n)", False, True),
    ],
)
def test_loops_that_nothing_ends(bounds: str, vectors: bool, found: bool) -> None:
    loop = first_loop(f"for i in T.serial({bounds}):\n    A[i] = 1.0")
    assert may_be_endless(loop, vectors) is found


def test_a_vector_loop_is_one_step() -> None:
    loop = first_loop(
        "for i in T.serial(3):\n    for v in T.vectorized(16):\n        A[v] = 1.0\n    A[i] = 2.0"
    )
    assert steps(loop) == 3 * 2


def test_a_vector_of_indices_is_in_range_when_its_ends_are() -> None:
    found = program("for i in T.serial(4):\n    A[i] = 1.0")
    ranges, loop = Ranges(found), first_loop("for i in T.serial(4):\n    A[i] = 1.0")
    vector = Ramp(loop.var, int_const(2), 8)  # 0 .. 3 + 14
    assert ranges.in_range(vector, int_const(18)) == (True, True)
    assert ranges.in_range(vector, int_const(17)) == (True, False)
    assert ranges.in_range(Ramp(int_const(7), int_const(-1), 9), int_const(8)) == (False, True)
