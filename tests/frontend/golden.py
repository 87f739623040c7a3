"""Kernels with the text they must give: the printed program, or the rendered diagnostic.

A case file holds cases of the form::

    === name
    source that defines `kernel`
    ---
    expected text

`kernel` is a `T.prim_func`, or a plain function that is traced as an eager kernel for the
compile-time arguments and constants in `VALUES`. After a deliberate change, `python -m
tests.frontend.golden` rewrites the expected texts: review the difference before committing it.
"""

from __future__ import annotations

import inspect
import linecache
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.frontend.function import EagerFunction, PrimFunc
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program

FOLDER = Path(__file__).parent
FILE = "kernel.py"


@dataclass(frozen=True)
class Case:
    """One kernel and its text."""

    name: str
    source: str
    expected: str

    @property
    def text(self) -> str:
        """The case as it stands in its file."""
        return f"=== {self.name}\n{self.source}---\n{self.expected}"


def read_cases(path: Path) -> list[Case]:
    """The cases of one file."""
    cases = []
    for block in path.read_text(encoding="utf-8").split("=== ")[1:]:
        name, _, rest = block.partition("\n")
        source, _, expected = rest.partition("---\n")
        cases.append(Case(name.strip(), source, expected.rstrip("\n") + "\n"))
    return cases


def define(source: str, file: str = FILE) -> dict[str, Any]:
    """Run `source` as if it were a file, so that its functions have text."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"T": T, "__name__": "kernel"}
    exec(compile(source, file, "exec", dont_inherit=True), namespace)
    return namespace


def program_of(source: str) -> Program:
    """The program that `source` traces to."""
    namespace = define(source)
    kernel = namespace["kernel"]
    if isinstance(kernel, PrimFunc):
        return kernel.program
    if not inspect.isfunction(kernel):
        raise TypeError("the source defines no kernel")
    eager = EagerFunction(kernel)
    return eager.trace(eager.specialise(**namespace.get("VALUES", {})))


def output_of(source: str) -> str:
    """The program that `source` traces to, or the error that it gives, as text."""
    try:
        return print_program(program_of(source))
    except TileError as error:
        return error.render() + "\n"
    except Exception as error:
        notes = getattr(error, "__notes__", [])
        return "\n".join([f"{type(error).__name__}: {error}", *notes]) + "\n"


def update(path: Path) -> None:
    """Write what the cases of a file give now."""
    cases = [Case(case.name, case.source, output_of(case.source)) for case in read_cases(path)]
    path.write_text("\n".join(case.text for case in cases), encoding="utf-8")


if __name__ == "__main__":
    for found in sorted(FOLDER.glob("*/*.txt")):
        update(found)
