"""A grid of cells as an SVG with numbered axes and a legend: what saved notebooks show of layouts.

The drawing has a ground of its own, because an image cannot follow the theme of its page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from math import ceil, log2

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.analysis.atoms import Atom
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model.palette import CATEGORIES, SEQUENCE
from tileworkbench.viz.model.png import png_address
from tileworkbench.viz.model.svg import FONT, PAPER, draw_text

Pixels = NDArray[np.uint8]
Swatches = Sequence[tuple[Sequence[int], str]]

_LEFT, _TOP, _RIGHT, _BELOW = 44, 46, 10, 30  # pixels around the cells
_SIDE = 384  # pixels along the longer side of the cells, about
_CELL = 22  # pixels of a cell, at most
_RULED = 6  # from which on white lines part the cells
_NUMBERED = 15  # from which on numbers are written into them
_MOST_NUMBERS = 160  # in cells: each takes 50 bytes of a saved notebook
_ACROSS, _DOWN = 24, 12  # pixels that a number needs on an axis
_LETTER = 5.6  # pixels of a letter of the legend


@dataclass(frozen=True, slots=True)
class GridPicture:
    """Cells to draw: `colours` is RGB bytes ``(rows, columns, 3)``, `numbers` what is written into
    each (-1: nothing), `row_step` what a row counts on its axis.
    """

    colours: Pixels
    title: str
    axes: tuple[str, str]
    legend: Swatches
    numbers: NDArray[np.int64] | None = None
    row_step: int = 1
    atoms: tuple[Atom, ...] = ()


def grid_svg(picture: GridPicture) -> tuple[str, int]:
    """The drawing, and its width in pixels."""
    rows, columns = picture.colours.shape[:2]
    cell = max(2, min(_CELL, _SIDE // max(rows, columns)))
    wide, high = columns * cell, rows * cell
    width = max(_LEFT + wide + _RIGHT, ceil(_legend_width(picture)), 60 + 6 * len(picture.title))
    height = _TOP + high + _BELOW + (16 if picture.atoms else 0)
    parts = [
        f'<rect width="{width}" height="{height}" fill="{PAPER["ground"]}"/>',
        draw_text(4, 13, picture.title, PAPER["text"], "start", ' font-weight="600"'),
        f'<image x="{_LEFT}" y="{_TOP}" width="{wide}" height="{high}" '
        f'style="image-rendering:pixelated" preserveAspectRatio="none" '
        f'href="{png_address(picture.colours)}"/>',
        *_rules(rows, columns, cell),
        *_axes(picture, rows, columns, cell),
        *_numbers(picture, cell),
        *_atoms(picture, rows, columns, cell),
        *_legend(picture, _TOP + high + 12),
    ]
    markup = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="{escape(FONT)}" font-size="10">'
        f"{''.join(parts)}</svg>"
    )
    return markup, width


def _rules(rows: int, columns: int, cell: int) -> Iterator[str]:
    """White lines between the cells."""
    if cell < _RULED:
        return
    yield (
        f'<pattern id="rules" x="{_LEFT}" y="{_TOP}" width="{cell}" height="{cell}" '
        f'patternUnits="userSpaceOnUse"><path d="M0 0h{cell}M0 0v{cell}" stroke="#fff" '
        'stroke-opacity="0.7" fill="none"/></pattern>'
        f'<rect x="{_LEFT}" y="{_TOP}" width="{columns * cell}" height="{rows * cell}" '
        'fill="url(#rules)"/>'
    )


def _every(needed: int, cell: int) -> int:
    """How many cells apart the numbers of an axis stand: a power of two."""
    return int(2 ** max(0, ceil(log2(needed / cell))))


def _axes(picture: GridPicture, rows: int, columns: int, cell: int) -> Iterator[str]:
    along_rows, along_columns = picture.axes
    faint = PAPER["faint"]
    yield draw_text(_LEFT, 29, f"{along_columns} →", faint, "start")
    yield draw_text(4, _TOP - 4, f"{along_rows} ↓", faint, "start")
    first = 1 if len(along_rows) > 5 else 0  # the name of the other axis is there
    across = [
        (_LEFT + (column + 0.5) * cell, _TOP - 4, column)
        for column in range(0, columns, _every(_ACROSS, cell))
    ]
    down = [
        (_LEFT - 5, _TOP + (row + 0.5) * cell + 3.5, row * picture.row_step)
        for row in range(0, rows, _every(_DOWN, cell))
    ]
    yield _texts(across[first:], PAPER["text"], "middle")
    yield _texts(down, PAPER["text"], "end")


def _texts(placed: Iterable[tuple[float, float, int]], colour: str, anchor: str) -> str:
    """Numbers at places, which share their style."""
    texts = "".join(f'<text x="{x:g}" y="{y:g}">{number}</text>' for x, y, number in placed)
    return f'<g fill="{colour}" text-anchor="{anchor}">{texts}</g>'


def _numbers(picture: GridPicture, cell: int) -> Iterator[str]:
    """What each cell holds, where there is room for it."""
    if picture.numbers is None or cell < _NUMBERED or picture.numbers.size > _MOST_NUMBERS:
        return
    size = min(10.0, (cell - 3) / (len(str(picture.numbers.max())) * 0.6))
    if size < 7:
        return
    placed = [
        (_LEFT + (column + 0.5) * cell, _TOP + (row + 0.5) * cell + 3.5, int(value))
        for (row, column), value in np.ndenumerate(picture.numbers)
        if value >= 0
    ]
    yield f'<g font-size="{size:.1f}">{_texts(placed, "#141414", "middle")}</g>'


def _atoms(picture: GridPicture, rows: int, columns: int, cell: int) -> Iterator[str]:
    """The outlines of the first atom's copies, and its name."""
    for atom in picture.atoms[:1]:
        down, across = atom.rows, atom.columns
        lines = "".join(f"M{_LEFT} {_TOP + r * cell}h{columns * cell}"
                        for r in range(0, rows + 1, down))  # fmt: skip
        lines += "".join(f"M{_LEFT + c * cell} {_TOP}v{rows * cell}"
                         for c in range(0, columns + 1, across))  # fmt: skip
        yield f'<path d="{lines}" stroke="#111" stroke-width="1.5" fill="none"/>'
        name = f"black frames: {atom.name}, {atom.rows}×{atom.columns}"
        yield draw_text(4, _TOP + rows * cell + _BELOW + 8, name, PAPER["text"], "start")


