"""The kernel card: what a kernel is and whether it is right, at a glance."""

from __future__ import annotations

from typing import Any

from tileworkbench.bench.units import (
    format_bytes,
    format_count,
    format_error,
    format_percent,
    format_time,
)
from tileworkbench.compiler.record import CompileRecord, Count
from tileworkbench.viz.model import banks, html, sectors
from tileworkbench.viz.model.banks import conflicts
from tileworkbench.viz.model.bench import bench_model
from tileworkbench.viz.model.bound import bound_of
from tileworkbench.viz.model.code import instructions
from tileworkbench.viz.model.layout import badges
from tileworkbench.viz.model.roofline_view import roofline_rows
from tileworkbench.viz.model.text import check_text, clip, passes_changed, plain_line, warnings_of
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS, available, explanation

ACCESSES = "memory accesses: wavefronts or sectors over the fewest possible; 1.00x wastes none"
HTML_LIMIT = 60_000  # bytes of the static card
BESIDE_LIMIT = 46_000  # and of one beside which the output keeps what the extension draws


def facts(view: KernelView, live: bool) -> list[tuple[str, str, str]]:
    """Label, value and explanation of each number on the card.

    What depends on the host is left out unless `live`.
    """
    changed, total = passes_changed(view.record)
    shown = [
        ("grid", view.grid, "blocks of one launch"),
        ("threads", str(view.threads), "threads of a block"),
        ("passes", f"{changed} of {total}", "passes that changed something"),
    ]
    if live and view.record.defaults:
        shown.append(("tiles", *_defaults(view.record.defaults)))
    if view.shared_bytes:
        shown.append(("shared", format_bytes(view.shared_bytes), "shared memory of a block"))
    if live and view.scratch_bytes:
        shown.append(("scratch", format_bytes(view.scratch_bytes), "arena of a worker thread"))
    if view.occupancy is not None:
        held = format_percent(view.occupancy.fraction)
        limit = f"warps held over warps that could be; the limit is {view.occupancy.limited_by}"
        shown.append(("occupancy", held, limit))
    shown += _count_fact("flops", view.flops, format_count)
    shown += _count_fact("traffic", view.bytes_, format_bytes)
    if view.intensity is not None:
        unit = view.operation
        hint = f"arithmetic intensity: {unit} per byte of global memory"
        shown.append(("intensity", f"{format_count(view.intensity)} {unit}/B", hint))
    return shown


