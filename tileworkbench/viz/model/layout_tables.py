"""Layouts and fragments as grids: which thread, register slot or address each element has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.layout import Fragment, Layout

WRAP = 32  # columns of the grid of a one-dimensional buffer
BANKS, BANK_BYTES = 32, 4  # shared memory of every GPU so far
CACHE_LINE_BYTES = 64  # of the CPUs that kernels run on


def grid_shape(shape: Sequence[int]) -> tuple[int, int, bool]:
    """Rows and columns shown at once, and whether one dimension was wrapped into both."""
    if len(shape) >= 2:
        return shape[-2], shape[-1], False
    extent = shape[0] if shape else 1
    columns = min(extent, WRAP)
    return -(-extent // columns), columns, extent > columns


def _as_grid(values: NDArray[np.int64], lead: Sequence[int]) -> NDArray[np.int64]:
    """The last two dimensions at `lead`; one dimension is wrapped, -1 where it ends."""
    if values.ndim >= 2:
        return np.ascontiguousarray(values[tuple(lead)])
    rows, columns, _ = grid_shape(values.shape)
    grid = np.full(rows * columns, -1, np.int64)
    grid[: values.size] = values.reshape(-1)
    return grid.reshape(rows, columns)


def lead_of(shape: Sequence[int], lead: Sequence[int]) -> tuple[int, ...]:
    """`lead` brought into range, with zeros for what is missing."""
    extents = tuple(shape[:-2])
    given = [*lead, *([0] * len(extents))][: len(extents)]
    return tuple(min(max(int(i), 0), n - 1) for i, n in zip(given, extents, strict=True))


def fragment_grids(
    fragment: Fragment, lead: Sequence[int]
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Threads, one grid per copy (one where all threads hold all), and slots of the slice of a
    fragment at `lead`.
    """
    threads, slots = fragment.table()
    copies = 1 if fragment.is_fully_replicated else fragment.replicate
    return [_as_grid(threads[..., copy], lead) for copy in range(copies)], _as_grid(slots, lead)


def address_grid(layout: Layout, lead: Sequence[int]) -> NDArray[np.int64]:
    """Addresses, in elements, of the slice of a layout at `lead`."""
    return _as_grid(layout.table(), lead)


def banks(addresses: NDArray[np.int64], element_bytes: int) -> NDArray[np.int64]:
    """The shared-memory bank of each address, -1 where there is none."""
    return np.where(addresses < 0, -1, addresses * element_bytes // BANK_BYTES % BANKS)


def hardware_grid(layout: Layout | Fragment, lead: Sequence[int] = ()) -> NDArray[np.int64]:
    """The position in the row-major slice at `lead` that each place of the machine holds, -1 for
    none: threads by slots for a fragment, one row of all addresses for a layout.
    """
    if isinstance(layout, Fragment):
        held = np.full((layout.threads, layout.slots), -1, np.int64)
        threads, slots = layout.table()
        for copy in range(layout.replicate):
            grid, places = _as_grid(threads[..., copy], lead), _as_grid(slots, lead)
            at = np.flatnonzero(grid >= 0)
            held[grid.reshape(-1)[at], places.reshape(-1)[at]] = at
        return held
    addresses = address_grid(layout, lead).reshape(-1)
    held = np.full((1, prod(layout.output_shape)), -1, np.int64)
    at = np.flatnonzero(addresses >= 0)
    held[0, addresses[at]] = at
    return held


def contiguity(fragment: Fragment) -> int:
    """The elements along the last dimension that follow one another in slots of one thread, as an
    aligned power of two: the width of a thread's vectors of row-major memory.
    """
    if not fragment.shape:
        return 1
    threads, slots = fragment.table()
    width = 1
    while fragment.shape[-1] % (2 * width) == 0:
        owners = threads[..., 0].reshape(-1, 2 * width)
        places = slots.reshape(-1, 2 * width) - np.arange(2 * width)
        if (owners != owners[:, :1]).any() or (places != places[:, :1]).any():
            break
        width *= 2
    return width
