"""The user's text as a view, each line shaded by what it costs."""

from __future__ import annotations

import math
import re
from typing import Any

from tileworkbench.bench.units import format_bytes, format_count
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model import counted_lines, html
from tileworkbench.viz.model.code import language
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.text import numbered, warnings_of
from tileworkbench.viz.model.view import KernelView

# What a multiprocessor or a core does in one cycle, for the colour of a line and nothing else: a
# GPU's like an A100 (2048 operations of tensor cores, 10 bytes of memory, 128 of shared memory),
# a core with AVX-512 (64 operations, 4 bytes of memory, 64 of its cache).
RATES = {"gpu": (2048.0, 10.0, 128.0), "cpu": (64.0, 4.0, 64.0)}
_CODE_LINES = 400  # of one line's code that are sent
_COMMENT = re.compile(r"\s*(?://|;) line (\d+)")
_TINT = "rgba(240,150,0,{:.2f})"


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.record.source else "the kernel was not made from source text"


def model(view: KernelView) -> dict[str, Any]:
    """The lines, the number of the first one, warnings with their lines (0: none), costs,
    and what was counted of them.
    """
    record = view.record
    warnings = [{"text": note.message, "line": line} for note, line in warnings_of(record)]
    return {
        "first": record.first_line,
        "lines": record.source.splitlines(),
        "warnings": warnings,
        "costs": [_plain(cost) for cost in weighted(view)],
        "counted": counted_lines.model(view),
        "language": language(view),
        "resources": list(view.resources),
    }


def weighted(view: KernelView) -> list[dict[str, Any]]:
    """The costs of the lines with their `weight`: the share of the estimated time, 0 to 1."""
    flops_rate, global_rate, shared_rate = RATES[view.target_kind]
    costs = view.line_costs()
    times = []
    for cost in costs:
        conflicts = cost["wavefronts"] / cost["ideal"] if cost["ideal"] else 1.0
        waste = cost["sectors"] / cost["ideal_sectors"] if cost["ideal_sectors"] else 1.0
        time = (
            cost["flops"] / flops_rate
            + cost["global_bytes"] * waste / global_rate
            + cost["shared_bytes"] * conflicts / shared_rate
        )
        times.append(0.0 if math.isnan(time) else time)
    total = sum(times) or 1.0
    return [{**cost, "weight": time / total} for cost, time in zip(costs, times, strict=True)]


def _plain(cost: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value
        for name, value in cost.items()
    }


def line_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """What became of one line: its IR after each pass that changed the program, and its code."""
    return line_of(PassBrowser(view.record), int(content["line"]))


def line_of(browser: PassBrowser, number: int) -> dict[str, Any]:
    """`line_answer` for a browser that several lines share: printing programs takes long."""
    passes = []
    for index, entry in enumerate(browser.overview(live=False)["entries"]):
        if not entry["changed"]:
            continue
        texts = [line.text for line in browser.lines(index) if line.source == number]
        if texts:
            indent = min(len(text) - len(text.lstrip()) for text in texts)
            cut = [text[indent:] for text in texts[:_CODE_LINES]]
            passes.append({"name": entry["name"], "lines": cut})
    return {"passes": passes, "code": code_of_line(browser.record.code, number)[:_CODE_LINES]}


def code_of_line(code: str, number: int) -> list[str]:
    """The generated lines below each comment ``// line N: ...`` (of LLVM IR ``; line N``) up to the
    next such comment, or the end of the function.
    """
    texts: list[str] = []
    inside = False
    for text in code.splitlines():
        comment = _COMMENT.match(text)
        if comment is not None:
            inside = int(comment[1]) == number
        elif text.startswith(("}", "define ")):
            inside = False
        elif inside:
            texts.append(text)
    return texts


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the lines that cost something, by their text: a line that only
    moved is the same one.
    """
    lines = view.record.source.splitlines()
    labelled = []
    for cost in weighted(view):
        text = lines[cost["line"] - view.record.first_line].strip()
        if words := cost_words(cost):
            labelled.append((text, words))
    return numbered(labelled)


def section(view: KernelView, opened: bool = False) -> str:
    """The text with line numbers, shaded, with the numbers of each line beside it."""
    costs = {cost["line"]: cost for cost in weighted(view)}
    note = "shaded by estimated cost" if costs else ""
    block = source_block(view.record, costs)
    counted = counted_lines.section(view)
    return html.details("Source", block, counted, note=note, opened=opened or view.annotated)


def source_block(record: CompileRecord, costs: dict[int, dict[str, Any]] | None = None) -> str:
    """The user's text with line numbers; lines with a warning are marked, costs are on the left."""
    marked = {line for _, line in warnings_of(record)}
    costs = costs or {}
    words = {line: cost_words(cost) for line, cost in costs.items()}
    width = max(map(len, words.values()), default=0)
    lines = []
    for number, line in enumerate(record.source.splitlines(), record.first_line):
        colour = html.tone(html.WARN) if number in marked else html.FAINT
        shown = html.tag("span", colour, f"{number:3} ") + html.text(line)
        if width:
            weight = costs[number]["weight"] if number in costs else 0.0
            cost = html.tag("span", shade(weight), f"{words.get(number, ''):>{width}}  ")
            shown = cost + shown
        lines.append(shown)
    return html.code_block(lines)


def shade(weight: float) -> str:
    """The ground of a line that takes this share of the time."""
    return f"background-color:{_TINT.format(min(0.5, weight))}" if weight else ""


def cost_words(cost: dict[str, Any]) -> str:
    """``33.6 M flop  256.0 KiB  1.00x``: what a line costs, in a few words."""
    words = []
    if cost["flops"] and not math.isnan(cost["flops"]):
        words.append(f"{format_count(cost['flops'])} flop")
    if cost["global_bytes"] and not math.isnan(cost["global_bytes"]):
        words.append(format_bytes(cost["global_bytes"]))
    if cost["ideal"] and cost["wavefronts"] > cost["ideal"]:
        words.append(f"{cost['wavefronts'] / cost['ideal']:.2g}x conflicts")
    if cost["barriers"]:
        words.append(f"{cost['barriers']} barrier{'s' if cost['barriers'] > 1 else ''}")
    return "  ".join(words)
