"""Which elements of a tensor the iterations of loops access, and which of them they share.

An access moves by a stride with each iteration. Where the stride is no longer than what one
iteration accesses in a row, the rows of all of them are one longer row; else they are as many rows
apart from each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tileworkbench.compiler.fast_dataclass import dataclass


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

    def over(self, stride: int, trips: int) -> Extent:
        """What `trips` iterations access, each `stride` elements after the one before."""
        if trips <= 1 or not stride:
            return self
        if stride <= self.run:
            return Extent(self.run + stride * (trips - 1), self.places)
        for near, count in self.places.items():
            steps, between = divmod(stride, near)
            if not between and steps <= count:
                return Extent(self.run, {**self.places, near: count + steps * (trips - 1)})
        return Extent(self.run, {**self.places, stride: trips})

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
