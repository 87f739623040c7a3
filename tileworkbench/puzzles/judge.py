"""Whether a kernel is the answer to a puzzle."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping

from tileworkbench.api import Jit
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    CheckError,
    CompileError,
    Span,
    TileError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.puzzles.limit import time_limit
from tileworkbench.puzzles.task import Task
from tileworkbench.workbench.kernel import Kernel

SECONDS = 5.0
"""How long the cell, and then each call of its kernel, may take."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A right answer: the shapes that it was tried with, and what was expected of its code."""

    task: Task
    shapes: tuple[Mapping[str, int], ...]
    facts: tuple[str, ...]


def judge(task: Task, answer: Jit) -> Verdict:
    """Run `answer`, made for the puzzle's target, in the simulator, all blocks, and compare what it
    returns with the specification, for every shape of the puzzle.

    Raises `ArgumentError` for another signature, `CompileError` kinds, `RaceError` or another
    `RunError` for what the simulator finds or what does not end, `CheckError` for wrong results and
    conditions that do not hold. The message names the puzzle and the shape.
    """
    check_signature(task, answer)
    file = answer.fn.__code__.co_filename
    shapes, kernel = [], None
    for shape, arrays in task.cases():
        said = ", ".join(f"{name}={value}" for name, value in shape.items())
        try:
            with time_limit(SECONDS, file):
                kernel, passed = answer.prepare(*arrays)
                kernel.check(task.reference, *passed, sanitize=True)
        except TileError as error:
            _explain(task, error, f"with {said}")
            raise
        shapes.append(shape)
    facts = _check_facts(task, kernel) if kernel is not None and task.expects else ()
    return Verdict(task, tuple(shapes), facts)


def _check_facts(task: Task, kernel: Kernel) -> tuple[str, ...]:
    """What was expected of the code, as text. Raises `CheckError`, which names the worst line."""
    try:
        return tuple(map(str, kernel.expect(*task.expects)))
    except CheckError as error:
        counts = [each for each in kernel.accesses if isinstance(each, AccessCount)]
        if counts:
            error.span = max(counts, key=lambda access: access.factor).span
        error.kernel, error.view = kernel, task.view
        _explain(task, error, "right, but not as it should be")
        raise


def _explain(task: Task, error: TileError, when: str) -> None:
    """Say in an error which puzzle it is about, and where help is."""
    error.message = f"puzzle {task.number}, {when}: {error.message}"
    if not isinstance(error, CompileError) and (
        error.hint is None or isinstance(error, CheckError)
    ):
        error.hint = f"'%tile hint {task.number}' has a hint"


def check_signature(task: Task, answer: Jit) -> None:
    """Raise `ArgumentError` where a function does not take the puzzle's tensors."""
    function = next(
        node for node in ast.parse(task.skeleton).body if isinstance(node, ast.FunctionDef)
    )
    wanted = [each.arg for each in function.args.args]
    given = inspect.signature(answer.fn).parameters.values()
    required = [each.name for each in given if each.default is inspect.Parameter.empty]
    if required == wanted and answer.is_eager:
        return
    code = answer.fn.__code__
    kind = "" if answer.is_eager else ", which makes a T.prim_func"
    raise ArgumentError(
        f"puzzle {task.number} calls 'def {function.name}({', '.join(wanted)})', and this is "
        f"'def {answer.fn.__name__}({', '.join(required)})'{kind}",
        f"keep the first line of the skeleton: '%tile puzzle {task.number}' makes a new cell of it",
        span=Span(code.co_filename, code.co_firstlineno),
    )
