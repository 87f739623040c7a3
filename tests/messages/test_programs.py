"""The whole text of errors about programs: types, layouts, simulated runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontend.golden import program_of
from tests.messages.test_calls import rendered
from tileworkbench.compiler.diagnostics import ArgumentError, DeadlockError, RunError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.types import DType, promote
from tileworkbench.compiler.sim import SimOptions, simulate


def test_vectors_that_do_not_combine() -> None:
    with pytest.raises(TypeError) as caught:
        promote(DType("float32x2"), DType("float32x4"))
    assert str(caught.value) == "cannot combine 'float32x2' with 'float32x4': the lanes differ"


def simulated(body: str, grid: int = 1, **options: Any) -> Callable[[], Any]:
    """A simulated run of the lines `body` over a tensor of 8 zeros."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    source = (
        '@T.prim_func\ndef kernel(A: T.Tensor((8,), "int32")):\n'
        f"    with T.Kernel({grid}, threads=32) as bx:\n{lines}"
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


# Threads one by one


def test_a_loop_of_threads_without_an_end() -> None:
    body = "tx = T.get_thread_binding()\nwhile A[0] == 0:\n    A[tx % 8] = 0"
    assert rendered(simulated(body, loop_limit=10), RunError) == (
        "RunError: 'while' loops ran more than 10 iterations\n"
        "  --> kernel.py, line 5\n"
        "5 | while A[0] == 0:\n"
        "  | ^^^^^^^^^^^^^^^\n"
        "hint: check that the loop ends, or raise SimOptions.loop_limit"
    )


def test_blocks_that_wait_for_others() -> None:
    body = "tx = T.get_thread_binding()\nA[tx % 8] = tx\nif bx < 1:\n    T.sync_grid()"
    assert rendered(simulated(body, grid=2), DeadlockError) == (
        "DeadlockError: 1 block waits at a barrier of the grid that the others do not reach\n"
        "  --> kernel.py, line 7\n"
        "7 | T.sync_grid()\n"
        "  | ^^^^^^^^^^^^^\n"
        "hint: let every block reach it, whatever branch it takes"
    )


def test_a_grid_of_nothing() -> None:
    program = parse(EMPTY)
    arguments = {"A": np.zeros(8, np.int32), "n": 0}
    text = rendered(lambda: simulate(program, arguments), ArgumentError)
    assert text == "ArgumentError: 'kernel': the grid is empty, there is no block to run"


def test_a_step_of_zero_between_threads() -> None:
    program = parse(STEPS_OF_THREADS)
    text = rendered(lambda: simulate(program, {"A": np.zeros(8, np.int32)}), RunError)
    assert text == "RunError: the step of a loop is zero"


STEPS_OF_THREADS = """
@T.program(stage="tile")
def kernel(
    A: T.Tensor((8,), "int32"),
):
    with T.Kernel(1, threads=8, thread_vars=["tx"]) as bx:
        for k in T.serial(0, 4, A[0]):
            T.sync_threads()
            A[tx] = k
"""

EMPTY = """
@T.program(stage="tile")
def kernel(
    A: T.Tensor((8,), "int32"),
    n: T.int32,
):
    with T.Kernel(n, threads=32, thread_vars=["tx"]) as bx:
        T.sync_threads()
        A[tx] = 1
"""
