"""Which operations of a graph become one kernel.

A group grows from producers to consumers, in the order of the graph. An operation joins the group
of one of its operands where the kernel would still have one form, and where no other operation
would have to run in the middle of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tileworkbench.pytorch import aten, handwritten
from tileworkbench.pytorch.groups import (
    Group,
    size_of,
)
from tileworkbench.pytorch.handwritten import Handwritten
from tileworkbench.pytorch.mapped import mapped_groups
from tileworkbench.pytorch.nodes import (
    Node,
    inputs_of,
    is_part,
    name_of,
    operands,
    shape_of,
)
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.rules import AnyGroup, joined, started
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, OpenSizes
from tileworkbench.pytorch.terms import NoRuleError

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
    groups, reasons = _grown(nodes, wanted, refused or {}, (), regions)
    apart = _better_apart(groups.values())
    if apart:
        groups, reasons = _grown(nodes, wanted, refused or {}, apart, regions)

    def poor(group: AnyGroup) -> str:
        if isinstance(group, Region):
            return ""
        is_small = max(map(sizes.hint, map(size_of, _extents(group)))) < least_elements
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
    members = {node for group in kept for node in group.nodes}
    rest = mapped_groups(nodes, members | set(refused or {}))
    kept += [group for group in rest if not poor(group)]
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
    regions: Sequence[Region],
) -> set[Node]:
    """Begin the groups that are found from a product backwards, and return their operations:
    attention that is written out, products that compute an operand in their tiles.
    """
    claimed: set[Node] = set()
    for region in regions:
        home.update(dict.fromkeys(region.nodes, len(groups)))
        groups[len(groups)] = region
        claimed |= set(region.nodes)
    for node in nodes:
        if name_of(node) not in aten.PRODUCTS or node in refused or node in claimed:
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
    regions: Sequence[Region],
) -> tuple[dict[int, AnyGroup], dict[Node, str]]:
    """(groups by number, why other operations run in torch). What is `apart` begins a group."""
    groups: dict[int, AnyGroup] = {}
    home: dict[Node, int] = {}
    reasons: dict[Node, str] = {}
    claimed = _claim(nodes, groups, home, wanted, refused, regions)
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
                and all(name_of(user) in ROWS for user in node.users)
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


def in_order(nodes: Sequence[Node], groups: Sequence[AnyGroup]) -> Iterator[Node | AnyGroup]:
    """Nodes and groups, each behind all that it reads."""
    home = {node: group for group in groups for node in group.nodes}
    done: set[int] = set()

    def visit(each: Node | AnyGroup) -> Iterator[Node | AnyGroup]:
        if id(each) in done:
            return
        done.add(id(each))
        members = each.nodes if isinstance(each, AnyGroup) else (each,)
        read = operands if isinstance(each, AnyGroup) else inputs_of
        if isinstance(each, Region):
            for earlier in each.after:
                yield from visit(home.get(earlier, earlier))
        for member in members:
            for operand in read(member):
                inner = home.get(operand, operand)
                if inner is not each:
                    yield from visit(inner)
        yield each

    for node in nodes:
        yield from visit(home.get(node, node))
