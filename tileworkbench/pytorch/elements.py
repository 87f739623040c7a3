"""One element of a value, as a term of the elements of the tensors that it follows from.

Where a value is needed inside of a tile, and not as a tensor of its own, its element at some index
is computed there: views, transpositions and broadcasts become index arithmetic. An index is a list
of axes for each dimension. Axes are parts of the coordinates of the loop, as fine as the shapes on
the way need them: (rows, columns) seen as (rows, groups, 32) cuts the columns in two axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Definition, Names
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    constant_of,
    name_of,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError, Term, bitwise, number, select, text_of

_SHORT = 40  # characters of a value that needs no name
_NUMBERS = (int, float, bool)
_JOINED = ("aten.stack.default", "aten.cat.default")
_COUNT = "aten.arange.start_step"
_PAD = "aten.constant_pad_nd.default"
_AS_IT_IS = ("aten.clone.default", "aten.contiguous.default", _PAD, *aten.VIEWS)


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


def is_element(node: Node) -> bool:
    """Whether an element of a value follows from elements of its operands."""
    name = name_of(node)
    if name == _COUNT:
        return all(isinstance(each, int) for each in node.args) and node.args[1] < 1 << 31
    if name == _PAD:
        return not any(node.args[1])  # a copy
    ways = (*_AS_IT_IS, *aten.TRANSPOSITIONS, *_JOINED, aten.EXPANSION, aten.CONVERSION)
    return name in aten.MAPS or name in ways


class Elements:
    """The elements of the values of `members` at indices of coordinates.

    `leaf` makes the parameter of a tensor that they are loaded from; `given` are values that the
    loop has already, each with the index that they are at; `read` writes an element of a tensor,
    which is a parameter as it is unless that says more.
    """

    def __init__(
        self,
        members: Sequence[Node],
        names: Names,
        leaf: Callable[[Node], str],
        given: Mapping[Node, tuple[Term, Index]] | None = None,
        read: Callable[[Node, Index], str] | None = None,
    ) -> None:
        self.members, self.names, self.leaf = set(members), names, leaf
        self.read = read or self._read
        self.given = dict(given or {})
        self.called = assigned_names(members)
        self.definitions: list[Definition] = []
        self._of: dict[tuple[Node, Index], Term] = {}

    def at(self, node: Any, index: Index) -> Any:
        """The element of a value. Raises `NoRuleError`, and `CutError` for a finer index."""
        if isinstance(node, _NUMBERS) or node is None or isinstance(node, str):
            return node
        if node in self.given:
            term, place = self.given[node]
            if _flat(index) != _flat(place):
                raise NoRuleError("a value that is read at another place than its own")
            return term
        key = (node, index)
        if key not in self._of:
            self._of[key] = self._made(node, index)
        return self._of[key]

    def _made(self, node: Node, index: Index) -> Term:
        name = name_of(node)
        filled = constant_of(node)
        if filled is not None:
            return number(filled, value_of(node).dtype)
        if node not in self.members:
            term = Term("element", (self.read(node, index),), value_of(node).dtype, "full")
            return term.to(value_of(node).dtype)
        if name in _JOINED:
            return self._joined(node, index)
        made: Term
        if name == _COUNT:
            return self._counted(node, index)
        operand = node.args[0]
        if name in _AS_IT_IS:
            made = self.at(operand, regrouped(index, shape_of(operand)))
        elif name in aten.TRANSPOSITIONS:
            made = self.at(operand, _turned(node, index))
        elif name == aten.EXPANSION:
            made = self.at(operand, broadcast(index, shape_of(operand)))
        elif name == aten.CONVERSION:
            made = self._kept(node, self.at(operand, index).rounded(value_of(node).dtype))
        else:
            args = [
                self.at(each, broadcast(index, shape_of(each))) if hasattr(each, "op") else each
                for each in node.args
            ]
            made = aten.MAPS[name](*args, **node.kwargs).wrapped(value_of(node).dtype)
            made = self._kept(node, made)
        return made

    def _read(self, node: Node, index: Index) -> str:
        return f"{self.leaf(node)}[{', '.join(map(text_of_axes, index)) or '0'}]"

    def _counted(self, node: Node, index: Index) -> Term:
        """An element of a range of integers."""
        start, _, step = (*node.args, 1)[:3]
        text = text_of_axes(index[0])
        if step != 1:
            text = f"({text}) * {step}" if "+" in text else f"{text} * {step}"
        text = f"({text})" if start == 0 else f"({text} + {start})"
        bounds = sorted((start, start + (shape_of(node)[0] - 1) * step))
        return Term("element", (text, *bounds), _int32(), "full").to(value_of(node).dtype)

    def _kept(self, node: Node, term: Term) -> Term:
        if term.op in ("value", "element", "number"):
            return term
        called = self.called.get(node, "return")
        name = str(node.name) if called == "return" else called
        made = Definition(name, term, "full", 0)
        self.definitions.append(made)
        return Term("value", (made,), term.dtype, "full")

    def _joined(self, node: Node, index: Index) -> Term:
        """An element of tensors beside each other: which of them, by the index."""
        parts, dim = node.args[0], node.args[1] if len(node.args) > 1 else 0
        dim %= len(index)
        if name_of(node) == "aten.stack.default":
            (which, inner) = index[dim], (*index[:dim], *index[dim + 1 :])
        else:
            if len({shape_of(each) for each in parts}) > 1:
                raise NoRuleError("parts of several sizes")
            which, rest = split(index[dim], len(parts))
            inner = (*index[:dim], rest, *index[dim + 1 :])
        place = text_of_axes(which)
        codes = packed_codes(parts)
        if codes is not None:
            packed, bits = codes
            by = f"(({place}) * {bits})" if "+" in place else f"({place} * {bits})"
            shift = Term("element", (by, 0, (len(parts) - 1) * bits), _int32(), "full")
            base = self.at(packed, broadcast(inner, shape_of(packed)))
            code = bitwise("&", bitwise(">>", base, shift), (1 << bits) - 1)
            return self._kept(node, code.to(value_of(node).dtype))
        at = Term("element", (f"({place})", 0, len(parts) - 1), _int32(), "full")
        made = self.at(parts[-1], inner)
        for count, each in reversed(list(enumerate(parts[:-1]))):
            made = select(at.equals(count), self.at(each, inner), made)
        return self._kept(node, made)

    def lines(self, results: Sequence[Term]) -> tuple[list[str], list[str]]:
        """(definitions as lines, the texts of `results`), in which what is used once is inside."""
        for term in results:
            _count(term)
        for each in self.definitions:
            each.is_inline = each.uses == 1 and len(text_of(each.term, _leaf)) <= _SHORT
        made = []
        for each in self.definitions:
            if each.uses and not each.is_inline:
                each.name = self.names.name(each.name)
                made.append(f"{each.name} = {text_of(each.term, _leaf)}")
        return made, [text_of(term, _leaf) for term in results]


def _count(term: Term) -> None:
    """Count how often definitions are used, each one's own operands once."""
    if term.op == "value":
        (made,) = term.args
        made.uses += 1
        if made.uses > 1:
            return
        term = made.term
    for each in term.args:
        if isinstance(each, Term):
            _count(each)


