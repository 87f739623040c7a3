"""The accesses of engines to memory, in pieces of 16 bytes.

The copy engine and the tensor cores access memory by themselves, a thread only tells them where. To
count wavefronts and sectors, pieces are dealt to the lanes of the warps that started it, in the
order of memory: 8 of them are a phase, as 8 lanes with 16 bytes each are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout.descriptors import UNIT, Descriptor

Array = np.ndarray[Any, Any]
TMA_LOAD, TMA_STORE, WGMMA = "TMA load", "TMA store", "wgmma"
ENGINES = (TMA_LOAD, TMA_STORE, WGMMA)
"""Kinds of accesses that no lane makes by itself."""


@dataclass(frozen=True, slots=True)
class Boxes:
    """The boxes of a tensor map: their shape, the bytes of an element, the swizzle in bytes, and
    the extents and strides of the tensor in elements.
    """

    box: tuple[int, ...]
    size: int
    swizzle: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    def there(self, origin: Sequence[int]) -> tuple[Array, Array]:
        """(the byte of the tensor at which each piece of the box at `origin` begins, which of them
        are in the tensor), in the order in which they lie in shared memory.
        """
        axes = np.indices(self.box).reshape(len(self.box), -1)[:, :: UNIT // self.size]
        linear, inside = np.zeros(axes.shape[1], np.int64), np.ones(axes.shape[1], np.bool_)
        for axis, start, extent, step in zip(axes, origin, self.extents, self.strides, strict=True):
            linear += (axis + start) * step
            inside &= (axis + start >= 0) & (axis + start < extent)
        return linear * self.size, inside

    def here(self, first: int) -> Array:
        """The bytes of shared memory at which the pieces of a box that begins at `first` begin."""
        linear = first + np.arange(prod(self.box) * self.size // UNIT) * UNIT
        return np.asarray(linear ^ (linear >> 3 & (self.swizzle - UNIT if self.swizzle else 0)))


def operand_bytes(descriptor: Descriptor, rows: int, depth: int, size: int, start: int) -> Array:
    """Where the pieces of an operand of `rows` x `depth` elements are, which begins at byte
    `start`: the eight lines of a piece of the descriptor follow each other.
    """
    step = UNIT // size
    if descriptor.transposed:
        row, k = np.meshgrid(np.arange(0, rows, step), np.arange(depth), indexing="ij")
    else:
        k, row = np.meshgrid(np.arange(0, depth, step), np.arange(rows), indexing="ij")
    linear = descriptor.places(row.reshape(-1), k.reshape(-1), size)
    return np.asarray(descriptor.swizzled(start + linear))


def dealt(addresses: Array, inside: Array, lanes: Array) -> Iterator[tuple[Array, Array]]:
    """The pieces at `addresses`, of which those `inside` are accessed, as requests of the threads
    that `lanes` (one bool per thread of the block) names: (addresses, which threads take part).
    """
    threads = np.flatnonzero(lanes)
    for first in range(0, len(addresses), len(threads)):
        part = slice(first, first + len(threads))
        mine = threads[: len(addresses[part])]
        made, active = np.zeros(len(lanes), np.int64), np.zeros(len(lanes), np.bool_)
        made[mine], active[mine] = addresses[part], inside[part]
        yield made, active
