"""The roofline as a view: for the widget, for readers without a kernel, and as a line of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tileworkbench.bench.points import (
    BANDWIDTH,
    FEW,
    Machine,
    Point,
    explain_levels,
    format_rate,
    judge,
)
from tileworkbench.bench.units import format_bytes, format_percent, format_time, rate_unit
from tileworkbench.viz.model import html
from tileworkbench.viz.model.causes_svg import WIDTH as BARS_WIDTH
from tileworkbench.viz.model.causes_svg import causes_svg, unexplained
from tileworkbench.viz.model.roofline_svg import WIDTH, roofline_image, roofline_svg
from tileworkbench.viz.model.svg import THEMED, as_image, still
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.trail import KEPT, trail_steps
from tileworkbench.viz.model.view import KernelView

ABOUT = (
    "To the right is more arithmetic for each byte that is moved, upwards is more arithmetic each "
    "second. No kernel gets above the roofs: the sloping ones are what each memory can deliver, "
    "the flat ones what the processor can compute. The dotted line is what is left to gain. A "
    "hollow point is predicted, a full one measured; a number is an earlier version of the cell."
)


def told(points: Sequence[Point]) -> Sequence[Point]:
    """The points that are told of in words: all of a few, the fastest of many."""
    if len(points) <= FEW:
        return points
    return [min(points, key=lambda point: point.time_us)]


def roofline_model(points: Sequence[Point], machine: Machine) -> dict[str, Any]:
    """What the widget shows: the drawing, a verdict per point and the table of ceilings."""
    rows = []
    for point in told(points):
        verdict = judge(point, machine)
        rate = verdict.unit != BANDWIDTH
        rows.append(
            {
                "name": point.name,
                "level": point.level,
                "dtype": point.dtype,
                "time": format_time(point.time_us),
                "achieved": format_rate(point.gflops if rate else point.gbytes, verdict.unit),
                "attainable": format_rate(verdict.attainable, verdict.unit),
                "percent": "predicted" if point.predicted else format_percent(verdict.fraction),
                "fraction": verdict.fraction,
                "bound": verdict.bound,
                "sentence": verdict.sentence,
                "next": verdict.next_step,
                "line": verdict.line,
                "wrong": verdict.wrong,
                "levels": explain_levels(point, machine),
                "traffic": traffic_model(point),
                "trail": trail_model(point),
                **_bars(point),
            }
        )
    return {
        "machine": machine.name,
        "brief": machine.brief,
        "note": ". ".join(filter(None, (machine.remarks, seen_of(machine), machine.note))),
        "svg": roofline_svg(points, machine, THEMED),
        "kept": KEPT,
        "about": ABOUT,
        "traffic_heads": TRAFFIC_HEADS,
        "points": rows,
        "ceilings": ceiling_table(machine),
    }


def traffic_model(point: Point) -> dict[str, Any]:
    """Bytes by memory level as the model has them and as they were counted, beside each other."""
    counted, expected = point.counted, dict(point.traffic)
    if counted is None:
        return {"note": "", "rows": []}
    rows = []
    for level in counted.levels:
        many, model = level.bytes_, expected.get(level.name, math.nan)
        known = model == model and max(many, model) > 0
        rows.append(
            {
                "level": level.name,
                "model": format_bytes(model) if model == model else "–",
                "counted": format_bytes(many),
                "difference": _difference(many, model) if known else "–",
                "read": format_bytes(level.read),
                "written": format_bytes(level.written),
                "allocated": format_bytes(level.allocated),
            }
        )
    return {"note": counted.note, "rows": rows}


def _difference(counted: float, model: float) -> str:
    """How far a count is above what a model expected."""
    if counted > 2 * model:
        return f"{counted / model:.2g} times" if model else "not expected"
    return f"{100 * (counted / model - 1):+.0f} %"


TRAFFIC_HEADS = {
    "level": "level",
    "model": "from the model",
    "counted": "counted",
    "difference": "count against model",
    "read": "read",
    "written": "written",
    "allocated": "fetched for stores",
}
"""Columns of the bytes by memory level; the last three are parts of the count and beside it."""


def _bars(point: Point) -> dict[str, Any]:
    """Time by cause: the drawing, and what a measurement leaves unexplained."""
    if point.causes is None or not point.causes.total_us > 0:
        return {"bars": "", "total_us": 0.0, "unexplained": "", "model": ""}
    measured_us = math.nan if point.predicted else point.time_us
    return {
        "bars": causes_svg(point.causes, measured_us, THEMED),
        "total_us": point.causes.total_us,
        "unexplained": "" if point.predicted else unexplained(point.causes, measured_us),
        "model": point.causes.model,
    }


def trail_model(point: Point) -> list[dict[str, Any]]:
    """The versions of a kernel, this one last, as plain data; empty where nobody counts them."""
    return [{**asdict(step), "time": format_time(step.time_us)} for step in trail_steps(point)]


def seen_of(machine: Machine) -> str:
    """From what to what the ceilings were seen that nothing is promised of."""
    seen = (f"{each.name}, {_threads(each.threads)}: {each.seen}" for each in machine.shared)
    told = "; ".join(seen)
    return told and f"Seen so far: {told}"


def ceiling_table(machine: Machine) -> dict[str, Any]:
    """Ceilings as rows, one column per number of threads."""
    counts = sorted({ceiling.threads for ceiling in machine.ceilings})
    names = list(dict.fromkeys((c.name, c.unit) for c in machine.ceilings))
    values = {
        (c.name, c.unit, c.threads): format_rate(c.value, c.shown_unit) for c in machine.ceilings
    }
    return {
        "columns": [_threads(count) for count in counts],
        "rows": [
            {
                "name": name,
                "values": [values.get((name, unit, count), "–") for count in counts],
            }
            for name, unit in names
        ],
    }


def _threads(count: int) -> str:
    return "published" if not count else f"{count} thread{'s' if count > 1 else ''}"


def roofline_line(points: Sequence[Point]) -> str:
    """One line of plain text, without measurements."""
    names = ", ".join(dict.fromkeys(point.name for point in points))
    return " ".join(f"<Roofline {names or 'without points'}>".split())


def roofline_section(points: Sequence[Point], machine: Machine) -> str:
    """The drawing and a sentence per point; measured, so only for outputs nobody compares."""
    # How much of a kernel was counted depends on this host; what is saved of a prediction does not.
    points = [replace(point, counted=None) if point.predicted else point for point in points]
    address = roofline_image(points, machine)
    parts = [
        html.tag("div", html.FAINT, html.text(machine.caption)),
        html.image(address, f"roofline of {machine.caption}", WIDTH),
    ]
    for point in told(points):
        verdict = judge(point, machine)
        style = f"{html.tone(html.BAD)};font-weight:600" if verdict.wrong else ""
        name = html.tag("b", html.MONO, html.text(point.name))
        sentence = html.text(f" {verdict.sentence} {verdict.next_step}")
        parts.append(html.tag("div", style, name, sentence))
        parts += _details(point, machine)
    return "".join(parts)


def _details(point: Point, machine: Machine) -> Iterator[str]:
    """Levels, time by cause and trail of a point."""
    levels = explain_levels(point, machine)
    if levels:
        yield html.tag("div", "", html.text(levels))
    traffic = traffic_model(point)
    if traffic["rows"]:
        cells = [[html.text(row[key]) for key in TRAFFIC_HEADS] for row in traffic["rows"]]
        yield html.table(cells, list(TRAFFIC_HEADS.values()))
    if traffic["note"] and not levels:
        yield html.tag("div", html.FAINT, html.text(f"Bytes by level: {traffic['note']}."))
    if point.causes is not None and point.causes.total_us > 0:
        measured_us = math.nan if point.predicted else point.time_us
        drawing = as_image(still(causes_svg(point.causes, measured_us)))
        yield html.image(drawing, f"predicted time by cause: {point.causes}", BARS_WIDTH)
        if not point.predicted:
            yield html.tag("div", "", html.text(unexplained(point.causes, measured_us)))
    steps = trail_model(point)
    if len(steps) > 1:
        rows = [
            [html.text(step["number"]), html.text(_time(step)), _change(step["change"])]
            for step in steps
        ]
        yield html.table(rows, ["version", "time", f"change (the last {KEPT} are kept)"])


def _time(step: Mapping[str, Any]) -> str:
    return f"{step['time']}{', cold caches' if step['cold'] else ''}"


def _change(lines: Sequence[str]) -> str:
    return "<br>".join(html.tag("span", html.MONO, html.text(clip(line, 120))) for line in lines)


def unplaced(view: KernelView) -> str:
    """Why a kernel has no place under the roofs."""
    if view.flops is not None and math.isnan(view.flops.value):
        return (
            "nothing was measured, and the operations and bytes of a launch depend on the sizes "
            "of a call"
        )
    if view.target_kind == "cpu":
        return "this machine's ceilings were not asked for; 'show(\"roofline\")' measures them"
    return f"no ceilings are published for what the code for {view.record.target} uses"


def roofline_missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    if view.machine is not None and view.points:
        return ""
    return unplaced(view)


def roofline_static(view: KernelView, opened: bool = False) -> str:
    """The kernel's roofline as a section."""
    assert view.machine is not None  # see `roofline_missing`
    return html.details("Roofline", roofline_section(view.points, view.machine), opened=opened)


