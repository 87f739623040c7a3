"""The tensors that a kernel of elements reads, each as it lies in memory: views of it become
arithmetic on its indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tileworkbench.pytorch.axes import Axis, Index, text_of_axes
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.in_torch import OTHER_ORDER
from tileworkbench.pytorch.nodes import Node, base_of, offset_of, shape_of, strides_of, value_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.written import Tensor, base_name


class Leaves:
    """The parameters of a kernel; `called` are the user's names for tensors.

    Along the coordinate `together`, if there is one, elements have to lie one behind the other.
    """

    def __init__(self, names: Names, called: Mapping[Node, str], together: str = "") -> None:
        self._names, self._called, self._together = names, called, together
        self._named: dict[Node, str] = {}
        self._steps: dict[str, list[tuple[int, int]]] = {}

    def name(self, base: Node) -> str:
        """The parameter of a tensor that is no view."""
        if base not in self._named:
            self._named[base] = self._names.name(base_name(base, self._called))
        return self._named[base]

    def arguments(self) -> list[Tensor]:
        """What was read so far."""
        return list(map(argument_of, self._named))

    def labels(self) -> list[str]:
        """What it is called in the text of the kernel."""
        return list(self._named.values())

    def jumps(self, coordinate: str) -> int:
        """How many elements are in tensors of which two neighbours along a coordinate do not lie
        together."""
        return sum(count for count, step in self._steps.get(coordinate, ()) if step > 1)

    def read(self, node: Node, index: Index) -> str:
        """The element of a tensor that is no member, through the views that it is of its base."""
        base, own = memory_of(node)
        shape, begin = shape_of(node), offset_of(node)
        strides = [strides_of(base)[at] for at in own.order] or [1]
        places: list[list[str]] = [[] for _ in strides]
        reach = [0] * len(strides)
        for axes, extent, stride in zip(index, shape, strides_of(node), strict=True):
            if not axes or not stride or extent == 1:
                continue
            along = self._together in {axis.coordinate for axis in axes}
            if along and (stride != 1 or axes[-1].coordinate != self._together):
                raise NoRuleError(OTHER_ORDER)
            behind = stride
            for axis in reversed(axes):
                if axis.inner == 1:
                    step = (prod(own.shape), behind)
                    self._steps.setdefault(axis.coordinate, []).append(step)
                behind *= axis.extent
            at = _outermost(strides, own.shape, stride)
            times = stride // strides[at]
            text = text_of_axes(axes)
            if times > 1:
                text = f"({text}) * {times}" if " " in text else f"{text} * {times}"
            places[at].append(text)
            reach[at] += (extent - 1) * times
        offset = begin - offset_of(base)
        for at, stride in enumerate(strides):
            start, offset = divmod(offset, stride)
            reach[at] += start
            if start:
                places[at].append(str(start))
            if reach[at] >= own.shape[at]:
                raise NoRuleError("a view that joins dimensions")
        return f"{self.name(base)}[{', '.join(' + '.join(each) or '0' for each in places)}]"


class United:
    """The parameters of a kernel that each have their elements one behind the other: dimensions
    that one coordinate goes through are one. `of` has the name and extents of each.
    """

    def __init__(self, names: Names, called: Mapping[Node, str]) -> None:
        self._names, self._called = names, called
        self.of: dict[Node, tuple[str, Extents]] = {}

    def read(self, node: Node, index: Index) -> str:
        """The element of a tensor that is no member."""
        places, shape = _united(index)
        if node not in self.of:
            self.of[node] = self._names.name(base_name(node, self._called)), shape
        name, known = self.of[node]
        if shape != known:
            raise NoRuleError("a tensor that is read in two shapes")
        return f"{name}[{', '.join(places)}]"


def _united(index: Index) -> tuple[list[str], Extents]:
    """(where an element is, the extents of the tensor) with dimensions as one that one coordinate
    goes through.
    """
    runs: list[list[Axis]] = []
    for axes in index:
        own = [axis for axis in axes if axis.extent != 1]
        before = runs[-1][-1:] if runs else []
        steps = [(each.coordinate, each.inner) for each in before]
        if own and steps == [(own[0].coordinate, own[0].inner * own[0].extent)]:
            runs[-1] += own
        elif own:
            runs.append(own)
    shape = tuple(prod([axis.extent for axis in run]) for run in runs)
    for run, size in zip(runs, shape, strict=True):
        if size != run[0].whole and (is_open(size) or is_open(run[-1].inner)):
            raise NoRuleError("an index that divides by an open size")
    return [text_of_axes(tuple(run)) for run in runs] or ["0"], shape or (1,)


def memory_of(node: Node) -> tuple[Node, Tensor]:
    """(what a node is a view of, that as a kernel takes it). Raises `NoRuleError`."""
    base = base_of(node)
    value, held = value_of(node), value_of(base)
    if value.untyped_storage()._cdata != held.untyped_storage()._cdata:
        raise NoRuleError("a view that torch copies")
    own = argument_of(base)
    places = (*shape_of(node), *strides_of(node), offset_of(node), *own.shape, offset_of(base))
    if any(map(is_open, places)):
        raise NoRuleError("a view whose place torch keeps open")
    return base, own


def argument_of(base: Node) -> Tensor:
    """A tensor as a kernel of elements takes it: its dimensions as they lie in memory."""
    shape = shape_of(base)
    order = dense_order(shape, strides_of(base))
    return Tensor(base, tuple(shape[at] for at in order) or (1,), order)


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions in which a tensor is dense, outer first. Raises `NoRuleError`."""
    order = sorted(range(len(shape)), key=lambda at: (-strides[at], shape[at] == 1, at))
    expected = 1
    for at in reversed(order):
        if shape[at] != 1 and strides[at] != expected:
            raise NoRuleError("a tensor that is not dense")
        expected *= shape[at]
    return tuple(order)


def _outermost(strides: Sequence[int], shape: Sequence[int], stride: int) -> int:
    """The dimension of a dense tensor along which a step of `stride` elements goes."""
    for at, each in enumerate(strides):
        if shape[at] != 1 and each <= stride and not stride % each:
            return at
    raise NoRuleError("a view that joins dimensions")
