"""Which elements of a tensor the iterations of loops access, and which of them they share.

An access moves by a stride with each iteration. Where the stride is no longer than what one
iteration accesses in a row, the rows of all of them are one longer row; else they are as many rows
apart from each other.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field

import numpy as np

from tileworkbench.bench.memory_rates import LINE_BYTES
from tileworkbench.compiler.fast_dataclass import dataclass

WAYS = 8  # lines that each place of a cache has room for
MOST_ROWS = 1024  # whose places are looked at


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of `run` elements; for each stride of `places`, there are so many of them that far
    apart.
    """

    run: float
    places: Mapping[int, int] = field(default_factory=dict)

    @property
    def size(self) -> float:
        """How many elements."""
        size = self.run
        for trips in self.places.values():
            size *= trips
        return size

    def pressure(self, bytes_: int, cache: float) -> float:
        """Bytes of a cache of so many that the elements, of `bytes_` each, take: more than their
        own where they fill few of its places, as if all were as full.
        """
        if not self.places:
            return self.run * bytes_
        places = tuple((stride * bytes_, trips) for stride, trips in self.places.items())
        return _pressure(round(self.run * bytes_), places, int(cache))

    def over(self, stride: int, trips: int) -> Extent:
        """What `trips` iterations access, each `stride` elements after the one before."""
        if trips <= 1 or not stride:
            return self
        if stride <= self.run:
            return self._with_run(self.run + stride * (trips - 1))
        for near, count in self.places.items():
            steps, between = divmod(stride, near)
            if not between and steps <= count:
                return Extent(self.run, {**self.places, near: count + steps * (trips - 1)})
        return Extent(self.run, {**self.places, stride: trips})

    def _with_run(self, run: float) -> Extent:
        """As many rows of so many elements; where they touch each other, they are one."""
        places = dict(self.places)
        for stride in sorted(places):
            if stride <= run:
                run += stride * (places.pop(stride) - 1)
        return Extent(run, places)

    def beside(self, apart: int, other: Extent, gap: int) -> Extent | None:
        """These elements together with others that begin `apart` further on, and up to `gap` in a
        row between them; None if that is neither a longer row nor a row more.
        """
        run = max(self.run, apart + other.run) - min(0, apart)
        if self.places == other.places:
            if run <= self.run + other.run + gap:
                return self._with_run(run)
            both = Extent(max(self.run, other.run), self.places).over(abs(apart), 2)
            end = max((stride * rows for stride, rows in self.places.items()), default=0)
            is_one = abs(apart) >= end or len(both.places) == len(self.places)
            return both if is_one else None
        for stride, rows in self.places.items():
            steps, between = divmod(apart, stride)
            if not between and not other.places and other.run <= self.run:
                if 0 <= steps < rows:
                    return self
                if steps in (-1, rows):
                    return Extent(self.run, {**self.places, stride: rows + 1})
        return None

    def common(self, shift: int) -> float:
        """Which part of the elements is accessed again `shift` elements further on."""
        part, rest = 1.0, abs(shift)
        for stride, trips in sorted(self.places.items(), reverse=True):
            steps = round(rest / stride)
            if steps >= trips:
                steps = 0 if rest < self.run else trips
            part *= 1 - steps / trips
            rest = abs(rest - steps * stride)
        return part * max(0.0, 1 - rest / self.run)


@functools.lru_cache(maxsize=4096)
def _pressure(run: int, places: tuple[tuple[int, int], ...], cache: int) -> float:
    """That of rows of so many bytes: of their lines in those places of a cache that they share."""
    period = period_of(cache)
    starts, rows = np.zeros(1, np.int64), 1
    for stride, trips in places:
        rows *= trips
        near = np.arange(min(trips, max(MOST_ROWS // starts.size, 1)))
        starts = (starts[:, None] + stride * near).ravel()
    lines = starts[:, None] // LINE_BYTES + np.arange(min(run, period) // LINE_BYTES + 2)
    lines = np.unique(lines[lines <= (starts[:, None] + run - 1) // LINE_BYTES])
    places_of = period // LINE_BYTES
    own = lines.size * rows / starts.size * LINE_BYTES
    ways = own / LINE_BYTES / np.unique(lines % places_of).size
    full = min(max((ways - 1) / (WAYS - 1), 0.0), 1.0)  # the others have room elsewhere
    return float(own + full * (ways * period - own))


def period_of(cache: int) -> int:
    """Bytes after which addresses share places of a cache of so many."""
    return max(1 << (cache // WAYS).bit_length() - 1, LINE_BYTES)
