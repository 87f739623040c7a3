"""Which operations of a graph become one kernel.

A group grows from producers to consumers, in the order of the graph. An operation joins the group
of one of its operands where the kernel would still have one form (rows and columns that all its
values fit), and where no other operation would have to run in the middle of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tileworkbench.pytorch import aten, shapes
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.nodes import (
    Node,
    constant_of,
    is_part,
    is_tuple,
    name_of,
    operands,
    seen_through,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.program import LONGEST_ROW, Form, tile_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.writing import written


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that are one kernel.

    `domain` are the finest extents of its values; `inner` is the product of the dimensions that
    its reductions go over, 0 without any; `product` is the matrix product that it begins with.
    """

    members: tuple[Node, ...]
    domain: Extents
    inner: int = 0
    product: Node | None = None

    def inputs(self) -> list[Node]:
        """What it reads of other operations, once each; a product's matrices are not among them."""
        found: dict[Node, None] = {}
        for node in self.members:
            for each in self.read_by(node):
                if each not in self.members:
                    found[each] = None
        return list(found)

    def read_by(self, node: Node) -> list[Node]:
        """What a member reads element by element."""
        if self.product is not None and node is self.product:
            added = aten.PRODUCTS[name_of(node)][2]
            read = [] if added is None else [node.args[added]]
        else:
            read = operands(node)
        through = map(seen_through, read)
        return [each for each in through if constant_of(each) is None]

    def outputs(self) -> list[Node]:
        """The members that other operations read."""
        return [
            node
            for node in self.members
            if not is_tuple(node) and any(user not in self.members for user in node.users)
        ]

    @property
    def weight(self) -> int:
        """How many element-wise operations it stands for."""
        return sum(weight_of(node) for node in self.members)


def weight_of(node: Node) -> int:
    """How much work an operation is, in element-wise ones."""
    name = name_of(node)
    if name in aten.ROWS:
        return aten.ROWS[name].weight
    if name in aten.PRODUCTS:
        return 1 + (aten.PRODUCTS[name][2] is not None)
    return int(name in aten.MAPS or name == aten.CONVERSION)


# Forms


@dataclass(frozen=True, slots=True)
class Plan:
    """The form of a group's kernel, and for each input along which of its rows it varies, and
    whether along its columns."""

    form: Form
    patterns: dict[Node, tuple[tuple[bool, ...], bool]] = field(default_factory=dict)


def plan(group: Group) -> Plan:
    """The form of a group's kernel. Raises `NoRuleError` where it has none."""
    fine = group.domain
    patterns: dict[Node, shapes.Pattern] = {}
    for node in group.members:
        for each in group.read_by(node):
            if each in group.members:
                continue
            pattern = _pattern(group, node, each)
            if patterns.setdefault(each, pattern) != pattern:
                raise NoRuleError("an input that is broadcast in two ways")
    split = _split(group, list(patterns.values()))
    inner = [pattern[split:] for pattern in patterns.values()]
    if any(len(set(part)) > 1 for part in inner):
        raise NoRuleError("an input that varies along a part of a row")
    outer, merged = shapes.merged(fine[:split], [each[:split] for each in patterns.values()])
    columns = _product(fine[split:])
    if group.inner and columns > LONGEST_ROW:
        raise NoRuleError(f"rows of {columns} elements")
    if group.inner and not outer:
        raise NoRuleError("a reduction of the whole tensor")
    tile = tile_of(_product(outer), columns, bool(group.inner), group.product is not None)
    varies = {
        node: (rows, all(pattern[split:]) and split < len(fine))
        for (node, pattern), rows in zip(patterns.items(), merged, strict=True)
    }
    return Plan(Form(outer, columns, tile), varies)


def _pattern(group: Group, node: Node, operand: Node) -> shapes.Pattern:
    """Along which of the group's extents an input of a member varies."""
    shape, domain = shape_of(operand), _domain_of(node)
    is_row = group.inner and _product(domain) * group.inner == _product(group.domain)
    fine = group.domain
    if is_row:
        fine = fine[: _place(fine, group.inner)]
    pattern = shapes.pattern_of(shape, domain, fine)
    if pattern is None:
        raise NoRuleError("an input whose shape cuts across those of the others")
    return pattern + (False,) * (len(group.domain) - len(fine))


def _domain_of(node: Node) -> Extents:
    """The extents that a member is computed over: a reduction's are those of what it reduces."""
    if name_of(node) in aten.ROWS:
        return shape_of(node.args[0])
    if is_part(node):
        return shape_of(node.args[0].args[0])
    return shape_of(node)


def _split(group: Group, patterns: Sequence[shapes.Pattern]) -> int:
    """How many of the domain's extents are rows."""
    fine = group.domain
    if group.product is not None:
        return _place(fine, shape_of(group.product)[1])
    if group.inner:
        return _place(fine, group.inner)
    at = len(fine) - 1
    while at > 0 and all(pattern[at - 1] == pattern[-1] for pattern in patterns):
        at -= 1
    return max(at, 0)


