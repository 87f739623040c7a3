"""A number for each byte of the memory behind storages; 0 where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.memory import Storage

Array = np.ndarray[Any, Any]


class ByteMarks:
    """Marks by memory, so that views of one memory share them."""

    def __init__(self) -> None:
        self._marks: dict[int, Array] = {}

    def __iter__(self) -> Iterator[Array]:
        return iter(self._marks.values())

    def of(self, storage: Storage, make: bool = False) -> Array | None:
        """The marks of a storage's data, int32, with one more dimension: the bytes of an element.
        None where there are none, unless `make` adds them.
        """
        data = storage.data
        if not isinstance(data, np.ndarray) or not data.size:
            return None
        key, size = data.ctypes.data, data.size * data.itemsize
        marks = self._marks.get(key)
        if marks is None or len(marks) < size:
            if not make:
                return None
            more = np.zeros(size, np.int32)
            if marks is not None:
                more[: len(marks)] = marks
            marks = self._marks[key] = more
        return marks[:size].reshape(*data.shape, data.itemsize)
