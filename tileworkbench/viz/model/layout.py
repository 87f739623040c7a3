"""Layouts and fragments as grids: which thread, register slot or address each element has."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.viz.model import html
from tileworkbench.viz.model.packing import packed
from tileworkbench.viz.model.palette import PALETTE, category_colours, sequence_colours
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.view import BufferLayout, KernelView

WRAP = 32  # columns of the grid of a one-dimensional buffer
REPLICA_LIMIT = 8  # copies of an element that are sent and drawn
BANKS, BANK_BYTES = 32, 4  # shared memory of every GPU so far
_PICTURE = 384  # pixels along the longer side of a static picture, at least
_RULED = 6  # pixels of a cell from which on white lines part the cells
_PICTURE_LIMIT = 256  # elements along a side of a static picture
_SECTION_LIMIT = 30_000  # bytes of a static card for pictures of layouts


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


def _lead(shape: Sequence[int], lead: Sequence[int]) -> tuple[int, ...]:
    """`lead` brought into range, with zeros for what is missing."""
    extents = tuple(shape[:-2])
    given = [*lead, *([0] * len(extents))][: len(extents)]
    return tuple(min(max(int(i), 0), n - 1) for i, n in zip(given, extents, strict=True))


def fragment_grids(
    fragment: Fragment, lead: Sequence[int]
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Threads (one grid per replica drawn) and slots of the slice of a fragment at `lead`."""
    threads, slots = fragment.table()
    copies = 1 if fragment.is_fully_replicated else min(fragment.replicate, REPLICA_LIMIT)
    return [_as_grid(threads[..., copy], lead) for copy in range(copies)], _as_grid(slots, lead)


def address_grid(layout: Layout, lead: Sequence[int]) -> NDArray[np.int64]:
    """Addresses, in elements, of the slice of a layout at `lead`."""
    return _as_grid(layout.table(), lead)


