"""Shapes of values in one kernel: the same elements in the same order under several shapes, and
what is broadcast along which part.

A kernel's domain is a list of extents so fine that each shape of its values is made by multiplying
neighbours: (64, 64) and (2, 32, 64) have (2, 32, 64). A pattern says for each of them whether a
value varies along it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod

Extents = tuple[int, ...]
Pattern = tuple[bool, ...]


def common_extents(a: Sequence[int], b: Sequence[int]) -> Extents | None:
    """The coarsest list of extents of which the products of neighbours are `a`, and `b`. None where
    there is none, as for (4, 6) and (6, 4).
    """
    if prod(a) != prod(b):
        return None
    ends_a, ends_b = _ends(a), _ends(b)
    ends = sorted(ends_a | ends_b)  # inner ends first
    if any(end % before for before, end in pairwise(ends)):
        return None
    inner_first = [end // before for before, end in pairwise([1, *ends])]
    return tuple(reversed(inner_first))


def _ends(extents: Sequence[int]) -> set[int]:
    """The products of the last extents, from the inside out; the coarsest lists have no 1."""
    ends, size = set(), 1
    for extent in reversed(extents):
        size *= extent
        ends.add(size)
    return ends - {1}


def pattern_of(shape: Sequence[int], domain: Sequence[int], fine: Extents) -> Pattern | None:
    """Along which of `fine` a tensor of `shape` varies, broadcast to `domain`. None where it varies
    along a part of one.
    """
    aligned = (1,) * (len(domain) - len(shape)) + tuple(shape)
    varies: list[bool] = []
    at = len(fine)
    for own, extent in zip(reversed(aligned), reversed(domain), strict=True):
        size = 1
        while size < extent:
            at -= 1
            size *= fine[at]
            varies.append(own != 1)
        if size != extent or own not in (1, extent):
            return None
    return tuple(reversed(varies))


def merged(fine: Extents, patterns: Sequence[Pattern]) -> tuple[Extents, list[Pattern]]:
    """Neighbours of `fine` united along which every pattern is the same."""
    extents: list[int] = []
    columns: list[tuple[bool, ...]] = []
    for axis, extent in enumerate(fine):
        column = tuple(pattern[axis] for pattern in patterns)
        if columns and columns[-1] == column:
            extents[-1] *= extent
        else:
            extents.append(extent)
            columns.append(column)
    return tuple(extents), [tuple(column[at] for column in columns) for at in range(len(patterns))]