def _place(fine: Extents, inner: int) -> int:
    """Where the innermost extents begin whose product is `inner`."""
    size, at = 1, len(fine)
    while size < inner and at:
        at -= 1
        size *= fine[at]
    if size != inner:
        raise NoRuleError("rows that other shapes cut across")
    return at


def _product(extents: Sequence[int]) -> int:
    count = 1
    for extent in extents:
        count *= extent
    return count


# Growing


def started(node: Node) -> Group:
    """A group of one operation. Raises `NoRuleError` for one that runs in torch."""
    name = name_of(node)
    if not weight_of(node):
        raise NoRuleError("no rule for it")
    _check_dtypes(node)
    if name in aten.PRODUCTS:
        _check_product(node)
        group = Group((node,), _fine(shape_of(node)), product=node)
    elif name in aten.ROWS:
        group = Group((node,), _fine(_domain_of(node)), inner=_reduced(node))
        group = replace(group, domain=_common(group.domain, _rows_and_columns(group)))
    else:
        group = Group((node,), _fine(shape_of(node)))
    written(group, plan(group), {})
    return group


def _check_product(node: Node) -> None:
    first, second, _ = aten.PRODUCTS[name_of(node)]
    a, b = value_of(node.args[first]), value_of(node.args[second])
    if node.kwargs:
        raise NoRuleError("a scaled product")
    if a.dtype != b.dtype or dtype_name(a.dtype) != "float32":
        # 16-bit products are instructions of their own on some processors, which torch uses.
        raise NoRuleError(f"a product of {dtype_name(a.dtype)} is as fast in torch")
    if min(*a.shape, *b.shape) < _SMALL:
        raise NoRuleError("a product with few rows or columns is as fast in torch")


_SMALL = 16  # rows, columns or depth of a product that is not worth a kernel


def _fine(shape: Extents) -> Extents:
    return tuple(extent for extent in shape if extent != 1)


