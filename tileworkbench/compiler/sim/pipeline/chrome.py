"""A pipeline as a file in Chrome's trace-event format, which ui.perfetto.dev opens.

Format: "Trace Event Format", Google: complete events (ph X) with ts and dur in microseconds, which
here stand for cycles or statements; metadata (ph M) that names processes and threads; flows (ph s
and f) from a copy to the wait for it. Rows hold events one after another, never two at once.

Times are whole eighths of a microsecond. Perfetto counts in nanoseconds, start and duration each
rounded: of two events that touch at another time the first would seem to end in the second, and
Perfetto drops such an event.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.sim.pipeline.model import Event, Operation, Pipeline
from tileworkbench.compiler.sim.pipeline.trace import Trace

_PREDICTED, _SIMULATED = 1, 2
_GRID = 1 / 8  # of a microsecond: exact in nanoseconds, and in binary
Row = tuple[str, str]  # a role or a buffer, and which of its rows


def save_events(path: Path, pipeline: Pipeline, trace: Trace | None) -> Path:
    """Write the file. Raises `ArgumentError` for a kernel without a pipeline."""
    if pipeline.missing:
        raise ArgumentError(f"'{pipeline.kernel}' has no pipeline to save: {pipeline.missing}")
    content = {
        "traceEvents": trace_events(pipeline, trace),
        "displayTimeUnit": "ns",
        "otherData": {
            "kernel": pipeline.kernel,
            "target": pipeline.target,
            "time": f"1 us stands for one of the {pipeline.unit} that are predicted, and for one "
            "statement of the simulator's logical time; nothing was measured",
            "assumptions": list(pipeline.assumptions),
        },
    }
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")
    return path


def trace_events(pipeline: Pipeline, trace: Trace | None = None) -> list[dict[str, Any]]:
    """The events of the file: metadata first, then by time."""
    rows: dict[Row, list[dict[str, Any]]] = {}
    flows: list[tuple[int, dict[str, Any], dict[str, Any]]] = []
    made = [_predicted(pipeline, event, rows) for event in pipeline.events]
    for at, event in enumerate(pipeline.events):
        for other in event.waits_for:
            flows.append((len(flows) + 1, made[other], made[at]))
    drawn = [*_rows(rows, _PREDICTED, f"predicted ({pipeline.unit})")]
    for number, source, target in flows:
        common = {"cat": "copy", "name": "waits for", "id": number, "pid": _PREDICTED}
        # A flow binds to the event that holds its time, and at an end that is the next one: one
        # step before the copy's end, and the wait's.
        before = min(_GRID, source["dur"], target["dur"])
        began = {"ph": "s", "ts": _end(source) - before, "tid": source["tid"]}
        ended = {"ph": "f", "bp": "e", "ts": _end(target) - before, "tid": target["tid"]}
        drawn += [{**common, **began}, {**common, **ended}]
    if trace is not None:
        drawn += _simulated(trace)
    return sorted(drawn, key=lambda event: (event["ph"] != "M", event.get("ts", 0)))


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def _predicted(
    pipeline: Pipeline, event: Event, rows: dict[Row, list[dict[str, Any]]]
) -> dict[str, Any]:
    """Put an event into its rows; returns the one that flows bind to."""
    operation = pipeline.operations[event.operation]
    args = {
        "line": operation.line,
        "iteration": event.iteration,
        "phase": event.phase,
        "bytes": operation.bytes_,
        "how": operation.how,
        "waits for": event.reason,
    }
    name = f"{_name(operation)} [{event.iteration}]"
    own = _complete(name, operation.kind, event.start, event.end, args)
    rows.setdefault((operation.role, _lane(operation.kind)), []).append(own)
    if operation.kind != "copy" or not event.slots:
        return own
    for buffer, stage in event.slots:
        row = rows.setdefault((buffer, f"stage {stage}"), [])
        flight = _complete(f"{name} under way", "copy", event.start, event.landed, args)
        row.append(flight)
        if event.released > event.landed:
            row.append(_complete(f"{name} in use", "use", event.landed, event.released, args))
    return flight


def _simulated(trace: Trace) -> Iterator[dict[str, Any]]:
    rows: dict[Row, list[dict[str, Any]]] = {}
    for event in trace.events:
        args = {"line": event.line, "iteration": event.iteration, "how": event.how}
        args |= {"landed at": event.landed}
        name = f"{event.kind} line {event.line} [{event.iteration}]"
        row = rows.setdefault((event.role, _lane(event.kind)), [])
        row.append(_complete(name, event.kind, event.start, event.end, args))
    label = "simulator, logical time: statements executed, not a measurement"
    yield from _rows(rows, _SIMULATED, label)


def _lane(kind: str) -> str:
    return {"copy": "copies", "product": "products", "wait": "waits", "signal": "waits"}.get(
        kind, "other"
    )


def _name(operation: Operation) -> str:
    return (
        operation.text
        if operation.kind not in ("wait", "signal")
        else (f"{operation.kind}: {operation.how}" if operation.how else operation.kind)
    )


def _complete(
    name: str, category: str, start: float, end: float, args: dict[str, Any]
) -> dict[str, Any]:
    start, end = _on_grid(start), _on_grid(end)
    dur = max(end - start, 0)
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": dur, "args": args}


def _on_grid(time: float) -> float:
    return round(time / _GRID) * _GRID


def _rows(
    rows: dict[Row, list[dict[str, Any]]], process: int, label: str
) -> Iterable[dict[str, Any]]:
    """The events of a process with the names of its threads, which are the rows."""
    yield _meta("process_name", process, 0, name=label)
    for thread, ((owner, what), events) in enumerate(rows.items(), 1):
        yield _meta("thread_name", process, thread, name=f"{owner}: {what}")
        yield _meta("thread_sort_index", process, thread, sort_index=thread)
        for event in events:
            event.update(pid=process, tid=thread)
            yield event


def _meta(kind: str, process: int, thread: int, **args: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "ts": 0, "args": args}
