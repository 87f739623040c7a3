"""Which elements of each tensor the blocks of a call touch: a picture for each tensor's loads and
stores, the masked lanes of each line, and how often elements are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.sim.threads.frame import warp_size
from tileworkbench.viz.model import html
from tileworkbench.viz.model.packing import packed_text
from tileworkbench.viz.model.palette import PALETTE, category_colours
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.view import KernelView

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.footprint.recorder import Side
    from tileworkbench.compiler.sim.footprint.result import Footprint, TensorFootprint

Array = np.ndarray[Any, Any]
Window = tuple[int, int, int, int]  # top, left, rows, columns

MOST_CELLS = 64
"""Of a picture along each side: larger tensors are shown in cells of several elements."""

_LINE = 64  # elements of a row, of a tensor with one dimension
_STATIC = 6  # pictures in the page of a reader without a kernel


@dataclass(frozen=True, slots=True)
class Figure:
    """The picture of the loads or the stores of one tensor, `rows` times `columns`: of elements, or
    where its elements are counted in runs, of these.
    """

    tensor: TensorFootprint
    side: str
    rows: int
    columns: int

    @property
    def counts(self) -> Side:
        """What the picture is of."""
        return self.tensor.loads if self.side == "loads" else self.tensor.stores

    @property
    def whole(self) -> Window:
        """All of it."""
        return 0, 0, self.rows, self.columns

    def grid(self, values: Array, window: Window, empty: int) -> Array:
        """`values` of the tensor's cells in a window; `empty` behind the last one."""
        top, left, rows, columns = window
        flat = np.full((rows, columns), empty, values.dtype)
        for row in range(rows):
            start = (top + row) * self.columns + left
            part = values[start : start + columns]
            flat[row, : len(part)] = part
        return flat


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where something can be recorded."""
    if view.footprint is None:
        return "no kernel is at hand whose call could be simulated"
    has = any(isinstance(param.value, Buffer) for param in view.record.program.params)
    return "" if has else "the kernel has no tensors"


def about(view: KernelView) -> str:
    """What one looks at."""
    program = "program as written" if view.target_kind == "cpu" else "lowered program"
    return (
        f"Which elements of each tensor the blocks of a call touch (a grid of {view.grid}, "
        f"{view.threads} threads each), counted while the simulator runs the {program}. The colour "
        "of a cell is the first block that touches it, the number in it how many blocks do where "
        "it is not one; grey is never touched. Choose a block to see its elements alone, and which "
        "of its threads touch them."
    )


def model(view: KernelView) -> dict[str, Any]:
    """The pictures of all blocks and the tables; only an empty ``recorded`` before a recording."""
    recorded = _recorded(view)
    if recorded is None:
        return {"recorded": ""}
    drawn, program = list(_figures(recorded)), view.record.program
    return {
        "recorded": recorded.recorded,
        "program": recorded.program,
        "inputs": recorded.inputs,
        "grids": [list(grid) for grid in recorded.launches],
        "blocks": sum(map(prod, recorded.launches)),
        "palette": PALETTE,
        "warp": warp_size(last[-1].program if (last := view.record.snapshots) else program),
        "figures": [
            {
                "tensor": each.tensor.name,
                "side": each.side,
                "shape": list(each.tensor.shape),
                "run": each.tensor.cell,
                "rows": each.rows,
                "columns": each.columns,
                "window": window(each, each.whole),
            }
            for each in drawn
        ],
        "tensors": recorded.rows(),
        "tiles": [tile.row() for tile in recorded.tiles],
        "lines": [line.row() for line in recorded.lines],
    }


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the footprint."""
    recorded = _recorded(view)
    if recorded is None:
        return {"recorded": "not yet: kernel.footprint() simulates a call"}
    said = {"recorded": recorded.recorded}
    for tensor in recorded.tensors:
        said[f"elements of {tensor.name}"] = (
            f"{tensor.loaded} loaded {tensor.reuse:.3g} times each, {tensor.stored} stored, "
            f"{tensor.untouched} never touched"
        )
    for line in recorded.lines:
        name = f"lanes of '{line.access} {line.tensor}' that are masked"
        said[f"{name}, line {line.line}"] = f"{100 * line.masked:.1f} %"
    return said


