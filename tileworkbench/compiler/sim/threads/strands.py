"""Groups of threads that run together, and the control flow in which they may split.

A statement in which nothing can block is one closure over masks. Around those that can block
(barriers, waits) control flow is code for a small machine: a `Strand` is a group of threads with a
stack of places in that code, so that it can be split where threads disagree, and merged with
another one that is at the same place. Strands run one after another until all of them are blocked;
they wait for each other at the end of the statement in which they split, but only while some other
strand can still go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.expressions import Evaluate
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import Arrive, Wait
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.mbarriers import MbarrierWait
from tileworkbench.compiler.sim.values import Mask, mask_and, mask_or, mask_without

Array = np.ndarray[Any, Any]
Execute = Callable[[ThreadFrame], None]


class Code:
    """A statement in which threads may block."""

    __slots__ = ()

    def run(self, strand: Strand, state: Any) -> None:
        """Do the next step: change the strand's frame, and push what comes next on its stack."""
        raise NotImplementedError


Part = Code | Execute


class Strand:
    """A group of threads of a block and where it is."""

    __slots__ = ("at", "frame", "joining", "others", "stack", "waiting")

    def __init__(
        self, others: list[Strand], frame: ThreadFrame, stack: list[tuple[Code, Any]]
    ) -> None:
        self.others, self.frame, self.stack = others, frame, stack  # `others`: of the block
        self.waiting: Wait | None = None
        self.joining = False
        self.at = 0  # the site where it waits

    def push(self, code: Part | None) -> None:
        """Do `code` next."""
        if isinstance(code, Code):
            self.stack.append((code, None))
        elif code is not None:
            code(self.frame)

    def advance(self) -> None:
        """Run until this group blocks, waits for others to join, or ends."""
        while self.stack and self.waiting is None and not self.joining:
            code, state = self.stack.pop()
            code.run(self, state)

    def split(self, threads: Mask, mask: Mask) -> Strand:
        """Make `threads` a strand of their own, with `mask` active, at the same place."""
        values = list(self.frame.values)
        frame = replace(self.frame, values=values, owned=threads, mask=mask)
        self.frame.owned = _without(self.frame.owned, threads, self.frame.threads)
        self.frame.mask = mask_without(self.frame.mask, threads)
        made = Strand(self.others, frame, list(self.stack))
        self.others.append(made)
        return made


def _without(owned: Mask, threads: Mask, count: int) -> Mask:
    others = np.broadcast_to(np.asarray(owned), (count,)) & ~np.asarray(threads)
    return others if others.any() else False


@dataclass(frozen=True, slots=True)
class SequenceState:
    """The position of the next statement, and the threads that began the sequence."""

    at: int
    entered: Mask

    def merged(self, other: SequenceState) -> SequenceState | None:
        """The state of both groups together, where they are at one statement."""
        if self.at != other.at:
            return None
        return SequenceState(self.at, mask_or(self.entered, other.entered))


@dataclass(frozen=True, slots=True)
class Sequence(Code):
    """Statements one after another; the state is None on entry."""

    parts: tuple[Part, ...]

    def run(self, strand: Strand, state: SequenceState | None) -> None:
        frame = strand.frame
        start, entered = (0, frame.owned) if state is None else (state.at, state.entered)
        for at in range(start, len(self.parts)):
            if frame.mask is False:
                return
            part = self.parts[at]
            if isinstance(part, Code):
                strand.stack += [(self, SequenceState(at + 1, entered)), (part, None)]
                return
            part(frame)


@dataclass(frozen=True, slots=True)
class Join(Code):
    """Where strands that parted before wait for each other."""

    def run(self, strand: Strand, state: None) -> None:
        strand.joining = len(strand.others) > 1


JOIN = Join()


@dataclass(frozen=True, slots=True)
class Meet(Code):
    """Where all threads that began a sequence wait for each other, before an operator that takes
    them all.
    """

    site: int

    def run(self, strand: Strand, state: None) -> None:
        strand.at = self.site
        wait = MeetWait(self, strand.stack[-1][1].entered, strand.others)
        strand.waiting = wait


