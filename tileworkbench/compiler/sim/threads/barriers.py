"""Barriers of a block, of a warp and of the grid, at which threads wait for each other.

A statement that may block returns a `Wait`: what the group of threads that executed it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.problems import DIVERGENT, PART_OF_A_WARP
from tileworkbench.compiler.sim.report import FindingKind

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]


class Wait(Protocol):
    """What a group of threads waits for."""

    def ready(self) -> bool:
        """Whether the group may go on."""

    def finish(self, frame: ThreadFrame) -> None:
        """Done when the group goes on."""

    def describe(self) -> str:
        """What it is, as the rest of a sentence `threads 0-31 wait ...`."""


# Barriers of a block ----------------------------------------------------------


@dataclass(slots=True)
class _Meeting:
    """One use of a barrier: what has arrived, and whether that was enough."""

    expected: int
    arrived: int = 0
    waiting: int = 0
    complete: bool = False
    everyone: bool = False
    times: Array | None = None
    statements: set[int] = field(default_factory=set)
    true: int = 0


@dataclass(slots=True)
class BlockBarriers:
    """The numbered barriers of a block; each has one open meeting."""

    threads: int
    open: dict[int, _Meeting] = field(default_factory=dict)

    def arrive(
        self, frame: ThreadFrame, number: int, count: int, wait: bool, stmt: int, true: int = 0
    ) -> _Meeting:
        """The active threads arrive; `true` of them bring a condition that holds."""
        threads = frame.active_threads()
        meeting = self.open.get(number)
        if meeting is None:
            meeting = self.open[number] = _Meeting(count or self.threads)
        meeting.arrived += len(threads)
        meeting.waiting += len(threads) if wait else 0
        meeting.true += true
        meeting.statements.add(stmt)
        _check_warps(frame, f"barrier {number}")
        # Lowered code says how many wait where threads come from different statements.
        if len(meeting.statements) > 1 and count == 0 and not frame.lock_step:
            _found(frame, DIVERGENT, f"barrier {number}")
        if meeting.arrived >= meeting.expected:
            del self.open[number]
            meeting.complete = True
            meeting.everyone = meeting.waiting == self.threads
            if meeting.everyone:
                frame.order.meet()
                frame.counters.barriers += 1
                return meeting
        times = frame.order.release(threads)
        meeting.times = times if meeting.times is None else np.maximum(meeting.times, times)
        return meeting


def _check_warps(frame: ThreadFrame, name: str) -> None:
    active = frame.active()
    for start in range(0, len(active), frame.warp):
        warp = active[start : start + frame.warp]
        if warp.any() and not warp.all():
            _found(frame, PART_OF_A_WARP, name)
            return


def _found(frame: ThreadFrame, detail: str, name: str) -> None:
    if frame.options.divergence:
        frame.recorder.found(
            FindingKind.DIVERGENT,
            detail,
            name,
            (),
            frame.block,
            frame.site,
            1,
            int(frame.active_threads()[0]),
        )


@dataclass(slots=True)
class BlockWait:
    """At a numbered barrier."""

    meeting: _Meeting
    number: int
    result: Callable[[ThreadFrame, _Meeting], None] | None = None

    def ready(self) -> bool:
        return self.meeting.complete

    def finish(self, frame: ThreadFrame) -> None:
        if not self.meeting.everyone and self.meeting.times is not None:
            frame.order.acquire(frame.owned_threads(), self.meeting.times)
        if self.result is not None:
            self.result(frame, self.meeting)

    def describe(self) -> str:
        arrived, expected = self.meeting.arrived, self.meeting.expected
        return f"at barrier {self.number}, where {arrived} of {expected} threads have arrived"


Arrive = Callable[["ThreadFrame"], Wait | None]


def translate_barrier(stmt: simt.Barrier, number: int) -> Arrive:
    """The closure of a barrier, which is statement `number` of the program."""

    def arrive(frame: ThreadFrame) -> Wait | None:
        frame.counters.instruction("barrier", frame.active())
        meeting = frame.barriers.arrive(frame, stmt.id, stmt.count, stmt.wait, number)
        return BlockWait(meeting, stmt.id) if stmt.wait else None

    return arrive


def translate_block_exchange(
    stmt: simt.Exchange, expr: ExpressionTranslator, number: int
) -> Arrive:
    """The closure of an exchange that is a barrier of the block."""
    condition, slot = expr(stmt.args[0]), expr.slots.variable(stmt.var)

    def result(frame: ThreadFrame, meeting: _Meeting) -> None:
        if stmt.kind == "block_count":
            frame.values[slot] = meeting.true
        elif stmt.kind == "block_all":
            frame.values[slot] = int(meeting.true == meeting.expected)
        else:
            frame.values[slot] = int(meeting.true > 0)

    def arrive(frame: ThreadFrame) -> Wait:
        frame.counters.instruction("barrier", frame.active())
        holds = np.broadcast_to(np.asarray(condition(frame)) != 0, frame.lanes)
        true = int(np.count_nonzero(holds & frame.active()))
        own, count = 0, 0
        if frame.blocks > 1:  # each of them has a barrier of its own
            count = frame.threads // frame.blocks
            own = -1 - int(frame.active_threads()[0]) // count
        meeting = frame.barriers.arrive(frame, own, count, True, number, true)
        return BlockWait(meeting, own, result)

    return arrive


# Barriers of a warp and of the grid ----------------------------------------------------------


@dataclass(slots=True)
class _WarpMeeting:
    needed: frozenset[int]
    arrived: set[int] = field(default_factory=set)
    times: Array | None = None

    @property
    def complete(self) -> bool:
        return self.arrived >= self.needed


@dataclass(slots=True)
class WarpWait:
    """At barriers of one or more warps."""

    meetings: list[_WarpMeeting]

    def ready(self) -> bool:
        return all(meeting.complete for meeting in self.meetings)

    def finish(self, frame: ThreadFrame) -> None:
        for meeting in self.meetings:
            mine = np.array(sorted(meeting.needed), np.int64)
            owned = np.broadcast_to(np.asarray(frame.owned), frame.lanes)
            if meeting.times is not None:
                frame.order.acquire(mine[owned[mine]], meeting.times)

    def describe(self) -> str:
        meeting = next(each for each in self.meetings if not each.complete)
        return (
            f"at a barrier of a warp, where {len(meeting.arrived)} of {len(meeting.needed)} "
            "threads have arrived"
        )


def translate_warp_barrier(stmt: simt.WarpBarrier, expr: ExpressionTranslator) -> Arrive:
    """The closure of a barrier of a warp of the language. In a wave of 64 threads each of the two
    such warps waits for itself. Threads of a wave that execute it together are ordered anyway,
    since a wave runs in lock step.
    """
    mask, size = expr(stmt.mask), simt.LANGUAGE_WARP

    def arrive(frame: ThreadFrame) -> Wait:
        frame.counters.instruction("warp barrier", frame.active())
        bits = np.broadcast_to(np.asarray(mask(frame)).astype(np.uint64), frame.lanes)
        threads = frame.active_threads()
        met: dict[int, _WarpMeeting] = {}
        for thread in map(int, threads):
            warp = thread // size
            if warp not in met:
                first = warp * size
                lanes = range(first, min(first + size, frame.threads))
                needed = frozenset(t for t in lanes if int(bits[thread]) >> (t - first) & 1)
                met[warp] = frame.warp_meetings.setdefault((warp, needed), _WarpMeeting(needed))
            met[warp].arrived.add(thread)
        for warp, meeting in met.items():
            here = threads[threads // frame.warp == warp * size // frame.warp]
            times, old = frame.order.release(here), meeting.times
            meeting.times = times if old is None else np.maximum(old, times)
            if meeting.complete:
                del frame.warp_meetings[warp, meeting.needed]
        return WarpWait(list(met.values()))

    return arrive


@dataclass(slots=True)
class GridWait:
    """At the barrier of the grid, or of a cluster; the launch lets it go on."""

    of_cluster: bool = False
    released: bool = False

    def ready(self) -> bool:
        return self.released

    def finish(self, frame: ThreadFrame) -> None:
        pass

    def describe(self) -> str:
        return f"at the barrier of the {self.place}"

    @property
    def place(self) -> str:
        """Which blocks wait here: those of a cluster, or of the whole grid."""
        return "cluster" if self.of_cluster else "grid"


def translate_grid_barrier(of_cluster: bool) -> Arrive:
    """The closure of a barrier of the grid or a cluster."""

    def arrive(frame: ThreadFrame) -> Wait:
        wait = GridWait(of_cluster)
        frame.counters.instruction(f"{wait.place} barrier", frame.active())
        return wait

    return arrive
