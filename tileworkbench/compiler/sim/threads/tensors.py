"""Tensors in global memory as threads access them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.sim.memory import Index, Storage
from tileworkbench.compiler.sim.observers import tell_asked, tell_read, tell_written
from tileworkbench.compiler.sim.problems import NOT_ALIGNED
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.findings import (
    report_clash,
    report_stores,
    report_threads,
)
from tileworkbench.compiler.sim.threads.marks import Clash, Marks
from tileworkbench.compiler.sim.threads.registers import thread_column
from tileworkbench.compiler.sim.values import Mask, Value, mask_and, over_lanes

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]


class ThreadTensor(Storage):
    """A tensor in global memory, or a tile that operators of a whole block use: every access by
    threads is counted and checked for races, within the block and between blocks.
    """

    __slots__ = ("marks", "stored", "strides")

    def __init__(self, storage: Storage, stored: bool) -> None:
        self.name, self.dtype, self.scope = storage.name, storage.dtype, storage.scope
        self.data, self.written, self.guarded = storage.data, storage.written, storage.guarded
        self.prefix, self.shape, self.safe = storage.prefix, storage.shape, storage.safe
        self.log, self.stored = storage.log, stored
        self.marks: Marks | None = None
        self.strides = tuple(stride // self.data.itemsize for stride in self.data.strides)

    @property
    def changes(self) -> bool:
        return self.stored

    def landed(self, frame: Any, place: Index) -> None:
        if self.stored and frame.partial and frame.options.races:
            flat = np.arange(self.data.size).reshape(self.data.shape)[place].reshape(-1)
            self._mark(frame, "store", None, self._leader(frame), flat)

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Storage:
        return ThreadTensor(super().view(buffer, shape), True)

    def flat(self) -> Storage:
        return ThreadTensor(super().flat(), self.stored)

    def note_box(self, frame: Any, box: tuple[slice, ...], values: Array | None = None) -> None:
        super().note_box(frame, box, values)
        if self.stored and frame.partial and frame.options.races:
            flat = np.arange(self.data.size).reshape(self.data.shape)[box].reshape(-1)
            access = "load" if values is None else "store"
            self._mark(frame, access, None, self._leader(frame), flat)

    def _leader(self, frame: ThreadFrame) -> Array:
        """The thread that is named for a group in an operator of the whole group."""
        return frame.owned_threads()[:1]

    def _note_write(
        self, frame: Any, place: Index, chosen: Array | None, lanes: tuple[int, ...], value: Value
    ) -> None:
        super()._note_write(frame, place, chosen, lanes, value)
        if frame.partial:
            self._mark(frame, "store", None, self._leader(frame), self._flat(place).reshape(-1))

    def _note_read(self, frame: Any, place: Index, reading: Mask, lanes: tuple[int, ...]) -> None:
        super()._note_read(frame, place, reading, lanes)
        if frame.parallel is None and lanes:
            self._touch(frame, "load", place, reading, lanes)
        elif self.stored and frame.partial and frame.options.races:
            chosen = over_lanes(reading, lanes)
            at = np.broadcast_to(self._flat(place), lanes)[chosen]
            self._mark(frame, "load", None, self._leader(frame), at)

    def store(
        self, frame: Any, index: Index, value: Value, active: Mask, lanes: tuple[int, ...]
    ) -> None:
        if frame.parallel is not None or not lanes:
            super().store(frame, index, value, active, lanes)
            return
        inside, valid = self.bounds(frame, "store", index, active, lanes)
        active = mask_and(active, valid)
        if frame.observers:
            tell_asked(frame, self, "store", active, lanes)
        if active is False:
            return
        chosen = over_lanes(active, lanes)
        place = tuple(np.broadcast_to(at, lanes)[chosen] for at in inside)
        values = np.broadcast_to(np.asarray(value, self.data.dtype), lanes)[chosen]
        if frame.options.races and self.scope == "global":
            self.log.write_block(frame, place, self.data, values)
        if frame.flights is not None:
            frame.flights.touch(frame, self, place, True)
        self.data[place] = values
        if self.written is not None:
            self.written[place] = True
        if frame.observers:
            tell_written(frame, self, place, chosen, lanes)
        self._touch(frame, "store", inside, active, lanes)
        if not frame.options.races:
            return
        kept = self.data[place]
        different = (kept != values) & ~((kept != kept) & (values != values))
        if different.any():
            threads = np.broadcast_to(thread_column(lanes), lanes)[chosen]
            report_stores(frame, self.name, index, place, threads, different)

    def _touch(
        self,
        frame: Any,
        access: str,
        place: Index,
        active: Mask,
        lanes: tuple[int, ...],
        kind: str | None = None,
    ) -> None:
        """Count and check an access of one element, or a vector of them, by each active thread."""
        chosen = over_lanes(active, lanes)
        memory = self._in_memory(place, lanes)
        everyone = np.asarray(chosen if chosen.ndim == 1 else chosen.any(axis=1))
        first = memory if memory.ndim == 1 else memory[:, 0]
        elements = 1 if chosen.ndim == 1 else lanes[1]
        self._count(frame, kind or access, place, first, everyone, elements)
        if not (self.stored and self.data.ndim and frame.options.races):
            return
        at = np.broadcast_to(self._flat(place), lanes)[chosen]
        threads = np.broadcast_to(thread_column(lanes), lanes)[chosen]
        self._mark(frame, access, place, threads, at)

    def _in_memory(self, place: Index, lanes: tuple[int, ...]) -> Array:
        """Where elements are in memory, counted in elements."""
        memory = np.zeros((), np.int64)
        for position, stride in zip(place, self.strides, strict=True):
            memory = np.asarray(memory + np.asarray(position, np.int64) * stride)
        return np.broadcast_to(memory, lanes)

    def _flat(self, place: Index) -> Array:
        """The row-major positions of elements."""
        flat = np.zeros((), np.int64)
        for position, extent in zip(place, self.data.shape, strict=True):
            flat = np.asarray(flat * extent + np.asarray(position, np.int64))
        return flat

    def _mark(
        self, frame: ThreadFrame, access: str, place: Index | None, threads: Array, at: Array
    ) -> None:
        """`threads` (one, or one for each) access the elements at the row-major positions `at`;
        without `place` these say which elements they are.
        """
        if self.marks is None:
            self.marks = Marks(self.data.size, frame.order.threads, frame.partial)
        if len(threads) != len(at):
            threads = np.broadcast_to(threads, at.shape)
        if access == "load":
            unordered = self.marks.read(frame.order, threads, at, frame.site)
            clashes = [] if unordered is None else [unordered]
        else:
            clashes = self.marks.write(frame.order, threads, at, frame.site)
        for clash in clashes:
            report_clash(frame, self.name, self._index(place, at, clash), threads, clash)

    def _index(self, place: Index | None, at: Array, clash: Clash) -> Index:
        """The index of the first of these accesses, for a finding."""
        if place is not None:
            return place
        first = int(at[np.argmax(clash.where)])
        return tuple(int(position) for position in np.unravel_index(first, self.data.shape))

    def note_atomic(
        self, frame: Any, index: Index, active: Mask, reads: bool, lanes: tuple[int, ...]
    ) -> None:
        """Atomic accesses are counted; what they may race with is not checked."""
        super().note_atomic(frame, index, active, reads, lanes)
        if frame.parallel is None and frame.lanes:
            places = self._in_memory(index, lanes).reshape(frame.lanes[0], -1)
            chosen = over_lanes(active, lanes).reshape(places.shape)
            some, count = np.asarray(chosen.any(axis=1)), places.shape[1]
            self._count(frame, "atomic", index, places[:, 0], some, count)

    def read_vector(
        self, frame: ThreadFrame, index: Index, active: Array, elements: int, kind: str
    ) -> Array:
        """`elements` consecutive elements from `index` on for each active thread, zeros for the
        others.
        """
        lanes = (len(active), elements)
        columns = np.asarray(index[-1])[..., None] + np.arange(elements)
        spread = (*(at[..., None] if np.ndim(at) else at for at in index[:-1]), columns)
        inside, valid = self.bounds(frame, "load", spread, active[:, None], lanes)
        reading = mask_and(active[:, None], valid)
        if frame.observers:
            tell_asked(frame, self, "load", reading, lanes)
        if reading is False:
            return np.zeros(lanes, self.data.dtype)
        if frame.options.races:
            self.log.read(frame, inside, reading, lanes)
        self._touch(frame, "load", inside, reading, lanes, kind)
        if frame.observers:
            tell_read(frame, self, inside, reading, lanes)
        values = np.broadcast_to(self.data[inside], lanes)
        made: Array = np.where(np.broadcast_to(reading, lanes), values, np.zeros((), values.dtype))
        return made

    def _count(
        self, frame: Any, kind: str, place: Index, first: Array, active: Array, elements: int
    ) -> None:
        """Count accesses of `elements` elements, from the flat place `first` on, of each active
        thread, and check their alignment.
        """
        if self.scope != "global":
            return
        bits = self.dtype.bits if self.dtype.bits == 4 else 8 * self.dtype.bytes
        width = max(bits * elements // 8, 1)
        addresses = first * bits // 8
        frame.counters.global_(frame.site, self.name, kind, addresses, active, width)
        frame.counters.instruction(f"global {kind}", active)
        if elements > 1 and width in (2, 4, 8, 16):
            wrong = active & (addresses % width != 0)
            report_threads(frame, FindingKind.MISALIGNED, NOT_ALIGNED, self.name, place, wrong)
