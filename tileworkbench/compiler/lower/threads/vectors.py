"""How wide an access to memory may be when a thread takes neighbouring iterations together."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.traces import Trace, UntraceableError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import variables
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.layout.digits import Digit, DigitSum, NotDigitsError
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.inference import Place
from tileworkbench.compiler.machine.machine import VECTOR_BITS

SHARED = (2, 4, 8)
"""Neighbouring iterations that may read one element: codes of a few bits in bytes and words."""
SYMBOLIC = 1 << 30
"""Stands for the extent of a loop that is not known."""


@dataclass(frozen=True, slots=True)
class Motion:
    """One index: `loop` is a sum of the loop's digits, `outer` the rest, which moves along the
    dimensions `opaque` in ways that are not known.
    """

    outer: Linear
    loop: DigitSum
    opaque: frozenset[int] = frozenset()

    def moves(self, dim: int, lanes: int) -> bool:
        """Whether it differs within an aligned group of `lanes` iterations along `dim`."""
        return dim in self.opaque or any(
            digit.dim == dim and digit.divisor < lanes
            for term in self.loop.terms
            for digit in term.digits
        )


def motions(
    indices: Sequence[Expr], loop: Sequence[Var], shape: Sequence[int], ranges: Ranges
) -> tuple[Motion, ...]:
    """How the indices move with the loop."""
    values = dict(zip(loop, Index.variables(tuple(shape)), strict=True))
    trace = Trace(values)
    made = []
    for index in indices:
        outer: list[tuple[Linear, int]] = []
        moving: Any = values[loop[0]] * 0
        opaque: set[int] = set()
        linear = ranges.linear(index)
        for atom, factor in linear.terms:
            used = set(variables(atom))
            if not used & values.keys():
                outer.append((Linear(((atom, 1),), 0), factor))
                continue
            try:
                moving = moving + trace(atom) * factor
            except (UntraceableError, NotDigitsError, TypeError):
                outer.append((Linear(((atom, 1),), 0), factor))
                opaque.update(dim for dim, var in enumerate(loop) if var in used)
        made.append(Motion(combine(outer, linear.constant), moving.sum, frozenset(opaque)))
    return tuple(made)


def is_contiguous(
    moved: Sequence[Motion], dim: int, lanes: int, ranges: Ranges, shared: int = 1
) -> bool:
    """Whether aligned groups of `lanes` iterations along `dim` access neighbours of the last index,
    from a multiple of their number on. Each is for `shared` iterations.
    """
    width = lanes // shared
    last = moved[-1]
    if dim in last.opaque or any(motion.moves(dim, lanes) for motion in moved[:-1]):
        return False
    unit = False
    for term in last.loop.terms:
        low = [d for d in term.digits if d.dim == dim and d.divisor < lanes]
        if not low:
            if term.stride % width:
                return False
        elif (
            term.stride == 1
            and term.digits == (Digit(dim, shared, term.extent),)
            and term.extent % width == 0
        ):
            unit = True
        else:
            return False
    return unit and last.loop.constant % width == 0 and ranges.linear_divides(width, last.outer)


def vector_width(
    buffer: Buffer,
    place: Place | None,
    indices: Sequence[Expr],
    moved: Sequence[Motion],
    dim: int,
    limit: int,
    ranges: Ranges,
    shared: int = 1,
) -> int:
    """How many elements one access can take for the iterations along `dim`, a power of two of at
    most `limit` iterations: in memory they are neighbours, aligned, and all in range or none.
    Each element is for `shared` neighbouring iterations.
    """
    if not indices:
        return 1
    width = max(min(limit // shared, VECTOR_BITS // max(buffer.dtype.bits, 1)), 1)
    while width > 1 and obstacle(buffer, place, indices, moved, dim, width, ranges, shared):
        width //= 2
    return width


class Obstacle(StrEnum):
    """What keeps a vector away from an access."""

    APART = "apart"  # the iterations do not take aligned neighbours of the last index
    LAYOUT = "layout"  # the tile's layout takes neighbours apart
    STRIDED = "strided"  # neighbours of a row are not next to each other in memory
    PITCH = "pitch"  # rows begin where no vector may begin
    END = "end"  # a row ends inside a vector


def obstacle(
    buffer: Buffer,
    place: Place | None,
    indices: Sequence[Expr],
    moved: Sequence[Motion],
    dim: int,
    width: int,
    ranges: Ranges,
    shared: int = 1,
) -> Obstacle | None:
    """Why `width` elements cannot be accessed at once, None where they can. See `vector_width`."""
    if not is_contiguous(moved, dim, width * shared, ranges, shared):
        return Obstacle.APART
    if isinstance(place, Layout):
        if place.vector_width(width) < width:
            return Obstacle.LAYOUT
    else:
        strides = strides_of(buffer)
        if const_int(strides[-1]) != 1:
            return Obstacle.STRIDED
        for index, stride in zip(indices[:-1], strides[:-1], strict=True):
            if const_int(index) != 0 and not ranges.divides(width, stride):
                return Obstacle.PITCH
    if buffer.scope != "global" or all(ranges.in_range(indices[-1], buffer.shape[-1])):
        return None
    return None if ranges.divides(width, buffer.shape[-1]) else Obstacle.END


def step_box(shape: Sequence[int | None]) -> tuple[int, ...]:
    """A shape for tracing, symbolic extents included."""
    return tuple(SYMBOLIC if extent is None else extent for extent in shape)
