"""The operations on layouts and fragments by name, for who asks for them by name.

`OPERATIONS` says of each what it takes beside the layout and what it makes. `apply_operation` is
total on layouts and fragments: an operation that is not defined for them says why.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from . import algebra
from .fragment import Fragment
from .layout import Layout

Either = Layout | Fragment


class Takes(Enum):
    """What an operation takes beside the layout."""

    NOTHING = ""
    LAYOUT = "another layout"
    NUMBER = "a number"
    SIZE = "a number, or nothing"
    NUMBERS = "a number for each dimension"
    SWIZZLE = "<bits, base, shift>"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: what it takes beside ``A``, what it makes, and an input to begin with."""

    takes: Takes
    makes: str
    example: str
    apply: Callable[[Any, Any], Either]
    of_layouts: bool = True
    of_fragments: bool = False


def apply_operation(name: str, layout: Either, other: Any = None) -> Either:
    """The result of `OPERATIONS[name]` on `layout` and `other`, which is as `Takes` says.

    Raises:
        LayoutError: the operation is not defined for them.
    """
    operation = OPERATIONS[name]
    kind = "fragment" if isinstance(layout, Fragment) else "layout"
    if not (operation.of_fragments if isinstance(layout, Fragment) else operation.of_layouts):
        raise LayoutError(f"'{name}' is not defined for a {kind}.")
    if operation.takes is Takes.LAYOUT and not isinstance(other, Layout):
        raise LayoutError(f"'{name}' takes a layout as its second input, not a fragment.")
    return operation.apply(layout, other)


def _compose(outer: Either, inner: Layout) -> Either:
    """Index by index where the ranks say so, by position (as CuTe does) where they do not."""
    ranks = len(inner.output_shape), outer.rank
    if isinstance(outer, Fragment) or ranks[0] == ranks[1]:
        return outer @ inner
    if ranks[0] > 1:
        raise LayoutError(
            f"Cannot compose: the inner layout gives {ranks[0]} indices, and the outer one takes "
            f"{ranks[1]}."
        )
    return algebra.composition(outer, inner)


def _factors(layout: Either, factors: tuple[int, ...]) -> tuple[int, ...]:
    if len(factors) != layout.rank:
        raise LayoutError(f"{layout.rank} dimensions take {layout.rank} numbers.")
    return factors


def _repeat(layout: Either, factors: tuple[int, ...]) -> Either:
    if isinstance(layout, Fragment):
        return layout.repeat(_factors(layout, factors))
    for dim, factor in reversed(list(enumerate(_factors(layout, factors)))):
        layout = layout.repeat(dim, factor) if factor != 1 else layout
    return layout


_SECOND = "(2,2):(1,2)"

OPERATIONS: Mapping[str, Operation] = {
    "compose": Operation(
        Takes.LAYOUT, "A(B(x)): where A puts what B names", "8:1", _compose, of_fragments=True
    ),
    "inverse": Operation(
        Takes.NOTHING, "the index at each place", "", lambda a, _: a.inverse(), of_fragments=True
    ),
    "right_inverse": Operation(
        Takes.NOTHING,
        "the positions of the offsets 0, 1, 2, ...: A(R(i)) = i",
        "",
        lambda a, _: algebra.right_inverse(a),
    ),
    "left_inverse": Operation(
        Takes.NOTHING,
        "the position at each offset: L(A(i)) = i",
        "",
        lambda a, _: algebra.left_inverse(a),
    ),
    "complement": Operation(
        Takes.SIZE,
        "where copies of A must start to fill as many offsets",
        "64",
        lambda a, size: algebra.complement(a, size),
    ),
    "coalesce": Operation(
        Takes.NOTHING,
        "the same under one index, the first dimension fastest",
        "",
        lambda a, _: algebra.coalesce(a),
    ),
    "divide": Operation(
        Takes.LAYOUT, "A in tiles of B: within a tile, which tile", "4:1", algebra.logical_divide
    ),
    "product": Operation(
        Takes.LAYOUT, "copies of A at the places of B", _SECOND, algebra.logical_product
    ),
    "blocked_product": Operation(
        Takes.LAYOUT,
        "copies of A, dimension by dimension, each in one piece",
        _SECOND,
        algebra.blocked_product,
    ),
    "raked_product": Operation(
        Takes.LAYOUT,
        "copies of A, dimension by dimension, their elements in turns",
        _SECOND,
        algebra.raked_product,
    ),
    "fragment": Operation(
        Takes.NUMBERS,
        "A(thread, value) is a position in a tile of these extents: who holds each element",
        "16, 8",
        algebra.fragment_of,
    ),
    "swizzle": Operation(
        Takes.SWIZZLE,
        "bits of the offset XORed into lower ones",
        "<3,3,3>",
        lambda a, numbers: algebra.swizzle(a, *numbers),
    ),
    "repeat": Operation(
        Takes.NUMBERS,
        "A several times along each dimension: further slots, or a further output",
        "2, 1",
        _repeat,
        of_fragments=True,
    ),
    "repeat_on_thread": Operation(
        Takes.NUMBERS,
        "A several times along each dimension, on further threads",
        "2, 1",
        lambda a, factors: a.repeat_on_thread(_factors(a, factors)),
        of_layouts=False,
        of_fragments=True,
    ),
    "replicate": Operation(
        Takes.NUMBER,
        "copies of A on further threads",
        "2",
        lambda a, copies: a.replicated(copies),
        of_layouts=False,
        of_fragments=True,
    ),
}
"""The operations, in the order of a menu."""
