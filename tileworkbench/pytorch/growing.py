"""Which operations of a graph become one kernel.

A group grows from producers to consumers, in the order of the graph. An operation joins the group
of one of its operands where the kernel would still have one form, and where no other operation
would have to run in the middle of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import aten, attention, convolutions, handwritten, in_torch, shapes
from tileworkbench.pytorch.attention import Attention
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.gathers import gather_of
from tileworkbench.pytorch.groups import (
    Group,
    domain_of,
    is_convolution,
    place,
    plan,
    size_of,
    weight_of,
)
from tileworkbench.pytorch.handwritten import Handwritten
from tileworkbench.pytorch.nodes import (
    Node,
    inputs_of,
    is_part,
    is_tuple,
    name_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.prologues import prologue_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, OpenSizes, is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.writing import written
from tileworkbench.pytorch.written import Written

AnyGroup = Group | Attention


def text_of(group: AnyGroup, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a group; see `writing.written`."""
    if isinstance(group, Handwritten):
        return handwritten.written(group, names, taken)
    if isinstance(group, Attention):
        return attention.written(group, names, taken)
    return written(group, plan(group), names, taken)


def started(node: Node) -> AnyGroup:
    """A group of one operation. Raises `NoRuleError` for one that runs in torch."""
    name = name_of(node)
    if name in in_torch.REASONS:
        raise NoRuleError(in_torch.REASONS[name])
    if name == aten.ATTENTION:
        _check_tensors(node)
        return attention.started(node)
    if not weight_of(node):
        raise NoRuleError("no rule for it")
    _check_dtypes(node)
    gather = gather_of(node)
    if name in aten.PRODUCTS:
        return _product(node)
    if name in aten.ROWS or gather is not None:
        inner = _reduced(node) if gather is None else gather.columns
        group = Group((node,), _fine(domain_of(node)), inner)
        group = replace(group, domain=_common(group.domain, _rows_and_columns(group)))
    elif not _fine(shape_of(node)):
        raise NoRuleError("on few elements, it is as fast in torch")
    else:
        group = Group((node,), _fine(shape_of(node)))
    written(group, plan(group), {})
    return group


def _product(node: Node) -> Group:
    """The group that a product begins, with what makes its second operand if that is faster."""
    group = Group((node,), _fine(shape_of(node)), product=node)
    if is_convolution(node):
        convolutions.check(node)
        written(group, plan(group), {})
        return group
    prologue = prologue_of(node)
    if prologue:
        try:
            for each in prologue:
                _check_tensors(each)
            _check_product(node, prologue)
            together = replace(group, prologue=prologue)
            written(together, plan(together), {})
            return together
        except NoRuleError as error:
            if isinstance(error, OpenSizeError):
                raise
    _check_product(node, ())
    written(group, plan(group), {})
    return group


def _check_product(node: Node, prologue: Sequence[Node]) -> None:
    first, second, _ = aten.PRODUCTS[name_of(node)]
    a, b = value_of(node.args[first]), value_of(node.args[second])
    extents = (*shape_of(node.args[first])[-2:], *shape_of(node.args[second])[-2:])
    if node.kwargs:
        raise NoRuleError("a scaled product")
    kind = dtype_name(a.dtype)
    if a.dtype != b.dtype or kind not in _MULTIPLIED:
        raise NoRuleError(f"a product of {kind} is torch's own")
    rates = product_rates(kind)
    if prologue:
        work = sum(map(weight_of, prologue))
        if not rates.kernel_dequantises_faster(node.meta["sizes"].hint(extents[0]), work):
            raise NoRuleError("with so many rows it is as fast to make the weight in torch first")
    elif kind != "float32" and not rates.kernel_is_faster:
        raise NoRuleError(
            f"this processor multiplies {kind} by instructions, with which torch is faster"
        )
    if kind == "float32" and len(shape_of(node)) == 3:
        raise NoRuleError("a batch of float32 products is as fast in torch")
    if min(extents[1:] if prologue else extents) < _SMALL:
        raise NoRuleError("a product with few rows or columns is as fast in torch")
    for size in (*shape_of(node)[-1:], *shape_of(node.args[second])[-2:]):
        if is_open(size):
            raise OpenSizeError(size)


_MULTIPLIED = ("float32", "float16", "bfloat16")
_SMALL = 16  # rows, columns or depth of a product that is not worth a kernel


def _fine(shape: Extents) -> Extents:
    return tuple(extent for extent in shape if extent != 1)


