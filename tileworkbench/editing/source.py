"""Edited generated code: it runs in a process of its own first, which a mistake may end."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.compilation import Source
from tileworkbench.compiler.diagnostics import (
    RunError,
    Span,
    TileSyntaxError,
    UnsupportedError,
)
from tileworkbench.compiler.driver import compile_program
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.editing.child import compile_code, run_code
from tileworkbench.isolation.process import ChildError, Process, ProcessEndedError
from tileworkbench.workbench.checking import wide

if TYPE_CHECKING:
    from tileworkbench.workbench.kernel import Kernel

_COMPILE_SECONDS = 120.0
# Where LLVM and NVRTC say that an error is.
_PLACES = (
    re.compile(r"<string>:(\d+):(\d+): error: (.*)"),
    re.compile(r"\((\d+)\): error: (.*)"),
)

_REJECTED = "LLVM rejected the generated code: "


@dataclass(frozen=True, slots=True)
class Trial:
    """A kernel with edited code that ran once; as text, how its results compare."""

    kernel: Kernel
    text: str

    def __str__(self) -> str:
        return self.text


def edit_source(
    kernel: Kernel,
    text: str,
    arguments: Sequence[Any],
    seconds: float = 10.0,
    file: str = "<code>",
    first_line: int = 1,
) -> Trial:
    """The kernel with `text` as its generated code: see `Kernel.edit_source`.

    `file` is what diagnostics know the text by, which begins there at `first_line`.
    """
    check_runs_code(kernel)
    compiled = kernel.compiled
    record = compiled.record
    source = Source(record.source, record.source_file, record.first_line)
    options = replace(compiled.options, code=text)
    given = (record.program, record.target, source, options)
    process = Process()
    try:
        reply = _run_apart(process, record.name, given, list(arguments), seconds)
    finally:
        process.close()
    if "refused" in reply:
        raise _refusal(record.name, reply["refused"], text, file, first_line)
    if reply["error"]:
        raise RunError(
            f"the edited code of '{record.name}' failed: {reply['error'][0]}",
            hint=f"the notebook and '{record.name}' are as they were",
        )
    made = compile_program(record.program, record.target, source=source, options=options)
    mine = copy.deepcopy(list(arguments))
    returned = kernel(*mine)
    results = (reply["returned"], reply["arguments"]), ([returned], mine)
    difference = _difference(_names(record.program, mine), *map(_tensors, results))
    said = f"{record.name} with this code ran in a process of its own: {difference}"
    return Trial(type(kernel)(made), said)


def check_runs_code(kernel: Kernel) -> None:
    """Raise `UnsupportedError` for a kernel of which something else is run than generated code."""
    target = kernel.compiled.target
    if target.execution == "sim":
        raise UnsupportedError(
            f"'{kernel.target}' runs the lowered program, not its CUDA text",
            hint=f"edit its IR ('%%tile ir'), or compile it for 'ptx:{target.arch}'",
        )


def _run_apart(
    process: Process, name: str, given: tuple[Any, ...], arguments: list[Any], seconds: float
) -> dict[str, Any]:
    """What compiling says, then what running gives. Raises `RunError` where the process ends."""
    try:
        refused = process.call(compile_code, given, seconds=_COMPILE_SECONDS)
        if refused:
            return {"refused": refused}
        answer: dict[str, Any] = process.call(run_code, arguments, seconds=seconds)
        return answer
    except ProcessEndedError as error:
        if error.timed_out:
            raise RunError(
                f"the edited code of '{name}' did not end within {seconds:g} s",
                hint=f"its process was stopped; the notebook and '{name}' are as they were",
            ) from None
        cause = error.cause
    except ChildError as error:
        cause = error.message
    raise RunError(
        f"the edited code of '{name}' ended its process: {cause}",
        hint=f"the notebook and '{name}' are as they were",
    )


def _refusal(
    name: str, messages: Sequence[str], text: str, file: str, first_line: int
) -> TileSyntaxError:
    """The error of code that does not compile, with its place where the compiler names one."""
    what = f"the edited code of '{name}' does not compile"
    lines = text.splitlines()
    for message in messages:
        for pattern in _PLACES:
            match = pattern.search(message)
            if match is None:
                continue
            line, *column, reason = match.groups()
            at = int(column[0]) - 1 if column else 0
            # LLVM repeats the line, with a caret below it.
            shown = " ".join(lines[int(line) - 1].split()) if int(line) <= len(lines) else ""
            reason = reason.removesuffix("^").rstrip().removesuffix(shown).rstrip()
            place = Span(file, int(line) + first_line - 1, at)
            return TileSyntaxError(f"{what}: {reason}", place)
    return TileSyntaxError(f"{what}: {messages[0].removeprefix(_REJECTED)}")


def _names(program: Program, arguments: Sequence[Any]) -> list[str]:
    """What a call returns and what it was given, by name."""
    params = program.params
    if len(arguments) == len(params):  # all are given, and nothing is returned
        return [param.name for param in params]
    returned = [params[at].name for at in program.returns]
    return [*returned, *(param.name for param in params if not param.output)]


def _tensors(given: tuple[Any, Sequence[Any]]) -> list[Any]:
    """What a call returned and what it was given, one after the other: tensors, and scalars."""
    (returned,), arguments = given
    made = returned if isinstance(returned, list | tuple) else [returned]
    return [*(each for each in made if each is not None), *arguments]


def _difference(names: Sequence[str], results: Sequence[Any], expected: Sequence[Any]) -> str:
    """How two results with their arguments compare, tensor by tensor."""
    texts = []
    for name, result, wanted in zip(names, results, expected, strict=True):
        if not hasattr(wanted, "shape"):
            continue
        one, other = wide(result), wide(wanted)
        differ = (one != other) & ~(np.isnan(one) & np.isnan(other))
        if count := int(differ.sum()):
            worst = float(np.nanmax(np.abs(one - other)[differ], initial=0.0))
            elements = "element" if one.size == 1 else "elements"
            texts.append(f"'{name}' in {count} of {one.size} {elements}, by at most {worst:.2g}")
    return f"its results differ: {'; '.join(texts)}" if texts else "its results are the same"
