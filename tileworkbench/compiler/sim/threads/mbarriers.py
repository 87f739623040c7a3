"""mbarriers: barriers in shared memory with phases, arrivals and bytes of asynchronous copies (PTX
ISA, "mbarrier").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError, VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.flights import Flight, Flights
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.problems import TOO_MANY_ARRIVALS, UNORDERED_ARRIVAL, UNORDERED_INIT
from tileworkbench.compiler.sim.report import FindingKind, located
from tileworkbench.compiler.sim.threads.barriers import Arrive, Wait
from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Mbarrier:
    """An mbarrier: `phase` completed phases, and what the open one waits for: arrivals, bytes, and
    operations under way, which complete when somebody waits and nothing else is missing. Operations
    that bring bytes are waited for by their bytes only.
    """

    count: int
    pending: int
    made: int
    maker: int
    site: int
    phase: int = 0
    bytes_: int = 0
    times: Array | None = None
    complete_times: Array | None = None
    flights: list[Flight] = field(default_factory=list)

    def arrive(self, count: int, times: Array) -> None:
        """`count` arrivals of threads that have done what `times` says."""
        self.signal(count, 0, times)

    def signal(self, count: int, bytes_: int, times: Array) -> None:
        """The same; the phase also waits for `bytes_` more bytes."""
        self.times = times if self.times is None else np.maximum(self.times, times)
        self.pending -= count
        self.bytes_ += bytes_
        while self.pending <= 0 and self.bytes_ == 0 and all(one.bytes_ for one in self.flights):
            self.phase += 1
            self.pending += self.count
            self.complete_times = self.times

    def is_complete(self, parity: int, flights: Flights | None) -> bool:
        """Whether the latest phase of that parity is complete, for somebody who waits for it."""
        waits = self.bytes_ == 0 or any(flight.bytes_ for flight in self.flights)
        if self.phase & 1 == parity and self.pending <= 0 and waits and self.flights:
            arriving, self.flights = self.flights, []
            brought = sum(flight.bytes_ for flight in arriving)
            for flight in arriving:
                if flights is not None:
                    flights.land(flight)
                if flight.times is not None and self.times is not None:
                    self.times = np.maximum(self.times, flight.times)
            if self.times is not None:
                self.signal(0, -brought, self.times)
        return self.phase & 1 != parity


class MbarrierStorage(Storage):
    """An array of mbarriers, of which only those that are initialised exist."""

    __slots__ = ("made",)

    def __init__(self, storage: Storage) -> None:
        self.name, self.dtype, self.scope = storage.name, storage.dtype, storage.scope
        self.data, self.written, self.guarded = storage.data, None, False
        self.prefix, self.shape, self.safe, self.log = (), storage.shape, storage.safe, storage.log
        self.made: dict[int, Mbarrier] = {}


class _Places:
    """The mbarriers that the active threads name."""

    def __init__(self, address: Address, expr: ExpressionTranslator) -> None:
        self._slot, self._indices = expr.slots.buffer(address.buffer), expr.all(address.indices)

    def find(self, frame: ThreadFrame) -> tuple[MbarrierStorage, Array]:
        """(the array, the flat index for each thread)."""
        storage = frame.storages[self._slot]
        if not isinstance(storage, MbarrierStorage):
            raise VerifyError(f"'{storage.name}' is not an array of mbarriers")
        index = tuple([at(frame) for at in self._indices])
        inside, _ = storage.bounds(frame, "access", index, frame.mask, frame.lanes)
        flat: Any = 0
        for position, extent in zip(inside, storage.shape, strict=True):
            flat = flat * extent + np.asarray(position, np.int64)
        return storage, np.broadcast_to(np.asarray(flat), frame.lanes)

    def groups(self, frame: ThreadFrame) -> list[tuple[MbarrierStorage, int, Array]]:
        """(the array, flat index, active threads that name it), checked to be initialised."""
        storage, flat = self.find(frame)
        threads = frame.active_threads()
        made = []
        for at in np.unique(flat[threads]):
            mine = threads[flat[threads] == at]
            _require_init(frame, storage, int(at), mine)
            made.append((storage, int(at), mine))
        return made


def _require_init(frame: ThreadFrame, storage: MbarrierStorage, at: int, threads: Array) -> None:
    barrier = storage.made.get(at)
    span = frame.recorder.program.span(frame.site)
    if barrier is None:
        raise located(RunError, f"'{storage.name}[{at}]' is used before it is initialised", span)
    made = np.full(len(threads), barrier.made), np.full(len(threads), barrier.maker)
    early = frame.order.unordered(*made, frame.order.ids(threads))
    if early.any() and frame.options.races:
        frame.recorder.found(
            FindingKind.RACE,
            UNORDERED_INIT,
            storage.name,
            (at,),
            frame.block,
            frame.site,
            int(early.sum()),
            int(threads[np.argmax(early)]),
            barrier.site,
            barrier.maker - frame.order.first,
        )


def _check_arrivals(
    frame: ThreadFrame, storage: MbarrierStorage, at: int, threads: Array, count: int
) -> None:
    """`threads` make `count` arrivals: the open phase must still need them, and the threads must
    know that the phase before is complete. Otherwise the arrivals may count for that one.
    """
    barrier, sentence, early = storage.made[at], UNORDERED_ARRIVAL, 0
    if count and count > barrier.pending:
        early = count - max(barrier.pending, 0)
        sentence = f"{TOO_MANY_ARRIVALS}: count {barrier.count}"
    elif count and barrier.phase and barrier.complete_times is not None:
        others = np.flatnonzero(barrier.complete_times)
        ids = frame.order.ids(threads)[:, None]
        unknown = frame.order.unordered(barrier.complete_times[others], others, ids)
        early = int(unknown.any(axis=1).sum())
    if early and frame.options.races:
        place = (frame.block, frame.site, early)
        frame.recorder.found(
            FindingKind.RACE, sentence, storage.name, (at,), *place, other=barrier.site
        )


def translate_init(
    stmt: simt.BarrierInit, expr: ExpressionTranslator, fenced: bool
) -> Callable[..., None]:
    """The closure of `barrier_init`. Unless it counts as `fenced`, engines need a fence behind it
    to know of the barrier.
    """
    places, count = _Places(stmt.barrier, expr), expr(stmt.count)

    def init(frame: ThreadFrame) -> None:
        storage, flat = places.find(frame)
        counts = np.broadcast_to(np.asarray(count(frame)), frame.lanes)
        for thread in map(int, frame.active_threads()):
            number = int(counts[thread])
            maker = frame.order.first + thread
            made = Mbarrier(number, number, frame.order.now, maker, frame.site)
            storage.made[int(flat[thread])] = made
            if frame.flights is not None and not fenced:
                frame.flights.touch(frame, storage, (flat[thread : thread + 1],), True)

    return init


def translate_attach(
    barrier: Address, expr: ExpressionTranslator
) -> Callable[[ThreadFrame, Flight], None]:
    """The closure that lets the phase of a barrier wait for an operation."""
    places = _Places(barrier, expr)

    def attach(frame: ThreadFrame, flight: Flight) -> None:
        for storage, at, _ in places.groups(frame):
            storage.made[at].flights.append(flight)
            if frame.flights is not None:
                frame.flights.attached(frame, flight, storage, at)

    return attach


def translate(
    stmt: simt.BarrierArrive | simt.BarrierExpect | simt.BarrierSignal, expr: ExpressionTranslator
) -> Callable[..., None]:
    """The closure of a statement at an mbarrier that does not wait."""
    match stmt:
        case simt.BarrierArrive():
            return _arrive(stmt, expr)
        case simt.BarrierExpect():
            return _expect(stmt, expr)
    return _signal(stmt, expr)


def _arrive(stmt: simt.BarrierArrive, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `barrier_arrive`."""
    places = _Places(stmt.barrier, expr)

    def arrive(frame: ThreadFrame) -> None:
        frame.counters.instruction("mbarrier", frame.active())
        for storage, at, threads in places.groups(frame):
            if stmt.engine is not None and frame.flights is not None:
                storage.made[at].flights += frame.flights.unwaited(frame, stmt.engine)
            _check_arrivals(frame, storage, at, threads, len(threads))
            storage.made[at].arrive(len(threads), frame.order.release(threads))

    return arrive


