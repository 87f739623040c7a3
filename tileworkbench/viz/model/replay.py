"""The replay view: steps of one block, and the memory after each as pages of changes."""

from __future__ import annotations

from base64 import b64encode
from math import ceil, prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError, TileError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.replay.model import (
    Change,
    Contents,
    Flight,
    Moment,
    Replay,
    Waiting,
)
from tileworkbench.viz.model.palette import PALETTE
from tileworkbench.viz.model.view import KernelView, Replaying

Array = np.ndarray[Any, Any]

PAGE_ELEMENTS = 400_000
"""Elements that the steps of one page change, about; the browser asks for further pages."""
PAGE_STEPS = 1000
SHOWN = 1 << 16
"""Elements of a buffer that are shown at once; of a larger one a part around what is touched."""
_NEAR = 4000  # steps that are looked at for what is touched
_WIDTH = 64  # elements in a row of a long vector
_BARRIERS = ("barrier", "barrier wait", "warpbarrier", "gridbarrier", "clusterbarrier", "waitgroup")


def missing(view: KernelView) -> str:
    """Why there is nothing to show."""
    return "it is not known how to run it" if view.replays is None else view.replays.replay_missing


def about(view: KernelView) -> str:
    """What one is looking at."""
    lines = len(view.record.source.splitlines())
    return (
        f"What one block does when the simulator runs it: step through the {lines} lines of its "
        "kernel, forth and back, and see what its memory holds after each. Green cells were "
        "written by the step, blue ones read; faint ones hold nothing yet."
    )


def model(view: KernelView) -> dict[str, Any]:
    """What was recorded, if something was: nothing runs before somebody looks."""
    replays = _of(view)
    made = replays.last_replay
    record = view.record
    kernel = {
        "stages": ["tile", *(each.name for each in record.snapshots if each.changed)],
        "source": {"first": record.first_line, "lines": record.source.splitlines()},
        "palette": PALETTE,
    }
    return kernel | ({"recorded": False} if made is None else recorded(view, made))


def record_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """Record: ``stage`` is a name, ``block`` indices as text, each empty for the default."""
    replays, text = _of(view), str(content.get("block", "")).strip(" ()")
    block: Any = None
    try:
        if text:
            block = (
                text if text == "all" else tuple(int(at) for at in text.split(",") if at.strip())
            )
    except ValueError:
        return {"error": f"'{text}' is no block: write its indices, such as 0, 1"}
    try:
        made = replays.replay(block=block, stage=content.get("stage") or None)
    except TileError as error:
        return {"error": str(error)}
    return recorded(view, made)


def recorded(view: KernelView, made: Replay) -> dict[str, Any]:
    """A replay as the browser has it, with the page of the step it opens at."""
    names: dict[str, dict[str, int]] = {key: {} for key in ("texts", "kinds", "who", "loops")}

    def number(table: str, text: str) -> int:
        return names[table].setdefault(text, len(names[table]))

    steps = [
        [
            made.line(step.site),
            number("kinds", step.kind),
            number("texts", step.text),
            number("who", step.threads),
            number("loops", ", ".join(f"{name} = {_or(at)}" for name, at in step.loops)),
            made.blocks.index(step.block),
            int(step.kind in _BARRIERS),
        ]
        for step in made.steps
    ]
    start = opens_at(made)
    return {
        "recorded": True,
        "token": id(made),
        "kernel": made.kernel,
        "stage": made.stage,
        "grid": list(made.grid),
        "blocks": [list(block) for block in made.blocks],
        "first": made.first,
        "total": made.total,
        "notes": list(made.notes),
        "moments": [_moment(made, each) for each in made.moments],
        "buffers": [_buffer(each) for each in made.buffers],
        "steps": steps,
        **{key: list(table) for key, table in names.items()},
        "flights": [_flight(made, each) for each in made.flights],
        "waits": [_wait(made, each) for each in made.waits],
        "start": start,
        "page": page(made, start),
    }


def _flight(made: Replay, each: Flight) -> dict[str, Any]:
    return {
        "buffer": each.buffer,
        "places": _packed(each.places.positions.astype(np.int32)),
        "count": each.places.size,
        "line": made.line(each.site),
        "engine": each.engine,
        "threads": each.threads,
        "block": list(each.block),
        "began": each.began,
        "ended": each.ended,
    }


def _wait(made: Replay, each: Waiting) -> dict[str, Any]:
    return {
        "threads": each.threads,
        "what": each.what,
        "line": made.line(each.site),
        "block": list(each.block),
        "began": each.began,
        "ended": each.ended,
    }


