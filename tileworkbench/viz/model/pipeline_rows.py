"""Which bars a chart of a pipeline has: rows of stages and of threads, a window of iterations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.pipeline.model import Event, Pipeline
from tileworkbench.compiler.sim.pipeline.trace import Trace

PRODUCTS = "products under way"
"""The row of products that threads start and do not wait for at once."""
MOST_STAGES = 16  # rows; beyond that the tiles' stages share a row


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of a row: `style` is flight, use, or an operation's kind; `event` its number in the
    pipeline, -1 for one that is only in a trace.
    """

    row: str
    start: float
    end: float
    style: str
    text: str
    line: int
    event: int
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Window:
    """The iterations of the chart, and the times between which their events are."""

    first: int
    count: int
    start: float
    end: float
    marks: tuple[tuple[str, float, float], ...]


def iterations_of(pipeline: Pipeline) -> list[int]:
    """The iterations that have events, in order."""
    return sorted({event.iteration for event in pipeline.events if _loop_of(pipeline, event) >= 0})


def window_of(pipeline: Pipeline, first: int, count: int) -> Window:
    """The window of `count` iterations that begins with the one at place `first`."""
    every = iterations_of(pipeline)
    first = max(min(first, len(every) - count), 0)
    chosen = set(every[first : first + count])
    inside = [e for e in pipeline.events if _loop_of(pipeline, e) >= 0 and e.iteration in chosen]
    whole_start, whole_end = first == 0, first + count >= len(every)
    start = 0.0 if whole_start else min(e.start for e in inside)
    end = max(max(e.end, e.landed) for e in (pipeline.events if whole_end else inside))
    if not whole_end:
        # The copies that run ahead belong to iterations that are not shown any more.
        end = max(e.end for e in inside if pipeline.operations[e.operation].kind != "copy")
    marks = []
    for loop in pipeline.loops:
        for name, a, b in (
            ("prologue", loop.first, loop.steady),
            ("steady state", loop.steady, loop.drain),
            ("epilogue", loop.drain, loop.last),
        ):
            if b > start and a < end and b > a:
                marks.append((name, max(a, start), min(b, end)))
    return Window(first, len(chosen), start, max(end, start + 1), tuple(marks))


def bars_of(pipeline: Pipeline, window: Window) -> list[Bar]:
    """The predicted bars of the window."""
    stages = stage_rows(pipeline)
    bars, busy = [], 0.0
    for number, event in enumerate(pipeline.events):
        if max(event.end, event.landed, event.released) < window.start or event.start > window.end:
            continue
        operation = pipeline.operations[event.operation]
        text = str(event.iteration) if operation.loop >= 0 else ""
        if operation.kind == "copy":
            for slot in event.slots:
                row = stages[slot]
                bar = Bar(row, event.start, event.landed, "flight", text, operation.line, number)
                bars.append(bar)
                if event.released > event.landed:
                    use = (event.landed, event.released, "use", text, operation.line, number)
                    bars.append(Bar(row, *use))
        row, kind, line = operation.role, operation.kind, operation.line
        bars.append(Bar(row, event.start, event.end, kind, text, line, number))
        if kind == "product" and event.landed > event.end:  # the threads went on
            start = max(event.start, busy)  # products of all roles follow each other
            busy = event.landed
            bars.append(Bar(PRODUCTS, start, busy, kind, text, line, number))
    return bars


