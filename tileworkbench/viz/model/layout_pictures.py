"""The pictures of a layout for saved notebooks: the elements of a tile, and the hardware's view."""

from __future__ import annotations

from math import prod

import numpy as np

from tileworkbench.compiler.layout import Fragment
from tileworkbench.viz.model.layout_svg import GridPicture, category_legend, sequence_legend
from tileworkbench.viz.model.layout_tables import (
    BANK_BYTES,
    BANKS,
    CACHE_LINE_BYTES,
    address_grid,
    banks,
    fragment_grids,
    grid_shape,
    hardware_grid,
    lead_of,
)
from tileworkbench.viz.model.palette import category_colours, sequence_colours
from tileworkbench.workbench.results import BufferLayout

_PICTURE_LIMIT = 256  # elements along a side of a static picture


def tensor_picture(buffer: BufferLayout) -> GridPicture:
    """The first slice of a layout as a picture, of at most 256 rows and columns.

    A fragment is coloured by thread, a layout by bank, or by address where there are no banks.
    """
    layout = buffer.layout
    shape = tuple(layout.shape)
    lead = lead_of(shape, ())
    part = slice(_PICTURE_LIMIT), slice(_PICTURE_LIMIT)
    rows, columns, wrapped = grid_shape(shape)
    if isinstance(layout, Fragment):
        numbers = fragment_grids(layout, lead)[0][0][part]
        everywhere = layout.is_fully_replicated
        colours = category_colours(numbers)
        by = "every thread" if everywhere else "thread"
        legend = category_legend(by, 0 if everywhere else layout.threads - 1)
        if layout.replicate > 1 and not everywhere:
            legend = [*legend, ((), f"(the first of {layout.replicate} that hold it)")]
    else:
        numbers = address_grid(layout, lead)[part]
        places = banks(numbers, buffer.element_bytes) if buffer.banked else numbers
        top = BANKS - 1 if buffer.banked else prod(layout.output_shape) - 1
        colours = sequence_colours(places, top)
        legend = sequence_legend("bank" if buffer.banked else "address", top)
        if buffer.banked:
            legend = [*legend, ((), "numbers: addresses")]
    title = buffer.name or type(layout).__name__
    if len(shape) > 2:
        title += f"[{', '.join(['0'] * (len(shape) - 2))}, :, :]"
    if max(rows, columns) > _PICTURE_LIMIT:
        title += f", its first {'×'.join(map(str, colours.shape[:2]))} of {rows}×{columns}"
    step = columns if wrapped else 1
    fitting = () if wrapped else buffer.fitting_atoms
    return GridPicture(colours, title, ("row", "column"), legend, numbers, step, fitting)


def hardware_picture(buffer: BufferLayout) -> GridPicture:
    """The threads and slots of a fragment, or the memory of a layout, by what they hold."""
    layout = buffer.layout
    held = hardware_grid(layout)
    name = buffer.name or type(layout).__name__
    if isinstance(layout, Fragment):
        threads = np.broadcast_to(np.arange(layout.threads)[:, None], held.shape)
        colours = category_colours(np.where(held < 0, -1, threads)[:_PICTURE_LIMIT])
        legend = category_legend("thread", layout.threads - 1)
        return GridPicture(colours, f"{name}: threads", ("thread", "slot"), legend)
    line = BANKS * BANK_BYTES if buffer.banked else CACHE_LINE_BYTES
    wide = max(1, line // buffer.element_bytes)
    padded = np.full((1, -(-held.size // wide) * wide), -1, np.int64)
    padded[:, : held.size] = held
    grid = padded.reshape(-1, wide)[:_PICTURE_LIMIT]
    top = prod(layout.shape) - 1
    legend = sequence_legend("element, row by row", top)
    title = f"{name}: memory, a row is {line} bytes"
    return GridPicture(
        sequence_colours(grid, top), title, ("address", "element"), legend, None, wide
    )
