"""The memory of a recorded run: a copy of each buffer as it was, to find what has changed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.memory import Storage, unsigned
from tileworkbench.compiler.sim.observers import Place
from tileworkbench.compiler.sim.regrouped import Regrouped
from tileworkbench.compiler.sim.replay.model import GIVEN, UNDEFINED
from tileworkbench.compiler.sim.threads.arena import NEVER, ArenaStorage

Array = np.ndarray[Any, Any]

_REMEMBERED = 1 << 20
"""Elements of a buffer's boxes whose positions are remembered, 4 bytes each."""


class Tracked:
    """One buffer: its `storage`, the last contents seen (`shadow`, row-major by index) and the
    steps that wrote them (`writers`).

    Of tensors only the box of the elements that are touched is copied into the log; `changes` is
    whether the program writes it.
    """

    def __init__(
        self, number: int, storage: Storage, shape: tuple[int, ...] = (), changes: bool = True
    ) -> None:
        self.number, self.is_tensor = number, storage.scope == "global"
        self.shape: tuple[int, ...] = ()
        self.size = 0
        self.adopt(storage)
        if shape and prod(shape) == self.size:
            self.shape = shape
        self.touched: Array | None = None  # of a tensor: the elements that were read or written
        self.shadow = self.contents()
        if changes:
            self.shadow = self.shadow.copy()
        self.writers = np.full(self.shadow.size if changes else 0, GIVEN, np.int32)
        if changes:
            undefined = self.undefined()
            if undefined is not None:
                self.writers[undefined] = UNDEFINED

    def adopt(self, storage: Storage) -> None:
        """The buffer has this memory from now on."""
        self.storage, self.shape = storage, storage.data.shape
        self._positions: dict[Any, Array] = {}  # of the boxes that were asked for
        self._boxes: dict[int, Place] = {}  # and those boxes, by the identity of their positions
        self._remembered = 0
        self.lanes = len(storage.data.shape) - len(storage.shape)
        self.order: Array | None = None  # the place of each element
        self.inverse: Array | None = None  # the element at each place
        if isinstance(storage, ArenaStorage):
            self.shape, self.lanes = storage.shape, 0
            if storage.layout is not None:
                grids = np.indices(storage.shape)
                self.order = np.asarray(storage.locate(tuple(grids))).reshape(-1)
                self.inverse = np.full(int(self.order.max(initial=-1)) + 1, -1)
                self.inverse[self.order] = np.arange(self.order.size)
        self.size = prod(self.shape)
        data: Any = storage.data
        data = data.cells if isinstance(data, Regrouped) else data
        self.bounds = np.lib.array_utils.byte_bounds(data) if data.size else (0, 0)

    def overlaps(self, other: Tracked) -> bool:
        """Whether they may have memory in common."""
        return self.bounds[0] < other.bounds[1] and other.bounds[0] < self.bounds[1]

    def contents(self) -> Array:
        """The contents now, row-major by index; may be a view."""
        storage = self.storage
        if isinstance(storage, ArenaStorage):
            if storage.bits == 4:
                places = np.arange(self.size) if self.order is None else self.order
                return np.asarray(storage._get(places))
            flat = storage.data.reshape(-1)
            return flat[: self.size] if self.order is None else flat[self.order]
        return np.asarray(storage.data).reshape(-1)

    def taken(self, places: Array) -> Array:
        """The values of the elements at row-major positions now."""
        data = self.storage.data
        if isinstance(data, np.ndarray):
            box = self._boxes.get(id(places))
            if box is not None:
                return data[box].flatten()
            if data.flags.c_contiguous:
                return np.asarray(data.reshape(-1)[places])
        if isinstance(self.storage, ArenaStorage):
            return self.contents()[places]
        return np.asarray(data[np.unravel_index(places, data.shape)])

    def replace(self, kept: Array, places: Array, new: Any) -> Array:
        """Write `new` at row-major positions of `kept` (the shadow or the writers); what was there.

        Positions that `flat` gave for a box are written as one.
        """
        box = self._boxes.get(id(places))
        if box is None:
            old = kept[places]
            kept[places] = new
            return old
        inside = kept.reshape(self.storage.data.shape)[box]
        old = inside.flatten()
        inside[...] = new.reshape(inside.shape) if isinstance(new, np.ndarray) else new
        return old

    def flat(self, place: Place) -> Array:
        """The row-major positions of an index of the storage's data, one for each element."""
        if isinstance(self.storage, ArenaStorage):
            at = np.asarray(place[0]).reshape(-1)
            if self.inverse is None:
                return at
            elements = self.inverse[at]
            return np.asarray(elements[elements >= 0])
        data = self.storage.data.shape
        if not data:
            return np.zeros(1, np.int32)
        if any(isinstance(at, slice) for at in place):
            return self._flat_box(place, data)
        flat: Any = place[0]
        for at, extent in zip(place[1:], data[1:], strict=True):
            flat = flat * extent + at
        return np.asarray(flat).reshape(-1)

    def _flat_box(self, place: Place, data: tuple[int, ...]) -> Array:
        """The same of an index with slices. Loops ask for the same boxes again and again."""
        if not all(isinstance(at, slice) for at in place):
            return np.arange(self.size).reshape(data)[place].reshape(-1)
        key = tuple([(at.start, at.stop) for at in place])
        known = self._positions.get(key)
        if known is None:
            flat = np.zeros((), np.int32 if self.size < 1 << 31 else np.int64)
            for at, extent in zip(place, data, strict=True):
                flat = flat[..., None] * extent + np.arange(extent, dtype=flat.dtype)[at]
            known = flat.reshape(-1)
            if self._remembered + known.size > _REMEMBERED:
                self._positions, self._boxes, self._remembered = {}, {}, 0
            self._positions[key], self._boxes[id(known)] = known, place
            self._remembered += known.size
        return known

    def is_rising(self, places: Array) -> bool:
        """Whether each position is larger than the one before."""
        if places.size < 2 or id(places) in self._boxes:
            return True
        return bool((places[1:] > places[:-1]).all())

    def touch(self, places: Array) -> None:
        """Elements of a tensor are read or written."""
        if self.touched is None:
            self.touched = np.zeros(self.size, np.bool_)
        self.replace(self.touched, places, True)

    def changed(self, undefines: bool) -> Array:
        """The positions whose contents differ from the last seen; with those that are undefined now
        and were not, if that may be.
        """
        differs = _bits(self.contents()) != _bits(self.shadow)
        if undefines:
            undefined = self.undefined()
            if undefined is not None:
                differs |= undefined & (self.writers != UNDEFINED)
        return np.flatnonzero(differs)

    def undefined(self) -> Array | None:
        """Which elements were never written, None where that is not known."""
        storage = self.storage
        if isinstance(storage, ArenaStorage):
            places = np.arange(self.size) if self.order is None else self.order
            arena = storage.arena
            granules = (storage.base + places * storage.bits // 8) // arena.granule
            return np.asarray(arena.state[granules] == NEVER)
        if storage.written is None:
            return None
        return np.asarray(~storage.written).reshape(-1)

    @property
    def is_kept(self) -> bool:
        """Whether it belongs into the log."""
        return not self.is_tensor or (self.touched is not None and bool(self.touched.any()))

    def cropped(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Origin and shape of what is kept of it: all, or the box of a tensor that was touched."""
        origin, shape = (0,) * len(self.shape), self.shape
        if not self.is_tensor or not self.is_kept or self.touched is None:
            return origin, shape
        touched = self.touched.reshape(self.shape)
        for axis in range(touched.ndim):
            others = tuple(at for at in range(touched.ndim) if at != axis)
            along = np.flatnonzero(touched.any(axis=others))
            first, extent = int(along[0]), int(along[-1] - along[0]) + 1
            origin = (*origin[:axis], first, *origin[axis + 1 :])
            shape = (*shape[:axis], extent, *shape[axis + 1 :])
        return origin, shape


def _bits(values: Array) -> Array:
    """The values as numbers that compare bit by bit."""
    return unsigned(values) if values.itemsize in (1, 2, 4, 8) else values


def spread_threads(threads: Any, count: int) -> Array:
    """`threads` of an access as an entry for each of its `count` elements."""
    told = np.asarray(threads).reshape(-1)
    if told.size == count:
        return told
    if told.size and count % told.size == 0:
        return np.repeat(told, count // told.size)
    return np.full(count, -1)