def _rows_and_columns(group: Group) -> Extents:
    return (_product(group.domain) // group.inner, group.inner)


def joined(group: Group, node: Node) -> Group:
    """The group with one operation more, whose operands are some of its values. Raises
    `NoRuleError` where the kernel would have no form.
    """
    name = name_of(node)
    if name in aten.PRODUCTS or not (is_part(node) or name in aten.VIEWS or weight_of(node)):
        raise NoRuleError("no rule for it")
    _check_dtypes(node)
    inner = group.inner
    domain = _domain_of(node)
    if name in aten.ROWS:
        if group.product is not None:
            raise NoRuleError("a reduction over the rows of a product's tiles")
        reduced = _reduced(node)
        if inner and reduced != inner:
            raise NoRuleError("reductions over rows of two lengths")
        inner = reduced
    elements, whole = _product(domain), _product(group.domain)
    if elements == whole:
        fine = _common(group.domain, domain)
    elif inner and elements * inner == whole:
        rows = group.domain[: _place(group.domain, inner)]
        fine = _common(rows, domain) + group.domain[len(rows) :]
    else:
        raise NoRuleError("another number of elements")
    if inner:
        fine = _common(fine, (whole // inner, inner))
    grown = Group((*group.members, node), fine, inner, group.product)
    for each in operands(node):
        if each in group.members and name not in aten.VIEWS and not is_part(node):
            _check_value(grown, each, domain)
    written(grown, plan(grown), {})
    return grown


def _check_value(group: Group, operand: Node, domain: Extents) -> None:
    """A member that another reads has the elements of the domain, or one for each row."""
    if is_tuple(operand):
        return
    shape = shape_of(operand)
    if _product(shape) == _product(domain):
        return
    aligned = (1,) * (len(domain) - len(shape)) + shape
    if not group.inner or not any(
        aligned[:at] == domain[:at]
        and set(aligned[at:]) <= {1}
        and _product(domain[at:]) == group.inner
        for at in range(len(domain) + 1)
    ):
        raise NoRuleError("a value that is broadcast inside of the kernel")


def _common(a: Sequence[int], b: Sequence[int]) -> Extents:
    fine = shapes.common_extents(a, b)
    if fine is None:
        raise NoRuleError("shapes that cut across each other")
    return fine


def _reduced(node: Node) -> int:
    """The product of the dimensions that a row operation goes over. Raises `NoRuleError` where
    those are not the last ones.
    """
    shape = shape_of(node.args[0])
    dims = aten.ROWS[name_of(node)].dims(*node.args, **node.kwargs)
    places = sorted(dim % len(shape) for dim in dims) if shape else []
    if not places or places != list(range(len(shape) - len(places), len(shape))):
        raise NoRuleError("not along the last dimensions")
    count = _product([shape[at] for at in places])
    if count == 1:
        raise NoRuleError("rows of one element")
    return count


def _check_dtypes(node: Node) -> None:
    import torch

    values = [value_of(each) for each in (node, *operands(node))]
    for value in values:
        for each in value if isinstance(value, tuple | list) else (value,):
            if each is None:
                continue
            if not isinstance(each, torch.Tensor) or each.layout != torch.strided:
                raise NoRuleError("what is no dense tensor")
            if not all(isinstance(extent, int) for extent in each.shape):
                raise NoRuleError("sizes that torch keeps open")
            if not is_known(each.dtype):
                raise NoRuleError(f"{each.dtype} is not computed here")
            if each.numel() == 0:
                raise NoRuleError("a tensor without elements")
            if each.device.type != "cpu":
                raise NoRuleError(f"a tensor on {each.device}")
    made = values[0] if isinstance(values[0], tuple | list) else (values[0],)
    if not all(each is None or each.is_contiguous() for each in made):
        raise NoRuleError("a result that is not contiguous")
    if made[0].numel() == 1 and name_of(node) not in aten.ROWS:
        raise NoRuleError("on few elements, it is as fast in torch")


# A whole graph


LEAST_WORK = 2  # operations of a kernel: alone, one is as fast in torch
LEAST_ELEMENTS = 8192  # of a kernel: a launch takes as long as several operations on fewer


def find_groups(
    nodes: Sequence[Node], least_work: int = LEAST_WORK, least_elements: int = LEAST_ELEMENTS
) -> tuple[list[Group], dict[Node, str]]:
    """(the groups of a graph, why each other operation runs in torch)."""
    groups: dict[int, Group] = {}
    home: dict[Node, int] = {}
    reasons: dict[Node, str] = {}
    for node in nodes:
        if node.op != "call_function":
            continue
        chosen, reason = _home_of(node, groups, home)
        if chosen is None:
            reasons[node] = reason
            continue
        number, group = chosen
        groups[number] = group
        home[node] = number
    kept = []
    for group in groups.values():
        group = _trimmed(group)
        if not group.outputs():
            continue
        if _product(group.domain) < least_elements:
            reasons.update(dict.fromkeys(group.members, "on few elements, it is as fast in torch"))
        elif group.weight < least_work:
            reasons.update(dict.fromkeys(group.members, "alone, it is as fast in torch"))
        else:
            kept.append(group)
    members = {node for group in kept for node in group.members}
    outside = [node for node in nodes if node.op == "call_function" and node not in members]
    return kept, {node: reasons.get(node, "nothing reads it") for node in outside}


def _home_of(
    node: Node, groups: dict[int, Group], home: dict[Node, int]
) -> tuple[tuple[int, Group] | None, str]:
    """(the group that an operation joins or begins with its number, "") or (None, why not)."""
    reason = ""
    candidates = dict.fromkeys(home[each] for each in operands(node) if each in home)
    for number in sorted(candidates, reverse=True):
        if _needs_result_of(node, number, groups, home):
            continue
        try:
            return (number, joined(groups[number], node)), ""
        except NoRuleError as error:
            reason = str(error)
    try:
        return (len(groups), started(node)), ""
    except NoRuleError as error:
        return None, reason if is_part(node) else str(error)


def _needs_result_of(
    node: Node, number: int, groups: dict[int, Group], home: dict[Node, int]
) -> bool:
    """Whether an operand from outside of a group is computed from the group's results."""
    waiting = [each for each in operands(node) if home.get(each) != number]
    visited: set[Any] = set()
    while waiting:
        each = waiting.pop()
        own = home.get(each)
        key = each if own is None else own
        if key in visited:
            continue
        visited.add(key)
        if own == number:
            return True
        members: Sequence[Node] = (each,) if own is None else groups[own].members
        waiting += [operand for member in members for operand in operands(member)]
    return False


def _trimmed(group: Group) -> Group:
    """Without views that nothing inside reads: torch makes those without a kernel."""
    members = list(group.members)
    while True:
        last = [
            node
            for node in members
            if name_of(node) in aten.VIEWS and not any(user in members for user in node.users)
        ]
        if not last:
            return replace(group, members=tuple(members))
        members = [node for node in members if node not in last]


def in_order(nodes: Sequence[Node], groups: Sequence[Group]) -> Iterator[Node | Group]:
    """Nodes and groups, each behind all that it reads."""
    home = {node: group for group in groups for node in group.members}
    done: set[int] = set()

    def visit(each: Node | Group) -> Iterator[Node | Group]:
        if id(each) in done:
            return
        done.add(id(each))
        members = each.members if isinstance(each, Group) else (each,)
        for member in members:
            for operand in operands(member):
                inner = home.get(operand, operand)
                if inner is not each:
                    yield from visit(inner)
        yield each

    for node in nodes:
        yield from visit(home.get(node, node))
