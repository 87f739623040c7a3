"""Names in a matplotlib figure: on no line, on no mark and on no other name."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.viz.model.labels import SIDES, Name, Room, Spot, along, around, beside, box

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FAR = 200.0  # pixels that a name may move away from what it names
_FRAME = 4.0  # pixels between a name and the frame
_FONT = "small"
_GROUND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0}


class FigureNames:
    """Finds room for names among what `axes` hold; the figure has been laid out."""

    def __init__(self, axes: Axes) -> None:
        self._axes, self._figure = axes, axes.figure
        extent = axes.get_window_extent()
        self._pixels = axes.figure.dpi / 72
        left, right = extent.x0 + _FRAME, extent.x1 - _FRAME
        self._room = Room((left, right, extent.y0 + _FRAME, extent.y1 - _FRAME), gap=1.5)
        for line in axes.lines:
            spots = [self._to_pixels(spot) for spot in np.asarray(line.get_xydata())]
            if line.get_linestyle() != "None":
                for ends in pairwise(spots):
                    self._room.take(ends)
            if line.get_marker() not in ("None", ""):
                half = line.get_markersize() * self._pixels / 2 + 1
                for x, y in spots:
                    self._room.take(box(x, y, half, half))
        for text in axes.texts:
            frame = text.get_window_extent()
            x, y = (frame.x0 + frame.x1) / 2, (frame.y0 + frame.y1) / 2
            half = max(frame.width, frame.height) / 2 + 3 * self._pixels
            self._room.take(box(x, y, half, half))

    def _to_pixels(self, spot: Iterable[float]) -> Spot:
        x, y = self._axes.transData.transform(tuple(spot))
        return float(x), float(y)

    def along(self, text: str, start: Spot, end: Spot, colour: str) -> None:
        """Name a line, beside it or tied to it."""
        line = self._to_pixels(start), self._to_pixels(end)
        width, height = self._size(text, _FONT)
        ways = along(*line, width, height, 1)
        place = self._room.find(ways) or self._room.find(beside(*line, width, height, 1, _FAR))
        self._write(place, text, colour, _FONT)

    def at(
        self,
        text: str,
        spot: Spot,
        colour: str,
        sides: Iterable[Spot] = SIDES,
        fontsize: str = "medium",
    ) -> None:
        """Name a mark; `sides` as `labels.around` has them."""
        width, height = self._size(text, fontsize)
        ways = around(self._to_pixels(spot), width, height, 1, _FAR, sides)
        self._write(self._room.find(ways), text, colour, fontsize)

    def _size(self, text: str, fontsize: str) -> Spot:
        """Pixels that a text takes."""
        trial = self._axes.text(0, 0, text, fontsize=fontsize)
        frame = trial.get_window_extent()
        trial.remove()
        return frame.width, frame.height

    def _write(self, place: Name | None, text: str, colour: str, fontsize: str) -> None:
        if place is None:
            return
        look: dict[str, Any] = {"color": colour, "fontsize": fontsize, "bbox": _GROUND}
        x, y = self._to_data((place.x, place.y))
        self._axes.text(x, y, text, ha="center", va="center", rotation=place.angle, **look)
        for one, other in pairwise(place.tie()):
            line = {
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
            }
            self._axes.annotate("", self._to_data(one), self._to_data(other), arrowprops=line)

    def _to_data(self, spot: Spot) -> Spot:
        x, y = self._axes.transData.inverted().transform(spot)
        return float(x), float(y)
