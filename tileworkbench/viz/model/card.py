"""The kernel card: what a kernel is and whether it is right, at a glance."""

from __future__ import annotations

from statistics import median, quantiles
from typing import Any

from tileworkbench.compiler.record import CompileRecord, Count, RunRecord
from tileworkbench.viz.model import html
from tileworkbench.viz.model.layout import layout_section
from tileworkbench.viz.model.passes import PassBrowser
from tileworkbench.viz.model.roofline import PEAK, format_rate
from tileworkbench.viz.model.roofline_view import roofline_section
from tileworkbench.viz.model.text import (
    check_text,
    format_bytes,
    format_count,
    format_error,
    format_time,
    passes_changed,
    plain_line,
    title,
    warnings_of,
)
from tileworkbench.viz.model.view import KernelView

CODE_LIMIT = 400_000  # characters of generated code a browser is sent
EXCERPT_LINES = 40  # lines of generated code in the static card
HTML_LIMIT = 60_000  # bytes of the static card
_LAYOUT_LIMIT = 30_000  # bytes of them for pictures of layouts


def facts(view: KernelView, live: bool) -> list[tuple[str, str, str]]:
    """Label, value and explanation of each number on the card.

    What depends on the host is left out unless `live`.
    """
    changed, total = passes_changed(view.record)
    found = [
        ("grid", view.grid, "blocks of one launch"),
        ("threads", str(view.threads), "threads of a block"),
        ("passes", f"{changed} of {total}", "passes that changed something"),
    ]
    if view.shared_bytes:
        found.append(("shared", format_bytes(view.shared_bytes), "shared memory of a block"))
    if live and view.scratch_bytes:
        found.append(("scratch", format_bytes(view.scratch_bytes), "arena of a worker thread"))
    found += _count_fact("flops", view.flops, format_count)
    found += _count_fact("traffic", view.bytes_, format_bytes)
    if view.intensity is not None:
        value = f"{format_count(view.intensity)} F/B"
        found.append(("intensity", value, "arithmetic intensity: FLOP per byte of global memory"))
    return found


def _count_fact(label: str, count: Count | None, write: Any) -> list[tuple[str, str, str]]:
    """A static count: its value where it has one, else its formula."""
    if count is None:
        return []
    known = count.value == count.value
    return [(label, write(count.value) if known else count.formula, count.formula)]


def card_model(view: KernelView) -> dict[str, Any]:
    """What the live card shows, as plain data."""
    record = view.record
    return {
        "name": record.name,
        "text": plain_line(view),
        "constants": [list(pair) for pair in record.constants],
        "target": record.target,
        "level": record.level,
        "facts": [
            {"label": label, "value": value, "hint": hint}
            for label, value, hint in facts(view, live=True)
        ],
        "check": _check(view),
        "status": status(record),
        "timings": [
            {"step": timing.step, "time": format_time(timing.time_us)} for timing in record.timings
        ],
        "bench": None if view.bench is None else bench_summary(view.bench),
        "warnings": [{"text": note.message, "line": line} for note, line in warnings_of(record)],
        "notes": [*view.variants, *view.accesses, *view.resources],
        "source": {"first": record.first_line, "lines": record.source.splitlines()},
        "tabs": tabs(view),
        "changed": passes_changed(record)[0],
    }


def tabs(view: KernelView) -> list[str]:
    """The names of the views that have something to show."""
    found = ["card"]
    if view.record.source:
        found.append("source")
    found.append("passes")
    if view.layouts:
        found.append("layouts")
    if view.record.code:
        found.append("code")
    if view.machine is not None and view.points:
        found.append("roofline")
    return found


def _check(view: KernelView) -> dict[str, Any] | None:
    check = view.check
    if check is None:
        return None
    against = f" against {check.reference}" if check.reference else ""
    detail = (
        f"largest error {format_error(check.max_error)}, tolerance "
        f"{format_error(check.tolerance)}{against}"
    )
    return {"ok": check.ok, "text": check_text(check), "detail": detail}


def status(record: CompileRecord) -> str:
    """``cached (disk)`` or ``compiled in 38 ms``."""
    if record.cached:
        return f"cached ({record.cached})"
    total = sum(timing.time_us for timing in record.timings)
    return f"compiled in {format_time(total)}" if record.timings else "compiled"


def bench_summary(run: RunRecord) -> dict[str, Any]:
    """Median, quartiles and rates of a measurement, as text."""
    times = sorted(run.times_us)
    middle = median(times)
    low, high = (middle, middle)
    if len(times) > 1:
        low, _, high = quantiles(times, n=4, method="inclusive")
    return {
        "median": format_time(middle),
        "quartiles": f"{format_time(low)} – {format_time(high)}",
        "count": len(times),
        "threads": run.threads,
        "flops": format_rate(run.flops / middle / 1e3, PEAK) if run.flops else "",
        "bytes": format_rate(run.bytes_ / middle / 1e3, "GB/s") if run.bytes_ else "",
        "note": run.clock_note,
        "extra": [[name, f"{value:.3g}"] for name, value in run.extra],
    }


