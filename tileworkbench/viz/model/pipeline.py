"""The software pipeline of a kernel as a view: a chart of iterations, and what it means."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from tileworkbench.bench.units import format_bytes
from tileworkbench.compiler.analysis.occupancy import occupancy
from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.machine.tables import ARCHITECTURES, machine_of
from tileworkbench.compiler.sim.pipeline.model import Event, Pipeline
from tileworkbench.compiler.sim.pipeline.trace import Trace
from tileworkbench.viz.model import html
from tileworkbench.viz.model.pipeline_rows import (
    agreement,
    bars_of,
    iterations_of,
    rows_of,
    simulated_bars,
    stage_rows,
    window_of,
)
from tileworkbench.viz.model.pipeline_svg import WIDTH, chart_height, pipeline_svg
from tileworkbench.viz.model.svg import THEMED, as_image
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.view import KernelView

ITERATIONS = 8  # of a live chart
_STATIC_ITERATIONS = 6
_CARD_ITERATIONS = 4
_TRACES: WeakKeyDictionary[Any, Trace] = WeakKeyDictionary()  # the last one of each kernel


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    if view.pipelining is None:
        return "nothing is known of its pipelines"
    return view.pipelining.pipeline.missing


def _pipeline(view: KernelView) -> Pipeline:
    assert view.pipelining is not None  # see `missing`
    return view.pipelining.pipeline


def model(view: KernelView) -> dict[str, Any]:
    """The chart of the first iterations, and sentences."""
    pipeline = _pipeline(view)
    return {
        **_chart(pipeline, 0, None),
        "about": about(pipeline),
        "sentences": sentences(view),
        "assumptions": list(pipeline.assumptions),
        "iterations": len(iterations_of(pipeline)),
    }


def chart_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The chart from another iteration on, with the simulator's trace where ``trace`` is true; an
    ``error`` where the kernel cannot be simulated on made-up inputs.
    """
    pipeline = _pipeline(view)
    trace = None
    if content.get("trace"):
        assert view.pipelining is not None
        trace = _TRACES.get(view.pipelining)
        if trace is None:
            try:
                trace = _TRACES[view.pipelining] = view.pipelining.trace()
            except TileError as error:
                return {"error": str(error)}
    return _chart(pipeline, int(content.get("first", 0)), trace)


def stages_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The kernel lowered again with other numbers of stages."""
    assert view.pipelining is not None
    rows = [choice.to_dict() for choice in view.pipelining.what_if_stages()]
    for row in rows:
        row["period"] = None if row["period"] != row["period"] else round(row["period"])
    return {"rows": rows}


def _chart(pipeline: Pipeline, first: int, trace: Trace | None) -> dict[str, Any]:
    window = window_of(pipeline, first, ITERATIONS)
    bars, statements = bars_of(pipeline, window), 0.0
    if trace is not None:
        more, statements = simulated_bars(pipeline, trace, window)
        bars += more
    rows = rows_of(bars, pipeline)
    numbers = sorted({bar.event for bar in bars if bar.event >= 0})
    return {
        "svg": pipeline_svg(bars, rows, window, pipeline.unit, THEMED, statements, True),
        "first": window.first,
        "count": window.count,
        "events": {str(n): describe(pipeline, pipeline.events[n]) for n in numbers},
        "agreement": "" if trace is None else _traced(pipeline, trace),
    }


def _traced(pipeline: Pipeline, trace: Trace) -> str:
    text = agreement(pipeline, trace)
    if trace.dropped:
        text += f" Only the first {trace.limit} events were kept; {trace.dropped} more came."
    return f"{text} Its time is logical: it counts statements and measures nothing."


def describe(pipeline: Pipeline, event: Event) -> list[str]:
    """Lines about an event: the statement, where, how much, when, what it waits for."""
    operation = pipeline.operations[event.operation]
    where = f"line {operation.line}" if operation.line else "no line"
    if operation.loop >= 0:
        where += f", iteration {event.iteration}, {event.phase}"
    lines = [operation.text or operation.kind, f"{where}; {operation.role}"]
    if operation.kind in ("copy", "store"):
        rows = stage_rows(pipeline) if operation.kind == "copy" else {}
        tiles = ", ".join(rows.get(slot, slot[0]) for slot in event.slots)
        how = f" by {operation.how}" if operation.how else ""
        lines.append(f"{format_bytes(operation.bytes_)}{how}{f' into {tiles}' if tiles else ''}")
    if operation.flops:
        lines.append(f"{operation.flops} operations of matrix instructions")
    times = f"{event.start:.0f} to {event.end:.0f} {pipeline.unit}"
    if operation.kind == "copy":
        times += f", data there at {event.landed:.0f}, in use until {event.released:.0f}"
    lines.append(f"predicted: {times}")
    if operation.kind == "wait":
        awaited = [pipeline.events[at] for at in event.waits_for]
        names = ", ".join(
            f"line {pipeline.operations[e.operation].line} of iteration {e.iteration}"
            for e in awaited
        )
        lines.append(f"waits for {event.reason}{f': copies of {names}' if names else ''}")
    return lines


def about(pipeline: Pipeline) -> str:
    """What the picture means, with this kernel's numbers."""
    loop = pipeline.loops[0]
    stages = max(loop.num_stages, 1)
    return (
        f"Time runs to the right: {pipeline.unit} of block {pipeline.block}, predicted, not "
        f"measured. An upper row is one of the {stages} stages of a tile in shared memory: dark "
        "while a copy into it is under way, light while its data are used; the number is the "
        "iteration they belong to. A lower row is what threads are busy with. In the prologue "
        "there are only copies; in the steady state copies of later iterations run while this one "
        f"is computed, {loop.period:.0f} {pipeline.unit} each; in the epilogue no more copies "
        f"start. The loop on line {loop.line} has {loop.iterations} iterations."
    )