def _recorded(
    view: KernelView, block: int | None = None, records: bool = False
) -> Footprint | None:
    return None if view.footprint is None else view.footprint(block, records)


def record_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """The model after a recording on the kernel's inputs."""
    _recorded(view, None, True)
    return model(view)


def windows_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """Parts of the pictures: ``windows`` has [top, left, rows, columns] of each, in their order;
    with ``block`` only what this block touches, and with ``fit`` as little as holds that.

    The block is simulated again, with its threads: ``at`` are its indices.
    """
    recorded = _recorded(view)
    if recorded is None:
        return {"windows": []}
    drawn = list(_figures(recorded))
    asked = [_inside(each, tuple(map(int, wanted)))
             for each, wanted in zip(drawn, content["windows"], strict=True)]  # fmt: skip
    number = int(content.get("block", -1))
    if number < 0:
        return {"windows": [window(*each) for each in zip(drawn, asked, strict=True)]}
    alone = _recorded(view, number, True)
    assert alone is not None
    parts = [
        Figure(alone.tensor(each.tensor.name), each.side, each.rows, each.columns) for each in drawn
    ]
    if content.get("fit"):
        asked = [_fitting(each) for each in parts]
    shown = zip(drawn, parts, asked, strict=True)
    return {
        "at": list(recorded.block_at(number)),
        "threads": any((each.counts.thread >= 0).any() for each in parts),
        "windows": [window(whole, at, part) for whole, part, at in shown],
    }


def window(figure: Figure, at: Window, alone: Figure | None = None) -> dict[str, Any]:
    """At most `MOST_CELLS` cells along each side. Of each cell: the first `block` that touches it
    (-1: none), by how many `blocks`, the most `times` one of its elements is loaded or stored, and
    how many of them are `touched`; of `alone`, one block's picture, its `times`, the lowest
    `thread` and by how many `threads`.
    """
    top, left, rows, columns = at
    step = max(ceil(rows / MOST_CELLS), ceil(columns / MOST_CELLS), 1)
    made = {
        "top": top,
        "left": left,
        "rows": rows,
        "columns": columns,
        "step": step,
        "cells": [ceil(rows / step), ceil(columns / step)],
    }
    counts = figure.counts
    times = _grouped(figure.grid(counts.times, at, -1), step, -1)
    first = (times > 0).argmax(axis=-1)[..., None]
    blocks = _grouped(figure.grid(counts.blocks, at, 0), step, 0).max(axis=-1)
    owners = _grouped(figure.grid(counts.block, at, -1), step, -1)
    arrays = {
        "block": np.take_along_axis(owners, first, -1)[..., 0],
        "blocks": blocks,
        "times": times.max(axis=-1),
        "touched": (times > 0).sum(axis=-1),
    }
    if alone is not None:
        mine = _grouped(alone.grid(alone.counts.times, at, -1), step, -1)
        lead = (mine > 0).argmax(axis=-1)[..., None]
        threads = _grouped(alone.grid(alone.counts.thread, at, -1), step, -1)
        many = _grouped(alone.grid(alone.counts.threads, at, 0), step, 0)
        arrays["mine"] = np.maximum(mine.max(axis=-1), 0)
        arrays["thread"] = np.take_along_axis(threads, lead, -1)[..., 0]
        arrays["threads"] = many.max(axis=-1)
    return made | {name: packed_text(values.reshape(-1)) for name, values in arrays.items()}


def _grouped(values: Array, step: int, empty: int) -> Array:
    """``[rows, columns]`` as ``[cell rows, cell columns, elements of a cell]``; a cell is no larger
    than the whole.
    """
    rows, columns = values.shape
    high, wide = min(step, rows), min(step, columns)
    cells = ceil(rows / high), ceil(columns / wide)
    padded = np.full((cells[0] * high, cells[1] * wide), empty, values.dtype)
    padded[:rows, :columns] = values
    parts = padded.reshape(cells[0], high, cells[1], wide).swapaxes(1, 2)
    return parts.reshape(*cells, high * wide)


