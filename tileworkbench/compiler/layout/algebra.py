"""The algebra of CuTe on our layouts: complements, quotients, products, one-sided inverses.

CuTe reads a layout as a function from one number to another: its indices are counted with the first
one fastest, and its value is an offset. A `Layout` is read in the same way here; indices of several
outputs are first joined to an offset, row-major. Where CuTe computes with shapes and strides, the
functions below do what the definitions say, so they hold for layouts with XOR too; a result of
shapes and strides has the canonical digits of its function, which is what CuTe calls coalesced.

Definitions: CUTLASS documentation, "CuTe Layout Algebra".
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError

from .digits import Shape
from .fragment import Fragment
from .layout import Layout
from .maps import check_tabulable, flatten, unflatten

_SWIZZLE_BITS = 31  # the highest bit that a swizzle may touch


def extent_of(layout: Layout) -> int:
    """The highest offset plus one (CuTe: cosize)."""
    return prod(layout.output_shape)


def offset_at(layout: Layout, index: Sequence[Any]) -> Any:
    """The offset at `index`: integers, arrays or expressions."""
    return flatten(layout.output_shape, layout.evaluate(*index))


def first_fastest(shape: Shape, position: Any) -> tuple[Any, ...]:
    """The index at `position` where the first dimension counts fastest."""
    return unflatten(shape[::-1], position)[::-1]


def coalesce(layout: Layout) -> Layout:
    """The same offsets under one index, which counts the first dimension fastest."""
    return Layout((layout.size,), lambda x: offset_at(layout, first_fastest(layout.shape, x)))


def composition(outer: Layout, inner: Layout) -> Layout:
    """``x -> outer(inner(x))``, an offset of `inner` being a position in `outer`.

    Raises:
        LayoutError: `inner` reaches beyond the last element of `outer`.
    """
    reach = extent_of(inner)
    if reach > outer.size:
        raise LayoutError(
            f"Cannot compose: the inner layout reaches {reach - 1}, and the outer one has "
            f"{outer.size} elements."
        )
    flat = coalesce(outer)
    return Layout(inner.shape, lambda *x: flat.evaluate(offset_at(inner, x)))


def complement(layout: Layout, extent: int | None = None) -> Layout:
    """The offsets of all copies of `layout` that together fill `extent` (its own extent).

    The result has one index, rises, and starts with 0. Elements that share a place count once.

    Raises:
        LayoutError: the gaps of the layout do not repeat in a way that copies of it fill.
    """
    import numpy as np

    check_tabulable(layout.shape)
    wanted = extent_of(layout) if extent is None else extent
    if wanted < 1:
        raise LayoutError(f"A complement fills 1 element or more, not {wanted}.")
    taken = np.unique(layout.table())
    digits = Layout.from_table((taken - taken[0])[:, None]).digits
    terms = digits[0] if digits else ()
    regular = digits is not None and all(len(term.digits) == 1 for term in terms)
    if taken[0] or not regular or prod(term.extent for term in terms) != taken.size:
        raise _unfillable(f"its {taken.size} offsets have no regular strides")
    shape, strides, filled = [], [], 1
    for term in sorted(terms, key=lambda term: term.stride):
        if term.stride % filled:
            raise _unfillable(f"stride {term.stride} is no multiple of {filled}")
        shape.append(term.stride // filled)
        strides.append(filled)
        filled = term.stride * term.extent
    shape.append(-(-wanted // filled))
    strides.append(filled)
    return Layout((prod(shape),), lambda x: _strided(shape, strides, x))


def _strided(shape: Sequence[int], strides: Sequence[int], position: Any) -> Any:
    indices = first_fastest(tuple(shape), position)
    return sum(index * stride for index, stride in zip(indices, strides, strict=True))


def _unfillable(reason: str) -> LayoutError:
    return LayoutError(f"The layout has no complement: {reason}, so copies of it leave gaps.")


def right_inverse(layout: Layout) -> Layout:
    """The longest layout with ``layout(result(i)) == i``: where the offsets 0, 1, 2, ... are.

    Raises:
        LayoutError: no element is at offset 0.
    """
    import numpy as np

    check_tabulable(layout.shape)
    offsets, positions = np.unique(coalesce(layout).table(), return_index=True)
    gaps = np.flatnonzero(offsets != np.arange(offsets.size))
    count = int(gaps[0]) if gaps.size else offsets.size
    if not count:
        raise LayoutError("The layout has no right inverse: no element is at offset 0.")
    return Layout.from_table(positions[:count, None])


def left_inverse(layout: Layout) -> Layout:
    """The layout with ``result(layout(i)) == i``; offsets in gaps get the numbers that follow.

    Raises:
        LayoutError: two elements share a place, or the layout has no complement.
    """
    if not layout.is_injective:
        raise LayoutError("The layout has no left inverse: two elements share a place.")
    return coalesce(_beside(layout, complement(layout))).inverse()


def _beside(first: Layout, second: Layout) -> Layout:
    """One index for each of two layouts, whose offsets are added."""
    one, other = coalesce(first), coalesce(second)

    def place(i: Any, j: Any) -> Any:
        return one.evaluate(i)[0] + other.evaluate(j)[0]

    return Layout((first.size, second.size), place)


def logical_divide(layout: Layout, tile: Layout) -> Layout:
    """``layout`` in tiles: the first index counts within a tile, the second one counts tiles.

    Raises:
        LayoutError: the tile has no complement, or copies of it reach beyond the layout.
    """
    return composition(layout, _beside(tile, complement(tile, layout.size)))


def logical_product(block: Layout, tiler: Layout) -> Layout:
    """Copies of `block` at the places of `tiler`: the first index is within a copy.

    Raises:
        LayoutError: `block` has no complement.
    """
    return _beside(block, _copies(block, tiler))


def blocked_product(block: Layout, tiler: Layout) -> Layout:
    """Copies of `block`, dimension by dimension, each copy in one piece.

    Raises:
        LayoutError: `block` has no complement.
    """
    return _spread(block, tiler, lambda x, block_extent, _: (x % block_extent, x // block_extent))


def raked_product(block: Layout, tiler: Layout) -> Layout:
    """Copies of `block`, dimension by dimension, whose elements take turns.

    Raises:
        LayoutError: `block` has no complement.
    """
    return _spread(block, tiler, lambda x, _, tiler_extent: (x // tiler_extent, x % tiler_extent))


def _copies(block: Layout, tiler: Layout) -> Layout:
    """Where each copy of `block` starts, in the shape of `tiler`."""
    return composition(complement(block, block.size * extent_of(tiler)), tiler)


def _spread(block: Layout, tiler: Layout, split: Any) -> Layout:
    rank = max(block.rank, tiler.rank)
    inner = block.shape + (1,) * (rank - block.rank)
    outer = tiler.shape + (1,) * (rank - tiler.rank)
    starts = _copies(block, tiler)

    def place(*x: Any) -> Any:
        pairs = [split(value, *extents) for value, *extents in zip(x, inner, outer, strict=True)]
        within, copy = zip(*pairs, strict=True)
        start = starts.evaluate(*copy[: tiler.rank])[0]
        return offset_at(block, within[: block.rank]) + start

    return Layout([a * b for a, b in zip(inner, outer, strict=True)], place)


def fragment_of(layout: Layout, tile: Sequence[int]) -> Fragment:
    """The fragment of a thread-value layout: ``layout(thread, value)`` is a position in `tile`.

    Raises:
        LayoutError: not two indices, or they do not name each element of the tile once.
    """
    size = prod(tile)
    if layout.rank != 2:
        raise LayoutError(f"A thread-value layout has 2 indices, not {layout.rank}.")
    if not layout.is_bijective or layout.size != size:
        raise LayoutError(
            f"The layout's {layout.size} threads and values do not name each of the tile's {size} "
            "elements once."
        )
    held = coalesce(layout).inverse()

    def place(*x: Any) -> Any:
        position = held.evaluate(flatten(tuple(tile)[::-1], x[::-1]))[0]
        return first_fastest(layout.shape, position)

    return Fragment(tile, place)


def swizzle(layout: Layout, bits: int, base: int, shift: int) -> Layout:
    """``Swizzle<bits, base, shift>`` on the offsets of `layout`.

    The `bits` bits of the offset from ``base + shift`` on are XORed into those from `base` on; with
    a negative shift, those from `base` on into those from ``base - shift`` on.

    Raises:
        LayoutError: a negative number, overlapping bits, or more than 31 of them.
    """
    if bits < 0 or base < 0 or abs(shift) < bits:
        raise LayoutError(
            f"<{bits}, {base}, {shift}> is no swizzle: bits and base are 0 or more, and the shift "
            "is at least as far as there are bits."
        )
    if base + bits + abs(shift) > _SWIZZLE_BITS:
        raise LayoutError(
            f"<{bits}, {base}, {shift}> is too wide: a swizzle touches the lowest "
            f"{_SWIZZLE_BITS} bits."
        )
    source, target = (base + shift, base) if shift >= 0 else (base, base - shift)

    def place(*x: Any) -> Any:
        offset = offset_at(layout, x)
        return offset ^ (offset // 2**source % 2**bits * 2**target)

    return Layout(layout.shape, place)
