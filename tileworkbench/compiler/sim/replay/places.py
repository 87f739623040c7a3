"""Which elements of a buffer a step touches, in few bytes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Box = tuple[slice, ...]


class Places:
    """Elements of a buffer of a `shape`: row-major `positions`, or a `box` of which the positions
    are made when somebody asks.

    Attributes:
        shape: of the buffer.
        box: slices with a start and a stop, one per dimension; None of other elements.
        size: how many they are.
    """

    __slots__ = ("_positions", "_rising", "box", "shape", "size")

    def __init__(
        self, shape: tuple[int, ...], positions: Array | None = None, box: Box | None = None
    ) -> None:
        self.shape, self.box, self._positions = shape, box, positions
        self._rising: bool | None = None
        if positions is not None:
            self.size = int(positions.size)
        else:
            self.size = prod([each.stop - each.start for each in box or ()])

    @property
    def positions(self) -> Array:
        """Row-major, as int32 where the buffer is not too large for that."""
        if self._positions is not None:
            return self._positions
        dtype = index_type(self.shape)
        flat = np.zeros((), dtype)
        for at, extent in zip(self.box or (), self.shape, strict=True):
            flat = np.add.outer(flat * extent, np.arange(at.start, at.stop, dtype=dtype))
        return flat.reshape(-1)

    @property
    def is_rising(self) -> bool:
        """Whether each position is larger than the one before: none is there twice."""
        if self.box is not None:
            return True
        if self._rising is None:
            at = self.positions
            self._rising = bool((at[1:] > at[:-1]).all())
        return self._rising

    def __contains__(self, position: int) -> bool:
        return bool((self.positions == position).any())

    def take(self, values: Array) -> Array:
        """A copy of what an array of that shape, flat or not, has there."""
        if self.box is None:
            return np.asarray(values.reshape(-1)[self._positions])
        return values.reshape(self.shape)[self.box].flatten()

    def put(self, values: Array, new: Any) -> None:
        """Write `new`, one value or one for each place, into a contiguous array of that shape."""
        if self.box is None:
            values.reshape(-1)[self._positions] = new
            return
        whole: Any = (*self.box, ...)
        inside = values.reshape(self.shape)[whole]
        inside[...] = new.reshape(inside.shape) if isinstance(new, np.ndarray) else new

    def cut(self, origin: tuple[int, ...], shape: tuple[int, ...]) -> Places:
        """The same elements in the part of the buffer that begins at `origin`."""
        if self.box is not None:
            moved = [
                slice(at.start - first, at.stop - first)
                for at, first in zip(self.box, origin, strict=True)
            ]
            return Places(shape, box=tuple(moved))
        index = np.unravel_index(self.positions, self.shape)
        inside = tuple(at - first for at, first in zip(index, origin, strict=True))
        positions = np.ravel_multi_index(inside, shape)
        return Places(shape, positions.astype(index_type(shape)))


def index_type(shape: tuple[int, ...]) -> type[np.integer[Any]]:
    """What positions in a buffer of that shape fit into."""
    return np.int32 if prod(shape) < 1 << 31 else np.int64
