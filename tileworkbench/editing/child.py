"""What runs in the process that edited code runs in first: see `isolation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.driver import compile_program

_compiled: list[Any] = []


def compile_code(given: tuple[Any, ...]) -> list[str]:
    """Compile a program with edited code, for `run_code`; what an error says, if there is one."""
    program, target, source, options = given
    return _said(
        lambda: _compiled.append(compile_program(program, target, source=source, options=options))
    )


def run_code(arguments: list[Any]) -> dict[str, Any]:
    """Run what was compiled last: what it returned and its arguments, or an error."""
    returned: list[Any] = []
    error = _said(lambda: returned.append(_compiled[-1](*arguments)))
    return {"error": error, "returned": returned, "arguments": arguments}


def _said(run: Callable[[], object]) -> list[str]:
    """The messages of the error that `run` raises; none where it does not."""
    try:
        run()
    except TileError as error:
        return [error.message, *(note.message for note in error.notes)]
    return []
