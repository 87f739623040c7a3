"""Indices of elements as axes: parts of the coordinates of a loop, as fine as shapes need them.

An index is a list of axes for each dimension: (rows, columns) seen as (rows, groups, 32) cuts the
columns in two axes. See `elements`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.nodes import Node, name_of, shape_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError


@dataclass(frozen=True, slots=True)
class Axis:
    """A part of a coordinate: `coordinate // inner % extent`."""

    coordinate: str
    extent: int
    inner: int
    whole: int  # the extent of the coordinate


Index = tuple[tuple[Axis, ...], ...]


class CutError(Exception):
    """An axis has to be cut, so that its outer part has `outer` elements."""

    def __init__(self, axis: Axis, outer: int) -> None:
        super().__init__(axis, outer)
        self.axis, self.outer = axis, outer


def as_it_is(leaf: Callable[[Node], str]) -> Callable[[Node, Index], str]:
    """How an element of a tensor is written whose parameter, which `leaf` makes, has its shape."""
    return lambda node, index: f"{leaf(node)}[{', '.join(map(text_of_axes, index)) or '0'}]"


def whole(coordinate: str, extents: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of a coordinate, outer first."""
    made, inner, count = [], 1, prod(extents)
    for extent in reversed(extents):
        made.append(Axis(coordinate, extent, inner, count))
        inner *= extent
    return tuple(reversed(made))


def broadcast(index: Index, shape: Extents) -> Index:
    """The index of an operand of `shape` that is broadcast to that of `index`."""
    last = index[len(index) - len(shape) :]
    return tuple(() if extent == 1 else axes for axes, extent in zip(last, shape, strict=True))


def flat_axes(index: Index) -> list[Axis]:
    return [axis for axes in index for axis in axes if axis.extent != 1]


def viewed_at(node: Node, index: Index, through: Sequence[str]) -> tuple[Node, Index]:
    """What a value is a view of, and the index of an element in that; `through` are the operations
    that only say where elements are.
    """
    while name_of(node) in through:
        operand = node.args[0]
        if name_of(node) in aten.TRANSPOSITIONS:
            index = turned(node, index)
        elif name_of(node) == aten.EXPANSION:
            index = broadcast(index, shape_of(operand))
        else:
            index = regrouped(index, shape_of(operand))
        node = operand
    return node, index


class Extended:
    """The extents of coordinates, which are cut as finely as shapes need it."""

    def __init__(self, extents: Mapping[str, Sequence[int]]) -> None:
        self.extents = {name: list(own) for name, own in extents.items()}

    def until_fine(self, make: Callable[[Mapping[str, Sequence[int]]], Any]) -> Any:
        """What `make` returns for extents that need no more cuts."""
        while True:
            try:
                return make(self.extents)
            except CutError as error:
                self._cut(error)

    def _cut(self, error: CutError) -> None:
        own, inner = self.extents[error.axis.coordinate], 1
        for at in reversed(range(len(own))):
            if inner == error.axis.inner and own[at] == error.axis.extent:
                own[at : at + 1] = [error.outer, own[at] // error.outer]
                return
            inner *= own[at]
        raise NoRuleError("shapes that cut across each other")


def regrouped(index: Index, shape: Extents) -> Index:
    """The index of the same element in another shape. Raises `CutError` for a finer one."""
    flat = flat_axes(index)
    made = []
    for extent in shape:
        axes: list[Axis] = []
        while (size := prod([each.extent for each in axes])) != extent:
            if not flat:
                raise NoRuleError("a view of what is broadcast")
            left = extent // size
            if flat[0].extent > left:
                _cut(flat[0], left)
            axes.append(flat.pop(0))
            if extent % prod([each.extent for each in axes]):
                raise NoRuleError("shapes that cut across each other")
        made.append(tuple(axes))
    return tuple(made)


def split(axes: tuple[Axis, ...], outer: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """(axes of so many elements, the others). Raises `CutError` for a finer index."""
    count = 0
    while prod([each.extent for each in axes[:count]]) < outer:
        count += 1
    size = prod([each.extent for each in axes[:count]])
    if size != outer:
        last = axes[count - 1]
        _cut(last, outer // (size // last.extent))
    return axes[:count], axes[count:]


def _cut(axis: Axis, outer: int) -> None:
    if outer < 1 or axis.extent % outer or is_open(axis.extent // outer):
        raise NoRuleError("shapes that cut across each other")
    raise CutError(axis, outer)


def turned(node: Node, index: Index) -> Index:
    """The index of the operand of a transposition."""
    made: list[tuple[Axis, ...]] = [()] * len(index)
    for place, dim in enumerate(turns(node, len(index))):
        made[dim] = index[place]
    return tuple(made)


def turns(node: Node, rank: int) -> list[int]:
    """The dimensions of a transposition's operand in the order that it gives them."""
    order = list(range(rank))
    if name_of(node) == "aten.permute.default":
        order = [dim % rank for dim in node.args[1]]
    elif name_of(node) == "aten.t.default":
        order = order[::-1]
    else:
        a, b = (dim % rank for dim in node.args[1:3])
        order[a], order[b] = order[b], order[a]
    return order


def text_of_axes(axes: tuple[Axis, ...]) -> str:
    """The index along one dimension."""
    runs: list[list[Axis]] = []
    for axis in axes:
        before = runs[-1][-1] if runs else None
        if (
            before is not None
            and before.coordinate == axis.coordinate
            and before.inner == axis.inner * axis.extent
        ):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    text, behind = [], 1
    for run in reversed(runs):
        extent, inner = prod([each.extent for each in run]), run[-1].inner
        part = run[0].coordinate
        if inner > 1:
            part = f"{part} // {inner}"
        if inner * extent < run[0].whole:
            part = f"{part} % {extent}"
        if behind > 1:
            part = f"({part}) * {behind}" if " " in part else f"{part} * {behind}"
        elif len(runs) > 1 and " " in part:
            part = f"({part})"
        text.append(part)
        behind *= extent
    return " + ".join(reversed(text)) or "0"
