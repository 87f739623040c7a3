"""Operations that were started and not waited for yet: each is done as late as its waits allow.

As long as nobody touches what an operation reads and writes, it does not matter when it is done
between its start and its end. So it is executed at once, and what it wrote is hidden until its end.
Its elements are marked: whoever reads or writes them too early is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.effects import declared
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine
from tileworkbench.compiler.sim.byte_marks import ByteMarks
from tileworkbench.compiler.sim.observers import Observer, Operation
from tileworkbench.compiler.sim.problems import (
    ENDED,
    NOT_FORMED,
    NOT_LANDED,
    NOT_STORED,
    OPERAND_WRITTEN,
    OVERTAKEN,
    PRODUCT_OVERTAKEN,
    SENDER_ENDED,
    SOURCE_WRITTEN,
    STORE_OVERTAKEN,
)
from tileworkbench.compiler.sim.proxies import Proxies, RegisterFences
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.values import over_lanes, poison

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
Place = tuple[Any, ...]
Execute = Callable[[Any], None]
_COPIES = (Engine.CP_ASYNC, Engine.TMA, Engine.VMCNT, Engine.CLUSTER)
_PRODUCTS = (Engine.WGMMA, Engine.TENSOR)  # those into one accumulator follow each other
_READ_EARLY = {
    **dict.fromkeys(_COPIES, NOT_LANDED),
    **dict.fromkeys(_PRODUCTS, NOT_FORMED),
    Engine.TMA_STORE: NOT_STORED,
}
_WRITTEN_EARLY = {
    **dict.fromkeys((*_COPIES, Engine.TMA_STORE), OVERTAKEN),
    **dict.fromkeys(_PRODUCTS, PRODUCT_OVERTAKEN),
}
_STILL_READ = {
    **dict.fromkeys(_COPIES, SOURCE_WRITTEN),
    **dict.fromkeys(_PRODUCTS, OPERAND_WRITTEN),
    Engine.TMA_STORE: STORE_OVERTAKEN,
}
_ENDED = {Engine.TMA_STORE: ENDED, Engine.CLUSTER: SENDER_ENDED}


@dataclass(eq=False, slots=True)
class Written:
    """What an operation wrote: `values` at `place` in the data of a storage."""

    storage: Storage
    place: Place
    values: Any = None

    def keep(self) -> None:
        """Keep the values that were written, and hide them."""
        self.values = np.array(self.storage.data[self.place])
        self.hide()

    def hide(self) -> None:
        """Put poison there instead, until `show`."""
        self.storage.data[self.place] = poison(self.storage.dtype)

    def show(self) -> None:
        """Make the written values visible."""
        self.storage.data[self.place] = self.values


@dataclass(eq=False, slots=True)
class Flight:
    """One operation under way, started by `threads` (numbers on the clock) in their groups
    `groups`; `waiting` are those of them that have not waited for what it writes, `reading` for
    what it reads. With `at_barrier` nobody waits for its group. `reads` are functions that note its
    reads again, as made at the moment when some threads know that it has read everything.
    """

    number: int
    engine: Engine
    site: int
    block: tuple[int, ...]
    threads: Array
    groups: Array
    waiting: Array
    reading: Array
    targets: frozenset[str]
    at_barrier: bool = False
    times: Array | None = None
    written: list[Written] = field(default_factory=list)
    touched: list[tuple[Storage, Place]] = field(default_factory=list)
    reads: list[tuple[Array, Callable[[Any], object]]] = field(default_factory=list)
    operation: Operation | None = None  # what observers are told of it
    bytes_: int = 0  # that it tells its memory barrier of, where code says what that waits for
    tell: Callable[[], None] | None = None  # the trace, that it is done

    @property
    def source(self) -> str | None:
        """The shared memory that it only reads."""
        written = [each.storage for each in self.written]
        read = (storage for storage, _ in self.touched if storage not in written)
        return next((storage.name for storage in read if storage.scope == "shared"), None)

    def show(self) -> None:
        """Make what it wrote visible. Of a place that it wrote twice, the last value was kept
        first.
        """
        for written in reversed(self.written):
            written.show()


class Flights:
    """The operations under way in the blocks of a cluster, whose `threads` have one clock.

    Each byte of a memory that one of them touches has a mark: the number of the operation that
    writes it, or below zero of the latest one that reads it. With `fences` what threads write must
    be fenced before engines read it, and so must accesses of `products`, registers of products.
    """

    def __init__(
        self, threads: int, fences: bool = False, products: frozenset[str] = frozenset()
    ) -> None:
        self._proxies = Proxies() if fences else None
        self._registers = RegisterFences() if fences else None
        self.products = products
        self._flights: list[Flight] = []
        self._committed = {engine: np.zeros(threads, np.int64) for engine in Engine}
        self._marks = ByteMarks()
        self._current: Flight | None = None
        self._observers: tuple[Observer, ...] = ()
        self._last = 0

    # Starting and waiting

    def start(
        self,
        frame: ThreadFrame,
        engine: Engine,
        targets: frozenset[str],
        execute: Execute,
        at_barrier: bool,
    ) -> Flight:
        """Execute an operation that writes the buffers `targets`, and hide what it wrote."""
        threads = self._ids(frame)
        mine = threads - frame.order.first
        self._last += 1
        flight = Flight(
            self._last,
            engine,
            frame.site,
            frame.block,
            threads,
            self._committed[engine][threads],
            np.ones(len(threads), np.bool_),
            np.ones(len(threads), np.bool_),
            targets,
            at_barrier,
        )
        chained = [one for one in self._flights if one.engine is engine and engine in _PRODUCTS]
        for one in chained:
            one.show()
        self._current = flight
        trace = frame.options.trace
        before = 0 if trace is None else trace.started
        try:
            execute(frame)
        finally:
            self._current = None
        for written in flight.written:
            written.keep()
        for written in (each for one in chained for each in one.written):
            written.hide()
        if trace is not None:
            flight.tell = partial(trace.landed, frame, mine, flight.site, trace.started - before)
        if at_barrier and frame.partial:
            flight.times = frame.order.release(mine)
        self._flights.append(flight)
        if frame.observers:
            self._observers = frame.observers
            hidden = tuple((each.storage, each.place) for each in flight.written)
            flight.operation = Operation(frame.site, frame.block, engine.value, mine, hidden)
            for observer in frame.observers:
                observer.started(frame, flight.operation)
        return flight

    def carries(self, bytes_: int) -> None:
        """The operation that is executed now tells its memory barrier of `bytes_` more bytes."""
        if self._current is not None:
            self._current.bytes_ += bytes_

    def commit(self, frame: ThreadFrame, engine: Engine) -> None:
        """What the active threads have started since their last commit is a group."""
        self._committed[engine][self._ids(frame)] += 1

    def wait(self, frame: ThreadFrame, engine: Engine, pending: int, sources: bool) -> None:
        """Complete all groups of the active threads but the latest `pending`; with `sources` only
        their reads are complete.
        """
        active = np.zeros(len(self._committed[engine]), np.bool_)
        active[self._ids(frame)] = True
        for flight in list(self._flights):
            if flight.engine is engine and not flight.at_barrier:
                done = self._committed[engine][flight.threads] - pending > flight.groups
                done &= active[flight.threads]
                self._has_read(frame, flight, flight.threads[flight.reading & done])
                flight.reading &= ~done
                if not sources:
                    flight.waiting &= ~done
                self._settle(frame, flight)

    def land(self, flight: Flight) -> None:
        """Complete the operation: make what it wrote visible."""
        if flight in self._flights:  # which may have been given to several barriers
            flight.show()
            self._unmark(flight, (flight.number, -flight.number))
            self._flights.remove(flight)
            if flight.tell is not None:
                flight.tell()
            if flight.operation is not None:
                for observer in self._observers:
                    observer.landed(flight.operation, flight.operation.threads)

    def unwaited(self, frame: ThreadFrame, engine: Engine) -> list[Flight]:
        """What the active threads have started on `engine`, to be waited for at a barrier now."""
        mine = set(map(int, self._ids(frame)))
        left = [
            flight
            for flight in self._flights
            if flight.engine is engine and mine.intersection(map(int, flight.threads))
        ]
        for flight in left:
            flight.at_barrier = True
        return left

    def end(self, frame: ThreadFrame) -> None:
        """The block ends: what still reads its shared memory comes too late. What fills that of
        another block stays under way until somebody there waits.
        """
        for flight in [one for one in self._flights if one.block == frame.block]:
            sentence, name = _ENDED.get(flight.engine), flight.source
            if sentence is not None and name is not None and flight.reading.any():
                place = (frame.block, flight.site, 1)
                frame.recorder.found(FindingKind.RACE, sentence, name, (), *place)
            if flight.engine is not Engine.CLUSTER:
                self.land(flight)

    def reads(self, threads: Array, note: Callable[[Any], object]) -> None:
        """The operation that is executed now may still read until `threads` wait; `note` records
        these reads.
        """
        if self._current is not None:
            self._current.reads.append((threads, note))

    @staticmethod
    def _has_read(frame: ThreadFrame, flight: Flight, threads: Array) -> None:
        """`threads` know that it has read all that it reads for them."""
        if frame.partial and len(threads):
            for mine, note in flight.reads:
                if np.isin(mine, threads).all():
                    note(frame)

    def _settle(self, frame: ThreadFrame, flight: Flight) -> None:
        if not flight.waiting.any():
            self.land(flight)
            for written in flight.written:
                written.storage.landed(frame, written.place)
        elif not flight.reading.any():
            self._unmark(flight, (-flight.number,))

    # Marks

    def touch(
        self,
        frame: Any,
        storage: Storage,
        place: tuple[Any, ...],
        write: bool,
        active: Any = True,
        lanes: tuple[int, ...] = (),
    ) -> None:
        """Elements of `storage`, at `place` in its data, are about to be read or written."""
        current = self._current
        if active is False or (current is None and not self._flights and self._proxies is None):
            return
        if lanes:
            chosen = over_lanes(active, lanes)
            place = tuple(np.broadcast_to(np.asarray(at), lanes)[chosen] for at in place)
        if self._proxies is not None and storage.scope in ("shared", "shared.barrier"):
            engine = None if current is None else current.engine
            self._proxies.touch(frame, storage, place, write, engine, self._ids(frame))
        if self._registers is not None and storage.name in self.products:
            self._registers.touch(frame, storage, current is not None)
        if current is None and not self._flights:
            return
        if current is not None and not write and not storage.changes:
            return  # nobody can write it too early
        marks = self._marks.of(storage, make=current is not None)
        if marks is None:
            return
        seen = others = marks[place]
        if current is not None:  # an operation may touch one element twice
            others = np.where(np.abs(seen) == current.number, 0, seen)
        wrong = (others != 0 if write else others > 0).any(axis=-1)
        if current is not None and current.engine in _PRODUCTS and storage.name in current.targets:
            wrong = wrong & ~self._chained(current, others)
        if np.any(wrong):
            self._report(frame, storage, place, write, others, np.asarray(wrong))
        if current is None:
            return
        marks[place] = current.number if write else np.where(seen > 0, seen, -current.number)
        current.touched.append((storage, place))
        if write:
            current.written.append(Written(storage, place))

    def attached(self, frame: ThreadFrame, flight: Flight, storage: Storage, at: int) -> None:
        """An operation is to complete at a memory barrier of `storage`. Its engine must see the
        barrier's initialisation, which threads wrote.
        """
        if self._proxies is not None:
            place = (np.array([at]),)
            self._proxies.touch(frame, storage, place, False, flight.engine, self._ids(frame))

    def fence(self, frame: ThreadFrame, kind: str) -> None:
        """The active threads order what they know to be written before what engines read, or for
        "wgmma" their registers.
        """
        if kind == "async" and self._proxies is not None:
            self._proxies.fence(frame, self._ids(frame))
        if kind == "wgmma" and self._registers is not None:
            self._registers.fence(frame)

    @staticmethod
    def _ids(frame: ThreadFrame) -> Array:
        """The numbers of the active threads on the clock."""
        return frame.order.ids(_threads(frame))

    def _chained(self, current: Flight, marked: Array) -> Array:
        """Where the marks are those of products of the same engine into this accumulator."""
        numbers = [
            one.number
            for one in self._flights
            if one.engine is current.engine and one.targets & current.targets
        ]
        return np.asarray(np.isin(np.abs(marked), [0, *numbers]).all(axis=-1))

    def _unmark(self, flight: Flight, numbers: tuple[int, ...]) -> None:
        for storage, place in flight.touched:
            marks = self._marks.of(storage)
            if marks is not None:
                old = marks[place]
                marks[place] = np.where(np.isin(old, numbers), 0, old)

    def _report(
        self,
        frame: Any,
        storage: Storage,
        place: tuple[Any, ...],
        write: bool,
        marked: Array,
        wrong: Array,
    ) -> None:
        first = tuple(map(int, np.argwhere(wrong)[0])) if wrong.ndim else ()
        marks = np.asarray(marked[first])
        number = int(marks[np.argmax(np.abs(marks) if write else marks)])
        flight = next(one for one in self._flights if one.number == abs(number))
        kind, sentences = FindingKind.RACE, _WRITTEN_EARLY if number > 0 else _STILL_READ
        if not write:
            kind, sentences = FindingKind.UNINITIALISED, _READ_EARLY
        options = frame.options
        if options.races if write else options.uninitialised:
            index = tuple(_coordinate(at, first, axis) for axis, at in enumerate(place))
            frame.recorder.found(
                kind,
                sentences[flight.engine],
                storage.name,
                index,
                frame.block,
                frame.site,
                int(np.count_nonzero(wrong)),
                other=flight.site,
            )


def _coordinate(at: Any, first: tuple[int, ...], axis: int) -> int:
    """The index along `axis` of the element `first` of what is touched."""
    if isinstance(at, slice):
        return int((at.start or 0) + first[axis])
    values = np.asarray(at)
    return int(values[first[: values.ndim]] if values.ndim else values)


def _threads(frame: ThreadFrame) -> Array:
    """The active threads; inside a loop whose lanes are no threads, all those of the group."""
    return frame.active_threads() if frame.lanes == (frame.threads,) else frame.owned_threads()


# Statements


def translate_start(
    stmt: simt.Start,
    execute: Execute,
    attach: Callable[[ThreadFrame, Flight], None] | None = None,
) -> Execute:
    """The closure of an operation that is started; `attach` gives it to a memory barrier."""
    below = (access for part in statements(stmt.body) for access in declared(part))
    targets = frozenset(access.buffer.name for access in below if access.writes)

    def start(frame: Any) -> None:
        flight = frame.flights.start(frame, stmt.engine, targets, execute, attach is not None)
        if attach is not None:
            attach(frame, flight)

    return start


def translate_commit(engine: Engine) -> Execute:
    """The closure of `commit_group`."""
    return _with_flights(lambda flights, frame: flights.commit(frame, engine))


def translate_fence(kind: str) -> Execute:
    """The closure of `fence`; of memory alone the order of statements is enough."""
    return _with_flights(lambda flights, frame: flights.fence(frame, kind))


def translate_wait(stmt: simt.WaitGroup) -> Execute:
    """The closure of `wait_group`."""
    engine, pending, sources = stmt.engine, stmt.pending, stmt.sources
    return _with_flights(lambda flights, frame: flights.wait(frame, engine, pending, sources))


def _with_flights(act: Callable[[Flights, Any], None]) -> Execute:
    """`act` in kernels that start operations; in others there is nothing to do."""

    def execute(frame: Any) -> None:
        if frame.flights is not None:
            act(frame.flights, frame)

    return execute