def _leaf(term: Term) -> str:
    return str(term.args[0].name)


def _int32() -> Any:
    import torch

    return torch.int32


def packed_codes(parts: Sequence[Node]) -> tuple[Node, int] | None:
    """(the packed tensor, bits of a code) where parts are its codes, the lowest bits first: for
    example `w & 15` and `w >> 4`. None for other parts.
    """
    codes = [_code(each) for each in parts]
    base, bits = codes[0][0], codes[0][2].bit_length()
    width = value_of(base).dtype.itemsize * 8
    if not bits or value_of(base).dtype.is_floating_point:
        return None
    for count, (tensor, shift, mask) in enumerate(codes):
        is_last = shift + bits == width and not value_of(base).dtype.is_signed
        fits = mask == (1 << bits) - 1 or (mask == 0 and is_last)
        if tensor is not base or shift != count * bits or not fits:
            return None
    return base, bits


def _code(node: Node) -> tuple[Node, int, int]:
    """(tensor, shift, mask) of ``tensor >> shift & mask``, a mask of 0 for none."""
    shift = mask = 0
    if name_of(node) == "aten.bitwise_and.Scalar":
        node, mask = node.args
    if name_of(node) in aten.RIGHT_SHIFTS and isinstance(node.args[1], int):
        node, shift = node.args
    return node, shift, mask