def _expect(stmt: simt.BarrierExpect, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `barrier_expect`."""
    places, bytes_ = _Places(stmt.barrier, expr), expr(stmt.bytes_)

    def expect(frame: ThreadFrame) -> None:
        frame.counters.instruction("mbarrier", frame.active())
        number = np.broadcast_to(np.asarray(bytes_(frame)), frame.lanes)
        for storage, at, threads in places.groups(frame):
            times = frame.order.release(threads)
            storage.made[at].signal(0, int(number[threads].sum()), times)

    return expect


def _signal(stmt: simt.BarrierSignal, expr: ExpressionTranslator) -> Callable[..., None]:
    """The closure of `barrier_signal`."""
    places = _Places(stmt.barrier, expr)

    def signal(frame: ThreadFrame) -> None:
        frame.counters.instruction("mbarrier", frame.active())
        for storage, at, threads in places.groups(frame):
            _check_arrivals(frame, storage, at, threads, stmt.arrivals)
            times = frame.order.release(threads)
            storage.made[at].signal(stmt.arrivals, stmt.bytes_, times)

    return signal


@dataclass(slots=True)
class MbarrierWait:
    """A wait for phases of mbarriers to complete."""

    waits: list[tuple[MbarrierStorage, int, int]]
    flights: Flights | None = None

    def ready(self) -> bool:
        return all(
            storage.made[at].is_complete(parity, self.flights) for storage, at, parity in self.waits
        )

    @property
    def for_bytes(self) -> bool:
        """Whether all threads have arrived, and bytes of copies are still under way."""
        phases = [(storage.made[at], parity) for storage, at, parity in self.waits]
        left = [barrier for barrier, parity in phases if barrier.phase & 1 == parity]
        return bool(left) and all(each.pending <= 0 and each.bytes_ for each in left)

    def finish(self, frame: ThreadFrame) -> None:
        for storage, at, _ in self.waits:
            times = storage.made[at].complete_times
            if times is not None:
                frame.order.acquire(frame.owned_threads(), times)

    def describe(self) -> str:
        for storage, at, parity in self.waits:
            barrier = storage.made[at]
            if barrier.phase & 1 == parity:
                lacks = [f"{barrier.pending} of {barrier.count} arrivals"] * (barrier.pending > 0)
                lacks += [f"{barrier.bytes_} bytes"] * bool(barrier.bytes_)
                name = f"'{storage.name}[{at}]'"
                return f"for parity {parity} of {name}, which lacks {', '.join(lacks)}"
        return "for an mbarrier"


def translate_groups(
    stmt: simt.BarrierWait, expr: ExpressionTranslator
) -> Callable[[ThreadFrame], list[Array]]:
    """The closure that finds the groups of threads that wait at different barriers."""
    places = _Places(stmt.barrier, expr)
    return lambda frame: [threads for *_, threads in places.groups(frame)]


def translate_wait(stmt: simt.BarrierWait, expr: ExpressionTranslator) -> Arrive:
    """The closure of `barrier_wait`."""
    places, parity = _Places(stmt.barrier, expr), expr(stmt.parity)

    def wait(frame: ThreadFrame) -> Wait:
        frame.counters.instruction("mbarrier", frame.active())
        parities = np.broadcast_to(np.asarray(parity(frame)).astype(np.int64) & 1, frame.lanes)
        return MbarrierWait(
            [
                (storage, at, int(number))
                for storage, at, threads in places.groups(frame)
                for number in np.unique(parities[threads])
            ],
            frame.flights,
        )

    return wait