def _figures(recorded: Footprint) -> Iterator[Figure]:
    for tensor in recorded.tensors:
        rows, columns = _extent(tensor)
        for side, touched in (("loads", tensor.loaded), ("stores", tensor.stored)):
            if touched and rows and columns:
                yield Figure(tensor, side, rows, columns)


def _extent(tensor: TensorFootprint) -> tuple[int, int]:
    """Rows and columns of a tensor's picture: its last dimension is a row, a vector has several."""
    width = tensor.shape[-1] if tensor.shape else 1
    cells = len(tensor.loads.times)
    if len(tensor.shape) > 1 and width % tensor.cell == 0:
        return tensor.elements // max(width, 1), width // tensor.cell
    return (1, cells) if cells <= _LINE else (ceil(cells / _LINE), _LINE)


def _inside(figure: Figure, wanted: tuple[int, ...]) -> Window:
    top, left, rows, columns = wanted
    top, left = min(max(top, 0), figure.rows - 1), min(max(left, 0), figure.columns - 1)
    return (
        top,
        left,
        min(max(rows, 1), figure.rows - top),
        min(max(columns, 1), figure.columns - left),
    )


def _fitting(figure: Figure) -> Window:
    """The least part of the picture with all that is touched; all of it where nothing is."""
    places = np.flatnonzero(figure.counts.times)
    if not places.size:
        return figure.whole
    rows, columns = places // figure.columns, places % figure.columns
    top, left = int(rows.min()), int(columns.min())
    return top, left, int(rows.max()) - top + 1, int(columns.max()) - left + 1


# For readers without a kernel


def section(view: KernelView, opened: bool) -> str:
    """The pictures and tables where something was recorded; nothing else."""
    recorded = _recorded(view)
    if recorded is None:
        return ""
    pictures = [_picture(each) for each in list(_figures(recorded))[:_STATIC]]
    rows = [
        [html.text(each[key]) for key in ("tensor", "loaded", "stored", "untouched")]
        + [html.text(f"{each['reuse']:.3g}")]
        for each in recorded.rows()
    ]
    heads = ["tensor", "elements loaded", "stored", "never touched", "loads of each"]
    lanes = [
        [html.text(line.line), html.text(f"{line.access} {line.tensor}"),
         html.text(line.lanes), html.text(f"{100 * line.masked:.1f} %")]
        for line in recorded.lines
    ]  # fmt: skip
    return html.details(
        "Footprint",
        html.tag("div", "", html.text(f"Recorded {recorded.recorded}, on {recorded.inputs}")),
        *pictures,
        html.table(rows, heads),
        html.table(lanes, ["line", "access", "lanes", "masked"]),
        opened=opened,
    )


def _picture(figure: Figure) -> str:
    shown = window_values(figure)
    rows, columns = shown.shape
    zoom = max(1, min(8, 320 // max(rows, columns)))
    pixels = category_colours(shown).repeat(zoom, axis=0).repeat(zoom, axis=1)
    name = f"{figure.tensor.name}: {figure.side}"
    label = f"{name} {'x'.join(map(str, figure.tensor.shape))}, coloured by the first block"
    head = html.tag("div", html.FAINT, html.text(label))
    said = f"{name}, coloured by the first block; grey is never touched"
    return head + html.image(png_address(pixels), said, columns * zoom)


def window_values(figure: Figure) -> Array:
    """The first block that touches each cell of a picture, -1 for none."""
    step = max(ceil(figure.rows / MOST_CELLS), ceil(figure.columns / MOST_CELLS), 1)
    owners = _grouped(figure.grid(figure.counts.block, figure.whole, -1), step, -1)
    return np.asarray(owners.max(axis=-1), np.int64)
