"""Layouts and fragments as the browser and saved pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.viz.model import html
from tileworkbench.viz.model.layout_pictures import hardware_picture, tensor_picture
from tileworkbench.viz.model.layout_steps import steps_section
from tileworkbench.viz.model.layout_svg import grid_svg
from tileworkbench.viz.model.layout_tables import (
    BANK_BYTES,
    BANKS,
    CACHE_LINE_BYTES,
    address_grid,
    contiguity,
    fragment_grids,
    grid_shape,
    lead_of,
)
from tileworkbench.viz.model.packing import packed
from tileworkbench.viz.model.palette import PALETTE
from tileworkbench.viz.model.svg import as_image
from tileworkbench.viz.model.text import numbered
from tileworkbench.viz.model.view import KernelView
from tileworkbench.workbench.results import BufferLayout

COPIES_LIMIT = 2**18  # threads of copies of a slice that are sent at once
VECTOR_BYTES = 16  # that a thread accesses at once, at most
_SECTION_LIMIT = 30_000  # bytes of a static card for pictures of layouts
_COMPARED = 8  # tiles beside each other
_BESIDE = "display:inline-block;vertical-align:top"
_ALONE_LIMIT = 50_000  # and where nothing else is shown


def layout_model(buffer: BufferLayout, lead: Sequence[int] = (), copy: int = 0) -> dict[str, Any]:
    """One slice of a layout for the browser: facts, and tables as bytes of small integers.

    `lead` indexes all dimensions but the last two. Tables are row-major and `packed`. ``owners``
    has the threads of each copy from ``copy`` on, as many as are small; where all copies are
    the first one, moved by some threads, it has the first and ``offsets`` the distances.
    """
    layout = buffer.layout
    shape = tuple(layout.shape)
    rows, columns, wrapped = grid_shape(shape)
    at = lead_of(shape, lead)
    facts = badge_facts(layout, buffer.element_bytes)
    model: dict[str, Any] = {
        "name": buffer.name,
        "role": buffer.role,
        "shape": list(shape),
        "rows": rows,
        "columns": columns,
        "wrapped": wrapped,
        "lead": list(at),
        "badges": [text for text, _ in facts],
        "hints": [hint for _, hint in facts],
        "text": str(layout),
        "palette": PALETTE,
        "element_bytes": buffer.element_bytes,
        "atoms": [atom.to_dict() for atom in buffer.fitting_atoms],
    }
    if isinstance(layout, Fragment):
        return model | _fragment_model(layout, at, copy)
    return model | {
        "kind": "layout",
        "banked": buffer.banked,
        "line_bytes": BANKS * BANK_BYTES if buffer.banked else CACHE_LINE_BYTES,
        "addresses": prod(layout.output_shape),
        "address": packed(address_grid(layout, at)),
    }


def _fragment_model(fragment: Fragment, lead: Sequence[int], copy: int) -> dict[str, Any]:
    owners, slots = fragment_grids(fragment, lead)
    inside = slots >= 0
    moved = [(owner - owners[0])[inside] for owner in owners]
    sent: dict[str, Any] = {"copy": 0}
    if len(owners) > 1 and all((each == each[0]).all() for each in moved):
        sent["offsets"] = [int(each[0]) for each in moved]
        owners = owners[:1]
    elif len(owners) * slots.size > COPIES_LIMIT:
        most = max(1, COPIES_LIMIT // slots.size)
        first = min(max(copy, 0), fragment.replicate - 1) // most * most
        sent = {"copy": first, "copies_at_once": most}
        owners = owners[first : first + most]
    return {
        "kind": "fragment",
        "threads": fragment.threads,
        "slots": fragment.slots,
        "replicate": fragment.replicate,
        "everywhere": fragment.is_fully_replicated,
        "owners": [packed(grid) for grid in owners],
        "slot": packed(slots),
        **sent,
    }


def badges(layout: Layout | Fragment, element_bytes: int = 0) -> list[str]:
    """A few words on what matters about a layout; bytes where those of an element are given."""
    return [text for text, _ in badge_facts(layout, element_bytes)]


def badge_facts(layout: Layout | Fragment, element_bytes: int = 0) -> list[tuple[str, str]]:
    """The badges, each with its explanation."""
    facts = []
    if isinstance(layout, Fragment):
        held = f"{layout.threads} threads × {layout.slots} slots"
        facts.append((held, "who holds the tile; a slot holds one element"))
        if element_bytes:
            bytes_ = layout.slots * element_bytes
            facts.append((f"{bytes_} B per thread", "in registers of 4 bytes each"))
        if layout.is_fully_replicated:
            facts.append(("in every thread", "all threads hold all elements"))
        elif layout.replicate > 1:
            facts.append((f"{layout.replicate} copies", "threads that hold the same element"))
        width = contiguity(layout)
        where = "elements of a row that are side by side in one thread"
    else:
        width = layout.contiguity()
        where = "elements of a row that are side by side in memory"
    facts.append((f"{width} contiguous", where))
    if element_bytes:
        vector = min(width * element_bytes, VECTOR_BYTES)
        hint = f"the widest access that the layout allows, of {VECTOR_BYTES} bytes at most"
        facts.append((f"vectors of {vector} B", hint))
    if layout.is_bijective:
        facts.append(("bijective", "every place holds exactly one element"))
    elif layout.is_injective:
        facts.append(("injective", "no two elements share a place; some places are empty"))
    else:
        facts.append(("not injective", "some elements share a place"))
    return facts


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


def layout_figure(buffer: BufferLayout, hardware: bool = False) -> str:
    """Name, role and picture of one layout as sanitiser-safe HTML; on request the hardware's view
    of it too.
    """
    name = html.tag("b", html.MONO, html.text(buffer.name or "layout"))
    role = html.tag("span", f"{html.FAINT};margin:0 8px", html.text(buffer.role))
    chips = "".join(
        html.chip(text, title=hint)
        for text, hint in badge_facts(buffer.layout, buffer.element_bytes)
    )
    place = "bank" if buffer.banked else "address"
    by = f"coloured by {'thread' if isinstance(buffer.layout, Fragment) else place}"
    pictures = [(tensor_picture(buffer), f"{buffer.name} {by}")]
    if hardware:
        pictures.append((hardware_picture(buffer), f"{buffer.name} as the hardware holds it"))
    images = []
    for picture, alt in pictures:
        drawing, width = grid_svg(picture)
        image = html.image(as_image(drawing), alt, width)
        images.append(html.tag("div", f"{_BESIDE};margin-right:12px", image))
    style = f"{_BESIDE};margin:0 18px 8px 0"
    sources = dict.fromkeys(atom.source for atom in buffer.fitting_atoms if atom.source)
    said = [html.text(f"lanes: {source}") for source in sources]
    caption = html.tag("div", f"{html.FAINT};font-size:11px", "<br>".join([by, *said]))
    return html.tag(
        "div", style, name, " ", role, " ", chips, html.tag("div", "", *images), caption
    )


def layouts_missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where there is."""
    return "" if view.layouts else "the kernel has no tile with a layout"