def page_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The page that has the step ``step``."""
    return page(_current(view, content), int(content["step"]))


def writer_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """Who wrote the element ``place`` of ``buffer`` in the step ``step``."""
    made = _current(view, content)
    writer = made.writer(*(int(content[key]) for key in ("buffer", "place", "step")))
    if writer is None:
        return {"line": 0, "thread": -1}
    return {"line": 0 if writer.span is None else writer.span.line, "thread": writer.thread}


def next_write_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The next step after ``step`` that writes the element ``place`` of ``buffer``, the last one
    before it with ``back``; -1 where there is none.
    """
    made = _current(view, content)
    buffer, place, at = (int(content[key]) for key in ("buffer", "place", "step"))
    steps = (
        range(at - 1, made.first - 1, -1) if content.get("back") else range(at + 1, made.last + 1)
    )
    for step in steps:
        for change in made.step(step).changes:
            if change.buffer == buffer and change.defines and place in change.places:
                return {"step": step}
    return {"step": -1}


def page(made: Replay, step: int) -> dict[str, Any]:
    """The steps around `step` whose changes are sent together: the memory before the first of them,
    and what each reads and writes.
    """
    if not made.steps:
        return {"from": 0, "to": -1, "before": [], "steps": [], "parts": {}}
    first, last = _range(made, step)
    opened = opens_at(made)
    parts = find_parts(made, opened if first <= opened <= last else first)
    data, writers = made.memory(first - 1)
    before = [
        {"values": _values(part.of(data[at])), "writers": _packed(part.of(writers[at]))}
        for at, part in enumerate(parts)
    ]
    steps = [
        {
            "changes": [_change(each, parts[each.buffer]) for each in made.step(at).changes],
            "reads": [
                [number, _packed(parts[number].inside(places.positions))]
                for number, places in made.step(at).reads
            ],
        }
        for at in range(first, last + 1)
    ]
    moved = {
        str(number): _placed(made.buffers[number], part)
        for number, part in enumerate(parts)
        if part.count < prod(made.buffers[number].shape)
    }
    return {"from": first, "to": last, "before": before, "steps": steps, "parts": moved}


def opens_at(made: Replay) -> int:
    """The step that a replay opens at: its first finding, else its first step."""
    start = made.moments[0].step if made.moments else made.first
    return min(max(start, made.first), max(made.last, made.first))


@dataclass(frozen=True, slots=True)
class Part:
    """What is shown of a buffer: a box that is contiguous in it, `count` elements from `start` on.
    `origin` is its first index in what is kept of the buffer.
    """

    shape: tuple[int, ...]
    origin: tuple[int, ...]
    start: int
    count: int

    def of(self, values: Array) -> Array:
        """Its values."""
        return values[self.start : self.start + self.count]

    def inside(self, places: Array) -> Array:
        """The places that it has, counted in it."""
        own = places - self.start
        return own[(own >= 0) & (own < self.count)]


def find_parts(made: Replay, step: int) -> list[Part]:
    """What is shown of each buffer around `step`: all of it, or the part where the next of its
    elements is touched.
    """
    large = {n for n, each in enumerate(made.buffers) if prod(each.shape) > SHOWN}
    touched: dict[int, int] = {}
    for moment in made.moments:
        for number in large:
            buffer = made.buffers[number]
            inside = [at - o for at, o in zip(moment.index, buffer.origin, strict=False)]
            is_here = moment.step == step and moment.buffer == buffer.name
            if is_here and len(inside) == len(buffer.shape):
                touched[number] = int(np.ravel_multi_index(inside, buffer.shape, mode="clip"))
    behind = range(step, min(step + _NEAR, made.last + 1))
    before = range(step - 1, max(step - _NEAR, made.first) - 1, -1)
    for at in (*behind, *before):
        if large <= touched.keys():
            break
        shown = made.step(at)
        for number, places in ((each.buffer, each.places) for each in shown.changes):
            if places.size:
                touched.setdefault(number, int(places.positions.min()))
        for number, places in shown.reads:
            if places.size:
                touched.setdefault(number, int(places.positions.min()))
    return [_part(each.shape, touched.get(n, 0)) for n, each in enumerate(made.buffers)]