@dataclass(frozen=True, slots=True)
class MeetWait:
    """A wait for the other threads that began a sequence."""

    place: Meet
    entered: Mask
    strands: list[Strand]

    def ready(self) -> bool:
        here = False
        for strand in self.strands:
            waiting = strand.waiting
            if isinstance(waiting, MeetWait) and waiting.place is self.place:
                here = mask_or(here, strand.frame.owned)
        return mask_without(self.entered, here) is False

    def finish(self, frame: ThreadFrame) -> None:
        """Groups that meet are merged by the block."""

    def describe(self) -> str:
        return "for the other threads of the block at an operator that takes them all"


def finish(wait: Wait, frame: ThreadFrame) -> None:
    """The threads of a frame go on."""
    wait.finish(frame)
    if frame.options.trace is not None:
        frame.options.trace.released(frame)


@dataclass(frozen=True, slots=True)
class Blocking(Code):
    """A statement at which the active threads may have to wait."""

    arrive: Arrive
    site: int

    def run(self, strand: Strand, state: None) -> None:
        frame = strand.frame
        resting = mask_without(frame.owned, frame.mask)
        if resting is not False:  # threads that have left the loop do not come here
            strand.split(np.broadcast_to(np.asarray(resting), frame.lanes), False)
        frame.site = strand.at = self.site
        frame.recorder.executed(self.site, len(frame.active_threads()))
        wait = self.arrive(frame)
        if wait is None:
            return
        if frame.observers and isinstance(wait, MbarrierWait) and wait.for_bytes:
            for observer in frame.observers:
                observer.waits(frame, wait.describe())
            if wait.ready():  # which lands what brings them
                finish(wait, frame)
                for observer in frame.observers:
                    observer.passed(frame)
            else:
                strand.waiting = wait
        elif wait.ready():
            finish(wait, frame)
        else:
            strand.waiting = wait
            for observer in frame.observers:
                observer.waits(frame, wait.describe())


@dataclass(frozen=True, slots=True)
class Parting(Code):
    """The threads of each of the `groups` go on as a strand of their own."""

    groups: Callable[[ThreadFrame], list[Array]]
    site: int

    def run(self, strand: Strand, state: None) -> None:
        frame = strand.frame
        frame.site = self.site
        for threads in self.groups(frame)[1:]:
            mask = np.zeros(frame.threads, np.bool_)
            mask[threads] = True
            strand.split(mask, mask)


@dataclass(frozen=True, slots=True)
class Branch(Code):
    """`if`: threads that disagree become two strands."""

    cond: Evaluate
    then: Part
    orelse: Part | None
    site: int

    def run(self, strand: Strand, state: None) -> None:
        frame = strand.frame
        frame.site = self.site
        chosen = self.cond(frame)
        yes, no = mask_and(frame.mask, chosen), mask_without(frame.mask, chosen)
        if no is False:
            strand.push(self.then)
        elif yes is False:
            strand.push(self.orelse)
        else:
            strand.stack.append((JOIN, None))
            other = strand.split(no, no)
            strand.push(self.then)
            other.push(self.orelse)


@dataclass(frozen=True, slots=True)
class RolePart(Code):
    """The threads `start .. stop - 1` do `body`, the others go on."""

    start: int
    stop: int
    body: Part

    def run(self, strand: Strand, state: None) -> None:
        frame = strand.frame
        threads = np.arange(frame.threads)
        chosen = (threads >= self.start) & (threads < self.stop)
        mine, others = mask_and(frame.mask, chosen), mask_without(frame.mask, chosen)
        if mine is False:
            return
        if others is not False:
            strand.stack.append((JOIN, None))
            strand.split(others, others)
        strand.push(self.body)


