"""The passes of a compilation for readers without a kernel: as HTML and as text."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.record import CompileRecord
from tileworkbench.compiler.rewrites import counts_of, rewrites_of
from tileworkbench.viz.model import html
from tileworkbench.viz.model.pass_changes import changes_of, whole
from tileworkbench.viz.model.pass_rules import static_rules
from tileworkbench.viz.model.passes import FRONT_END, PassBrowser
from tileworkbench.viz.model.text import numbered, passes_changed
from tileworkbench.viz.model.view import KernelView

STATIC_LINES = 300  # of a difference


def passes_section(view: KernelView, opened: bool = False) -> str:
    """The list of passes, without times."""
    rows = []
    for entry in _entries(view):
        colour = html.ACCENT if entry["changed"] else "#8a8a8a"
        badge = html.chip(_state(entry), colour)
        name = html.tag("code", "", html.text(entry["name"]))
        rows.append([badge, name, html.tag("span", html.FAINT, html.text(entry["doc"]))])
    applied = _rules(view) if opened else []
    return html.details("Passes", html.table(rows), *applied, note=_count(view), opened=opened)


def _rules(view: KernelView) -> list[str]:
    """What each pass rewrote, closed; of a processor's code it depends on the host."""
    if view.target_kind == "cpu":
        return []
    steps = enumerate(view.record.snapshots)
    made = ((each.name, static_rules(view.record, at)) for at, each in steps)
    return [html.details(f"What {name} did", shown) for name, shown in made if shown]


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each pass."""
    return numbered((entry["name"], _state(entry)) for entry in _entries(view))


def passes_text(view: KernelView) -> str:
    """The list of passes as lines of text, without times."""
    entries = _entries(view)
    width = max((len(entry["name"]) for entry in entries), default=0)
    lines = (f"{_state(entry):<9}{entry['name']:<{width}}  {entry['doc']}" for entry in entries)
    return "\n".join((_count(view), *(line.rstrip() for line in lines)))


def _state(entry: dict[str, Any]) -> str:
    if entry.get("disabled"):
        return "off"
    return "changed" if entry["changed"] else "no-op"


def _entries(view: KernelView) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = PassBrowser(view.record).overview(live=False)["entries"]
    return entries[1:]


def _count(view: KernelView) -> str:
    changed, total = passes_changed(view.record)
    return f"{changed} of {total} changed something"


def diff_section(view: KernelView, index: int) -> str:
    """What pass `index` did to the IR, as lines taken away and added."""
    lines, dropped = _change(view, index)
    colours = {"-": html.BAD, "+": html.GOOD, "@": html.ACCENT}
    shown = (
        html.tag("span", html.tone(colours[line[0]]) if line[0] in colours else "", html.text(line))
        for line in lines
    )
    note = f"{dropped} more lines" if dropped else ""
    block, applied = html.code_block(shown), static_rules(view.record, index - 1)
    return html.details(_change_title(view, index), block, applied, note=note, opened=True)


def diff_text(view: KernelView, index: int) -> str:
    """The same as text."""
    lines, dropped = _change(view, index)
    more = [f"... {dropped} more lines"] if dropped else []
    counts = counts_of(rewrites_of(view.record, index - 1)).items()
    applied = [f"rules: {', '.join(f'{rule} {count}' for rule, count in counts)}"] if counts else []
    changes = [] if counts else changes_of(view.record, index - 1)
    if changes:
        applied = [whole(changes)]
    return "\n".join([_change_title(view, index), *applied, *lines, *more])


def _change_title(view: KernelView, index: int) -> str:
    if not index:
        return f"{FRONT_END}: no pass changed the program"
    snapshot = view.record.snapshots[index - 1]
    state = "changed" if snapshot.changed else "no change"
    return f"{snapshot.name}: {'switched off' if snapshot.disabled else state}"


def _change(view: KernelView, index: int) -> tuple[list[str], int]:
    """The lines of a unified diff, without its head, and how many were left out."""
    browser = PassBrowser(view.record)
    lines = browser.unified(index).splitlines()[2:] or [line.text for line in browser.lines(index)]
    return lines[:STATIC_LINES], max(len(lines) - STATIC_LINES, 0)


def stopped_text(record: CompileRecord) -> str:
    """One line about a compilation that a pass ended."""
    stop, count = record.stop, len(record.snapshots)
    assert stop is not None
    before = "the first pass" if not count else f"pass {count + 1}"
    return f"{record.name} for {record.target}: {before}, {stop.name}, failed"


def stopped_html(record: CompileRecord) -> str:
    """The program that the failed pass was given, with what it said at its place, for readers
    without a kernel. Closed, since the error itself stands below it.
    """
    browser = PassBrowser(record)
    at = len(browser) - 1
    problem = browser.diff(at)["problem"]
    lines = browser.lines(at)
    first = max(0, problem["number"] - STATIC_LINES // 2)
    shown = []
    said = html.tag("span", f"{html.tone(html.BAD)};font-weight:600", html.text(problem["text"]))
    if not problem["number"]:
        shown.append(said)
    for number, line in enumerate(lines[first : first + STATIC_LINES], first + 1):
        here = number == problem["number"]
        shown.append(html.tag("span", html.tone(html.BAD) if here else "", html.text(line.text)))
        if here:
            shown.append(said)
    note = "the IR that it was given"
    block = html.code_block(shown)
    return html.panel(html.details(stopped_text(record), block, note=note))
