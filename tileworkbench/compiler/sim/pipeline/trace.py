"""What the threads of one simulated block did, in order: recorded only when it is asked for.

There is no time in it. Each thread counts the statements that it has executed. A thread that has
waited for others takes over their count if it is higher, as the simulator's own order of events
says.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.sim.pipeline.leaves import (
    JOINED,
    Kind,
    Leaf,
    joined,
    leaf_of,
)
from tileworkbench.compiler.sim.threads.order import Clock, Order

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An operation of some threads. `start`, `end` and `landed` (when a wait has made the data of
    an asynchronous copy land) are in logical time.
    """

    kind: str
    how: str
    line: int
    role: str
    iteration: int
    start: int
    end: int
    landed: int


@dataclass(frozen=True, slots=True)
class Trace:
    """The events of one simulated block by role, in order.

    Attributes:
        unit: of all times: statements that threads have executed. It is an order and no time.
        launch: of the kernel, from 1 on.
        block: its indices.
        events: at most `limit`; `dropped` more were executed.
    """

    kernel: str
    target: str
    block: tuple[int, ...]
    events: tuple[TraceEvent, ...]
    limit: int
    dropped: int = 0
    unit: str = "statements"
    launch: int = 1

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """A row per event, for a DataFrame."""
        return [asdict(event) for event in self.events]


@dataclass(slots=True)
class _Open:
    """An event that may go on."""

    kind: Kind
    how: str
    site: int
    group: int
    iteration: int
    start: int
    end: int
    landed: int = -1
    parts: int = 1
    landed_parts: int = 0