def _rows_and_columns(group: Group) -> Extents:
    return (size_of(group.domain) // group.inner, group.inner)


def joined(group: AnyGroup, node: Node) -> AnyGroup:
    """The group with one operation more, whose operands are some of its values. Raises
    `NoRuleError` where the kernel would have no form.
    """
    if isinstance(group, Attention):
        return group.joined(node)
    name = name_of(node)
    if (
        name in aten.PRODUCTS
        or name in aten.GATHERS
        or not (is_part(node) or name in aten.VIEWS or weight_of(node))
    ):
        raise NoRuleError("no rule for it")
    _check_dtypes(node)
    inner = group.inner
    domain = domain_of(node)
    if name in aten.ROWS:
        if group.product is not None:
            raise NoRuleError("a reduction over the rows of a product's tiles")
        reduced = _reduced(node)
        if inner and reduced != inner:
            raise NoRuleError("reductions over rows of two lengths")
        inner = reduced
    elements, whole = size_of(domain), size_of(group.domain)
    if elements == whole:
        fine = _common(group.domain, domain)
    elif inner and elements * inner == whole:
        rows = group.domain[: place(group.domain, inner)]
        fine = _common(rows, domain) + group.domain[len(rows) :]
    else:
        raise NoRuleError("another number of elements")
    if inner:
        fine = _common(fine, (whole // inner, inner))
    grown = replace(group, members=(*group.members, node), domain=fine, inner=inner)
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
    if size_of(shape) == size_of(domain):
        return
    aligned = (1,) * (len(domain) - len(shape)) + shape
    if not group.inner or not any(
        aligned[:at] == domain[:at]
        and set(aligned[at:]) <= {1}
        and size_of(domain[at:]) == group.inner
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
    count = size_of([shape[at] for at in places])
    if is_open(count):
        raise OpenSizeError(count)
    if count == 1:
        raise NoRuleError("rows of one element")
    return count


def _check_dtypes(node: Node) -> None:
    made = _check_tensors(node)
    sizes = node.meta["sizes"]
    if not all(each is None or sizes.is_contiguous(each) for each in made):
        raise NoRuleError("a result that is not contiguous")


def _check_tensors(node: Node) -> Sequence[Any]:
    """The results of an operation. Raises `NoRuleError` where it has tensors that no kernel has."""
    import torch

    values = [value_of(each) for each in (node, *operands(node))]
    for value in values:
        for each in value if isinstance(value, tuple | list) else (value,):
            if each is None:
                continue
            if not isinstance(each, torch.Tensor) or each.layout != torch.strided:
                raise NoRuleError("what is no dense tensor")
            if not is_known(each.dtype):
                raise NoRuleError(f"{each.dtype} is not computed here")
            if node.meta["sizes"].count(each) == 0:
                raise NoRuleError("a tensor without elements")
            if each.device.type != "cpu":
                raise NoRuleError(f"a tensor on {each.device}")
    return values[0] if isinstance(values[0], tuple | list) else (values[0],)


# A whole graph


LEAST_WORK = 2  # operations of a kernel: alone, one is as fast in torch
LEAST_ELEMENTS = 8192  # of a kernel with fewer operations than this:
LEAST_SMALL_WORK = 3  # a launch takes as long as two operations on few elements


def find_groups(
    nodes: Sequence[Node],
    sizes: OpenSizes,
    wanted: set[int],
    least_work: int = LEAST_WORK,
    least_elements: int = LEAST_ELEMENTS,
    refused: Mapping[Node, str] | None = None,
) -> tuple[list[AnyGroup], dict[Node, str]]:
    """(the groups of a graph, why each other operation runs in torch). The open size that the first
    operation would have to know for a kernel is added to `wanted`. What is `refused` runs in torch,
    for the reason that it is there with.
    """
    groups, reasons = _grown(nodes, wanted, refused or {}, ())
    apart = _better_apart(groups.values())
    if apart:
        groups, reasons = _grown(nodes, wanted, refused or {}, apart)
    kept = []
    for group in groups.values():
        group = _trimmed(group)
        if not group.outputs():
            continue
        is_small = max(map(sizes.hint, map(size_of, _extents(group)))) < least_elements
        if is_small and group.weight < LEAST_SMALL_WORK:
            reasons.update(dict.fromkeys(group.nodes, "on few elements, it is as fast in torch"))
        elif group.weight < least_work:
            reasons.update(dict.fromkeys(group.nodes, "alone, it is as fast in torch"))
        else:
            kept.append(group)
    members = {node for group in kept for node in group.nodes}
    outside = [node for node in nodes if node.op == "call_function" and node not in members]
    return kept, {node: reasons.get(node, "nothing reads it") for node in outside}


def _extents(group: AnyGroup) -> Iterator[Extents]:
    """The extents of what a kernel works on."""
    yield group.domain
    if isinstance(group, Group) and group.prologue:
        yield shape_of(group.prologue[-1])


def _claim(
    nodes: Sequence[Node],
    groups: dict[int, AnyGroup],
    home: dict[Node, int],
    wanted: set[int],
    refused: Collection[Node],
) -> set[Node]:
    """Begin the groups that are found from a product backwards, and return their operations:
    attention that is written out, products that compute an operand in their tiles.
    """
    claimed: set[Node] = set()
    for node in nodes:
        if name_of(node) not in aten.PRODUCTS or node in refused:
            continue
        try:
            group = handwritten.attention_of(node) or started(node)
        except NoRuleError as error:
            if isinstance(error, OpenSizeError) and not wanted:
                wanted.add(error.size)
            continue  # and the reason is found when it is its turn
        if any(each in refused for each in group.nodes):
            continue
        if isinstance(group, Handwritten) or (isinstance(group, Group) and group.prologue):
            home.update(dict.fromkeys(group.nodes, len(groups)))
            groups[len(groups)] = group
            claimed |= set(group.nodes)
    return claimed


def _grown(
    nodes: Sequence[Node],
    wanted: set[int],
    refused: Mapping[Node, str],
    apart: Collection[Node],
) -> tuple[dict[int, AnyGroup], dict[Node, str]]:
    """(groups by number, why other operations run in torch). What is `apart` begins a group."""
    groups: dict[int, AnyGroup] = {}
    home: dict[Node, int] = {}
    reasons: dict[Node, str] = {}
    claimed = _claim(nodes, groups, home, wanted, refused)
    for node in nodes:
        if node.op != "call_function" or node in claimed:
            continue
        if node in refused:
            reasons[node] = refused[node]
            continue
        known = {} if node in apart else home
        chosen, reason = _home_of(node, groups, known, wanted)
        if chosen is None:
            reasons[node] = reason
            continue
        number, group = chosen
        groups[number] = group
        home[node] = number
    return groups, reasons


def _better_apart(groups: Iterable[AnyGroup]) -> set[Node]:
    """Operations on what their group stores anyway, which only reductions outside of it read: the
    reductions' kernel does them, and nobody stores what they make.
    """
    apart: set[Node] = set()
    for group in groups:
        if isinstance(group, Group):
            stored = group.outputs()
            apart.update(
                node
                for node in stored
                if name_of(node) in aten.MAPS
                and all(name_of(user) in aten.ROWS for user in node.users)
                and all(each in stored for each in operands(node) if each in group.members)
            )
    return apart


def _home_of(
    node: Node, groups: dict[int, AnyGroup], home: dict[Node, int], wanted: set[int]
) -> tuple[tuple[int, AnyGroup] | None, str]:
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
        if isinstance(error, OpenSizeError) and not wanted:
            wanted.add(error.size)  # what others want depends on whether this one is a kernel
        return None, reason if is_part(node) else str(error)


def _needs_result_of(
    node: Node, number: int, groups: dict[int, AnyGroup], home: dict[Node, int]
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
        members: Sequence[Node] = (each,) if own is None else groups[own].nodes
        read = operands if own is not None else inputs_of
        waiting += [operand for member in members for operand in read(member)]
    return False


def _trimmed(group: AnyGroup) -> AnyGroup:
    """Without views that nothing inside reads: torch makes those without a kernel."""
    if isinstance(group, Attention):
        return group
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


def in_order(nodes: Sequence[Node], groups: Sequence[AnyGroup]) -> Iterator[Node | AnyGroup]:
    """Nodes and groups, each behind all that it reads."""
    home = {node: group for group in groups for node in group.nodes}
    done: set[int] = set()

    def visit(each: Node | AnyGroup) -> Iterator[Node | AnyGroup]:
        if id(each) in done:
            return
        done.add(id(each))
        members = each.nodes if isinstance(each, Group | Attention) else (each,)
        read = operands if isinstance(each, Group | Attention) else inputs_of
        for member in members:
            for operand in read(member):
                inner = home.get(operand, operand)
                if inner is not each:
                    yield from visit(inner)
        yield each

    for node in nodes:
        yield from visit(home.get(node, node))
