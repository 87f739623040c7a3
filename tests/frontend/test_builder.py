"""State of traces: nothing is left behind by a failing one, threads do not meet, sites point at the
text.
"""

from __future__ import annotations

import threading
import traceback
from typing import Any

import pytest

import tileworkbench.language as T
from tests.frontend.golden import define
from tileworkbench.compiler.diagnostics import (
    CompileError,
    TileIndexError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.builder import active_builder
from tileworkbench.compiler.frontend.function import PrimFunc, with_outputs
from tileworkbench.compiler.ir.printer import print_lines
from tileworkbench.compiler.ir.rewrite import statements

GOOD = """
@T.prim_func
def kernel(A: T.Tensor((64, 64), "float32"), n: T.int32):
    with T.Kernel(4) as bx:
        x = A[bx, 0]
        for i in range(n):
            if i > bx:
                A[i, 0] = x
            else:
                A[i, 1] = (
                    x + 1
                )
        T.copy(
            A[0:8, :],
            A[8:16, :],
        )
"""
BAD = GOOD.replace("A[i, 0] = x", "A[i] = x")


def test_a_failing_trace_leaves_no_state_behind() -> None:
    before = define(GOOD)["kernel"].script()
    for _ in range(3):
        with pytest.raises(TileIndexError):
            define(BAD)
        assert active_builder() is None
    assert define(GOOD)["kernel"].script() == before


def test_a_trace_inside_a_trace() -> None:
    kernels: list[PrimFunc] = []

    def build() -> int:
        kernels.append(define(GOOD, "inner.py")["kernel"])
        return 3

    namespace = {"build": build}

    @T.prim_func
    def kernel(A: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            x = A[0]
            A[1] = namespace["build"]()
            A[2] = x

    assert kernels[0].script() == define(GOOD)["kernel"].script()
    assert "A[1] = 3.0\n        A[2] = x" in kernel.script()


def test_threads_trace_independently() -> None:
    expected = define(GOOD)["kernel"].script()
    results: list[str] = []
    started = threading.Barrier(4)

    def work(number: int) -> None:
        started.wait()
        for _ in range(5):
            results.append(define(GOOD, f"thread{number}.py")["kernel"].script())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 20


def test_every_statement_has_the_span_of_its_line() -> None:
    program = define(GOOD)["kernel"].program
    assert all(stmt.site for stmt in statements(program.body) if type(stmt).__name__ != "Seq")
    places = []
    for line in print_lines(program):
        span = program.span(line.site)
        if span is not None:
            places.append(
                (line.text.strip(), span.line, span.column, span.end_line, span.end_column)
            )
    assert places == [
        ("with T.Kernel(4, threads=128) as bx:", 4, 4, 4, 20),
        ("x = A[bx, 0]", 5, 8, 5, 20),
        ("for i in T.serial(n):", 6, 8, 6, 25),
        ("if i > bx:", 7, 12, 7, 21),
        ("A[i, 0] = x", 8, 16, 8, 27),
        ("else:", 7, 12, 7, 21),
        ("A[i, 1] = x + 1.0", 10, 16, 12, 17),
        ("T.copy(A[0:8, 0:64], A[8:16, 0:64])", 13, 8, 16, 9),
    ]


def test_statements_of_a_macro_have_the_macro_s_spans() -> None:
    program = define(
        "@T.macro\n"
        "def twice(buffer):\n"
        "    buffer[0] = 2\n"
        "    buffer[1] = 2\n"
        "@T.prim_func\n"
        "def kernel(A: T.Tensor((4,), 'float32')):\n"
        "    with T.Kernel(1):\n"
        "        twice(A)\n"
        "        A[2] = 3\n"
    )["kernel"].program
    lines = [program.span(stmt.site).line for stmt in statements(program.body) if stmt.site]
    assert lines == [7, 3, 4, 9]


def test_an_error_shows_no_frames_of_the_compiler_below_the_user_s() -> None:
    with pytest.raises(CompileError) as caught:
        define(BAD)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-1] == "kernel.py"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_span_over_several_lines() -> None:
    with pytest.raises(TileTypeError) as caught:
        define(GOOD.replace("x + 1\n", "x + A\n"))
    span = caught.value.span
    assert span is not None
    assert (span.line, span.column, span.end_line, span.end_column) == (11, 20, 11, 25)


def test_unicode_columns_count_characters() -> None:
    with pytest.raises(TileTypeError) as caught:
        define(GOOD.replace("x = A[bx, 0]", "größe = 'äöü'; x = A[bx, 'ß']"))
    span = caught.value.span
    assert span is not None
    assert (span.column, span.end_column) == (27, 37)


def prim(
    text: str = "A: T.Tensor((4,), 'float32'), n: T.int32, B: T.Tensor((4,), 'float32')",
) -> PrimFunc:
    source = f"@T.prim_func\ndef kernel({text}):\n    with T.Kernel(1):\n        A[0] = 1\n"
    found: PrimFunc = define(source)["kernel"]
    return found


@pytest.mark.parametrize(
    ("out_idx", "returns"),
    [(None, ()), (2, (2,)), (-1, (2,)), ([0], (0,)), ([-1, 0], (2, 0))],
)
def test_out_idx_marks_outputs_in_its_order(out_idx: Any, returns: tuple[int, ...]) -> None:
    program = with_outputs(prim().program, out_idx)
    assert program.returns == returns
    assert [i for i, param in enumerate(program.params) if param.output] == sorted(returns)


@pytest.mark.parametrize(
    ("out_idx", "message"),
    [
        (3, "out_idx 3 is out of range: 'kernel' has 3 parameters"),
        (-4, "out_idx -4 is out of range: 'kernel' has 3 parameters"),
        (1, "out_idx 1 is the scalar parameter 'n', not a tensor"),
        ([0, -3], "out_idx names the parameter 'A' twice"),
    ],
)
def test_out_idx_that_does_not_fit(out_idx: Any, message: str) -> None:
    with pytest.raises(TileValueError) as caught:
        with_outputs(prim().program, out_idx)
    assert caught.value.message == message


def test_out_idx_with_returned_outputs() -> None:
    source = (
        "@T.prim_func\n"
        "def kernel(A: T.Tensor((4,), 'float32')):\n"
        "    B = T.empty(4)\n"
        "    with T.Kernel(1):\n"
        "        B[0] = A[0]\n"
        "    return B\n"
    )
    program = define(source)["kernel"].program
    assert program.returns == (1,)
    with pytest.raises(ValueError, match="Out index conflict"):
        with_outputs(program, 0)


def test_prim_func_shows_what_it_is() -> None:
    kernel = prim()
    assert kernel.name == "kernel"
    assert [param.name for param in kernel.params] == ["A", "n", "B"]
    assert repr(kernel) == "<prim_func kernel(A, n, B)>"