def _part(shape: tuple[int, ...], place: int) -> Part:
    """The largest box of whole rows, planes and so on with `place` and at most `SHOWN` elements."""
    if prod(shape) <= SHOWN:
        return Part(shape, (0,) * len(shape), 0, prod(shape))
    index = [int(at) for at in np.unravel_index(place, shape)]
    extents, origin = list(shape), [0] * len(shape)
    for axis, size in enumerate(shape):
        below = prod(shape[axis + 1 :])
        extents[axis] = min(size, max(SHOWN // below, 1))
        # A few rows before the place show where it is.
        first = max(index[axis] - extents[axis] // 8, 0) // _WIDTH * _WIDTH
        origin[axis] = min(first if extents[axis] > _WIDTH else index[axis], size - extents[axis])
        if below <= SHOWN:
            break
    start = int(np.ravel_multi_index(origin, shape))
    return Part(tuple(extents), tuple(origin), start, prod(extents))


def _range(made: Replay, step: int) -> tuple[int, int]:
    """The first and last step of a page: those of the same number of changes, from the start on."""
    first = at = made.first
    room = PAGE_ELEMENTS
    while at <= made.last:
        shown = made.step(at)
        size = sum(change.places.size for change in shown.changes)
        size += sum(places.size for _, places in shown.reads) // 4
        if at > first and (size > room or at - first >= PAGE_STEPS):
            if at > step:
                break
            first, room = at, PAGE_ELEMENTS
        room -= size
        at += 1
    return first, at - 1


def _change(change: Change, part: Part) -> dict[str, Any]:
    places = change.places.positions - part.start
    shown = (places >= 0) & (places < part.count)
    writers, threads = change.writers, change.threads
    return {
        "buffer": change.buffer,
        "places": _packed(places[shown].astype(np.int32)),
        "old": _values(change.old[shown]),
        "new": _values(change.new[shown]),
        "writers": writers if isinstance(writers, int) else _packed(writers[shown]),
        "threads": threads if isinstance(threads, int) else _packed(threads[shown]),
        "defines": change.defines,
    }


def _packed(values: Array) -> str:
    return b64encode(np.ascontiguousarray(values, "<i4").tobytes()).decode("ascii")


def _values(values: Array) -> dict[str, Any]:
    """Values as bytes of a type that has each of them exactly; as texts where there is none."""
    kind = values.dtype.kind
    if (
        values.dtype.itemsize == 8
        and kind in "iu"
        and (np.abs(values.astype(np.float64)) > 2**53).any()
    ):
        return {"type": "text", "data": [str(int(value)) for value in values]}
    exact = values.dtype.itemsize == 8 or (kind in "iu" and values.dtype.itemsize == 4)
    code = "<f8" if exact else "<f4"
    with np.errstate(all="ignore"):
        data = np.ascontiguousarray(values.astype(code)).tobytes()
    return {"type": code[1:], "data": b64encode(data).decode("ascii")}


def _buffer(buffer: Contents) -> dict[str, Any]:
    whole = Part(buffer.shape, (0,) * len(buffer.shape), 0, prod(buffer.shape))
    return {
        "name": buffer.name,
        "dtype": buffer.dtype,
        "scope": buffer.scope,
        "block": list(buffer.block),
        "born": buffer.born,
        "lanes": buffer.lanes,
        **_placed(buffer, whole),
    }


def _placed(buffer: Contents, part: Part) -> dict[str, Any]:
    """Where a part of a buffer is in it, and its rows and columns."""
    rows, columns = extent(part.shape, buffer.lanes)
    owners = buffer.owners
    origin = [at + first for at, first in zip(part.origin, buffer.origin, strict=True)]
    said = ""
    if part.count < prod(buffer.shape):
        box = (f"{at}:{at + size}" for at, size in zip(origin, part.shape, strict=True))
        said = f"The part [{', '.join(box)}] of {'×'.join(map(str, buffer.shape))}."
    return {
        "shape": list(part.shape),
        "origin": origin,
        "start": part.start,
        "rows": rows,
        "columns": columns,
        "size": part.count,
        "part": said,
        "owners": None if owners is None else _packed(part.of(owners.reshape(-1))),
    }


def extent(shape: tuple[int, ...], lanes: int = 0) -> tuple[int, int]:
    """Rows and columns of a picture: the last dimension is a row, a long vector has several; of
    memory of each thread a thread is a row.
    """
    size = prod(shape)
    if lanes:
        rows = max(prod(shape[:lanes]), 1)
        return rows, max(size // rows, 1)
    if len(shape) > 1:
        return max(prod(shape[:-1]), 1), max(shape[-1], 1)
    return (1, max(size, 1)) if size <= _WIDTH else (ceil(size / _WIDTH), _WIDTH)


def _moment(made: Replay, moment: Moment) -> dict[str, Any]:
    other = moment.other_span
    return {
        "kind": moment.kind,
        "message": moment.message,
        "hint": moment.hint,
        "text": moment.text,
        "step": moment.step,
        "line": 0 if moment.span is None else moment.span.line,
        "buffer": moment.buffer,
        "index": list(moment.index),
        "thread": moment.thread,
        "other": moment.other,
        "otherLine": made.line(made.step(moment.other).site)
        if moment.other >= 0
        else (0 if other is None else other.line),
        "otherThread": moment.other_thread,
    }


def _or(value: int | None) -> str:
    return "differs" if value is None else str(value)


def _of(view: KernelView) -> Replaying:
    assert view.replays is not None
    return view.replays


def _current(view: KernelView, content: dict[str, Any]) -> Replay:
    made = _of(view).last_replay
    if made is None or id(made) != int(content["token"]):
        raise ArgumentError("the kernel was replayed anew since: record once more")
    return made
