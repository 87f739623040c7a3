"""Operations on single elements whose operands lie in other orders, as one kernel: heads that are
turned by their positions, masked parts, copies into another order with what follows.

The kernel goes over its result as that lies in memory, and finds the elements that one follows from
by arithmetic: views, slices, repetitions and transpositions of tensors are never made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.elements import (
    Axis,
    Elements,
    Extended,
    Index,
    is_element,
    regrouped,
    text_of_axes,
    whole,
)
from tileworkbench.pytorch.members import Members
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    is_view,
    is_work,
    label_of,
    line_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.program import indented, shape_text
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.tiles import TILE
from tileworkbench.pytorch.written import Tensor, Written, base_name, finished, free_name

_NARROWEST = 16  # elements that lie together, in the result and in all that it is made of
_MOST = 24  # operations of a kernel: what is read at two places is computed twice


@dataclass(frozen=True, slots=True)
class Mapped(Members):
    """Operations on elements; the last one is the result, and only that is read by others."""

    @property
    def domain(self) -> Extents:
        """The extents that it is computed over."""
        return shape_of(self.members[-1])

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for."""
        return sum(map(is_work, self.members))

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return [self.members[-1]]


def mapped_groups(nodes: Sequence[Node], taken: Collection[Node]) -> Iterator[Mapped]:
    """The groups of what is not `taken` by others."""
    done: set[Node] = set()
    for node in reversed(nodes):
        if node in done or node in taken or not _may_end(node):
            continue
        group = _group_of(node, taken)
        if group is not None:
            done.update(group.members)
            yield group


def _may_end(node: Node) -> bool:
    return bool(node.users) and is_work(node) and is_element(node)


def _group_of(root: Node, taken: Collection[Node]) -> Mapped | None:
    """The group that ends with an operation; None where there is none."""
    inside, read, node = {root}, set(operands(root)), root
    while read and len(inside) < _MOST:
        node = node.prev  # users come first
        if node not in read:
            continue
        read.remove(node)
        own = all(user in inside for user in node.users)
        if own and node not in taken and is_element(node) and not _is_leaf(node):
            inside.add(node)
            read.update(operands(node))
    group = Mapped(tuple(each for each in root.graph.nodes if each in inside))
    try:
        for each in group.members:
            _check(each)
        written(group, {})
    except NoRuleError:
        return None
    return group


def _is_leaf(node: Node) -> bool:
    """Whether a node is a view of what no kernel of elements makes: it is read through strides."""
    return is_view(node) and not is_element(base_of(node))


def _check(node: Node) -> None:
    import torch

    for each in (node, *operands(node)):
        value = value_of(each)
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            raise NoRuleError("what is no dense tensor")
        if not is_known(value.dtype) or value.device.type != "cpu":
            raise NoRuleError(f"{value.dtype} on {value.device} is not computed here")
        if any(map(is_open, shape_of(each))) or not value.numel():
            raise NoRuleError("a tensor of open size, or without elements")


