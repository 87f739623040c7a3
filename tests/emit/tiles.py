"""Operand tiles for tests of the micro-kernel and of packing: data, guarded memory, bounds."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Any

import ml_dtypes
import numpy as np

NUMPY = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
}

Array = np.ndarray[Any, np.dtype[Any]]


def random_tile(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return normal floats, or integers over the whole range of their type."""
    if NUMPY[dtype].kind in "iu":
        info = np.iinfo(NUMPY[dtype])
        tile = rng.integers(info.min, info.max + 1, shape).astype(NUMPY[dtype])
        tile.flat[:1] = info.min
        return tile
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def poison(shape: tuple[int, ...], dtype: str) -> Array:
    """Return an array of a value that a result must not contain."""
    return np.full(shape, np.nan if NUMPY[dtype].kind not in "iu" else 77).astype(NUMPY[dtype])


class GuardedTile:
    """A row-major copy of an array with padded rows, whose last element ends at an unmapped page.

    A read past the end of the array faults; padding between rows is poison.
    """

    def __init__(self, tile: Array, dtype: str, padding: int = 3) -> None:
        self.ld = tile.shape[1] + padding
        rows = poison((tile.shape[0], self.ld), dtype)
        rows[:, : tile.shape[1]] = tile
        count = (tile.shape[0] - 1) * self.ld + tile.shape[1] if tile.size else 0
        data = rows.reshape(-1)[:count].tobytes()
        page = mmap.PAGESIZE
        usable = -(-max(len(data), 1) // page) * page
        self._map = mmap.mmap(-1, usable + page)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        if sys.platform == "linux":
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.mprotect(ctypes.c_void_p(start + usable), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect failed")
        self.address = start + usable - len(data)
        ctypes.memmove(self.address, data, len(data))


def gemm_bound(a: Array, b: Array, c: Array, eps_sum: float, eps_out: float) -> Array:
    """Return the tolerance of c + a @ b, element by element, for float64 copies of the operands."""
    depth = a.shape[1]
    scale = np.abs(a) @ np.abs(b) + np.abs(c)
    return 4 * np.sqrt(depth) * eps_sum * scale + eps_out * np.abs(c + a @ b)
