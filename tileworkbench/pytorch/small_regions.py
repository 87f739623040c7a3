"""Regions of what other kernels leave: stretches of operations on few elements in a graph of large
ones, each as one kernel. Alone they are as fast in torch, but each is a call from Python, and parts
the kernels around it, which else are one native call.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod

from tileworkbench.pytorch.nodes import Node, base_of, is_work, name_of, operands, value_of
from tileworkbench.pytorch.regions import UPDATES, Region, has_loops, seen_from
from tileworkbench.pytorch.sizes import is_open

_LEAST_OPERATIONS = 3  # a launch takes as long as two
_MOST_ELEMENTS = 4096  # of a value


def small_regions(
    nodes: Sequence[Node], units: Iterable[Sequence[Node]], taken: Collection[Node]
) -> Iterator[Region]:
    """The regions of what is not `taken` by other kernels. `units` are the operations of each
    kernel, and all other nodes, each behind what it reads.
    """
    if any(each.name.startswith("primals") for each in nodes):
        return  # a graph for gradients
    works = (each for each in nodes if is_work(each) and each not in taken and each.users)
    plain = (each for each in works if name_of(each) not in UPDATES)
    inside = {each for each in plain if is_small([each]) and has_loops(each)}
    levels: dict[Node, int] = {}
    for unit in units:
        own = set(unit)
        outside = ((node, each) for node in unit for each in operands(node))
        read = ((node, each) for node, each in outside if own.isdisjoint((each, base_of(each))))
        level = max((seen_from(node, each, levels, inside) for node, each in read), default=0)
        levels.update(dict.fromkeys(unit, level))
    by_level: dict[int, list[Node]] = {}
    for node in nodes:
        if node in inside:
            by_level.setdefault(levels[node], []).append(node)
    for members in by_level.values():
        region = Region(tuple(members))
        if len(members) >= _LEAST_OPERATIONS and region.outputs():
            yield region


def is_small(members: Sequence[Node]) -> bool:
    """Whether operations make and read values of few elements, of fixed sizes."""
    values = [value_of(each) for node in members for each in (node, *operands(node))]
    return all(
        hasattr(each, "numel")
        and all(isinstance(n, int) and not is_open(n) for n in each.shape)
        and prod(each.shape) <= _MOST_ELEMENTS
        for each in values
    )
