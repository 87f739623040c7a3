"""Where names stand in a drawing: on no line, on no mark and on no other name.

The same for drawings whose y grows downwards (SVG) and upwards (matplotlib): `up` is the sign of
upwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import field
from itertools import chain

from tileworkbench.compiler.fast_dataclass import dataclass

Spot = tuple[float, float]
Shape = tuple[Spot, ...]
"""The corners of a convex shape; two of them are a line."""
Bounds = tuple[float, float, float, float]
"""The least and the largest x and y: left, right, low, high."""

_STEPS = 12  # places along a line
_NEAR = 4.0  # pixels between a name and what it names, at first
_CLOSE = 16.0  # pixels from which on a line leads from a name to what it names
_RING = 6.0  # pixels that it moves away at a time
_PARTS = (0.3, 0.5, 0.7, 0.15)  # of a line, where a name is tied to it
SIDES = ((0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1), (1, 0), (-1, 0))
BESIDE = ((1, -1), (1, 1), (-1, -1), (-1, 1), (0, -1), (0, 1), (1, 0), (-1, 0))


@dataclass(frozen=True, slots=True)
class Name:
    """A text of `width` times `height` pixels around (x, y), turned `angle` degrees from x to y;
    `spot` is what it names, where it is not along that.
    """

    x: float
    y: float
    width: float
    height: float
    angle: float = 0.0
    spot: Spot | None = None

    def corners(self) -> Shape:
        """The corners of its box."""
        turn = math.radians(self.angle)
        across, down = math.cos(turn), math.sin(turn)
        halves = [(sx * self.width / 2, sy * self.height / 2) for sx, sy in _CORNERS]
        return tuple(
            (self.x + u * across - v * down, self.y + u * down + v * across) for u, v in halves
        )

    def tie(self) -> Shape:
        """A line from what it names to its box; empty where it stands near that or along it."""
        if self.spot is None:
            return ()
        x, y = self.spot
        u = min(max(x, self.x - self.width / 2), self.x + self.width / 2)
        v = min(max(y, self.y - self.height / 2), self.y + self.height / 2)
        return (self.spot, (u, v)) if math.hypot(x - u, y - v) > _CLOSE else ()


_CORNERS = ((-1, -1), (1, -1), (1, 1), (-1, 1))


@dataclass(slots=True)
class Room:
    """What is taken of the drawing inside `bounds`; `gap` pixels stay free around each name."""

    bounds: Bounds
    gap: float = 1.0
    taken: list[tuple[Bounds, Shape]] = field(default_factory=list)
    names: list[Shape] = field(default_factory=list)

    def take(self, shape: Shape) -> None:
        """Let no name lie on a line or a mark."""
        self.taken.append((_bounds(shape), shape))

    def find(self, ways: Iterable[Name]) -> Name | None:
        """The first of `ways` that lies on nothing, which is taken; None where all do."""
        for way in ways:
            shape, tie = way.corners(), way.tie()
            if not self._is_free(shape):
                continue
            if tie and not all(is_apart(tie, other, self.gap) for other in self.names):
                continue
            self.names.append(shape)
            for each in (shape, tie):
                if each:
                    self.take(each)
            return way
        return None

    def _is_free(self, shape: Shape) -> bool:
        left, right, low, high = _bounds(shape)
        if left < self.bounds[0] or right > self.bounds[1]:
            return False
        if low < self.bounds[2] or high > self.bounds[3]:
            return False
        gap = self.gap
        near = (
            other
            for (start, end, bottom, top), other in self.taken
            if left < end + gap and start < right + gap and low < top + gap and bottom < high + gap
        )
        return all(is_apart(shape, other, gap) for other in near)


def _bounds(shape: Shape) -> Bounds:
    xs, ys = zip(*shape, strict=True)
    return min(xs), max(xs), min(ys), max(ys)


def box(x: float, y: float, across: float, high: float) -> Shape:
    """A rectangle around (x, y), half as wide and half as high as it is."""
    return tuple((x + u * across, y + v * high) for u, v in _CORNERS)


def is_apart(one: Shape, other: Shape, gap: float = 0.0) -> bool:
    """Whether two convex shapes are at least `gap` apart across an edge of one of them."""
    for shape in (one, other):
        for (x, y), (u, v) in zip(shape, (*shape[1:], shape[0]), strict=True):
            length = math.hypot(u - x, v - y)
            if not length:
                continue
            for across in (
                ((v - y) / length, (x - u) / length),
                ((u - x) / length, (v - y) / length),
            ):
                first, second = (
                    [a * across[0] + b * across[1] for a, b in each] for each in (one, other)
                )
                if min(first) - max(second) >= gap or min(second) - max(first) >= gap:
                    return True
    return False


def along(start: Spot, end: Spot, width: float, height: float, up: int) -> Iterator[Name]:
    """Names beside the line from `start` to `end`, nearest to its start first. Above it, as one
    reads names of lines that are close together, then below.
    """
    (x1, y1), (x2, y2) = start, end
    length = math.hypot(x2 - x1, y2 - y1)
    room = length - width - 2 * _NEAR
    if room < 0:
        return
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    angle = math.degrees(math.atan2(dy, dx))
    angle -= 180 * round(angle / 180)  # never upside down
    side = up if dx > 0 else -up
    away = height / 2 + 2
    for upwards in (side, -side):
        for step in range(_STEPS + 1):
            at = _NEAR + width / 2 + room * step / _STEPS
            x, y = x1 + dx * at - dy * away * upwards, y1 + dy * at + dx * away * upwards
            yield Name(x, y, width, height, angle)


def around(
    spot: Spot,
    width: float,
    height: float,
    up: int,
    far: float,
    sides: Iterable[Spot] = SIDES,
    near: float = _NEAR,
) -> Iterator[Name]:
    """Names around the mark at `spot`, the nearest first, from `near` to `far` pixels from it;
    `sides` are steps to the right and upwards.
    """
    away = near
    while away <= far:
        for right, above in sides:
            x = spot[0] + right * (width / 2 + away)
            y = spot[1] + up * above * (height / 2 + away)
            yield Name(x, y, width, height, spot=spot)
        away += _RING


def beside(
    start: Spot, end: Spot, width: float, height: float, up: int, far: float
) -> Iterator[Name]:
    """Names away from a line that others are too close to, tied to it, the nearest first."""
    spots = [
        (start[0] + part * (end[0] - start[0]), start[1] + part * (end[1] - start[1]))
        for part in _PARTS
    ]
    ways = [around(spot, width, height, up, far, BESIDE, _CLOSE + 1) for spot in spots]
    return chain.from_iterable(zip(*ways, strict=True))