def code_text(record: CompileRecord) -> dict[str, Any]:
    """The generated code, cut to what a browser shows with ease."""
    dropped = max(0, len(record.code) - CODE_LIMIT)
    return {"text": record.code[:CODE_LIMIT], "dropped": dropped}


def card_html(view: KernelView) -> str:
    """The card for readers without a kernel, at most `HTML_LIMIT` bytes.

    The same on every host and in every run, except for a roofline where one was measured.
    """
    head, sections = _static_head(view), _static_sections(view)
    while sections:
        page = html.panel(head, *sections)
        if len(page.encode()) <= HTML_LIMIT:
            return page
        sections.remove(max(sections, key=len))
    return html.panel(head)


def _static_head(view: KernelView) -> str:
    record = view.record
    name = html.tag("b", f"{html.MONO};font-size:15px;margin-right:8px", html.text(record.name))
    chips = [html.chip(f"{key}={value}") for key, value in record.constants[:12]]
    chips.append(html.chip(record.target, html.ACCENT))
    if view.check is not None:
        chips.append(html.chip(check_text(view.check), html.GOOD if view.check.ok else html.BAD))
    shown = facts(view, live=False)
    values = [
        html.tag("span", "font-weight:600", html.text(_clip(value, 60))) for _, value, _ in shown
    ]
    parts = [
        html.tag("div", "", name, *chips),
        html.table([values], [label for label, _, _ in shown]),
    ]
    for note, line in warnings_of(record)[:10]:
        where = html.tag("b", "", f"line {line}: " if line else "")
        text = html.text(_clip(note.message, 400))
        parts.append(html.tag("div", f"color:{html.WARN}", "⚠ ", where, text))
    for entry in (*view.variants, *view.accesses):
        parts.append(html.tag("div", f"{html.MONO};font-size:12px", html.text(_clip(entry, 200))))
    return "".join(parts)


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _static_sections(view: KernelView) -> list[str]:
    record = view.record
    sections = []
    if record.source:
        sections.append(html.details("Source", source_block(record)))
    sections.append(passes_section(record))
    if view.layouts and view.portable_layouts:
        sections.append(layout_section(view.layouts, _LAYOUT_LIMIT))
    elif view.layouts:
        names = ", ".join(layout.name for layout in view.layouts)
        note = f"{names}: made for the machine that runs the kernel, and shown there"
        sections.append(html.line("Layouts", note))
    if view.portable_code:
        lines = view.portable_code.splitlines()
        note = (
            ""
            if len(lines) <= EXCERPT_LINES
            else f"the first {EXCERPT_LINES} of {len(lines)} lines"
        )
        excerpt = html.code_block(html.text(_clip(line, 300)) for line in lines[:EXCERPT_LINES])
        sections.append(html.details("Code", excerpt, note=note))
    if view.machine is not None and view.points:
        sections.append(html.details("Roofline", roofline_section(view.points, view.machine)))
    return sections


def source_block(record: CompileRecord) -> str:
    """The user's text with line numbers; lines with a warning are marked."""
    marked = {line for _, line in warnings_of(record)}
    lines = []
    for number, line in enumerate(record.source.splitlines(), record.first_line):
        colour = f"color:{html.WARN}" if number in marked else html.FAINT
        lines.append(html.tag("span", colour, f"{number:3} ") + html.text(line))
    return html.code_block(lines)


def passes_section(record: CompileRecord, opened: bool = False) -> str:
    """The list of passes, without times."""
    rows = []
    for entry in PassBrowser(record).overview(live=False)["entries"][1:]:
        colour = html.ACCENT if entry["changed"] else "#8a8a8a"
        badge = html.chip("changed" if entry["changed"] else "no-op", colour)
        name = html.tag("code", "", html.text(entry["name"]))
        rows.append([badge, name, html.tag("span", html.FAINT, html.text(entry["doc"]))])
    changed, total = passes_changed(record)
    note = f"{changed} of {total} changed something"
    return html.details("Passes", html.table(rows), note=note, opened=opened)


def passes_html(view: KernelView) -> str:
    """The passes view for readers without a kernel."""
    return _titled(view, passes_section(view.record, opened=True))


def layouts_html(view: KernelView) -> str:
    """The layouts view for readers without a kernel."""
    return _titled(view, layout_section(view.layouts, _LAYOUT_LIMIT, opened=True))


def _titled(view: KernelView, *content: str) -> str:
    name = html.tag("b", f"{html.MONO};font-size:14px", html.text(title(view.record)))
    return html.panel(html.tag("div", "", name), *content)
