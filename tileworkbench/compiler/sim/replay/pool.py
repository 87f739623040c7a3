"""The arrays that a recording keeps, each content once, and the bytes that they take."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.replay.places import Places

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Kept:
    """An array of the log, and how many steps have it."""

    array: Array
    uses: int = 0


def _content(array: Array) -> tuple[str, bytes]:
    return array.dtype.str, array.tobytes()


class ArrayPool:
    """Arrays in use. `bytes_` is what they take now, `wanted` what everything that was ever
    recorded would take.
    """

    def __init__(self) -> None:
        self.bytes_ = self.wanted = 0
        self._by_content: dict[tuple[str, bytes], _Kept] = {}
        self._by_identity: dict[int, _Kept] = {}

    def count(self, bytes_: int) -> None:
        """Add bytes that are kept elsewhere."""
        self.bytes_ += bytes_
        self.wanted += bytes_

    def own(self, array: Array) -> Array:
        """Add `array`, which is in use once; returns it."""
        self.count(array.nbytes)
        return array

    def shared(self, array: Array) -> Array:
        """`array`, or an equal one that is kept already."""
        entry = self._by_identity.get(id(array))
        if entry is None:
            entry = self._by_content.get(_content(array))
        if entry is None:
            entry = self._by_content[_content(array)] = _Kept(self.own(array))
            self._by_identity[id(array)] = entry
        entry.uses += 1
        return entry.array

    def number_or_array(self, values: Array | int) -> Array | int:
        """The same for an array or one number."""
        return values if isinstance(values, int) else self.shared(values)

    def places(self, places: Places) -> Places:
        """The same for places; boxes take no memory."""
        if places.box is not None:
            return places
        positions = self.shared(places.positions)
        same = positions is places.positions
        return places if same else Places(places.shape, positions)

    def release(self, array: Array | int) -> None:
        """End one use of an array that `shared` returned."""
        if isinstance(array, int):
            return
        entry = self._by_identity[id(array)]
        entry.uses -= 1
        if entry.uses == 0:
            self.bytes_ -= array.nbytes
            del self._by_identity[id(array)], self._by_content[_content(array)]
