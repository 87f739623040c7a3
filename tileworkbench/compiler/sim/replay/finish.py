"""Makes a recording ready for its user: tensors are cut to what was touched, and moments get their
steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError, Span
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.sim.replay.memory import Tracked
from tileworkbench.compiler.sim.replay.model import Contents, Moment, Replay
from tileworkbench.compiler.sim.replay.places import Places
from tileworkbench.compiler.sim.report import Finding

Array = np.ndarray[Any, Any]


def finished(
    made: Replay,
    tracked: Sequence[Tracked],
    moments: Sequence[tuple[int, Finding | RunError | Stmt]],
    owners: Mapping[str, Array],
) -> Replay:
    """`made` with its buffers, final memory and moments; `owners` are the threads of fragments."""
    cuts = [_Cut(each) for each in tracked]
    kept = [number for number, cut in enumerate(cuts) if cut.touched]
    numbers = {old: new for new, old in enumerate(kept)}
    moved = {at for at, new in numbers.items() if at != new or cuts[at].shape != cuts[at].whole}
    for step in made.steps:
        step.changes[:] = [
            replace(c, buffer=numbers[c.buffer], places=cuts[c.buffer].places(c.places))
            if c.buffer in moved
            else c
            for c in step.changes
        ]
        step.reads[:] = [(numbers[at], cuts[at].places(places)) for at, places in step.reads]
    made.flights = tuple(
        replace(f, buffer=numbers[f.buffer], places=cuts[f.buffer].places(f.places))
        for f in made.flights
        if f.buffer in numbers
    )
    made.final = tuple(cuts[at].values(tracked[at].shadow) for at in kept)
    made.final_writers = tuple(cuts[at].writers(tracked[at].writers) for at in kept)
    made.buffers = tuple(_contents(made.buffers[at], cuts[at], owners) for at in kept)
    made.moments = tuple(
        _moment(made, step, what)
        for step, what in moments
        if step >= made.first or not isinstance(what, Stmt)
    )
    return made


def _contents(buffer: Contents, cut: _Cut, owners: Mapping[str, Array]) -> Contents:
    threads = owners.get(buffer.name)
    if threads is not None and threads.shape != cut.shape:
        threads = None
    return replace(buffer, shape=cut.shape, origin=cut.origin, owners=threads)


class _Cut:
    """The part of a buffer that is kept: all of it, or the box of a tensor that was touched."""

    def __init__(self, tracked: Tracked) -> None:
        self.touched = tracked.is_kept
        self.whole = tracked.shape
        self.origin, self.shape = tracked.cropped()
        self._known: dict[int, tuple[Places, Places]] = {}

    def places(self, places: Places) -> Places:
        """Elements of the whole buffer in what is kept of it."""
        if self.shape == self.whole:
            return places
        known = self._known.get(id(places))
        if known is None:
            known = self._known[id(places)] = places, places.cut(self.origin, self.shape)
        return known[1]

    def values(self, values: Array) -> Array:
        """What is kept of the buffer's elements."""
        if self.shape == self.whole:
            return values.copy()
        box = tuple(
            slice(low, low + extent) for low, extent in zip(self.origin, self.shape, strict=True)
        )
        return np.ascontiguousarray(values.reshape(self.whole)[box]).reshape(-1)

    def writers(self, writers: Array) -> Array:
        """The same of their writers; tensors that the program does not write come from outside."""
        from tileworkbench.compiler.sim.replay.model import GIVEN

        if not writers.size:
            return np.full(int(np.prod(self.shape)), GIVEN, np.int32)
        return self.values(writers)


def _moment(made: Replay, step: int, what: Finding | RunError | Stmt) -> Moment:
    if isinstance(what, Finding):
        return _of_finding(made, step, what)
    if isinstance(what, RunError):
        others = [note.span for note in what.notes if note.span is not None]
        return Moment(
            _KINDS.get(type(what).__name__, "error"),
            what.message,
            what.hint or "",
            what.render(),
            step,
            what.span,
            other_span=others[0] if others else None,
        )
    span = made.span(what.site)
    return Moment("breakpoint", "T.breakpoint()", "", "T.breakpoint()", step, span)


_KINDS = {
    "DeadlockError": "deadlock",
    "DivergenceError": "divergent",
    "OutOfBoundsError": "out of bounds",
    "RaceError": "race",
}


def _of_finding(made: Replay, step: int, finding: Finding) -> Moment:
    error = finding.error()
    return Moment(
        str(finding.kind),
        finding.what,
        error.hint or "",
        error.render(),
        step,
        finding.span,
        finding.buffer,
        finding.index,
        finding.thread,
        _other_step(made, step, finding),
        finding.other,
        finding.other_thread,
    )


def _other_step(made: Replay, step: int, finding: Finding) -> int:
    """The step of the other access of a race, the latest before it; -1 where that is not known."""
    if finding.other is None and not finding.other_block:
        return -1
    for at in range(min(step, made.last) - 1, made.first - 1, -1):
        if _is_other(made, at, finding, finding.other or finding.span):
            return at
    return -1


def _is_other(made: Replay, at: int, finding: Finding, span: Span | None) -> bool:
    step = made.step(at)
    if made.span(step.site) != span or (finding.other_block and step.block != finding.other_block):
        return False
    touched = [(change.buffer, change.places) for change in step.changes] + step.reads
    for number, places in touched:
        buffer = made.buffers[number]
        if buffer.name != finding.buffer:
            continue
        if len(finding.index) != len(buffer.shape) or buffer.lanes:
            return True
        local = [i - first for i, first in zip(finding.index, buffer.origin, strict=True)]
        inside = all(0 <= i < extent for i, extent in zip(local, buffer.shape, strict=True))
        if inside and int(np.ravel_multi_index(local, buffer.shape)) in places:
            return True
    return False
