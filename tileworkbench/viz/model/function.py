"""A function of torch operations in kernels: what became of each operation, and the programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model import html

_HTML_BYTES = 60_000  # of the still form


@dataclass(frozen=True, slots=True)
class OperationRow:
    """One operation: torch's name, the line of the cell that it comes from (0: not known) with its
    text, the kernel that does it ("": torch) or the reason why torch does.
    """

    name: str
    line: int
    text: str
    kernel: str
    reason: str
    in_backward: bool


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel: its name, its T program, its target, and the cell that has it."""

    name: str
    source: str
    target: str
    cell: str


@dataclass(frozen=True, slots=True)
class FunctionView:
    """What the card of a function shows.

    `summary` is a line; `breaks` say where torch could not capture it; `agreement` says how it
    compares with torch, "" where nobody looked; `times` how long both take, "" likewise.
    """

    name: str
    summary: str
    operations: tuple[OperationRow, ...]
    kernels: tuple[KernelRow, ...]
    breaks: tuple[str, ...]
    agreement: str
    times: str


def function_line(view: FunctionView) -> str:
    """One line of plain text, the same in every run."""
    return f"<tw.tile {view.name}: {view.summary}>"


def function_model(view: FunctionView) -> dict[str, Any]:
    """The same for the browser."""
    return {
        "name": view.name,
        "summary": view.summary,
        "groups": [
            {"line": line, "text": text, "operations": list(map(asdict, rows))}
            for line, text, rows in _by_line(view.operations)
        ],
        "kernels": list(map(asdict, view.kernels)),
        "breaks": list(view.breaks),
        "agreement": view.agreement,
        "times": view.times,
    }


def _by_line(
    operations: Sequence[OperationRow],
) -> list[tuple[int, str, list[OperationRow]]]:
    """The operations of each line of the user's code together, in order."""
    made = []
    for (line, text), rows in groupby(operations, key=lambda each: (each.line, each.text)):
        made.append((line, text, list(rows)))
    return made


def function_html(view: FunctionView) -> str:
    """The card for readers without a kernel; nothing in it was measured."""
    name = html.tag("b", f"{html.MONO};font-size:15px;margin-right:8px", html.text(view.name))
    head = [html.tag("div", "", name, " ", html.chip(view.summary))]
    head += [
        html.tag("div", html.tone(html.WARN), "⚠ Python runs between graphs: ", html.text(each))
        for each in view.breaks
    ]
    rows = []
    for line, text, operations in _by_line(view.operations):
        code = html.tag("span", html.MONO, html.text(text))
        for place, each in enumerate(operations):
            where = html.tag("b", "", html.text(each.kernel)) if each.kernel else "torch"
            why = html.tag("span", html.FAINT, html.text(each.reason))
            gradient = " (gradient)" if each.in_backward else ""
            first = place == 0
            rows.append(
                [
                    str(line or "") if first else "",
                    code if first else "",
                    html.text(f"{each.name}{gradient}"),
                    f"{where} {why}",
                ]
            )
    table = html.table(rows, ["line", "your code", "operation", "runs in"])
    parts = [*head, table]
    room = _HTML_BYTES - sum(map(len, parts))
    for kernel in view.kernels:
        lines = [html.text(each) for each in kernel.source.splitlines()]
        made = html.details(f"Kernel {kernel.name}", html.code_block(lines), note=kernel.target)
        room -= len(made)
        parts.append(made if room > 0 else html.line(f"Kernel {kernel.name}", "run the cell"))
    return html.panel(*parts)
