"""Watches a run and keeps what each statement of the recorded blocks did."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.analysis.effects import written, written_below
from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Buffer, Var
from tileworkbench.compiler.ir.printer import print_stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.sim.observers import Observer, Operation, Place
from tileworkbench.compiler.sim.private_memory import PrivateStorage
from tileworkbench.compiler.sim.replay.finish import finished
from tileworkbench.compiler.sim.replay.memory import Tracked
from tileworkbench.compiler.sim.replay.merging import Merged, one_or_all
from tileworkbench.compiler.sim.replay.model import (
    UNDEFINED,
    Change,
    Contents,
    Flight,
    Replay,
    Step,
    Waiting,
)
from tileworkbench.compiler.sim.replay.places import Places
from tileworkbench.compiler.sim.replay.pool import ArrayPool
from tileworkbench.compiler.sim.replay.roles import Roles
from tileworkbench.compiler.sim.report import Finding, LimitReached

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.program import Program
    from tileworkbench.compiler.sim.expressions import Slots
    from tileworkbench.compiler.sim.frame import Frame
    from tileworkbench.compiler.sim.memory import Storage

Array = np.ndarray[Any, Any]
Who = Array | int

MEMORY_BYTES = 64 << 20
MOST_READ = 1 << 16
"""Of one access whose places are kept; what a larger one reads is not marked."""
_STEP_BYTES = 400
_MAKING = (st.Alloc, st.Alias, st.Pointer, simt.Peer)
_BARRIERS = "shared.barrier"  # their phases are told by who waits at them
_KINDS = {"Assign": "let", "DeviceAssert": "assert", "BarrierWait": "barrier wait"}


class StepRecorder(Observer):
    """Keeps the last steps of a run, in at most about `memory_bytes`.

    `shapes` are those that the user's tensors have, which lowered programs index flat. Of a run
    over several blocks only the first is recorded where all would take more: `blocks` is their
    number.
    """

    __slots__ = (
        "_all", "_blocks", "_flights", "_keys", "_landing", "_limit", "_loops", "_merged",
        "_moments", "_notes", "_open", "_outer", "_pool", "_reads", "_roles", "_seen", "_shapes",
        "_shared", "_slots", "_steps", "_suspects", "_targets", "_texts", "_told", "_tracked",
        "_waits", "_written", "program", "total",
    )  # fmt: skip

    def __init__(
        self,
        memory_bytes: int = MEMORY_BYTES,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        blocks: int = 1,
    ) -> None:
        self._limit, self._shapes, self._blocks = memory_bytes, shapes or {}, blocks
        self._keys: dict[Any, Tracked] = {}
        self._tracked: list[tuple[Tracked, Contents]] = []
        self._steps: deque[Step] = deque()
        self._open = False  # a statement is under way: the last step
        self._told: dict[Tracked, list[tuple[Places, Any]]] = {}
        self._landing: list[tuple[Tracked, Places, Operation, Any]] = []
        self._reads: dict[Tracked, list[Places]] = {}
        self._suspects: dict[Tracked, bool] = {}
        self._outer: dict[Tracked, None] = {}
        self._flights: dict[Operation, tuple[int, list[Flight]]] = {}
        self._waits: list[tuple[Any, Waiting]] = []
        self._moments: list[tuple[int, Finding | RunError | st.Stmt]] = []
        self._texts: dict[int, tuple[st.Stmt, str, str]] = {}
        self._pool = ArrayPool()
        self._merged = Merged()
        self._shared: dict[Tracked, list[tuple[Tracked, Contents]]] = {}
        self._notes: list[str] = []
        self._seen: dict[tuple[int, ...], None] = {}
        self.total = 0

    # The run

    def prepared(self, program: Program, slots: Slots) -> None:
        self.program, self._slots = program, slots
        self._written = {buffer.name for buffer in written_below(program.body)}
        self._loops: dict[int, tuple[Var, ...]] = {}
        self._targets: dict[int, tuple[Buffer, ...]] = {}  # what each statement writes
        _find_loops(program.body, (), self._loops)
        self._roles = Roles(program)
        self._all: dict[int, Array] = {}  # the threads of a block, by their number

    def began(self, frame: Frame, stmt: st.Stmt) -> None:
        if frame.parallel is None:
            self._left()
        self._settle()
        if frame.block not in self._seen:
            if len(self._seen) == 1 and self._blocks > 1 and self._stops_here():
                raise LimitReached
            self._seen[frame.block] = None
        known = self._texts.get(id(stmt))
        if known is None:
            kind = type(stmt).__name__
            text = print_stmt(stmt).split("\n")[0]
            known = self._texts[id(stmt)] = (stmt, _KINDS.get(kind, kind.lower()), text)
        who, loops = self._who(frame), self._values(frame, stmt)
        self._begin(frame.block, known[1], known[2], stmt.site, who, loops)
        self._open = True
        if isinstance(stmt, st.Breakpoint):
            self._moments.append((self.total - 1, stmt))

    def ended(self, frame: Frame, stmt: st.Stmt) -> None:
        if isinstance(stmt, _MAKING) and stmt.buffer.scope != _BARRIERS:
            storage = frame.storages[self._slots.buffer(stmt.buffer)]
            self._suspects[self._track(frame, storage)] = True
        told = not isinstance(stmt, st.ExternCall)  # of what is written to tensors
        targets = self._targets.get(id(stmt))
        if targets is None:
            targets = self._targets[id(stmt)] = tuple(written(stmt))
        for buffer in targets:
            if buffer.scope != _BARRIERS and not (told and buffer.scope == "global"):
                storage = frame.storages[self._slots.buffer(buffer)]
                self._suspects.setdefault(self._track(frame, storage), False)
        self._settle()
        self._open = False

    def _left(self) -> None:
        """A parallel loop has ended: the memory of the threads now holds what its last iteration
        left in its own.
        """
        for outer in self._outer:
            self._suspects.setdefault(outer, False)
        self._outer.clear()

    def _begin(
        self,
        block: tuple[int, ...],
        kind: str,
        text: str,
        site: int,
        threads: str,
        loops: tuple[tuple[str, int | None], ...] = (),
    ) -> None:
        self._steps.append(Step(self.total, site, block, kind, text, threads, loops))
        self.total += 1
        self._pool.count(_STEP_BYTES)

    def _values(self, frame: Frame, stmt: st.Stmt) -> tuple[tuple[str, int | None], ...]:
        """The variables of the loops around a statement."""
        values: list[tuple[str, int | None]] = []
        for var in self._loops.get(id(stmt), ()):
            value = frame.values[self._slots.variable(var)]
            one = value
            if isinstance(value, np.ndarray):
                one = value.flat[0] if (value == value.flat[0]).all() else None
            values.append((var.name, None if one is None else int(one)))
        return tuple(values)

    def _who(self, frame: Any) -> str:
        """The threads that execute a statement, empty where that is the block as a whole."""
        if frame.lanes != (frame.threads,) or frame.parallel is not None or not frame.block_number:
            return ""
        active = getattr(frame, "active_threads", None)
        if active is None:
            return ""
        if frame.mask is True:
            threads = self._all.setdefault(frame.threads, np.arange(frame.threads))
        else:
            threads = active()
        return self._roles.text(threads) if threads.size else ""

    # Accesses

    def bound(self, storage: Storage) -> None:
        self._keys[storage.name] = self._new(storage, storage.name, (), -1)

    def wrote(
        self, frame: Frame, storage: Storage, place: Place, threads: Any, registers: Any
    ) -> None:
        tracked = self._track(frame, storage)
        places = tracked.find(place)
        if tracked.is_tensor:
            tracked.touch(places)
        self._told.setdefault(tracked, []).append((places, threads))

    def read(self, frame: Frame, storage: Storage, place: Place, threads: Any) -> None:
        tracked = self._track(frame, storage)
        places = tracked.find(place)
        if tracked.is_tensor:
            tracked.touch(places)
        if self._open and places.size <= MOST_READ:
            self._reads.setdefault(tracked, []).append(places)

    def started(self, frame: Frame, operation: Operation) -> None:
        step, made = max(self.total - 1, 0), []
        for storage, place in operation.targets:
            tracked = self._track(frame, storage)
            places = tracked.find(place)
            self._told.setdefault(tracked, []).append((places, operation.threads))
            made.append(
                Flight(
                    tracked.number,
                    places,
                    operation.site,
                    operation.engine,
                    self._roles.text(np.unique(operation.threads)),
                    operation.block,
                    step,
                )
            )
        self._flights[operation] = (len(np.unique(operation.threads)), made)
        if not self._open:
            self._settle()

    def landed(self, operation: Operation, threads: Any) -> None:
        if not self._open and not (self._landing and self._steps[-1].kind == "land"):
            self._settle()  # somebody waits for it at a barrier, or the block ends
            who = self._roles.text(np.unique(operation.threads))
            text = "what was started before lands"
            self._begin(operation.block, "land", text, operation.site, who)
        left, flights = self._flights.get(operation, (0, []))
        left -= len(np.unique(threads))
        step = max(self.total - 1, 0)
        if left <= 0:
            flights = [replace(flight, ended=step) for flight in flights]
        self._flights[operation] = (left, flights)
        mine = np.isin(operation.threads, threads)
        for (_, place), flight in zip(operation.targets, flights, strict=True):
            tracked = self._tracked[flight.buffer][0]
            places = tracked.find(place)
            if places.size == mine.size:
                places = tracked.at(places.positions[mine])
                self._landing.append((tracked, places, operation, operation.threads[mine]))
            else:
                self._landing.append((tracked, places, operation, -1))

    def waits(self, frame: Frame, what: str) -> None:
        wait = Waiting(self._who(frame), what, frame.site, frame.block, self.total - 1)
        self._waits.append((frame, wait))

    def passed(self, frame: Frame) -> None:
        self._settle()
        site = frame.site
        for at, (waiting, wait) in enumerate(self._waits):
            if waiting is frame and wait.ended < 0:
                self._waits[at] = (None, replace(wait, ended=self.total))
                site = wait.site
        self._begin(frame.block, "go on", "the threads go on", site, self._who(frame))

    def failed(self, finding: Finding) -> None:
        self._moments.append((max(self.total - 1, 0), finding))

    def stopped(self, error: RunError) -> None:
        """The run ended with an error."""
        self._moments.append((max(self.total - 1, 0), error))

    # Changes

    def _settle(self) -> None:
        """Find what has changed since the last time, and give it to the last step."""
        if not (self._told or self._suspects or self._landing or self._reads) or not self._steps:
            return
        step = self._steps[-1]
        for tracked, read in self._reads.items():
            places, _ = self._merged.of(tracked, [(each, -1) for each in read])
            step.reads.append((tracked.number, self._pool.places(places)))
        told, suspects, landing = self._told, self._suspects, self._landing
        self._reads, self._told, self._suspects, self._landing = {}, {}, {}, []
        for tracked, places, operation, threads in landing:
            who = one_or_all(np.asarray(threads))
            self._change(step, tracked, places, operation.site, who, lands=True)
        for tracked, accesses in told.items():
            places, threads = self._merged.of(tracked, accesses)
            self._change(step, tracked, places, step.site, threads)
        touched = [*told, *(tracked for tracked, *_ in landing), *suspects]
        for tracked in dict.fromkeys((*touched, *self._overlapping(touched))):
            undefines = suspects.get(tracked, False)
            if tracked.shadow.size and tracked not in told:
                left = tracked.changed(undefines)
                if left.size:
                    self._rest(step, tracked, left)
                if tracked.is_tensor:
                    tracked.touch(left)
        while self._pool.bytes_ > self._limit and len(self._steps) > 1:
            self._drop()

    def _rest(self, step: Step, tracked: Tracked, places: Places) -> None:
        """Changes without an access: memory was made or hidden, or is part of two buffers."""
        undefined, at = tracked.undefined(), places.positions
        gone = np.zeros(at.shape, np.bool_) if undefined is None else undefined[at]
        if gone.any():
            self._change(step, tracked, tracked.at(at[gone]), step.site, -1, defines=False)
        if not gone.all():
            self._change(step, tracked, tracked.at(at[~gone]), step.site, -1)

    def _change(
        self,
        step: Step,
        tracked: Tracked,
        places: Places,
        site: int,
        threads: Array | int,
        defines: bool = True,
        lands: bool = False,
    ) -> None:
        if not places.size or not tracked.writers.size:
            return
        new = tracked.taken(places)
        old = tracked.replace(tracked.shadow, places, new)
        writers = tracked.replace(tracked.writers, places, step.number if defines else UNDEFINED)
        step.changes.append(
            Change(
                tracked.number,
                self._pool.places(places),
                self._pool.own(old),
                self._pool.own(new),
                self._pool.number_or_array(one_or_all(writers)),
                site,
                self._pool.number_or_array(threads),
                defines,
                lands,
            )
        )

    def _overlapping(self, touched: list[Tracked]) -> Iterator[Tracked]:
        """Other buffers in the memory of those that were touched."""
        here = ((), self._steps[-1].block)
        for tracked in touched:
            others = self._shared.get(tracked)
            if others is None:
                others = self._shared[tracked] = [
                    (other, contents)
                    for other, contents in self._tracked
                    if other is not tracked
                    and tracked.writers.size
                    and other.writers.size
                    and tracked.overlaps(other)
                ]
            for other, contents in others:
                if contents.block in here:
                    yield other

    # Buffers

    def _track(self, frame: Frame, storage: Storage) -> Tracked:
        tensor = self._keys.get(storage.name) if storage.scope == "global" else None
        if tensor is not None and tensor.storage.data is storage.data:
            return tensor
        key = (frame.block, storage.name, storage.data.shape)
        tracked = self._keys.get(key)
        if tracked is None:
            name = storage.name
            if isinstance(storage, PrivateStorage):
                name += " (of each iteration)"
            tracked = self._keys[key] = self._new(
                storage, name, frame.block, max(self.total - 1, 0)
            )
        elif tracked.storage is not storage:
            tracked.adopt(storage)
            self._shared.clear()
            self._suspects.setdefault(tracked, True)
        if isinstance(storage, PrivateStorage):  # whose last iteration's values come back later
            for outer, contents in self._tracked:
                if contents.name == storage.name and contents.block == frame.block:
                    self._outer[outer] = None
        return tracked

    def _new(self, storage: Storage, name: str, block: tuple[int, ...], born: int) -> Tracked:
        changes = storage.scope != "global" or storage.name in self._written
        tracked = Tracked(len(self._tracked), storage, self._shapes.get(storage.name, ()), changes)
        dtype, lanes = str(storage.dtype), tracked.lanes
        contents = Contents(name, dtype, storage.scope, (), (), block, born, lanes)
        self._tracked.append((tracked, contents))
        self._shared.clear()
        return tracked

    def _drop(self) -> None:
        """Forget the first step."""
        step = self._steps.popleft()
        self._pool.bytes_ -= _STEP_BYTES
        for change in step.changes:
            self._pool.bytes_ -= change.old.nbytes + change.new.nbytes
            self._pool.release(change.writers)
            self._pool.release(change.threads)
        for places in (*(change.places for change in step.changes), *(at for _, at in step.reads)):
            if places.box is None:
                self._pool.release(places.positions)

    def _stops_here(self) -> bool:
        """Whether recording the blocks that follow would take too much memory; a note says so."""
        wanted = self._pool.wanted * self._blocks
        if wanted <= self._limit:
            return False
        first = next(iter(self._seen))
        self._notes.append(
            f"all {self._blocks} blocks would take about {mebibytes(wanted)}, of which "
            f"{mebibytes(self._limit)} are allowed: only block ({', '.join(map(str, first))}) was "
            "recorded; 'block=' chooses another one, 'memory_bytes=' allows more"
        )
        self._blocks = 1
        return True

    # The result

    def replay(
        self,
        kernel: str,
        stage: str,
        grid: tuple[int, ...] = (),
        notes: tuple[str, ...] = (),
        owners: Mapping[str, Array] | None = None,
    ) -> Replay:
        """What was recorded so far; the recorder is not to be used any more. `owners` are the
        threads of the elements of fragments.
        """
        self._left()
        self._settle()
        if self._steps and self._steps[0].number:
            kept = f"the last {len(self._steps)} of {self.total} steps"
            notes = (
                f"{kept} are kept: all take about {mebibytes(self._pool.wanted)}, of which "
                f"{mebibytes(self._limit)} are allowed; 'memory_bytes=' allows more",
                *notes,
            )
        flights = [flight for _, flights in self._flights.values() for flight in flights]
        return finished(
            Replay(
                kernel,
                stage,
                grid,
                tuple(self._seen),
                tuple(contents for _, contents in self._tracked),
                tuple(self._steps),
                tuple(flights),
                tuple(wait for _, wait in self._waits),
                (),
                self.program.sites,
                (),
                (),
                self.total,
                self._pool.bytes_,
                (*self._notes, *notes),
            ),
            [tracked for tracked, _ in self._tracked],
            self._moments,
            owners or {},
        )


def _find_loops(stmt: st.Stmt, around: tuple[Var, ...], loops: dict[int, tuple[Var, ...]]) -> None:
    if isinstance(stmt, (st.For, Pipelined)):
        vectors = isinstance(stmt, st.For) and stmt.kind in (
            st.LoopKind.VECTORIZED,
            st.LoopKind.BLOCKS,
        )
        around = around if vectors else (*around, stmt.var)
    children = [child for child in stmt.children() if isinstance(child, st.Stmt)]
    if not children:
        loops[id(stmt)] = around
    for child in children:
        _find_loops(child, around, loops)


def mebibytes(bytes_: int) -> str:
    """A number of bytes as text."""
    if bytes_ < 1 << 20:
        return f"{bytes_ / 1024:.0f} KiB"
    if bytes_ < 1000 << 20:
        return f"{bytes_ / (1 << 20):.3g} MiB"
    return f"{bytes_ / (1 << 30):.3g} GiB"
