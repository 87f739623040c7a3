"""The shared memory of a block: its bytes, and the buffers that lie in them."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Index, Storage
from tileworkbench.compiler.sim.observers import tell_read, tell_written
from tileworkbench.compiler.sim.problems import (
    NEVER_WRITTEN,
    NOT_ALIGNED,
    NOT_CONTIGUOUS,
    NOT_LANDED,
    OVERTAKEN,
)
from tileworkbench.compiler.sim.regrouped import four_bits
from tileworkbench.compiler.sim.report import FindingKind
from tileworkbench.compiler.sim.threads.findings import (
    report_clash,
    report_stores,
    report_threads,
)
from tileworkbench.compiler.sim.threads.marks import Marks
from tileworkbench.compiler.sim.threads.registers import thread_column
from tileworkbench.compiler.sim.values import (
    Mask,
    Value,
    from_storage,
    mask_and,
    over_lanes,
    poison,
    python_value,
    spread,
    storage_dtype,
)

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
NEVER, WRITTEN, IN_FLIGHT = 0, 1, 2


class Arena:
    """The shared memory of a block: bytes, what state each granule is in, and who touched it last.

    Fresh memory reads as bytes 0xFF, which is NaN in every float.
    """

    def __init__(self, size: int, granule: int, threads: int, partial: bool) -> None:
        granules = -(-size // granule) + 16
        self.size, self.granule = size, granule
        self.memory = np.full(granules * granule, 0xFF, np.uint8)
        self.state = np.zeros(granules, np.uint8)
        self.marks = Marks(granules, threads, partial)

    def forget(self, first: int = 0, size: int | None = None) -> None:
        """The contents from byte `first` on become undefined."""
        last = len(self.memory) if size is None else first + size
        self.memory[first:last] = 0xFF
        self.state[first // self.granule : -(-last // self.granule)] = NEVER

    def granules(self, addresses: Array, width: int) -> Array:
        """The granules of accesses of `width` bytes, a row for each."""
        steps = np.arange(max(width // self.granule, 1))
        return np.asarray(addresses[:, None] // self.granule + steps)


class ArenaStorage(Storage):
    """A buffer in shared memory, from byte `base` of the arena on.

    Its layout gives the place of each element; flat buffers are indexed by place.
    """

    __slots__ = ("arena", "base", "bits", "layout")

    def __init__(self, buffer: Buffer, shape: tuple[int, ...], base: int, arena: Arena) -> None:
        self.name, self.dtype, self.scope = buffer.name, buffer.dtype, buffer.scope
        self.shape, self.base, self.arena = shape, base, arena
        layout = buffer.layout if len(shape) > 1 else None
        self.layout = layout if isinstance(layout, Layout) else None
        self.bits = buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes
        self.written, self.guarded, self.prefix = None, False, ()
        self.safe = python_value(0, buffer.dtype)
        places = prod(shape) if self.layout is None else prod(self.layout.output_shape)
        size = -(-places * self.bits // 8)
        self.data = arena.memory[base : base + size]
        if self.bits != 4:
            self.data = self.data.view(storage_dtype(buffer.dtype))

    def view(self, buffer: Buffer, shape: tuple[int, ...]) -> Storage:
        return ArenaStorage(buffer, shape, self.base, self.arena)

    def expose(self) -> None:
        granule = self.arena.granule
        first, last = self.base // granule, -(-(self.base + self.data.nbytes) // granule)
        self.arena.state[first:last] = WRITTEN

    def locate(self, index: Index) -> Value:
        """The place of the element at `index`, in elements from the base."""
        if self.layout is not None:
            index, extents = self.layout.evaluate(*index), self.layout.output_shape
        else:
            extents = self.shape
        place: Value = 0
        for position, extent in zip(index, extents, strict=True):
            place = place * extent + np.asarray(position, np.int64)
        return place if np.ndim(place) else int(place)

    def addresses(self, frame: ThreadFrame, index: Index, active: Array) -> Array:
        """The byte address of the element at `index` for each thread."""
        inside, _ = self.bounds(frame, "access", index, active, frame.lanes)
        place = spread(self.locate(inside), frame.lanes)
        return np.asarray(self.base + place * self.bits // 8)

    def row(self, addresses: Array, width: int) -> tuple[Array, tuple[int, int]]:
        """The places of the elements in `width` bytes from each address on, a row for each, and
        that shape.
        """
        count = width * 8 // self.bits
        places = (addresses - self.base)[:, None] * 8 // self.bits + np.arange(count)
        return places, (len(addresses), count)

    def load(self, frame: Frame, index: Index, active: Mask, lanes: tuple[int, ...]) -> Value:
        inside, valid = self.bounds(frame, "load", index, active, lanes)
        reading = mask_and(active, valid)
        if reading is False:
            nothing = np.asarray(poison(self.dtype), storage_dtype(self.dtype))
            return from_storage(nothing, self.dtype)
        place = self.locate(inside)
        self._touch(frame, "load", index, place, reading, lanes)
        if frame.observers:
            tell_read(frame, self, (place,), reading, lanes)
        value = from_storage(self._get(place), self.dtype)
        return value if valid is True else np.where(valid, value, poison(self.dtype))

    def store(
        self, frame: Any, index: Index, value: Value, active: Mask, lanes: tuple[int, ...]
    ) -> None:
        inside, valid = self.bounds(frame, "store", index, active, lanes)
        active = mask_and(active, valid)
        if active is False:
            return
        place = self.locate(inside)
        self._touch(frame, "store", index, place, active, lanes)
        chosen = over_lanes(active, lanes)
        at = spread(place, lanes)[chosen]
        values = spread(np.asarray(value, storage_dtype(self.dtype)), lanes)[chosen]
        self._put(at, values)
        if frame.observers:
            tell_written(frame, self, (at,), chosen, lanes)
        kept = self._get(at)
        different = (kept != values) & ~((kept != kept) & (values != values))
        writers = np.broadcast_to(thread_column(lanes), lanes)[chosen]
        if self.bits == 4:  # a byte is the least that a thread can write
            _, which = np.unique(at // 2, return_inverse=True)
            last = np.zeros(len(at), writers.dtype)
            last[which] = writers
            different |= last[which] != writers
        if different.any() and frame.options.races:
            bytes_ = at // 2 if self.bits == 4 else at
            report_stores(frame, self.name, index, (bytes_,), writers, different)

    def note_atomic(
        self, frame: Frame, index: Index, active: Mask, reads: bool, lanes: tuple[int, ...]
    ) -> None:
        self._touch(frame, "atomic", index, self.locate(index), active, lanes)

    def place(self, index: Index) -> Index:
        return (self.locate(index),)

    def _get(self, place: Any) -> Any:
        if self.bits != 4:
            return self.data[place]
        place = np.asarray(place)
        nibbles = self.data[place // 2] >> (4 * (place % 2)).astype(np.uint8)
        return four_bits(nibbles, self.dtype)

    def _put(self, place: Array, values: Array) -> None:
        if self.bits != 4:
            self.data[place] = values
            return
        for parity in (0, 1):
            at, nibbles = place[place % 2 == parity] // 2, values[place % 2 == parity]
            kept = self.data[at] & (0xF0 if parity == 0 else 0x0F)
            self.data[at] = kept | (nibbles.view(np.uint8) & 15) << 4 * parity

    def _touch(
        self,
        frame: Any,
        kind: str,
        index: Index,
        place: Value,
        active: Mask,
        lanes: tuple[int, ...],
    ) -> None:
        """Count and check an access of one element, or a vector of them, by each active thread."""
        if frame.flights is not None:
            at = np.asarray(place) // 2 if self.bits == 4 else place
            frame.flights.touch(frame, self, (at,), kind != "load", active, lanes)
        chosen = over_lanes(active, lanes)
        width = self.bits // 8 or 1
        places = spread(place, lanes)
        if len(lanes) > 1:
            gaps = (places[:, 1:] - places[:, :-1] != 1) & chosen[:, 1:]
            chosen, count = np.asarray(chosen.any(axis=1)), lanes[1]
            broken = np.asarray(gaps.any(axis=1))
            report_threads(frame, FindingKind.MISALIGNED, NOT_CONTIGUOUS, self.name, index, broken)
            places, width = places[:, 0], max(self.bits * count // 8, 1)
        addresses = self.base + places * self.bits // 8
        frame.counters.shared(frame.site, self.name, kind, addresses, chosen, width)
        frame.counters.instruction(f"shared {kind}", chosen)
        check_access(frame, self, kind, addresses, chosen, width, index)


def check_access(
    frame: ThreadFrame,
    storage: ArenaStorage,
    access: str,
    addresses: Array,
    active: Array,
    width: int,
    index: Index,
) -> None:
    """Check an access ("load", "store", "atomic" or "copy", which lands later) of the active
    threads to shared memory, of `width` bytes each.
    """
    everyone = bool(active.all())
    threads = np.arange(len(active)) if everyone else np.flatnonzero(active)
    mine = addresses if everyone else addresses[threads]
    if width in (2, 4, 8, 16) and (mine % width).any():
        wrong = active & (addresses % width != 0)
        report_threads(frame, FindingKind.MISALIGNED, NOT_ALIGNED, storage.name, index, wrong)
    arena = storage.arena
    granules = arena.granules(mine, width)
    if access == "load" or access == "atomic":
        _check_state(frame, storage, granules, threads, index)
    if access != "load":
        state = IN_FLIGHT if access == "copy" else WRITTEN
        _write_state(frame, storage, granules, threads, index, state)
    if not frame.options.races:
        return
    repeated = np.repeat(threads, granules.shape[1])
    flat = granules.reshape(-1)
    if access == "load":
        unordered = arena.marks.read(frame.order, repeated, flat, frame.site)
        clashes = [] if unordered is None else [unordered]
    elif access in ("store", "copy"):
        clashes = arena.marks.write(frame.order, repeated, flat, frame.site)
    else:
        clashes = arena.marks.update(frame.order, repeated, flat, frame.site)
    for clash in clashes:
        report_clash(frame, storage.name, index, repeated, clash)


def _check_state(
    frame: ThreadFrame, storage: ArenaStorage, granules: Array, threads: Array, index: Index
) -> None:
    states = storage.arena.state[granules]
    if not frame.options.uninitialised or (states == WRITTEN).all():
        return
    for state, detail in ((NEVER, NEVER_WRITTEN), (IN_FLIGHT, NOT_LANDED)):
        bad = np.zeros(frame.lanes, np.bool_)
        bad[threads] = (states == state).any(axis=1)
        report_threads(frame, FindingKind.UNINITIALISED, detail, storage.name, index, bad)


def _write_state(
    frame: ThreadFrame,
    storage: ArenaStorage,
    granules: Array,
    threads: Array,
    index: Index,
    state: int,
) -> None:
    flying = storage.arena.state[granules] == IN_FLIGHT
    if flying.any() and frame.options.races:
        bad = np.zeros(frame.lanes, np.bool_)
        bad[threads] = flying.any(axis=1)
        report_threads(frame, FindingKind.RACE, OVERTAKEN, storage.name, index, bad)
    storage.arena.state[granules] = state