def banks(addresses: NDArray[np.int64], element_bytes: int) -> NDArray[np.int64]:
    """The shared-memory bank of each address, -1 where there is none."""
    return np.where(addresses < 0, -1, addresses * element_bytes // BANK_BYTES % BANKS)


def layout_model(buffer: BufferLayout, lead: Sequence[int] = ()) -> dict[str, Any]:
    """One slice of a layout for the browser: facts, and tables as bytes of small integers.

    `lead` indexes all dimensions but the last two. Tables are row-major and `packed`.
    """
    layout = buffer.layout
    shape = tuple(layout.shape)
    rows, columns, wrapped = grid_shape(shape)
    at = _lead(shape, lead)
    model: dict[str, Any] = {
        "name": buffer.name,
        "role": buffer.role,
        "shape": list(shape),
        "rows": rows,
        "columns": columns,
        "wrapped": wrapped,
        "lead": list(at),
        "badges": badges(layout),
        "text": str(layout),
        "palette": PALETTE,
    }
    if isinstance(layout, Fragment):
        threads, slots = fragment_grids(layout, at)
        model |= {
            "kind": "fragment",
            "threads": layout.threads,
            "slots": layout.slots,
            "replicate": layout.replicate,
            "everywhere": layout.is_fully_replicated,
            "owners": [packed(grid) for grid in threads],
            "slot": packed(slots),
        }
        return model
    model |= {
        "kind": "layout",
        "banked": buffer.banked,
        "addresses": prod(layout.output_shape),
        "element_bytes": buffer.element_bytes,
        "address": packed(address_grid(layout, at)),
    }
    return model


def badges(layout: Layout | Fragment) -> list[str]:
    """A few words on what matters about a layout."""
    found = []
    if isinstance(layout, Fragment):
        found.append(f"{layout.threads} threads × {layout.slots} slots")
        if layout.is_fully_replicated:
            found.append("in every thread")
        elif layout.replicate > 1:
            found.append(f"{layout.replicate} copies")
    else:
        width = layout.contiguity()
        found.append(f"{width} contiguous")
    if layout.is_bijective:
        found.append("bijective")
    elif layout.is_injective:
        found.append("injective")
    else:
        found.append("not injective")
    return found


def elements_of(layout: Layout | Fragment, owner: int) -> list[list[int]]:
    """The indices of all elements that thread `owner` holds, slot by slot.

    For a layout `owner` is an address, and the result is its one element, if any.
    """
    if isinstance(layout, Fragment):
        if not 0 <= owner < layout.threads:
            return []
        held = layout.elements_of(owner)
        return [list(map(int, index)) for index in held if index.size == 0 or index[0] >= 0]
    return [list(map(int, index)) for index in np.argwhere(layout.table() == owner)]


def locate(layout: Layout | Fragment, index: Sequence[int]) -> dict[str, Any]:
    """Where one element lives: threads and slot, or address."""
    at = tuple(int(i) for i in index)
    if isinstance(layout, Fragment):
        threads = [layout.thread_of(*at, rep=rep) for rep in range(layout.replicate)]
        return {"threads": threads, "slot": layout.slot_of(*at)}
    return {"address": layout.offset(*at)}


def layout_line(name: str, layout: Layout | Fragment) -> str:
    """One line of plain text."""
    kind = "Fragment" if isinstance(layout, Fragment) else "Layout"
    shape = "x".join(map(str, layout.shape)) or "scalar"
    label = f"{name} " if name else ""
    return f"<{kind} {label}{shape} | {', '.join(badges(layout))}>".replace("×", "x")


def layout_picture(buffer: BufferLayout) -> tuple[str, int, int]:
    """The first slice of a layout as a PNG address, and its size in CSS pixels.

    A fragment is coloured by thread, a layout by bank, or by address where there are no banks;
    buffers larger than 256 along a side show their first elements.
    """
    layout = buffer.layout
    lead = _lead(tuple(layout.shape), ())
    part = slice(_PICTURE_LIMIT), slice(_PICTURE_LIMIT)
    if isinstance(layout, Fragment):
        colours = category_colours(fragment_grids(layout, lead)[0][0][part])
    elif buffer.banked:
        grid = banks(address_grid(layout, lead)[part], buffer.element_bytes)
        colours = sequence_colours(grid, BANKS - 1)
    else:
        colours = sequence_colours(address_grid(layout, lead)[part], prod(layout.output_shape) - 1)
    rows, columns = colours.shape[:2]
    size = max(2, min(18, _PICTURE // max(rows, columns)))
    pixels = colours.repeat(size, axis=0).repeat(size, axis=1)
    if size >= _RULED:
        pixels[size - 1 :: size] = pixels[:, size - 1 :: size] = 255
    return png_address(pixels), columns * size, rows * size


def layout_figure(buffer: BufferLayout) -> str:
    """Name, role and picture of one layout as sanitiser-safe HTML."""
    address, width, height = layout_picture(buffer)
    name = html.tag("b", html.MONO, html.text(buffer.name or "layout"))
    role = html.tag("span", f"{html.FAINT};margin:0 8px", html.text(buffer.role))
    chips = "".join(map(html.chip, badges(buffer.layout)))
    place = "bank" if buffer.banked else "address"
    by = f"coloured by {'thread' if isinstance(buffer.layout, Fragment) else place}"
    picture = html.image(address, f"{buffer.name} {by}", width, height)
    style = "display:inline-block;vertical-align:top;margin:0 18px 8px 0"
    caption = html.tag("div", f"{html.FAINT};font-size:11px", by)
    return html.tag("div", style, name, role, chips, html.tag("div", "", picture), caption)


def layouts_missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.layouts else "the kernel has no tile with a layout"


def layouts_section(view: KernelView, opened: bool = False) -> str:
    """Pictures of the layouts, or their names where they are made for this very machine."""
    if view.portable_layouts or opened:
        return layout_section(view.layouts, _SECTION_LIMIT, opened)
    names = ", ".join(layout.name for layout in view.layouts)
    note = f"{names}: made for the machine that runs the kernel, and shown there"
    return html.line("Layouts", note)


def layout_section(layouts: Sequence[BufferLayout], limit: int, opened: bool = False) -> str:
    """Pictures of layouts in at most about `limit` bytes; the rest are named."""
    figures: list[str] = []
    left_out: list[str] = []
    for buffer in layouts:
        figure = layout_figure(buffer)
        if sum(map(len, figures)) + len(figure) <= limit:
            figures.append(figure)
        else:
            left_out.append(buffer.name)
    if left_out:
        names = html.text(", ".join(left_out))
        figures.append(html.tag("div", html.FAINT, f"Not drawn here: {names}"))
    count = len(layouts)
    note = f"{count} buffer{'s' if count != 1 else ''}"
    return html.details("Layouts", *figures, note=note, opened=opened)


def layout_html(layout: Layout | Fragment, name: str = "", element_bytes: int = 4) -> str:
    """A layout without a kernel, as sanitiser-safe HTML."""
    buffer = BufferLayout(name, layout, "×".join(map(str, layout.shape)), element_bytes)
    return html.panel(layout_figure(buffer))
