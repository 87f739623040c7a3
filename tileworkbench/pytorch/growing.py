"""Which operations of a graph become one kernel.

A group grows from producers to consumers, in the order of the graph. An operation joins the group
of one of its operands where the kernel would still have one form, and where no other operation
would have to run in the middle of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tileworkbench.pytorch import aten, handwritten
from tileworkbench.pytorch.around import Around, all_around
from tileworkbench.pytorch.branches import with_branches
from tileworkbench.pytorch.channels_last import convolution_last
from tileworkbench.pytorch.first_operands import with_first_operands
from tileworkbench.pytorch.grouped import Grouped
from tileworkbench.pytorch.groups import (
    Group,
    is_of_elements,
)
from tileworkbench.pytorch.handwritten import Handwritten
from tileworkbench.pytorch.mapped import mapped_groups
from tileworkbench.pytorch.mapped_products import mapped_product
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    inputs_of,
    is_part,
    is_view,
    name_of,
    operands,
    shape_of,
)
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.rules import AnyGroup, grouped_of, joined, started, text_of
from tileworkbench.pytorch.scans import scan
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, OpenSizes
from tileworkbench.pytorch.small_regions import is_small, small_regions
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.turned import turned_groups

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
    regions: Sequence[Region] = (),
) -> tuple[list[AnyGroup], dict[Node, str]]:
    """(the groups of a graph, why each other operation runs in torch). The open size that the first
    operation would have to know for a kernel is added to `wanted`. What is `refused` runs in torch,
    for the reason that it is there with. What is in `regions` is a kernel already.
    """
    rules = _Rules()
    claimed = _claimed(nodes, wanted, refused or {}, regions)
    groups, reasons = _grown(nodes, wanted, refused or {}, (), claimed, rules)
    apart = _better_apart(groups.values())
    if apart:
        groups, reasons = _grown(nodes, wanted, refused or {}, apart, claimed, rules)
    groups = with_first_operands(_with_branches(groups))

    def poor(group: AnyGroup) -> str:
        if isinstance(group, Region):
            return ""
        is_small = max(map(sizes.hint, map(prod, _extents(group)))) < least_elements
        if is_small and group.weight < LEAST_SMALL_WORK:
            return "on few elements, it is as fast in torch"
        return "alone, it is as fast in torch" if group.weight < least_work else ""

    kept = []
    for group in map(_trimmed, groups.values()):
        if not isinstance(group, Region) and not group.outputs():
            continue
        reason = poor(group)
        if reason:
            reasons.update(dict.fromkeys(group.nodes, reason))
        else:
            kept.append(group)
    kept = _with_turned(nodes, kept, refused or {}, reasons, poor)
    members = {node for group in kept for node in group.nodes}
    rest = mapped_groups(nodes, members | set(refused or {}))
    kept += [group for group in rest if not poor(group)]
    kept = _with_small_regions(nodes, kept, set(refused or {}))
    members = {node for group in kept for node in group.nodes}
    outside = [node for node in nodes if node.op == "call_function" and node not in members]
    return kept, {node: reasons.get(node, "nothing reads it") for node in outside}


def _with_turned(
    nodes: Sequence[Node],
    groups: Sequence[AnyGroup],
    refused: Collection[Node],
    reasons: dict[Node, str],
    poor: Callable[[AnyGroup], str],
) -> list[AnyGroup]:
    """The groups and those around what lies in another order. Groups of elements may be parts of
    these.
    """
    plain = [each for each in groups if is_of_elements(each)]
    kept = [each for each in groups if each not in plain]
    taken = {*refused, *(node for group in kept for node in group.nodes)}
    for group in turned_groups(nodes, taken, plain, reasons):
        reason = poor(group)
        if reason:
            reasons.update(dict.fromkeys(group.nodes, reason))
            continue
        kept.append(group)
        plain = [each for each in plain if each.members[0] not in group.members]
    return [*kept, *plain]


def _with_small_regions(
    nodes: Sequence[Node], groups: Sequence[AnyGroup], refused: Collection[Node]
) -> list[AnyGroup]:
    """The groups and regions of what they leave. Groups on few elements are parts of those."""
    few = [each for each in groups if isinstance(each, Group) and is_small(each.members)]
    large = [each for each in groups if each not in few]
    for kept in (large, [*groups]):
        members = {node for group in kept for node in group.nodes}
        units = list(map(_computed, in_order(nodes, kept)))
        regions = list(small_regions(nodes, units, members | set(refused)))
        inside = {node for region in regions for node in region.nodes}
        parts = [node for each in few if each not in kept for node in each.members]
        if all(node in inside or is_view(node) for node in parts):
            break
    return [*kept, *regions]


def _extents(group: AnyGroup) -> Iterator[Extents]:
    """The extents of what a kernel works on."""
    yield group.domain
    if isinstance(group, Group) and group.prologue:
        yield shape_of(group.prologue[-1])


def _claimed(
    nodes: Sequence[Node], wanted: set[int], refused: Collection[Node], regions: Sequence[Region]
) -> list[AnyGroup]:
    """The groups that are found from a product backwards: attention that is written out, products
    that compute an operand in their tiles.
    """
    groups: list[AnyGroup] = list(regions)
    taken = {*refused, *(node for region in regions for node in region.nodes)}
    for node in nodes:
        is_grouped = name_of(node) in aten.GROUPED
        if not (is_grouped or name_of(node) in aten.PRODUCTS) or node in taken:
            continue
        try:
            if is_grouped:
                group: AnyGroup = grouped_of(node, taken)
            else:
                group = handwritten.attention_of(node) or started(node)
        except NoRuleError as error:
            if isinstance(error, OpenSizeError) and not wanted:
                wanted.add(error.size)
            continue  # and the reason is found when it is its turn
        if any(each in taken for each in group.nodes):
            continue
        is_more = isinstance(group, Handwritten | Grouped)
        if is_more or (isinstance(group, Group) and group.prologue):
            groups.append(group)
            taken.update(group.nodes)
    around = all_around((mapped_product, scan, convolution_last), nodes, taken, text_of)
    return [*groups, *around]


def _grown(
    nodes: Sequence[Node],
    wanted: set[int],
    refused: Mapping[Node, str],
    apart: Collection[Node],
    begun: Sequence[AnyGroup],
    rules: _Rules,
) -> tuple[dict[int, AnyGroup], dict[Node, str]]:
    """(groups by number, why other operations run in torch). What is `apart` begins a group; what
    is `begun` has its operations already.
    """
    groups: dict[int, AnyGroup] = dict(enumerate(begun))
    home = {node: number for number, group in groups.items() for node in group.nodes}
    reasons: dict[Node, str] = {}
    claimed = set(home)
    for node in nodes:
        if node.op != "call_function" or node in claimed:
            continue
        if node in refused:
            reasons[node] = refused[node]
            continue
        known = {} if node in apart else home
        chosen, reason = _home_of(node, groups, known, wanted, rules)
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
                and all(name_of(user) in ROWS for user in node.users)
                and all(each in stored for each in operands(node) if each in group.members)
            )
    return apart


class _Rules:
    """`started` and `joined`, asked once for each group and operation: to know a kernel's form it
    is written.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[AnyGroup | None, Node], AnyGroup | NoRuleError] = {}

    def grown(self, group: AnyGroup | None, node: Node) -> AnyGroup:
        """The group with an operation more, None for one that begins with it. Raises
        `NoRuleError`.
        """
        key = (group, node)
        if key not in self._known:
            try:
                self._known[key] = started(node) if group is None else joined(group, node)
            except NoRuleError as error:
                self._known[key] = error
        made = self._known[key]
        if isinstance(made, NoRuleError):
            raise made
        return made


