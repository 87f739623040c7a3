"""Asynchronous copies: they land as late as is legal, at the wait that covers their group.

While a copy is under way its destination is poisoned, reading it is an error, and so is writing it.
Once it has landed the data are there for the thread that waited; others need a barrier behind that.
Where threads run in lock step (before stage SIMT) a copy lands at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.observers import Operation, tell_asked, tell_written
from tileworkbench.compiler.sim.problems import NOT_CONTIGUOUS
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.arena import WRITTEN, Arena, ArenaStorage, check_access
from tileworkbench.compiler.sim.threads.findings import report_threads
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.tensors import ThreadTensor
from tileworkbench.compiler.sim.values import mask_and

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Flight:
    """Copies that have been issued: bytes `data[i]` go to `addresses[i]` for thread `threads[i]`,
    in that thread's group number `groups[i]`.
    """

    threads: Array
    groups: Array
    addresses: Array
    data: Array
    site: int
    tile: ArenaStorage
    operation: Operation | None = None  # what observers are told of it

    def part(self, chosen: Array) -> _Flight:
        """Some of the copies."""
        return _Flight(
            self.threads[chosen],
            self.groups[chosen],
            self.addresses[chosen],
            self.data[chosen],
            self.site,
            self.tile,
            self.operation,
        )


class CopyQueue:
    """The copies of a block that are under way."""

    def __init__(self, arena: Arena, threads: int) -> None:
        self._arena = arena
        self._flights: list[_Flight] = []
        self._committed = np.zeros(threads, np.int64)

    def issue(
        self,
        threads: Array,
        addresses: Array,
        data: Array,
        site: int,
        tile: ArenaStorage,
        operation: Operation | None = None,
    ) -> None:
        """`threads` begin to copy a row of `data` (bytes) each to `addresses`."""
        groups = self._committed[threads]
        self._flights.append(_Flight(threads, groups, addresses, data, site, tile, operation))

    def commit(self, threads: Array) -> None:
        """Make a group of what `threads` have issued since their last commit."""
        self._committed[threads] += 1

    def wait(self, frame: ThreadFrame, active: Array, pending: int) -> None:
        """Land all groups of the active threads but the latest `pending`."""
        kept: list[_Flight] = []
        for flight in self._flights:
            done = self._committed[flight.threads] - pending > flight.groups
            done &= active[flight.threads]
            if done.any():
                self._land(frame, flight.part(done))
            if not done.all():
                kept.append(flight.part(~done))
        self._flights = kept

    def _land(self, frame: ThreadFrame, flight: _Flight) -> None:
        width = flight.data.shape[1]
        if frame.flights is not None:  # products may read it then
            row, _ = flight.tile.row(flight.addresses, width)
            frame.flights.touch(frame, flight.tile, (row.reshape(-1),), True)
        self._arena.memory[flight.addresses[:, None] + np.arange(width)] = flight.data
        granules = self._arena.granules(flight.addresses, width)
        self._arena.state[granules] = WRITTEN
        threads = np.repeat(flight.threads, granules.shape[1])
        self._arena.marks.landed(frame.order, threads, granules.reshape(-1), flight.site)
        if frame.options.trace is not None:
            frame.options.trace.landed(frame, flight.threads, flight.site)
        if flight.operation is not None:
            for observer in frame.observers:
                observer.landed(flight.operation, flight.threads)


def translate_copy(stmt: simt.AsyncCopy, expr: ExpressionTranslator) -> Any:
    """The closure of an asynchronous copy."""
    target, source = expr.slots.buffer(stmt.dst.buffer), expr.slots.buffer(stmt.src.buffer)
    to, origin = expr.all(stmt.dst.indices), expr.all(stmt.src.indices)
    predicate = None if stmt.predicate is None else expr(stmt.predicate)
    elements, bits = stmt.elements, stmt.src.buffer.dtype.bits
    width = elements * bits // 8
    if width not in (4, 8, 16) or stmt.dst.buffer.dtype != stmt.src.buffer.dtype:
        raise VerifyError(f"an asynchronous copy of {width} bytes")

    def copy(frame: ThreadFrame) -> None:
        active = frame.active()
        tensor, tile = frame.storages[source], frame.storages[target]
        if not isinstance(tensor, ThreadTensor) or not isinstance(tile, ArenaStorage):
            raise VerifyError(f"an asynchronous copy from '{tensor.name}' to '{tile.name}'")
        reading = mask_and(active, True if predicate is None else predicate(frame))
        rows = np.zeros((len(active), elements), tensor.data.dtype)
        if frame.observers and reading is False:
            tell_asked(frame, tensor, "load", False, rows.shape)
        if reading is not False:
            place = tuple([at(frame) for at in origin])
            chosen = np.broadcast_to(np.asarray(reading), active.shape)
            rows = tensor.read_vector(frame, place, chosen, elements, "cp.async")
        index = tuple([at(frame) for at in to])
        addresses = _destination(frame, tile, index, active, elements)
        frame.counters.shared(frame.site, tile.name, "cp.async", addresses, active, width)
        threads = np.flatnonzero(active)
        if stmt.in_line:
            _check_line(addresses[threads] - threads % frame.warp * width, threads // frame.warp)
        data = _bytes_of(rows[threads], bits)
        at = addresses[threads]
        if frame.lock_step or frame.copies is None:
            check_access(frame, tile, "store", addresses, active, width, index)
            tile.arena.memory[at[:, None] + np.arange(width)] = data
            if frame.observers:
                row, lanes = tile.row(addresses, width)
                wide = np.broadcast_to(active[:, None], lanes)
                tell_written(frame, tile, (row[wide],), wide, lanes)
            return
        check_access(frame, tile, "copy", addresses, active, width, index)
        tile.arena.memory[at[:, None] + np.arange(width)] = 0xFF
        operation = _observed(frame, tile, at, width, threads) if frame.observers else None
        frame.copies.issue(threads, at, data, frame.site, tile, operation)

    return copy


def _observed(
    frame: ThreadFrame, tile: ArenaStorage, addresses: Array, width: int, threads: Array
) -> Operation:
    """The copies that `threads` start, of which observers are told."""
    row, _ = tile.row(addresses, width)
    owners = np.broadcast_to(threads[:, None], row.shape).reshape(-1)
    targets = ((tile, (row.reshape(-1),)),)
    engine = simt.Engine.CP_ASYNC.value
    operation = Operation(frame.site, frame.block, engine, owners, targets)
    for observer in frame.observers:
        observer.started(frame, operation)
    return operation


def _destination(
    frame: ThreadFrame, tile: ArenaStorage, index: Any, active: Array, elements: int
) -> Array:
    """The byte address for each thread; `elements` elements must follow each other there."""
    addresses = tile.addresses(frame, index, active)
    last = (*index[:-1], index[-1] + (elements - 1))
    gap = tile.addresses(frame, last, active) - addresses
    wrong = active & (gap != (elements - 1) * tile.bits // 8)
    report_threads(frame, FindingKind.MISALIGNED, NOT_CONTIGUOUS, tile.name, index, wrong)
    return addresses


def _check_line(bases: Array, warps: Array) -> None:
    """The threads of a warp store one behind the other, from one place on."""
    if (bases[1:] != bases[:-1])[warps[1:] == warps[:-1]].any():
        raise VerifyError("the copies of a warp do not lie one behind the other")


def _bytes_of(rows: Array, bits: int) -> Array:
    """Elements as the bytes they are in memory, a row for each thread."""
    if bits == 4:
        nibbles = np.ascontiguousarray(rows).view(np.uint8) & 15
        return np.asarray(nibbles[:, ::2] | nibbles[:, 1::2] << 4)
    return np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)


def translate_commit() -> Any:
    """The closure of `commit_group`."""

    def commit(frame: ThreadFrame) -> None:
        if frame.copies is not None:
            frame.copies.commit(frame.active_threads())

    return commit


def translate_wait(stmt: simt.WaitGroup) -> Any:
    """The closure of `wait_group`."""

    def wait(frame: ThreadFrame) -> None:
        frame.counters.instruction("wait", frame.active())
        if frame.copies is not None:
            frame.copies.wait(frame, frame.active(), stmt.pending)

    return wait