def written(group: Mapped, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel; `names` are those that the user's code has for tensors, `taken` are the names of
    other kernels. Raises `NoRuleError` where an element is not found by arithmetic.
    """
    return _Writer(group, names).written(taken)


def dense_order(shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """The order of dimensions in which a tensor is dense, outer first. Raises `NoRuleError`."""
    order = sorted(range(len(shape)), key=lambda at: (-strides[at], shape[at] == 1, at))
    expected = 1
    for at in reversed(order):
        if shape[at] != 1 and strides[at] != expected:
            raise NoRuleError("a tensor that is not dense")
        expected *= shape[at]
    return tuple(order)


class _Writer:
    def __init__(self, group: Mapped, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        value = value_of(self.root)
        self.order = dense_order(value.shape, value.stride())
        self.ordered = tuple(value.shape[at] for at in self.order)

    def written(self, taken: Collection[str]) -> Written:
        columns = next((n for n in reversed(self.ordered) if n != 1), 1)
        while True:
            cuts = Extended({"row": [prod(self.ordered) // columns], "column": [columns]})
            element: tuple[list[str], str] = cuts.until_fine(self._element)
            inner = cuts.extents["column"][-1]
            if inner == columns:
                break
            columns = inner  # what is cut lies together in parts only
        if columns < _NARROWEST:
            raise NoRuleError("few elements that lie together")
        labels = [label_of(each) for each in self.group.members if is_work(each)]
        name = free_name("_".join(dict.fromkeys((*labels[:2], labels[-1]))), taken)
        text = "\n".join(self._text(name, labels, columns, *element)) + "\n"
        arguments = [self._argument(node) for node in self.leaves]
        result = Tensor(self.root, (prod(self.ordered) // columns, columns), self.order)
        return finished(name, text, arguments, [result], {}, self.names)

    def _element(self, extents: Mapping[str, Sequence[int]]) -> tuple[list[str], str]:
        """(lines, text) of an element of the result."""
        self.names = Names("out")
        self.leaves: dict[Node, str] = {}
        self.is_fine = len(extents["column"]) == 1
        flat = tuple(axis for each in ("row", "column") for axis in whole(each, extents[each]))
        ordered = regrouped((flat,), self.ordered)
        index: list[tuple[Axis, ...]] = [()] * len(ordered)
        for at, axes in zip(self.order, ordered, strict=True):
            index[at] = axes
        elements = Elements(self.group.members, self.names, self._name, read=self._read)
        term = elements.at(self.root, tuple(index))
        lines, (text,) = elements.lines([term])
        return lines, text

    # What is read

    def _name(self, base: Node) -> str:
        if base not in self.leaves:
            self.leaves[base] = self.names.name(base_name(base, self.called))
        return self.leaves[base]

    def _argument(self, base: Node) -> Tensor:
        value = value_of(base)
        order = dense_order(value.shape, value.stride())
        return Tensor(base, tuple(value.shape[at] for at in order) or (1,), order)

    def _read(self, node: Node, index: Index) -> str:
        """The element of a tensor that is no member, through the views that it is of its base."""
        base = base_of(node)
        value, held = value_of(node), value_of(base)
        if value.untyped_storage()._cdata != held.untyped_storage()._cdata:
            raise NoRuleError("a view that torch copies")
        own = self._argument(base)
        strides = [held.stride(at) for at in own.order] or [1]
        places: list[list[str]] = [[] for _ in strides]
        reach = [0] * len(strides)
        for axes, extent, stride in zip(index, value.shape, value.stride(), strict=True):
            if not axes or not stride or extent == 1:
                continue
            along = self.is_fine and "column" in {axis.coordinate for axis in axes}
            if along and (stride != 1 or axes[-1].coordinate != "column"):
                raise NoRuleError("a copy into another order is torch's own")
            at = _outermost(strides, own.shape, stride)
            times = stride // strides[at]
            text = text_of_axes(axes)
            if times > 1:
                text = f"({text}) * {times}" if " " in text else f"{text} * {times}"
            places[at].append(text)
            reach[at] += (extent - 1) * times
        offset = value.storage_offset() - held.storage_offset()
        for at, stride in enumerate(strides):
            start, offset = divmod(offset, stride)
            reach[at] += start
            if start:
                places[at].append(str(start))
            if reach[at] >= own.shape[at]:
                raise NoRuleError("a view that joins dimensions")
        return f"{self._name(base)}[{', '.join(' + '.join(each) or '0' for each in places)}]"

    # Text

    def _text(
        self, name: str, labels: Sequence[str], columns: int, lines: Sequence[str], element: str
    ) -> Iterator[str]:
        rows = prod(self.ordered) // columns
        block = max(1, min(TILE // columns, rows))
        yield f"# {', '.join(labels)}"
        code = dict.fromkeys(filter(None, map(line_of, self.group.members)))
        for _, line, text in list(code)[:4]:
            if text:
                yield f"# line {line}: {text}"
        yield f"# A block has {block} x {columns} elements of the result, in the order of memory."
        yield "@T.prim_func"
        yield f"def {name}("
        for node, leaf in self.leaves.items():
            shape = shape_text(self._argument(node).shape)
            yield f"    {leaf}: T.Tensor({shape}, T.{dtype_name(value_of(node).dtype)}),"
        yield "):"
        dtype = dtype_name(value_of(self.root).dtype)
        yield f"    out = T.empty(({rows}, {columns}), T.{dtype})"
        yield f"    with T.Kernel(T.ceildiv({rows}, {block}), threads=128) as by:"
        yield f"        for i, column in T.Parallel({block}, {columns}):"
        yield f"            row = by * {block} + i"
        yield from indented(iter(lines), 3)
        yield f"            out[row, column] = {element}"
        yield "    return out"


def _outermost(strides: Sequence[int], shape: Sequence[int], stride: int) -> int:
    """The dimension of a dense tensor along which a step of `stride` elements goes."""
    for at, each in enumerate(strides):
        if shape[at] != 1 and each <= stride and not stride % each:
            return at
    raise NoRuleError("a view that joins dimensions")