# Indices


def whole(coordinate: str, extents: Sequence[int]) -> tuple[Axis, ...]:
    """The axes of a coordinate, outer first."""
    made, inner, count = [], 1, size_of(extents)
    for extent in reversed(extents):
        made.append(Axis(coordinate, extent, inner, count))
        inner *= extent
    return tuple(reversed(made))


def size_of(extents: Sequence[int]) -> int:
    count = 1
    for extent in extents:
        count *= extent
    return count


def broadcast(index: Index, shape: Extents) -> Index:
    """The index of an operand of `shape` that is broadcast to that of `index`."""
    last = index[len(index) - len(shape) :]
    return tuple(() if extent == 1 else axes for axes, extent in zip(last, shape, strict=True))


def _flat(index: Index) -> list[Axis]:
    return [axis for axes in index for axis in axes if axis.extent != 1]


def viewed_at(node: Node, index: Index, through: Sequence[str]) -> tuple[Node, Index]:
    """What a value is a view of, and the index of an element in that; `through` are the operations
    that only say where elements are.
    """
    while name_of(node) in through:
        operand = node.args[0]
        if name_of(node) in aten.TRANSPOSITIONS:
            index = _turned(node, index)
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
    flat = _flat(index)
    made = []
    for extent in shape:
        axes: list[Axis] = []
        while (size := size_of([each.extent for each in axes])) != extent:
            if not flat:
                raise NoRuleError("a view of what is broadcast")
            left = extent // size
            if flat[0].extent > left:
                _cut(flat[0], left)
            axes.append(flat.pop(0))
            if extent % size_of([each.extent for each in axes]):
                raise NoRuleError("shapes that cut across each other")
        made.append(tuple(axes))
    return tuple(made)


def split(axes: tuple[Axis, ...], outer: int) -> tuple[tuple[Axis, ...], tuple[Axis, ...]]:
    """(axes of so many elements, the others). Raises `CutError` for a finer index."""
    count = 0
    while size_of([each.extent for each in axes[:count]]) < outer:
        count += 1
    size = size_of([each.extent for each in axes[:count]])
    if size != outer:
        last = axes[count - 1]
        _cut(last, outer // (size // last.extent))
    return axes[:count], axes[count:]


def _cut(axis: Axis, outer: int) -> None:
    if outer < 1 or axis.extent % outer or is_open(axis.extent // outer):
        raise NoRuleError("shapes that cut across each other")
    raise CutError(axis, outer)


def _turned(node: Node, index: Index) -> Index:
    """The index of the operand of a transposition."""
    rank = len(index)
    order = list(range(rank))
    if name_of(node) == "aten.permute.default":
        order = [dim % rank for dim in node.args[1]]
    elif name_of(node) == "aten.t.default":
        order = order[::-1]
    else:
        a, b = (dim % rank for dim in node.args[1:3])
        order[a], order[b] = order[b], order[a]
    made: list[tuple[Axis, ...]] = [()] * rank
    for place, dim in enumerate(order):
        made[dim] = index[place]
    return tuple(made)


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
        extent, inner = size_of([each.extent for each in run]), run[-1].inner
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