def _legend_width(picture: GridPicture) -> float:
    return 8 + sum(18 + _LETTER * len(text) for _, text in picture.legend)


def _legend(picture: GridPicture, top: int) -> Iterator[str]:
    x = 4.0
    for colour, text in picture.legend:
        if colour:
            fill = "#" + "".join(f"{int(part):02x}" for part in colour)
            yield f'<rect x="{x:g}" y="{top}" width="10" height="10" fill="{fill}"/>'
            x += 13
        yield draw_text(x, top + 9, text, PAPER["text"], "start")
        x += 5 + _LETTER * len(text)


def category_legend(what: str, top: int) -> Swatches:
    """Eight hues, which repeat in lighter shades; `top` is the largest number."""
    hues = [(hue, str(number)) for number, hue in enumerate(CATEGORIES) if number <= top]
    more = "" if top < len(CATEGORIES) else f"then again, lighter, to {top}"
    return [((), f"{what}:"), *hues, ((), more)]


def sequence_legend(what: str, top: int) -> Swatches:
    """The ramp from 0 to `top`, with the numbers of its ends."""
    last = len(SEQUENCE) - 1
    names = {0: "0", last: str(top)}
    stops: Iterable[tuple[Sequence[int], str]] = (
        (colour, names.get(at, "")) for at, colour in enumerate(SEQUENCE)
    )
    return [((), f"{what}:"), *stops]
