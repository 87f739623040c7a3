"""Products of groups of rows, each with a matrix of its own, as one kernel: experts of a model.

Rows are in order of their experts, and an expert's rows end where `offsets` say: that is known when
the kernel runs. A block has some columns of one expert. It lays the expert's part of the matrix out
once, and goes over the rows a few at a time, as many as there are. The rows may be picked from a
table, and what follows element by element from the product, or from two halves of it, is computed
before anything is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.gathers import Gather, gather_of
from tileworkbench.pytorch.members import Members
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    is_part,
    is_view,
    name_of,
    operands,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError

_MOST_BEHIND = 8  # operations that follow in the kernel
_KINDS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Grouped(Members):
    """A product of groups of rows with what its rows are picked by, and with what follows."""

    product: Node
    gather: Node | None = None

    @property
    def result(self) -> Node:
        """The only member that others read."""
        return self.members[-1]

    @property
    def domain(self) -> Extents:
        """The extents of what it makes."""
        return shape_of(self.result)

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for: always worth a kernel."""
        return 8

    @property
    def offsets(self) -> Node:
        """Where the rows of each matrix end."""
        return offsets_of(self.product)

    @property
    def matrices(self) -> Node:
        """One matrix for each group, (groups, depth, columns)."""
        return self.product.args[1]

    @property
    def rows_of(self) -> Gather | None:
        """What the rows are picked from; None where the product reads them in order."""
        return None if self.gather is None else gather_of(self.gather)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(rows, groups, depth, columns of the product); only rows may be open."""
        groups, depth, columns = shape_of(self.matrices)
        return shape_of(self.product)[0], groups, depth, columns

    @property
    def is_flipped(self) -> bool:
        """Whether columns of a matrix are rows in memory."""
        _, _, depth, _ = self.sizes
        return strides_of(self.matrices)[1:] == (1, depth)

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return [self.result]


def offsets_of(node: Node) -> Node:
    """The third argument of a grouped product, however it is given."""
    return node.args[2] if len(node.args) > 2 else node.kwargs.get("offs")


def grouped_product(node: Node) -> Grouped:
    """The group of a product alone. Raises `NoRuleError` for one that torch runs."""
    _check(node)
    return Grouped((node,), node)


def grown(group: Grouped, taken: Collection[Node]) -> list[Grouped]:
    """The group with as much of what comes before and follows as its kernel could do, the most
    first; nothing of it is `taken` by others.
    """
    picked = group.product.args[0]
    before = _with_gather(group, picked) if picked not in taken else group
    return [each for way in dict.fromkeys((before, group)) for each in _followed(way, taken)]


def _with_gather(group: Grouped, picked: Node) -> Grouped:
    try:
        gather = gather_of(picked)
    except NoRuleError:
        return group
    if gather is None or list(picked.users) != [group.product]:
        return group
    indices, table = value_of(gather.indices), value_of(gather.table)
    if indices.dim() != 1 or table.dim() != 2 or not table.is_contiguous():
        return group
    if any(map(is_open, shape_of(gather.table))):
        return group
    return Grouped((picked, group.product), group.product, picked)


def _followed(group: Grouped, taken: Collection[Node]) -> list[Grouped]:
    """The group with what follows, in all lengths that have one result, the longest first."""
    members, lengths, node = list(group.members), [group], group.product
    last = max(group.product.users, default=node)
    while node is not last and len(members) < len(group.members) + _MOST_BEHIND:
        node = node.next
        if node not in taken and _follows(node, members, group):
            members.append(node)
            last = max((last, *node.users))
            if _is_only_result(node, members):
                lengths.append(Grouped(tuple(members), group.product, group.gather))
    return lengths[::-1]


def _follows(node: Node, members: Sequence[Node], group: Grouped) -> bool:
    """Whether an operation is of single elements of members, and of numbers for whole rows."""
    inner = [each for each in operands(node) if each in members]
    if not inner or inner == [group.gather]:
        return False
    if is_view(node) or is_part(node):
        return base_of(node) is group.product
    if name_of(node) not in aten.MAPS and name_of(node) != aten.CONVERSION:
        return False
    rows = shape_of(group.product)[0]
    others = [each for each in operands(node) if each not in members]
    return all(shape_of(each) == (rows, 1) for each in others)


def _is_only_result(node: Node, members: Sequence[Node]) -> bool:
    """Whether others read this member and no other one, and it is no view."""
    inner = (each for each in members if each is not node)
    return not is_view(node) and all(user in members for each in inner for user in each.users)


def parts_of(group: Grouped) -> dict[int, list[Node]]:
    """The parts of the product's columns that members read, by the first column of each."""
    columns = group.sizes[3]
    width = shape_of(group.result)[1]
    parts: dict[int, list[Node]] = {}
    for node in group.members[group.members.index(group.product) :]:
        value = value_of(node)
        if isinstance(value, tuple | list):
            continue
        if node is group.product:
            if node is group.result or any(not is_view(user) for user in node.users):
                parts.setdefault(0, []).append(node)
        elif is_view(node):
            if value.stride() != (columns, 1) or shape_of(node)[1] != width:
                raise NoRuleError("a part of a grouped product that is no half")
            parts.setdefault(int(value.storage_offset()), []).append(node)
    if width * len(parts) > columns:
        raise NoRuleError("parts of a grouped product that overlap")
    return parts


def _check(node: Node) -> None:
    """Raise `NoRuleError` for a grouped product that no kernel has."""
    import torch

    rest = (*node.args[3:], *(value for key, value in node.kwargs.items() if key != "offs"))
    offsets = offsets_of(node)
    if offsets is None or any(each is not None for each in rest):
        raise NoRuleError("a grouped product without offsets, or with a bias")
    values = [value_of(each) for each in (node.args[0], node.args[1], offsets, node)]
    if not all(isinstance(v, torch.Tensor) and v.device.type == "cpu" for v in values):
        raise NoRuleError("what is no tensor on the CPU")
    x, matrices, ends, made = values
    kinds = {dtype_name(each.dtype) for each in (x, matrices, made) if is_known(each.dtype)}
    if (x.dim(), matrices.dim(), ends.dim()) != (2, 3, 1) or ends.dtype != torch.int32:
        raise NoRuleError("a grouped product that sums over groups")
    if len(kinds) != 1 or not kinds <= set(_KINDS):
        raise NoRuleError("a grouped product of this dtype is torch's own")
    groups, depth, columns = shape_of(node.args[1])
    for size in (groups, depth, columns):
        if is_open(size):
            raise OpenSizeError(size)
    plain, flipped = (depth * columns, columns, 1), (depth * columns, 1, depth)
    if strides_of(node.args[1]) not in (plain, flipped) or not groups * depth * columns:
        raise NoRuleError("matrices that do not lie one behind the other")
    if strides_of(node.args[0])[1] != 1 or not made.is_contiguous():
        raise NoRuleError("a grouped product whose rows are no rows in memory")
