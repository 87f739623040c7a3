"""The whole text of errors about programs: types, layouts, simulated runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tests.messages.test_calls import rendered
from tileworkbench.compiler.diagnostics import LayoutError, RunError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.types import DType, promote
from tileworkbench.compiler.layout.atoms import ldmatrix_rows
from tileworkbench.compiler.sim import SimOptions, simulate


def test_vectors_that_do_not_combine() -> None:
    with pytest.raises(TypeError) as caught:
        promote(DType("float32x2"), DType("float32x4"))
    assert str(caught.value) == "cannot combine 'float32x2' with 'float32x4': the lanes differ"


def test_matrices_that_ldmatrix_cannot_load() -> None:
    assert rendered(lambda: ldmatrix_rows("A", transposed=True, bits=8), LayoutError) == (
        "LayoutError: ldmatrix cannot load transposed 'A' of 8 bits."
    )


def simulated(body: str, **options: Any) -> Callable[[], Any]:
    """A simulated run of the lines `body` over a tensor of 8 zeros."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        '@T.prim_func\ndef kernel(A: T.Tensor((8,), "int32")):\n'
        f"    with T.Kernel(1, threads=32) as bx:\n{lines}"
    )
    program = program_of(source)
    arrays = {"A": np.zeros(8, np.int32)}
    return lambda: simulate(program, arrays, options=SimOptions(**options))


def test_a_step_of_zero() -> None:
    program = parse(STEPS)
    arrays = {"A": np.zeros(8, np.int32)}
    text = rendered(lambda: simulate(program, arrays), RunError)
    assert text == "RunError: the step of a loop is zero"


STEPS = """
@T.program(stage="tile")
def kernel(
    A: T.Tensor((8,), "int32"),
):
    with T.Kernel(1, threads=128) as bx:
        for i in T.Parallel(8):
            for k in T.serial(0, i, A[i]):
                A[i] = k
"""


def test_a_loop_without_an_end() -> None:
    assert rendered(simulated("while A[0] == 0:\n    A[1] = 1", loop_limit=10), RunError) == (
        "RunError: 'while' loops ran more than 10 iterations\n"
        "  --> kernel.py, line 4\n"
        "4 | while A[0] == 0:\n"
        "  | ^^^^^^^^^^^^^^^\n"
        "hint: check that the loop ends, or raise SimOptions.loop_limit"
    )