def simulated_bars(pipeline: Pipeline, trace: Trace, window: Window) -> tuple[list[Bar], float]:
    """The events of a trace that belong to the window, in its times: logical time is stretched to
    the window's width. Returns the logical time of the window's left and right too, as the rate.
    """
    pairs = paired(pipeline, trace)
    shown = [
        (number, event)
        for number, event in enumerate(trace.events)
        if (pair := pairs[number]) < 0 or _in(pipeline.events[pair], window)
    ]
    if not shown:
        return [], 1.0
    begin = min(event.start for _, event in shown)
    rate = (max(event.end for _, event in shown) - begin) / (window.end - window.start) or 1.0

    def place(at: float) -> float:
        return window.start + (at - begin) / rate

    stages = stage_rows(pipeline)
    bars = []
    for number, event in shown:
        pair = pairs[number]
        text = str(event.iteration)
        row = f"simulated: {event.role}"
        common = (event.line, pair, True)
        bars.append(Bar(row, place(event.start), place(event.end), event.kind, text, *common))
        if event.kind == "copy" and pair >= 0:
            for slot in pipeline.events[pair].slots:
                row = stages[slot]
                ends = min(place(event.landed), window.end)
                bars.append(Bar(row, place(event.start), ends, "simulated", "", *common))
    return bars, rate


def paired(pipeline: Pipeline, trace: Trace) -> list[int]:
    """For each event of a trace the predicted one: the same operation, as often done before."""
    waiting: dict[tuple[str, str, str, int], list[int]] = {}
    for number, event in enumerate(pipeline.events):
        each = pipeline.operations[event.operation]
        waiting.setdefault((each.role, each.kind, each.how, each.line), []).append(number)
    done: dict[tuple[str, str, str, int], int] = {}
    pairs = []
    for executed in trace.events:
        key = (executed.role, executed.kind, executed.how, executed.line)
        at = done.get(key, 0)
        done[key] = at + 1
        numbers = waiting.get(key, [])
        pairs.append(numbers[at] if at < len(numbers) else -1)
    return pairs


def agreement(pipeline: Pipeline, trace: Trace) -> str:
    """Whether the simulator did what was predicted in that order, in one sentence."""
    if trace.block != pipeline.block:
        return f"The trace is of block {trace.block}, the prediction of block {pipeline.block}."
    if any(loop.skipped for loop in pipeline.loops):
        return "The prediction leaves iterations out; those before are compared."
    orders: list[dict[str, list[tuple[str, int]]]] = [{}, {}]
    for event in pipeline.events:
        each = pipeline.operations[event.operation]
        orders[0].setdefault(each.role, []).append((each.kind, each.line))
    for done in trace.events:
        orders[1].setdefault(done.role, []).append((done.kind, done.line))
    if orders[0] == orders[1]:
        return (
            f"The simulator did the {len(trace.events)} operations that are predicted, in the "
            "predicted order."
        )
    text = "The simulator did other operations than predicted, or in another order"
    guessed = "the prediction guessed what only a call knows"
    return f"{text}: {guessed}." if pipeline.guessed else f"{text}."


def rows_of(bars: Sequence[Bar], pipeline: Pipeline) -> list[str]:
    """The rows in which bars are, stages first."""
    used = {bar.row for bar in bars}
    stages = dict.fromkeys(stage_rows(pipeline).values())
    roles = [*pipeline.roles, *(f"simulated: {role}" for role in pipeline.roles)]
    return [row for row in (*stages, PRODUCTS, *roles) if row in used]


def stage_rows(pipeline: Pipeline) -> dict[tuple[str, int], str]:
    """The row of each stage of a tile that copies fill. Stages share one where they are too many; a
    tile that has only one is called by its name.
    """
    slots = sorted(
        {
            slot
            for event in pipeline.events
            if pipeline.operations[event.operation].kind == "copy"
            for slot in event.slots
        }
    )
    counts = Counter(buffer for buffer, _ in slots)
    return {
        (buffer, stage): (
            buffer if counts[buffer] == 1 or len(slots) > MOST_STAGES else f"{buffer} stage {stage}"
        )
        for buffer, stage in slots
    }


def _loop_of(pipeline: Pipeline, event: Event) -> int:
    return pipeline.operations[event.operation].loop


def _in(event: Event, window: Window) -> bool:
    return event.start <= window.end and max(event.end, event.landed) >= window.start