def sentences(view: KernelView) -> list[str]:
    """Each loop's steady state and its limit, and what other numbers of stages need."""
    pipeline = _pipeline(view)
    found = []
    for loop in pipeline.loops:
        busy = " and ".join(f"{name} {part:.0%}" for name, part in loop.busy)
        text = (
            f"Loop '{loop.name}' (line {loop.line}): {loop.iterations} iterations, "
            f"{loop.num_stages} stages, {loop.period:.0f} {pipeline.unit} per iteration in the "
            "steady state"
        )
        found.append(f"{text}; of that {busy} busy. Limit: {loop.limit}." if busy else f"{text}.")
        if loop.skipped:
            found.append(f"{loop.skipped} iterations in the middle are left out.")
    return found + _other_stages(view, pipeline)


def _other_stages(view: KernelView, pipeline: Pipeline) -> list[str]:
    """What one stage less and one more would need, and how many blocks would still fit."""
    shared, now = view.shared, view.occupancy
    arch = view.record.target.partition(":")[2]
    if shared is None or now is None or arch not in ARCHITECTURES:
        return []
    found = []
    own = max(buffer.versions for buffer in shared.buffers)
    most = machine_of(arch).shared.most
    for number, bytes_ in shared.stages:
        if number not in (own - 1, own + 1) or number < 1:
            continue
        text = f"num_stages = {number} would need {format_bytes(bytes_)}"
        if bytes_ > most:
            found.append(f"{text}, more than the {format_bytes(most)} that a block may have.")
            continue
        other = occupancy(arch, view.threads, bytes_)
        if other is not None:
            blocks = f"{other.blocks} block{'s' if other.blocks != 1 else ''}"
            found.append(
                f"{text}: {blocks} at once instead of {now.blocks} (limit: {other.limited_by})."
            )
    if now.advice:
        found.append(f"{now.advice[0].upper()}{now.advice[1:]}.")
    return found


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each loop."""
    pipeline = _pipeline(view)
    found: list[tuple[str, str]] = []
    for loop in pipeline.loops:
        found += [
            (f"loop {loop.name}: iterations", str(loop.iterations)),
            (f"loop {loop.name}: stages", str(loop.num_stages)),
            (f"loop {loop.name}: an iteration takes", f"{loop.period:.0f} {pipeline.unit}"),
            (f"loop {loop.name}: limit", loop.limit),
        ]
        found += [(f"loop {loop.name}: {name} busy", f"{part:.0%}") for name, part in loop.busy]
    found.append(("who works", ", ".join(pipeline.roles)))
    for operation in pipeline.operations:
        if operation.kind == "copy":
            into = ", ".join(operation.buffers) or operation.text
            found.append((f"copies into {into}", operation.how))
    return numbered(found)


def section(view: KernelView, opened: bool = False) -> str:
    """The chart of the first iterations and the sentences for readers without a kernel."""
    pipeline = _pipeline(view)
    window = window_of(pipeline, 0, _STATIC_ITERATIONS if opened else _CARD_ITERATIONS)
    bars = bars_of(pipeline, window)
    rows = rows_of(bars, pipeline)
    address = as_image(pipeline_svg(bars, rows, window, pipeline.unit))
    loop, tiles = pipeline.loops[0], set(stage_rows(pipeline).values())
    alternative = (
        f"the first {window.count} of {loop.iterations} iterations: copies into "
        f"{', '.join(row for row in rows if row in tiles) or 'registers'}, and what threads do"
    )
    picture = html.image(address, alternative, WIDTH, chart_height(rows))
    # In a card, where there is little room, the shared memory beside it tells of other stages.
    said = sentences(view) if opened else sentences(view)[:1]
    lines = [html.tag("div", "", html.text(text)) for text in said]
    faint = f"{html.FAINT};font-size:12px"
    assumed = " ".join(pipeline.assumptions if opened else pipeline.assumptions[:2])
    notes = [about(pipeline), assumed] if opened else [assumed]
    lines += [html.tag("div", faint, html.text(text)) for text in notes]
    note = f"{loop.num_stages} stages, {loop.period:.0f} {pipeline.unit} per iteration, predicted"
    return html.details("Pipeline", picture, *lines, note=note, opened=opened)