def _home_of(
    node: Node,
    groups: dict[int, AnyGroup],
    home: dict[Node, int],
    wanted: set[int],
    rules: _Rules,
) -> tuple[tuple[int, AnyGroup] | None, str]:
    """(the group that an operation joins or begins with its number, "") or (None, why not)."""
    reason = ""
    candidates = dict.fromkeys(home[each] for each in operands(node) if each in home)
    for number in sorted(candidates, reverse=True):
        if _needs_result_of(node, number, groups, home):
            continue
        try:
            return (number, rules.grown(groups[number], node)), ""
        except NoRuleError as error:
            reason = str(error)
    try:
        return (len(groups), rules.grown(None, node)), ""
    except NoRuleError as error:
        if isinstance(error, OpenSizeError) and not wanted:
            wanted.add(error.size)  # what others want depends on whether this one is a kernel
        return None, reason if is_part(node) else str(error)


def _with_branches(groups: dict[int, AnyGroup]) -> dict[int, AnyGroup]:
    home = {node: number for number, group in groups.items() for node in group.nodes}

    def follows(branch: Group, number: int) -> bool:
        return any(_needs_result_of(node, number, groups, home) for node in branch.members)

    return with_branches(groups, home, follows)


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
    if not isinstance(group, Group):
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


def _computed(each: Node | AnyGroup) -> Sequence[Node]:
    """What a node or a kernel computes, also what others compute again."""
    if isinstance(each, Around):
        return each.members
    return each.nodes if isinstance(each, AnyGroup) else (each,)


def in_order(nodes: Sequence[Node], groups: Sequence[AnyGroup]) -> Iterator[Node | AnyGroup]:
    """Nodes and groups, each behind all that it reads."""
    home = {node: group for group in groups for node in group.nodes}
    done: set[int] = set()

    def visit(each: Node | AnyGroup) -> Iterator[Node | AnyGroup]:
        if id(each) in done:
            return
        done.add(id(each))
        members = _computed(each)
        own = set(members)
        read = operands if isinstance(each, AnyGroup) else inputs_of
        if isinstance(each, Region):
            for earlier in each.after:
                yield from visit(home.get(earlier, earlier))
        for member in members:
            for operand in read(member):
                inner = home.get(operand, operand)
                if inner is not each and operand not in own and base_of(operand) not in own:
                    yield from visit(inner)
        yield each

    for node in nodes:
        yield from visit(home.get(node, node))