def _defaults(text: str) -> tuple[str, str]:
    """The library's tile sizes as they are shown, and where they come from."""
    sizes, _, origin = text.partition(" (")
    return sizes, f"the library's defaults {origin.removesuffix(')')}"


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of a kernel first: launch, memory, work, instructions, and what bounds
    it.
    """
    labelled = {"target": view.record.target}
    if view.record.constants:
        labelled["constants"] = ", ".join(f"{key}={value}" for key, value in view.record.constants)
    labelled |= {label: value for label, value, _ in facts(view, live)}
    if view.occupancy is not None:
        held = view.occupancy
        labelled["occupancy"] = f"{held.warps} of {held.warps_most} warps, by {held.limited_by}"
    if used := instructions(view, live):
        labelled["instructions"] = ", ".join(used)
    for label, count in (("wavefronts", banks.count), ("sectors", sectors.count)):
        if view.target_kind == "gpu" and (text := count(view)):
            labelled[label] = text
    if live or view.portable_layouts:
        labelled |= {f"layout {b.name}": ", ".join(badges(b.layout)) for b in view.layouts}
    if view.check is not None:
        labelled["check"] = check_text(view.check)
    if said := roofline_rows(view, live).get("bound by"):
        labelled["bound by"] = said
    if live and view.bench is not None:
        measured = bench_model(view.bench)
        labels = {"median": "time", "quartiles": "quartiles", "flops": "compute"}
        labels |= {"bytes": "bandwidth", "caches": "caches"}
        labelled |= {label: measured[key] for key, label in labels.items() if measured[key]}
    return labelled


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
        "edited": view.edited,
        "facts": [
            {"label": label, "value": value, "hint": hint}
            for label, value, hint in facts(view, live=True)
        ],
        "check": _check(view),
        "status": status(record),
        "timings": [
            {"step": timing.step, "time": format_time(timing.time_us)} for timing in record.timings
        ],
        "bench": None if view.bench is None else bench_model(view.bench),
        "bound": bound_of(view),
        "warnings": [
            *({"text": note.message, "line": line} for note, line in warnings_of(record)),
            *({"text": f"masked: {text}", "line": 0} for text, loud in view.masked if loud),
        ],
        "notes": [
            *(f"masked: {text}" for text, loud in view.masked if not loud),
            *view.variants,
            *view.resources,
        ],
        "accesses": list(view.accesses),
        "accesses_title": ACCESSES,
        "tabs": tabs(view),
        "absent": absent(view),
        "changed": passes_changed(record)[0],
        "alarms": alarms(view),
        "about": {name: explanation(view, name) for name in available(view)},
    }


def tabs(view: KernelView) -> list[list[str]]:
    """Name and title of the card and of the views that have something to show."""
    return [["card", "Card"], *([name, VIEWS[name].title] for name in available(view))]


def absent(view: KernelView) -> list[list[str]]:
    """Title of each view that has nothing to show, and why."""
    told = ((each.title, each.missing(view)) for each in VIEWS.values())
    return [[title, why] for title, why in told if why]


def alarms(view: KernelView) -> dict[str, list[Any]]:
    """For a tab that has something wrong to show: how many, and of what."""
    conflicting = len(conflicts(view)) if view.target_kind != "cpu" else 0
    what = f"{conflicting} access{'es' if conflicting != 1 else ''} with bank conflicts"
    alarmed = {"banks": [conflicting, what]} if conflicting else {}
    if view.errors is not None:
        alarmed["errors"] = [view.errors.count, f"wrong elements of '{view.errors.output}'"]
    return alarmed


def _check(view: KernelView) -> dict[str, Any] | None:
    check = view.check
    if check is None:
        return None
    against = f" against {check.reference}" if check.reference else ""
    detail = (
        f"largest error {format_error(check.max_error)}, tolerance "
        f"{format_error(check.tolerance)}{against}"
        f"{f'; {check.simulated}' if check.simulated else ''}"
        f"{f'; {check.nan_text}' if check.nan_text else ''}"
    )
    return {"ok": check.ok, "text": check_text(check), "detail": detail}


def status(record: CompileRecord) -> str:
    """``cached (disk)`` or ``compiled in 38 ms``."""
    if record.cached:
        return f"cached ({record.cached})"
    total = sum(timing.time_us for timing in record.timings)
    return f"compiled in {format_time(total)}" if record.timings else "compiled"


def card_html(view: KernelView, limit: int = HTML_LIMIT) -> str:
    """The card for readers without a kernel, at most `limit` bytes.

    The same on every host and in every run, except for a roofline where one was measured. The
    largest views are left out where there is no room, and named; the source of a kernel whose
    lines were asked for is the last of them.
    """
    parts = [_static_head(view)]
    asked = VIEWS["source"].title if view.annotated else ""
    made = {VIEWS[name].title: VIEWS[name].section(view, False) for name in available(view)}
    sections = {title: section for title, section in made.items() if section}
    while len((page := html.panel(*parts, *sections.values())).encode()) > limit and sections:
        del sections[max(sections, key=lambda title: (title != asked, len(sections[title])))]
        left = [title for title, section in made.items() if section and title not in sections]
        them = "it" if len(left) == 1 else "them"
        said = f"Too large for a saved card: {', '.join(left)}. Run the cell to see {them}."
        parts[1:] = [html.tag("div", f"{html.FAINT};font-size:12px", html.text(said))]
    return page


def _static_head(view: KernelView) -> str:
    record = view.record
    name = html.tag("b", f"{html.MONO};font-size:15px;margin-right:8px", html.text(record.name))
    chips = [html.chip(f"{key}={value}") for key, value in record.constants[:12]]
    chips.append(html.chip(record.target, html.ACCENT))
    if view.edited:
        chips.append(html.chip(view.edited, html.WARN))
    if view.check is not None:
        chips.append(html.chip(check_text(view.check), html.GOOD if view.check.ok else html.BAD))
    shown = facts(view, live=False)
    values = [
        html.tag("span", "font-weight:600", html.text(clip(value, 60))) for _, value, _ in shown
    ]
    parts = [
        html.tag("div", "", name, " ", *chips),
        html.table([values], [label for label, _, _ in shown]),
    ]
    if bound := bound_of(view):
        parts.append(html.tag("div", "", html.tag("b", "", "bound by "), html.text(bound["text"])))
    for note, line in warnings_of(record)[:10]:
        where = html.tag("b", "", f"line {line}: " if line else "")
        text = html.text(clip(note.message, 400))
        parts.append(html.tag("div", html.tone(html.WARN), "⚠ ", where, text))
    for entry, loud in view.masked if view.portable_masked else ():
        style = html.tone(html.WARN) if loud else f"{html.MONO};font-size:12px"
        text = html.text(clip(entry, 200))
        parts.append(html.tag("div", style, "⚠ masked: " if loud else "masked: ", text))
    lines = [html.text(clip(entry, 200)) for entry in (*view.variants, *view.accesses)]
    parts += [html.tag("div", f"{html.MONO};font-size:12px", line) for line in lines]
    if view.accesses:
        title = html.tag("div", f"{html.FAINT};font-size:11px;margin-top:6px", html.text(ACCESSES))
        parts.insert(len(parts) - len(view.accesses), title)
    return "".join(parts)
