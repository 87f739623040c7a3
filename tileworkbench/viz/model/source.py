"""The user's text as a view."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import warnings_of
from tileworkbench.viz.model.view import KernelView


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.record.source else "the kernel was not made from source text"


def model(view: KernelView) -> dict[str, Any]:
    """The lines, the number of the first one, and the warnings with their lines (0: none)."""
    record = view.record
    warnings = [{"text": note.message, "line": line} for note, line in warnings_of(record)]
    return {"first": record.first_line, "lines": record.source.splitlines(), "warnings": warnings}


def section(view: KernelView, opened: bool = False) -> str:
    """The text with line numbers."""
    return html.details("Source", source_block(view.record), opened=opened)


def source_block(record: CompileRecord) -> str:
    """The user's text with line numbers; lines with a warning are marked."""
    marked = {line for _, line in warnings_of(record)}
    lines = []
    for number, line in enumerate(record.source.splitlines(), record.first_line):
        colour = f"color:{html.WARN}" if number in marked else html.FAINT
        lines.append(html.tag("span", colour, f"{number:3} ") + html.text(line))
    return html.code_block(lines)
