"""The software pipeline of a kernel as a view: a chart of iterations, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from tileworkbench.viz.model.pipeline_svg import WIDTH, pipeline_svg
from tileworkbench.viz.model.smem import held, launch_label
from tileworkbench.viz.model.svg import THEMED, as_image
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.view import KernelView

ITERATIONS = 8  # of a live chart
_STATIC_ITERATIONS = 6
_CARD_ITERATIONS = 4
# The last one of each launch of each kernel.
_TRACES: WeakKeyDictionary[Any, dict[int, Trace]] = WeakKeyDictionary()


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    if view.pipelining is None:
        return "nothing is known of its pipelines"
    return view.pipelining.pipelines[0].missing


def _pipelines(view: KernelView) -> Sequence[Pipeline]:
    assert view.pipelining is not None  # see `missing`
    return view.pipelining.pipelines


def _asked(view: KernelView, content: dict[str, Any]) -> Pipeline:
    """The pipeline of the launch that is asked for, the first unless told otherwise."""
    pipelines = _pipelines(view)
    wanted = int(content.get("launch", pipelines[0].launch))
    return next(each for each in pipelines if each.launch == wanted)


def model(view: KernelView) -> dict[str, Any]:
    """The chart of the first iterations, and sentences; of the first launch that has a pipeline."""
    return launch_answer(view, {})


def launch_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The same of the launch that is asked for."""
    pipeline = _asked(view, content)
    return {
        **_chart(pipeline, 0, None),
        "launch": pipeline.launch,
        "choices": [[p.launch, _label(p)] for p in _pipelines(view)],
        "about": about(pipeline),
        "sentences": sentences(view, pipeline),
        "assumptions": list(pipeline.assumptions),
        "iterations": len(iterations_of(pipeline)),
    }


def _label(pipeline: Pipeline) -> str:
    return launch_label(pipeline, (loop.line for loop in pipeline.loops))


def chart_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The chart from another iteration on, with the simulator's trace where ``trace`` is true; an
    ``error`` where the kernel cannot be simulated on made-up inputs.
    """
    pipeline = _asked(view, content)
    trace = None
    if content.get("trace"):
        assert view.pipelining is not None
        kept = _TRACES.setdefault(view.pipelining, {})
        trace = kept.get(pipeline.launch)
        if trace is None:
            try:
                trace = kept[pipeline.launch] = view.pipelining.trace(launch=pipeline.launch)
            except TileError as error:
                return {"error": str(error)}
    return _chart(pipeline, int(content.get("first", 0)), trace)


def stages_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The kernel lowered again with other numbers of stages."""
    assert view.pipelining is not None
    launch = _asked(view, content).launch
    rows = [choice.to_dict() for choice in view.pipelining.what_if_stages(launch=launch)]
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


def sentences(view: KernelView, pipeline: Pipeline) -> list[str]:
    """Each loop's steady state and its limit, and what other numbers of stages need."""
    texts = []
    for loop in pipeline.loops:
        busy = " and ".join(f"{name} {part * 100:.0f} %" for name, part in loop.busy)
        text = (
            f"Loop '{loop.name}' (line {loop.line}): {loop.iterations} iterations, "
            f"{loop.num_stages} stages, {loop.period:.0f} {pipeline.unit} per iteration in the "
            "steady state"
        )
        texts.append(f"{text}; of that {busy} busy. Limit: {loop.limit}." if busy else f"{text}.")
        if loop.skipped:
            texts.append(f"{loop.skipped} iterations in the middle are left out.")
    return texts + _other_stages(view, pipeline)


def _other_stages(view: KernelView, pipeline: Pipeline) -> list[str]:
    """What one stage less and one more would need, and how many blocks would still fit."""
    shared = next((each for each in view.shared if each.launch == pipeline.launch), None)
    now = None if shared is None else held(view, shared)
    arch = view.record.target.partition(":")[2]
    if shared is None or now is None or arch not in ARCHITECTURES:
        return []
    texts = []
    most = machine_of(arch).shared.most
    for number, bytes_ in shared.stages:
        if abs(number - shared.num_stages) != 1 or number < 1:
            continue
        text = f"num_stages = {number} would need {format_bytes(bytes_)}"
        if bytes_ > most:
            texts.append(f"{text}, more than the {format_bytes(most)} that a block may have.")
            continue
        other = occupancy(arch, shared.threads, bytes_, now.registers)
        if other is not None:
            blocks = f"{other.blocks} block{'s' if other.blocks != 1 else ''}"
            than = ", as now" if other.blocks == now.blocks else f" instead of {now.blocks}"
            texts.append(f"{text}: {blocks} at once{than} (limit: {other.limited_by}).")
    if now.advice:
        texts.append(f"{now.advice[0].upper()}{now.advice[1:]}.")
    return texts


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each loop."""
    return numbered(row for pipeline in _pipelines(view) for row in _rows(pipeline))


def _rows(pipeline: Pipeline) -> Iterator[tuple[str, str]]:
    for loop in pipeline.loops:
        yield f"loop {loop.name}: iterations", str(loop.iterations)
        yield f"loop {loop.name}: stages", str(loop.num_stages)
        yield f"loop {loop.name}: an iteration takes", f"{loop.period:.0f} {pipeline.unit}"
        yield f"loop {loop.name}: limit", loop.limit
        for name, part in loop.busy:
            yield f"loop {loop.name}: {name} busy", f"{part * 100:.0f} %"
    yield "who works", ", ".join(pipeline.roles)
    for operation in pipeline.operations:
        if operation.kind == "copy":
            into = ", ".join(operation.buffers) or operation.text
            yield f"copies into {into}", operation.how


def section(view: KernelView, opened: bool = False) -> str:
    """The charts of the first iterations and the sentences for readers without a kernel."""
    pipelines = _pipelines(view)
    parts = [part for pipeline in pipelines for part in _still(view, pipeline, opened)]
    loop = pipelines[0].loops[0]
    unit = pipelines[0].unit
    note = f"{loop.num_stages} stages, {loop.period:.0f} {unit} per iteration, predicted"
    return html.details("Pipeline", *parts, note=note, opened=opened)


def _still(view: KernelView, pipeline: Pipeline, opened: bool) -> Iterator[str]:
    """The chart of one launch, and what is said of it."""
    if pipeline.launches > 1:
        yield html.tag("b", "", html.text(_label(pipeline)))
    window = window_of(pipeline, 0, _STATIC_ITERATIONS if opened else _CARD_ITERATIONS)
    bars = bars_of(pipeline, window)
    rows = rows_of(bars, pipeline)
    address = as_image(pipeline_svg(bars, rows, window, pipeline.unit))
    loop, tiles = pipeline.loops[0], set(stage_rows(pipeline).values())
    alternative = (
        f"the first {window.count} of {loop.iterations} iterations: copies into "
        f"{', '.join(row for row in rows if row in tiles) or 'registers'}, and what threads do"
    )
    yield html.image(address, alternative, WIDTH)
    # In a card, where there is little room, the shared memory beside it tells of other stages.
    said = sentences(view, pipeline)
    for text in said if opened else said[:1]:
        yield html.tag("div", "", html.text(text))
    assumed = " ".join(pipeline.assumptions if opened else pipeline.assumptions[:2])
    for text in [about(pipeline), assumed] if opened else [assumed]:
        yield html.tag("div", f"{html.FAINT};font-size:12px", html.text(text))