def roofline_rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of a kernel's place under the roofs. A measurement, and what is
    predicted for this very machine, is told live alone.
    """
    place = _place(view, live)
    if place is None:
        return {}
    machine, point = place
    verdict = judge(point, machine)
    labelled = {"machine": machine.name}
    labelled["predicted time" if point.predicted else "measured time"] = format_time(point.time_us)
    if not point.predicted:
        labelled["caches"] = "cold" if point.cold else "warm"
    if point.flops:
        labelled["rate"] = format_rate(point.gflops, rate_unit([point.dtype]))
    if verdict.attainable:
        labelled["of what the roofs allow"] = format_percent(verdict.fraction)
    if point.predicted and point.causes is not None:
        cause = next(iter(point.causes.by_cause()), "nothing")
        labelled["bound by"] = f"{cause}, {format_time(point.time_us)} (predicted)"
    for level, bytes_ in point.traffic:
        labelled[f"bytes of {level}"] = format_bytes(bytes_)
    return labelled


def _place(view: KernelView, live: bool) -> tuple[Machine, Point] | None:
    """The ceilings and the kernel's point. Without `live` only those that are the same on every
    host and in every run.
    """
    machine, points = view.machine, view.points
    if machine is None or not points:
        return None
    portable = view.target_kind == "gpu" and points[0].predicted
    return (machine, points[0]) if live or portable else None


def together(views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """All points on one roofline of each machine, and in words how much faster one is."""
    placed = [
        (place[0], replace(place[1], name=name))
        for view, name in zip(views, names, strict=True)
        if (place := _place(view, live)) is not None
    ]
    parts = [html.tag("div", "", html.text(said)) for said in _ratios([p for _, p in placed])]
    for machine in {machine.name: machine for machine, _ in placed}.values():
        points = [point for of, point in placed if of.name == machine.name]
        address = roofline_image(points, machine)
        parts.append(html.tag("div", html.MONO, html.text(machine.caption)))
        alternative = f"roofline of {machine.caption}: {', '.join(point.name for point in points)}"
        parts.append(html.image(address, alternative, WIDTH))
    return "".join(parts)


def _ratios(points: Sequence[Point]) -> list[str]:
    """Each point's time against that of the first."""
    if len(points) < 2:
        return []
    first = points[0]
    texts = []
    for point in points[1:]:
        if not (point.predicted or first.predicted) and point.cold != first.cold:
            texts.append(
                f"{point.name} was {point.how}, {first.name} {first.how}: times with cold "
                "and with warm caches are not compared."
            )
            continue
        ratio = first.time_us / point.time_us
        times = f"{format_time(point.time_us)} instead of {format_time(first.time_us)}"
        same = 0.995 < ratio < 1.005
        fast = f"{max(ratio, 1 / ratio):.2f} times as {'fast' if ratio > 1 else 'slow'} as"
        how = point.how if point.how == first.how else f"{point.how} against {first.how}"
        said = f"{point.name} is {'as fast as' if same else fast} {first.name}"
        texts.append(f"{said}: {times} ({how}).")
    return texts


def roofline_html(points: Sequence[Point], machine: Machine) -> str:
    """The roofline on its own, as sanitiser-safe HTML."""
    return html.panel(roofline_section(points, machine))
