"""Programs for the simulator's tests, written as IR text."""

from __future__ import annotations

from textwrap import dedent, indent

from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.verify import verify


def program(parameters: str, body: str, **header: object) -> Program:
    """A verified program. `parameters` reads `A: (4, 4) float32, n: int32`; header values are put
    in as `repr`.
    """
    header.setdefault("stage", "tile")
    options = ", ".join(f"{name}={_text(value)}" for name, value in header.items())
    lines = [f"@T.program({options})", "def kernel("]
    for text in parameters.split(";"):
        name, _, kind = text.strip().partition(": ")
        if kind.startswith("("):
            shape, _, dtype = kind.rpartition(" ")
            kind = f'Tensor({shape}, "{dtype}")'
        lines.append(f"    {name}: T.{kind},")
    lines.append("):")
    made = parse("\n".join(lines) + "\n" + indent(dedent(body).strip("\n"), "    ") + "\n")
    verify(made)
    return made


def _text(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value).replace("'", '"')


def block(body: str) -> str:
    """`body` as the body of a launch of one block."""
    return "with T.Kernel(1, threads=128) as bx:\n" + indent(dedent(body).strip("\n"), "    ")


def first_span(made: Program) -> Span | None:
    """The place of the program's first located statement."""
    return next((span for span in made.sites if span is not None), None)
