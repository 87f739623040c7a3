"""The memory of a recorded run: a copy of each buffer as it was, to find what has changed."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.memory import Storage, unsigned
from tileworkbench.compiler.sim.observers import Place
from tileworkbench.compiler.sim.regrouped import Regrouped
from tileworkbench.compiler.sim.replay.model import GIVEN, UNDEFINED
from tileworkbench.compiler.sim.replay.places import Places, index_type
from tileworkbench.compiler.sim.threads.arena import NEVER, ArenaStorage

Array = np.ndarray[Any, Any]

_REMEMBERED = 256
"""Of the indices of a buffer, with the places that they are."""


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
        self._known: dict[Any, tuple[Place, Places]] = {}
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
        self.size, self._dtype = prod(self.shape), index_type(self.shape)
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

    def taken(self, places: Places) -> Array:
        """The values of the elements now."""
        storage = self.storage
        if isinstance(storage, ArenaStorage):
            at = places.positions if self.order is None else self.order[places.positions]
            return np.asarray(storage._get(at))
        data = storage.data
        if isinstance(data, np.ndarray):
            if places.box is not None and data.shape == places.shape:
                return data[places.box].flatten()
            if data.flags.c_contiguous:
                return places.take(data)
        return np.asarray(data[np.unravel_index(places.positions, data.shape)])

    def replace(self, kept: Array, places: Places, new: Any) -> Array:
        """Write `new` at these places of `kept` (the shadow or the writers); returns what was
        there.
        """
        old = places.take(kept)
        places.put(kept, new)
        return old

    def find(self, place: Place) -> Places:
        """The elements at an index of the storage's data."""
        if isinstance(self.storage, ArenaStorage):
            at = np.asarray(place[0]).reshape(-1)
            if self.inverse is None:
                return self.at(at)
            elements = self.inverse[at]
            return self.at(elements[elements >= 0])
        key = _key(place)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return known[1]
        places = self._find(place)
        if key is not None:
            if len(self._known) >= _REMEMBERED:
                self._known = {}
            self._known[key] = place, places
        return places

    def _find(self, place: Place) -> Places:
        data = self.storage.data.shape
        slices = [type(at) is slice for at in place]
        if all(slices) and data == self.shape:
            box = [slice(*at.indices(n)[:2]) for at, n in zip(place, data, strict=True)]
            return Places(data, box=tuple(box))
        if any(slices):
            return self.at(np.arange(self.size).reshape(data)[place].reshape(-1))
        flat: Any = 0
        for at, extent in zip(place, data, strict=True):
            flat = flat * extent + at
        return self.at(np.asarray(flat).reshape(-1))

    def at(self, positions: Array) -> Places:
        """The elements at row-major positions."""
        return Places(self.shape, positions.astype(self._dtype, copy=False))

    def touch(self, places: Places) -> None:
        """Elements of a tensor are read or written."""
        if self.touched is None:
            self.touched = np.zeros(self.size, np.bool_)
        places.put(self.touched, True)

    def changed(self, undefines: bool) -> Places:
        """The elements whose contents differ from those last seen; also those that have become
        undefined, if that may have happened.
        """
        differs = _bits(self.contents()) != _bits(self.shadow)
        if undefines:
            undefined = self.undefined()
            if undefined is not None:
                differs |= undefined & (self.writers != UNDEFINED)
        return self.at(np.flatnonzero(differs))

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


def _key(place: Place) -> Any:
    """What an index is known by: loops ask for the same boxes and registers again and again. None
    where it has arrays that may be changed.
    """
    parts: list[Any] = []
    for at in place:
        if type(at) is slice:
            parts.append((at.start, at.stop))
        elif isinstance(at, np.ndarray):
            if at.flags.writeable:
                return None
            parts.append((id(at),))
        else:
            parts.append(int(at))
    return tuple(parts)


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
