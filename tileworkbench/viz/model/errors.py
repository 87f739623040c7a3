"""The wrong elements of a failed check as a view: a picture of the output that can be zoomed."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import numpy as np

from tileworkbench.bench.units import told_apart
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.viz.model import html
from tileworkbench.viz.model.error_map import ErrorMap
from tileworkbench.viz.model.packing import packed_text
from tileworkbench.viz.model.palette import EMPTY, PALETTE
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.view import KernelView

MOST_CELLS = 64
"""Of a picture along each side: larger outputs are shown in cells of several elements."""

_LEVELS = 255
_LINE = 64  # elements of a row, of an output with one dimension
_SMALL, _LARGE = (238, 221, 136), (204, 51, 17)  # colours of errors, as in `static/errors.js`
_ROWS = 8  # wrong elements in the page of a reader without a kernel


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where a check has failed."""
    return "" if view.errors is not None else "no check of this kernel has failed"


def about(view: KernelView) -> str:
    """What one looks at."""
    errors = _map(view)
    return (
        f"The {errors.wrong.size} elements of the output {errors.output} of the call that failed, "
        f"and which {errors.count} of them differ from the reference. A cell shows the worst of "
        "its elements; click one to zoom in, or a single element to mark the line that wrote it "
        "last."
    )


def model(view: KernelView) -> dict[str, Any]:
    """The counts, the pattern in words, the lines, and the picture of the whole output."""
    errors = _map(view)
    height, width = _extent(errors)
    return {
        "output": errors.output,
        "shape": list(errors.shape),
        "sentence": str(errors),
        "recorded": errors.recorded,
        "whyNot": errors.why_not,
        "lines": [
            {
                "line": line,
                "count": count,
                "sources": [[name, list(lines)] for name, lines in errors.feeding(line)],
            }
            for line, count in errors.writing_lines.items()
        ],
        "owners": [name for name, values in _owners(errors).items() if (values >= 0).any()],
        "palette": PALETTE,
        "bisects": view.bisect is not None,
        "height": height,
        "width": width,
        "window": window(errors, 0, 0, height, width),
    }


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says of the wrong elements."""
    errors = _map(view)
    lines = ", ".join(f"{line} ({count})" for line, count in errors.writing_lines.items())
    return {
        "output": errors.output,
        "wrong elements": f"{errors.count} of {errors.wrong.size}",
        "where": errors.places,
        "values": errors.values,
        "last written by line": lines,
    }


def window_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """A part of the picture: ``top``, ``left``, ``rows`` and ``columns`` of elements."""
    numbers = (int(content[key]) for key in ("top", "left", "rows", "columns"))
    return window(_map(view), *numbers)


def bisect_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """One more stage of the search for the pass that broke the result, the first with ``start``.

    ``{"done": stages, "total": stages, "said": result}``, which is empty until it is known; then
    ``sentence`` has it among what is known of the wrong elements.
    """
    if view.bisect is None:
        return {"done": 0, "total": 0, "said": "there is nothing to search with"}
    return view.bisect(bool(content.get("start")))


def window(errors: ErrorMap, top: int, left: int, rows: int, columns: int) -> dict[str, Any]:
    """At most `MOST_CELLS` cells along each side, each with its worst element: its position (-1
    where there is none), how wrong it is from 0 to 255 of the largest error, its values as text,
    and its writer.
    """
    height, width = _extent(errors)
    top, left = min(max(top, 0), height - 1), min(max(left, 0), width - 1)
    rows, columns = min(max(rows, 1), height - top), min(max(columns, 1), width - left)
    step = max(ceil(rows / MOST_CELLS), ceil(columns / MOST_CELLS))
    cells = ceil(rows / step), ceil(columns / step)
    levels = _levels(errors)[top : top + rows, left : left + columns]
    padded = np.full((cells[0] * step, cells[1] * step), -1, np.int16)
    padded[:rows, :columns] = levels
    grouped = padded.reshape(cells[0], step, cells[1], step).swapaxes(1, 2).reshape(*cells, -1)
    worst = grouped.argmax(axis=2)
    level = grouped.max(axis=2)
    at_row = top + np.arange(cells[0])[:, None] * step + worst // step
    at_column = left + np.arange(cells[1])[None, :] * step + worst % step
    places = np.where(level < 0, -1, at_row * width + at_column)
    flat = np.maximum(places.reshape(-1), 0)
    wrong = level.reshape(-1) > 0
    owners = {
        name: packed_text(np.where(wrong, values.reshape(-1)[flat], -1))
        for name, values in _owners(errors).items()
    }
    texts = [
        told_apart(*pair) if each else ("", "")
        for *pair, each in zip(
            errors.got.reshape(-1)[flat], errors.expected.reshape(-1)[flat], wrong, strict=True
        )
    ]
    return {
        "top": top,
        "left": left,
        "rows": rows,
        "columns": columns,
        "step": step,
        "cells": list(cells),
        "place": packed_text(places.reshape(-1)),
        "level": packed_text(level.reshape(-1)),
        "wrong": packed_text((grouped > 0).sum(axis=2).reshape(-1)),
        "got": [one for one, _ in texts],
        "expected": [other for _, other in texts],
        "owners": owners,
    }


def _owners(errors: ErrorMap) -> dict[str, np.ndarray[Any, Any]]:
    threads = errors.threads
    return {
        "line": errors.lines,
        "block": errors.blocks,
        "warp": np.where(threads < 0, -1, threads // LANGUAGE_WARP),
        "lane": np.where(threads < 0, -1, threads % LANGUAGE_WARP),
        "register": errors.registers,
    }


def _extent(errors: ErrorMap) -> tuple[int, int]:
    """Rows and columns of the picture: the last dimension is a row, a vector has several."""
    shape = errors.shape
    if len(shape) > 1:
        return prod(shape[:-1]), shape[-1]
    size = errors.wrong.size
    return (1, size) if size <= _LINE else (ceil(size / _LINE), _LINE)


def _levels(errors: ErrorMap) -> np.ndarray[Any, Any]:
    """How wrong each element of the picture is: 0 where it is right, 1 to 255 by the logarithm of
    its error, NaN and infinity 255; -1 beyond the last element.
    """
    error = errors.error.reshape(-1)
    bad = errors.wrong.reshape(-1)
    finite = bad & np.isfinite(error) & (error > 0)
    levels = np.where(bad, _LEVELS, 0).astype(np.int16)
    if finite.any():
        logs = np.log(error[finite])
        low, high = float(logs.min()), float(logs.max())
        share = (logs - low) / (high - low) if high > low else np.ones_like(logs)
        levels[finite] = 1 + np.round(share * (_LEVELS - 1))
    height, width = _extent(errors)
    made = np.full(height * width, -1, np.int16)
    made[: levels.size] = levels
    return made.reshape(height, width)


def section(view: KernelView, opened: bool) -> str:
    """The pattern, a picture and the first wrong elements, for readers without a kernel."""
    errors = _map(view)
    height, width = _extent(errors)
    shown = window(errors, 0, 0, height, width)
    rows = [
        [
            html.text(each)
            for each in (
                *(_text(row["element"]), *told_apart(row["got"], row["expected"])),
                *(_text(row[key]) for key in _WHO),
            )
        ]
        for row in errors.rows(_ROWS)
    ]
    body = [
        html.tag("div", html.tone(html.BAD), html.text(str(errors))),
        _picture(errors, shown),
        html.table(rows, ["element", "got", "expected", *_WHO]),
    ]
    if errors.why_not:
        body.append(html.tag("div", html.FAINT, html.text(f"writers: {errors.why_not}")))
    return html.details("Errors", *body, note=errors.output, opened=opened)


_WHO = ("line", "block", "warp", "lane", "register")


def _text(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value)


def _picture(errors: ErrorMap, shown: dict[str, Any]) -> str:
    step, (rows, columns) = shown["step"], shown["cells"]
    levels = _levels(errors)
    padded = np.full((rows * step, columns * step), -1, np.int16)
    padded[: levels.shape[0], : levels.shape[1]] = levels
    grid = padded.reshape(rows, step, columns, step).max(axis=(1, 3)).astype(np.int64)
    zoom = max(1, min(8, 448 // max(rows, columns)))
    small, large = (np.array(colour, np.float64) for colour in (_SMALL, _LARGE))
    mixed = small + (large - small) * (grid / _LEVELS)[..., None]
    mixed[grid <= 0] = EMPTY
    pixels = mixed.astype(np.uint8)
    pixels = pixels.repeat(zoom, axis=0).repeat(zoom, axis=1)
    text = f"{errors.output}: where the wrong elements are; right ones are grey"
    return html.image(png_address(pixels), text, columns * zoom)


def _map(view: KernelView) -> ErrorMap:
    assert view.errors is not None
    return view.errors
