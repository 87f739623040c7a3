"""Operations on single elements whose operands lie in other orders, as one kernel: heads that are
turned by their positions, masked parts, copies into another order with what follows.

The kernel goes over its result as that lies in memory, and finds the elements that one follows from
by arithmetic: views, slices, repetitions and transpositions of tensors are never made.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.axes import Axis, Extended, regrouped, whole
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.elements import Elements, is_element
from tileworkbench.pytorch.groups import weight_of
from tileworkbench.pytorch.leaves import Leaves, dense_order
from tileworkbench.pytorch.lines import indented, index_check
from tileworkbench.pytorch.members import Members
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    cited,
    is_view,
    is_work,
    label_of,
    operands,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.tiles import TILE
from tileworkbench.pytorch.written import Tensor, Written, finished, free_name, text_of_kernel

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
        return work_of(self.members)

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return [self.members[-1]]


def work_of(members: Iterable[Node]) -> int:
    """How many element-wise operations such members stand for."""
    return sum(max(1, weight_of(node)) for node in members if is_work(node))


def mapped_groups(nodes: Sequence[Node], taken: Collection[Node]) -> Iterator[Mapped]:
    """The groups of what is not `taken` by others."""
    done: set[Node] = set()
    for node in reversed(nodes):
        if node in done or node in taken or not ends(node):
            continue
        group = _group_of(node, taken)
        if group is not None:
            done.update(group.members)
            yield group


def ends(node: Node) -> bool:
    """Whether a group may have an operation as its result."""
    return bool(node.users) and is_work(node) and is_element(node, with_rows=True)


def _group_of(root: Node, taken: Collection[Node]) -> Mapped | None:
    """The group that ends with an operation; None where there is none."""
    group = Mapped(members_of(root, taken))
    try:
        for each in group.members:
            check_tensors(each)
        written(group, {})
    except NoRuleError:
        return None
    return group


def members_of(root: Node, taken: Collection[Node]) -> tuple[Node, ...]:
    """An operation with those that it follows from, element by element, and that nothing else
    reads.
    """
    inside, read, node = {root}, set(operands(root)), root
    while read and len(inside) < _MOST:
        node = node.prev  # users come first
        if node not in read:
            continue
        read.remove(node)
        own = all(user in inside for user in node.users)
        if own and node not in taken and is_element(node, with_rows=True) and not is_leaf(node):
            inside.add(node)
            read.update(operands(node))
    return tuple(each for each in root.graph.nodes if each in inside)


def is_leaf(node: Node) -> bool:
    """Whether a node is a view of what no kernel of elements makes: it is read through strides."""
    return is_view(node) and not is_element(base_of(node), with_rows=True)


def check_tensors(node: Node) -> None:
    """Raise `NoRuleError` where an operation has tensors that no kernel of elements has."""
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


class _Writer:
    def __init__(self, group: Mapped, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, names
        (self.root,) = group.outputs()
        shape = shape_of(self.root)
        self.order = dense_order(shape, strides_of(self.root))
        self.ordered = tuple(shape[at] for at in self.order)

    def written(self, taken: Collection[str]) -> Written:
        columns = next((n for n in reversed(self.ordered) if n != 1), 1)
        while True:
            cuts = Extended({"row": [prod(self.ordered) // columns], "column": [columns]})
            element: tuple[list[str], list[str], str] = cuts.until_fine(self._element)
            inner = cuts.extents["column"][-1]
            if inner == columns:
                break
            columns = inner  # what is cut lies together in parts only
        if columns < _NARROWEST:
            raise NoRuleError("few elements that lie together")
        labels = [label_of(each) for each in self.group.members if is_work(each)]
        name = free_name("_".join(dict.fromkeys((*labels[:2], labels[-1]))), taken)
        rows = prod(self.ordered) // columns
        block = max(1, min(TILE // columns, rows))
        about = f"A block has {block} x {columns} elements of the result, in the order of memory."
        comments = [", ".join(labels), *cited(self.group.members), about]
        arguments, result = self.leaves.arguments(), Tensor(self.root, (rows, columns), self.order)
        body = self._block(rows, block, columns, *element)
        text = text_of_kernel(name, comments, self.leaves.labels(), arguments, result, body)
        return finished(name, text, arguments, [result], {}, self.names)

    def _element(self, extents: Mapping[str, Sequence[int]]) -> tuple[list[str], list[str], str]:
        """(lines that find rows, lines, text) of an element of the result."""
        self.names = Names("out")
        is_whole = len(extents["column"]) == 1
        self.leaves = Leaves(self.names, self.called, "column" if is_whole else "")
        flat = tuple(axis for each in ("row", "column") for axis in whole(each, extents[each]))
        ordered = regrouped((flat,), self.ordered)
        index: list[tuple[Axis, ...]] = [()] * len(ordered)
        for at, axes in zip(self.order, ordered, strict=True):
            index[at] = axes
        members = self.group.members
        elements = Elements(members, self.names, self.leaves.read, keeps_columns="column")
        term = elements.at(self.root, tuple(index))
        lines, (text,) = elements.lines([term])
        self.kept = elements.lines_of_columns()
        return _places(elements), lines, text

    # Text

    def _block(
        self,
        rows: int,
        block: int,
        columns: int,
        places: Sequence[str],
        lines: Sequence[str],
        element: str,
    ) -> Iterator[str]:
        yield f"with T.Kernel(T.ceildiv({rows}, {block}), threads=128) as by:"
        yield from indented(kept(self.kept, "column", columns), 1)
        yield f"    for i, column in T.Parallel({block}, {columns}):"
        yield f"        row = by * {block} + i"
        yield from indented(iter(places), 2)
        yield from indented(iter(lines), 2)
        yield f"        out[row, column] = {element}"


def kept(lines: Sequence[str], column: str, columns: int) -> Iterator[str]:
    """What a block computes once for each column."""
    for line in lines:
        yield f"{line.partition('[')[0]} = T.alloc_fragment(({columns},), T.float32)"
    if lines:
        yield f"for {column} in T.Parallel({columns}):"
        yield from indented(iter(lines), 1)


def _places(elements: Elements) -> list[str]:
    """The lines that find rows, which have to be there."""
    made = []
    for place, (name, rows) in elements.places.items():
        if re.search(r"\bcolumn\b", place):
            raise NoRuleError("a row for each element")
        made.append(f"{name} = {place}")
        made.append(index_check(name, rows))
    return made