@dataclass(slots=True)
class TraceRecorder:
    """Records the block of indices `block`, whose threads are in `groups` (first, count);
    `products` are sites of T.gemm, `parts` is what `counted_parts` says of the statements.
    """

    block: tuple[int, ...]
    groups: tuple[tuple[int, int], ...]
    products: frozenset[int]
    limit: int = LIMIT
    parts: Mapping[int, int] = field(default_factory=dict)
    dropped: int = 0
    started: int = 0  # statements that started something
    events: list[_Open] = field(default_factory=list)
    counts: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    stamps: dict[int, int] = field(default_factory=dict)
    _last: dict[int, _Open] = field(default_factory=dict)
    _inside: dict[int, tuple[int, dict[int, _Open]]] = field(default_factory=dict)
    _begun: dict[tuple[int, int, Kind], int] = field(default_factory=dict)
    _flying: dict[tuple[int, int], deque[_Open]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        first, count = self.groups[-1]
        self.counts = np.zeros(first + count, np.int64)

    def order(self, threads: int, clock: Clock, first: int, block: tuple[int, ...]) -> Order:
        """The order of a block's threads, which tells how they wait for each other."""
        if block != self.block or threads != len(self.counts):
            return Order(threads, clock, first)
        return _TracedOrder(threads, clock, first, self)

    def _is_of(self, frame: ThreadFrame) -> bool:
        """Whether these are threads of the block."""
        return frame.block == self.block and frame.threads == len(self.counts)

    # What the simulator tells

    def watch(self, stmt: Stmt, execute: Callable[..., Any]) -> Callable[..., Any]:
        """`execute` of a statement, with a note of it."""
        leaf = leaf_of(stmt)
        part = self.parts.get(id(stmt))
        if leaf is None or part is None:  # another launch's
            return execute

        def watched(frame: ThreadFrame) -> Any:
            if not self._is_of(frame):
                return execute(frame)
            active = frame.active().copy()
            self._executed(stmt.site, leaf, active, part)
            return execute(frame)

        return watched

    def _executed(self, site: int, leaf: Leaf, active: Array, part: int) -> None:
        self.started += leaf.started
        before = self.counts.copy()
        self.counts[active] += 1
        for group, (first, count) in enumerate(self.groups):
            mine = active[first : first + count]
            if mine.any() and leaf.kind is not Kind.COMMIT:
                start = int(before[first : first + count][mine].max())
                self._record(group, site, leaf, start, part)

    def _record(self, group: int, site: int, leaf: Leaf, start: int, part: int) -> None:
        product = leaf.kind in JOINED and site in self.products
        kind = Kind.PRODUCT if product else leaf.kind
        last = self._open(group, site, part)
        if last is not None and last.site == site and kind in JOINED and last.kind in JOINED:
            if joined(last.kind, kind) is not last.kind:
                last.kind, last.how = kind, leaf.how
            last.end = start + 1
            last.parts += 1
            return
        if len(self.events) >= self.limit:
            self.dropped += 1
            self._last.pop(group, None)
            return
        key = (group, site, kind if kind not in JOINED else Kind.COMPUTE)
        iteration = self._begun[key] = self._begun.get(key, -1) + 1
        made = _Open(kind, leaf.how, site, group, iteration, start, start + 1)
        self.events.append(made)
        self._last[group] = made
        if part:
            self._inside[group][1][site] = made
        if leaf.started:
            self._flying.setdefault((group, site), deque()).append(made)

    def _open(self, group: int, site: int, part: int) -> _Open | None:
        """The event that a statement may continue: the last one, or in a counted loop the last of
        its site there.
        """
        last = self._last.get(group)
        if not part:
            self._inside.pop(group, None)
            return last
        inside, events = self._inside.get(group, (0, {}))
        if inside != part:
            events = {last.site: last} if last is not None and last.kind in JOINED else {}
            self._inside[group] = part, events
        return events.get(site)

    def released(self, frame: ThreadFrame) -> None:
        """The threads of a group go on after a wait."""
        if not self._is_of(frame):
            return
        owned = np.broadcast_to(np.asarray(frame.owned), (frame.threads,))
        for group, (first, count) in enumerate(self.groups):
            mine = owned[first : first + count]
            last = self._last.get(group)
            if mine.any() and last is not None and last.kind is Kind.WAIT:
                reached = self.counts[first : first + count][mine].max()
                last.end = max(last.end, int(reached))

    def landed(self, frame: ThreadFrame, threads: Array, site: int, parts: int = 1) -> None:
        """What `threads` started at `site` is done: `parts` of their oldest event there."""
        if not self._is_of(frame):
            return
        now = int(self.counts[threads].max())
        for group, (first, count) in enumerate(self.groups):
            flying = self._flying.get((group, site))
            if flying and ((threads >= first) & (threads < first + count)).any():
                flying[0].landed_parts += parts
                if flying[0].landed_parts >= flying[0].parts:
                    flying.popleft().landed = now

    def events_by_start(self) -> list[_Open]:
        """The events in the order of logical time. Operations that alternated in a counted loop are
        written one after the other, each with all its statements.
        """
        reached: dict[int, int] = {}
        for event in self.events:
            event.start = max(event.start, reached.get(event.group, 0))
            if event.kind in JOINED:
                event.end = event.start + event.parts
            reached[event.group] = event.end = max(event.end, event.start)
        return sorted(self.events, key=lambda event: (event.start, event.end))


class _TracedOrder(Order):
    """An order in which a thread that waits for another takes over its count."""

    __slots__ = ("_trace",)

    def __init__(self, count: int, clock: Clock, first: int, trace: TraceRecorder) -> None:
        super().__init__(count, clock, first)
        self._trace = trace

    def meet(self) -> None:
        counts = self._trace.counts
        counts[:] = counts.max()
        super().meet()

    def release(self, threads: Array) -> Array:
        now = self.clock.now
        self._trace.stamps[now] = int(self._trace.counts[threads].max())
        return super().release(threads)

    def acquire(self, threads: Array, times: Array) -> None:
        super().acquire(threads, times)
        stamps = self._trace.stamps
        latest = max((stamps.get(int(time), 0) for time in np.unique(times)), default=0)
        counts = self._trace.counts
        counts[threads] = np.maximum(counts[threads], latest)