@dataclass(frozen=True, slots=True)
class LoopState:
    """The next iteration, the threads that were active and those that had left the outer loop when
    this loop began, and the loops around it.
    """

    trip: int
    trips: Any
    start: Any
    step: Any
    active: Mask
    outer: Mask
    outer_broke: Mask
    edges: tuple[tuple[str, int, bool, bool], ...]

    def merged(self, other: LoopState) -> LoopState | None:
        """The state of both groups together, where they are in one iteration."""
        same = self.trip == other.trip and all(
            np.array_equal(a, b)
            for a, b in zip(
                (self.trips, self.start, self.step),
                (other.trips, other.start, other.step),
                strict=True,
            )
        )
        if not same:
            return None
        return replace(
            self,
            active=mask_or(self.active, other.active),
            outer=mask_or(self.outer, other.outer),
            outer_broke=mask_or(self.outer_broke, other.outer_broke),
        )


class _Loop(Code):
    """What loops have in common: threads that are done go on behind the loop."""

    __slots__ = ()

    def go_on(self, strand: Strand, state: LoopState, staying: Mask) -> bool:
        """Split off the threads that leave the loop; False when none stays."""
        frame = strand.frame
        leaving = mask_without(frame.owned, staying)
        if staying is False:
            _leave_loop(frame, state)
            return False
        if leaving is not False:
            other = strand.split(np.broadcast_to(np.asarray(leaving), frame.lanes), False)
            _leave_loop(other.frame, state)
        frame.mask, frame.broke = staying, False
        return True


def _leave_loop(frame: ThreadFrame, state: LoopState) -> None:
    frame.mask = mask_and(state.outer, frame.owned)
    frame.broke = mask_and(state.outer_broke, frame.owned)
    frame.edges = state.edges


@dataclass(frozen=True, slots=True)
class CountedLoop(_Loop):
    """`for`: the state is None on entry."""

    slot: int
    bounds: tuple[Evaluate, Evaluate, Evaluate]
    body: Part
    site: int
    name: str

    def run(self, strand: Strand, state: LoopState | None) -> None:
        frame = strand.frame
        if state is None:
            frame.site = self.site
            strand.stack.append((JOIN, None))
            state = self._enter(frame)
        active = mask_and(mask_without(state.active, frame.broke), frame.owned)
        staying = mask_and(active, state.trip < state.trips)
        if not self.go_on(strand, state, staying):
            return
        value = state.start + state.trip * state.step
        frame.values[self.slot] = value
        if isinstance(state.trips, int) and state.trips > 1:
            edge = (self.name, value, state.trip == 0, state.trip == state.trips - 1)
            frame.edges = (*state.edges, edge)
        later = replace(state, trip=state.trip + 1, active=staying)
        strand.stack.append((self, later))
        strand.push(self.body)

    def _enter(self, frame: ThreadFrame) -> LoopState:
        start, stop, step = [agreed(bound(frame), frame) for bound in self.bounds]
        if np.any(np.equal(step, 0)):
            span = frame.recorder.program.span(frame.site)
            raise located(RunError, "the step of a loop is zero", span)
        trips = np.maximum(-((start - stop) // step), 0)
        made = LoopState(0, trips, start, step, frame.mask, frame.mask, frame.broke, frame.edges)
        frame.broke = False
        return made if type(trips) is np.ndarray else replace(made, trips=int(trips))


def agreed(value: Any, frame: ThreadFrame) -> Any:
    """A value that all active threads agree about as one integer."""
    if type(value) is np.ndarray:
        mine = np.broadcast_to(value, frame.lanes)[frame.active()]
        if (mine == mine[0]).all():
            return int(mine[0])
    return value


@dataclass(frozen=True, slots=True)
class ConditionLoop(_Loop):
    """`while`: the state is None on entry."""

    cond: Evaluate
    body: Part
    site: int

    def run(self, strand: Strand, state: LoopState | None) -> None:
        frame = strand.frame
        if state is None:
            strand.stack.append((JOIN, None))
            state = LoopState(0, 0, 0, 0, frame.mask, frame.mask, frame.broke, frame.edges)
            frame.broke = False
        active = mask_and(mask_without(state.active, frame.broke), frame.owned)
        if active is not False:
            frame.mask, frame.site = active, self.site
            active = mask_and(active, self.cond(frame))
        if not self.go_on(strand, state, active):
            return
        frame.count_iteration()
        later = replace(state, trip=state.trip + 1, active=active)
        strand.stack.append((self, later))
        strand.push(self.body)
