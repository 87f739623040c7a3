"""How the layouts of a kernel came about: who demanded what, in which order, what was rejected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tileworkbench.compiler.ir.decisions import LayoutDecision, Verdict
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import clip

SAID = {
    Verdict.SET: "set",
    Verdict.REFINED: "refined",
    Verdict.AGREED: "agrees",
    Verdict.YIELDED: "accepts",
    Verdict.REJECTED: "rejected",
    Verdict.CHOSEN: "chosen",
}
_COLOURS = {Verdict.REJECTED: html.BAD, Verdict.CHOSEN: html.GOOD, Verdict.SET: html.ACCENT}
_SHOWN = 40  # steps in a static list
_FORMULA = 160  # letters of a layout in it


def layout_steps(record: CompileRecord) -> list[dict[str, Any]]:
    """The steps in order: ``verdict``, ``said`` (the verdict as a word), ``operator``, ``line`` of
    the user's text (0: none), ``buffer``, ``text``, ``layout``, and ``code`` of the line.
    """
    if not record.snapshots:
        return []
    program = record.snapshots[-1].program
    steps = []
    for decision in program.decisions:
        span = program.span(decision.site)
        steps.append(
            {
                "verdict": decision.verdict.value,
                "said": SAID[decision.verdict],
                "operator": decision.operator,
                "line": span.line if span else 0,
                "buffer": decision.buffer,
                "text": _sentence(decision),
                "layout": decision.layout,
                "code": _code(record, span.line) if span else "",
            }
        )
    return steps


def _code(record: CompileRecord, line: int) -> str:
    """The user's line; empty where it is in another function's text."""
    lines = record.source.splitlines()
    at = line - record.first_line
    return lines[at].strip() if 0 <= at < len(lines) else ""


def _sentence(decision: LayoutDecision) -> str:
    """``T.gemm · C_local: holds the result of a matrix product``."""
    about = " · ".join(name for name in (decision.operator, decision.buffer) if name)
    return f"{about}: {decision.reason}" if about else decision.reason


def steps_section(record: CompileRecord) -> str:
    """The list as sanitiser-safe HTML; empty where there are no steps."""
    steps = layout_steps(record)
    if not steps:
        return ""
    more = len(steps) - _SHOWN
    rows = list(_rows(steps[:_SHOWN]))
    if more > 0:
        rows.append(["", "", "", html.tag("span", html.FAINT, f"{more} more")])
    table = html.table(rows, ("", "line", "", "who wants what, and why"))
    count = f"{len(steps)} step{'s' if len(steps) != 1 else ''}"
    return html.details("Why these layouts", table, note=count)


def _rows(steps: list[dict[str, Any]]) -> Iterator[list[str]]:
    for number, step in enumerate(steps, 1):
        verdict = html.chip(step["said"], _COLOURS.get(Verdict(step["verdict"]), "#767676"))
        text = html.text(step["text"])
        if step["layout"]:
            style = f"{html.MONO};font-size:11px"
            text += html.tag("div", style, html.text(clip(step["layout"], _FORMULA)))
        yield [str(number), str(step["line"] or ""), verdict, text]
