"""Mistakes in annotations happen before any trace, and still point at the user's line."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import CompileError, TileTypeError


def test_an_unknown_dtype_in_an_annotation_has_a_place() -> None:
    with pytest.raises(TileTypeError) as caught:
        T.Tensor((8,), "float33")
    lines = caught.value.render().splitlines()
    assert lines[0] == "TileTypeError: 'float33' is not a dtype; did you mean 'float32'?"
    assert lines[2].endswith('| T.Tensor((8,), "float33")')
    assert lines[3].endswith("^^^^^^^^^^^^^^^^^^^^^^^^^")


def rendered(call: Callable[[], Any]) -> list[str]:
    """The text of the error that `call` raises, without its file."""
    with pytest.raises(CompileError) as caught:
        call()
    first, place, *rest = caught.value.render().splitlines()
    assert place.startswith("  --> ") and "test_errors_outside.py, line " in place
    number = place.rpartition(" ")[2]
    return [first, *(line.removeprefix(number).removeprefix(" " * len(number)) for line in rest)]


def unknown_name() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8, Missing), "float32")) -> None:  # noqa: F821
        pass


def unknown_dtype() -> None:
    @tw.jit
    def kernel(x: int, A: T.Tensor((8,), "flaot32")) -> None:
        with T.Kernel(1, threads=32):
            A[0] = 1.0

    kernel(1, np.zeros(8, np.float32))


def wrong_arithmetic() -> None:
    @T.prim_func
    def kernel(A: T.Tensor((8 // 0,), "float32")) -> None:
        pass


def of_a_macro() -> None:
    @T.macro
    def add(A: T.Nothing((8,))) -> None:
        A[0] = 1.0

    @T.prim_func
    def kernel(A: T.Tensor((8,), "float32")) -> None:
        with T.Kernel(1, threads=32):
            add(A)


def quoted() -> None:
    @T.prim_func
    def kernel(A: "T.Tensor((8,), 'flaot32')") -> None:  # noqa: UP037
        pass


def no_expression() -> None:
    @T.prim_func
    def kernel(A: "T.Tensor((8,") -> None:  # noqa: F722
        pass


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            unknown_name,
            """
            TileNameError: name 'Missing' is not defined
             | def kernel(A: T.Tensor((8, Missing), "float32")) -> None:  # noqa: F821
             |                            ^^^^^^^
            """,
        ),
        (
            unknown_dtype,
            """
            TileTypeError: 'flaot32' is not a dtype; did you mean 'float32'?
             | def kernel(x: int, A: T.Tensor((8,), "flaot32")) -> None:
             |                       ^^^^^^^^^^^^^^^^^^^^^^^^^
            """,
        ),
        (
            wrong_arithmetic,
            """
            TileValueError: integer division or modulo by zero
             | def kernel(A: T.Tensor((8 // 0,), "float32")) -> None:
             |                         ^^^^^^
            """,
        ),
        (
            of_a_macro,
            """
            TileAttributeError: the language has no 'T.Nothing'; did you mean T.Not?
             | def add(A: T.Nothing((8,))) -> None:
             |            ^^^^^^^^^
            """,
        ),
        (
            quoted,
            """
            TileTypeError: 'flaot32' is not a dtype; did you mean 'float32'?
             | def kernel(A: "T.Tensor((8,), 'flaot32')") -> None:  # noqa: UP037
             |               ^^^^^^^^^^^^^^^^^^^^^^^^^^^
            """,
        ),
        (
            no_expression,
            """
            TileSyntaxError: the annotation of 'A' is no expression
             | def kernel(A: "T.Tensor((8,") -> None:  # noqa: F722
             |               ^^^^^^^^^^^^^^
            """,
        ),
    ],
)
def test_a_postponed_annotation_has_its_place(make: Callable[[], None], expected: str) -> None:
    assert rendered(make) == dedent(expected).strip("\n").splitlines()
