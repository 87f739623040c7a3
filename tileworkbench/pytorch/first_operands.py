"""Products that compute their first operand in its tile: `linear(silu(gate) * up, weight)`.

A block computes the elements of its rows, so those are computed again for each block of columns.
Measured on an AMD EPYC (Zen 4), one thread, float32, 1024 deep, against a kernel of the elements
and one of the product (or torch) in the same compiled function, of `silu(g) * u` and `x * s`: with
16 columns 1.0 to 1.3 times as fast, with 16 rows and up to 128 columns 1.0 to 1.1 times. With 128
or 512 rows and 32 columns 0.96 to 1.1, with 64 and 128 columns 0.92 to 1.0, with 8 blocks of
columns 0.85 to 0.95. So the tile is computed for few columns or few rows, and elsewhere the operand
is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.elements import is_element
from tileworkbench.pytorch.groups import Group, plan
from tileworkbench.pytorch.nodes import Node, name_of, operands, shape_of
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.tiles import WIDEST
from tileworkbench.pytorch.writing import written

_FEW = 16  # columns, or rows of up to a block's columns


def with_first_operands(groups: Mapping[int, Any]) -> dict[int, Any]:
    """The groups, of which those of a product have the operations of the group that makes its first
    operand, if only the product reads that and one block has all columns.
    """
    made = dict(groups)
    home = {node: number for number, group in made.items() for node in group.nodes}
    for number, group in groups.items():
        if not _may_compute(group):
            continue
        root = group.product.args[aten.PRODUCTS[name_of(group.product)][0]]
        views, source = [root], root
        while name_of(source) in aten.VIEWS and home.get(source) is None:
            source = source.args[0]
            views.append(source)
        before = made.get(home.get(source, -1))
        if not isinstance(before, Group) or not _is_for(group, before, views):
            continue
        together = replace(group, prologue=_in_order(group.product, {*before.members, *views}))
        try:
            written(together, plan(together), {})
        except NoRuleError:
            continue
        made[number] = together
        del made[home[source]]
    return made


def _may_compute(group: Any) -> bool:
    """Whether a group is a product of two matrices with few columns, or few rows of one block."""
    if not isinstance(group, Group) or group.product is None or group.prologue:
        return False
    if name_of(group.product) not in aten.LAYERS:
        return False
    rows, columns = shape_of(group.product)
    if is_open(columns) or columns > WIDEST:
        return False
    return columns <= _FEW or group.product.meta["sizes"].hint(rows) <= _FEW


def _is_for(group: Group, before: Group, views: Iterable[Node]) -> bool:
    """Whether a group is of elements that only a product reads, by `views`."""
    inside = {*before.members, *views}
    if before.product is not None or before.inner:
        return False
    users = (user for node in inside for user in node.users)
    return all(map(is_element, inside)) and all(
        user is group.product or user in inside for user in users
    )


def _in_order(product: Node, inside: set[Node]) -> tuple[Node, ...]:
    """The operations in order, with what repeats their operands: a tile reads what is repeated."""
    nodes = list(product.graph.nodes)
    for node in reversed(nodes):
        if node in inside:
            inside |= {each for each in operands(node) if name_of(each) == aten.EXPANSION}
    return tuple(each for each in nodes if each in inside)