def layouts_section(view: KernelView, opened: bool = False) -> str:
    """Pictures of the layouts and how they came about, or the names of layouts that are made for
    this very machine.
    """
    if view.portable_layouts or opened:
        why = steps_section(view.record)
        limit = _ALONE_LIMIT if opened else _SECTION_LIMIT
        return layout_section(view.layouts, limit, opened, why)
    names = ", ".join(layout.name for layout in view.layouts)
    note = f"{names}: it depends on the machine: run the cell to see it"
    return html.line("Layouts", note)


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of each tile: its layout, and what matters about it."""
    if not (live or view.portable_layouts):
        return {}
    labelled = []
    for buffer in view.layouts:
        labelled.append((buffer.name, ", ".join(badges(buffer.layout, buffer.element_bytes))))
        labelled.append((f"{buffer.name}: as text", str(buffer.layout)))
    return numbered(labelled)


def together(views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """The tiles whose layouts differ, a row each, with a picture for each kernel."""
    shown = [(name, v) for name, v in zip(names, views, strict=True) if live or v.portable_layouts]
    labels = dict.fromkeys(buffer.name for _, view in shown for buffer in view.layouts)
    pictures = []
    for label in labels:
        row = [next((b for b in view.layouts if b.name == label), None) for _, view in shown]
        if len({str(buffer and buffer.layout) for buffer in row}) > 1:
            pictures.append([_pictured(row, at, shown) for at in range(len(row))])
    return html.table(pictures[:_COMPARED], [name for name, _ in shown]) if pictures else ""


def _pictured(
    row: Sequence[BufferLayout | None], at: int, shown: Sequence[tuple[str, KernelView]]
) -> str:
    """The picture of a layout, or the name of the kernel before it that has the same."""
    buffer = row[at]
    if buffer is None:
        return "–"
    texts = [str(each and each.layout) for each in row]
    if (first := texts.index(texts[at])) < at:
        return html.text(f"as in {shown[first][0]}")
    return layout_figure(buffer)


def layout_section(
    layouts: Sequence[BufferLayout], limit: int, opened: bool = False, below: str = ""
) -> str:
    """Pictures of layouts in at most about `limit` bytes; the rest are named. `below` is HTML."""
    figures: list[str] = []
    left_out: list[str] = []
    for buffer in layouts:
        figure = layout_figure(buffer, opened)
        if sum(map(len, figures)) + len(figure) <= limit:
            figures.append(figure)
        else:
            left_out.append(buffer.name)
    if left_out:
        names = html.text(", ".join(left_out))
        figures.append(html.tag("div", html.FAINT, f"Not drawn here: {names}"))
    count = len(layouts)
    note = f"{count} buffer{'s' if count != 1 else ''}"
    return html.details("Layouts", *figures, below, note=note, opened=opened)


def layout_html(layout: Layout | Fragment, name: str = "", element_bytes: int = 4) -> str:
    """A layout without a kernel, as sanitiser-safe HTML."""
    buffer = BufferLayout(name, layout, "×".join(map(str, layout.shape)), element_bytes)
    return html.panel(layout_figure(buffer, hardware=True))
