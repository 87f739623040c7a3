"""Updates of a graph's inputs, done where the inputs are.

Capture makes a graph functional: a cache that one token is written to becomes a new tensor, a whole
copy, which is copied back into the cache at the end. Where nothing reads the old contents any more,
the update writes into the cache itself, and both copies are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tileworkbench.pytorch.aten import COPY
from tileworkbench.pytorch.nodes import Node, base_of, name_of, readers_of

# Operations that are their first argument with a part replaced, and those that do it in place.
_UPDATES = {
    "aten.index_copy.default": "index_copy_.default",
    "aten.index_put.default": "index_put_.default",
    "aten.index_add.default": "index_add_.default",
    "aten.scatter.src": "scatter_.src",
    "aten.scatter.value": "scatter_.value",
    "aten.scatter_add.default": "scatter_add_.default",
}


def update_in_place(graph: Any, may: Callable[[Node], bool] = lambda _: True) -> None:
    """Let updates of the inputs of a graph write into them, where their old contents are read
    before only, and where they all `may`. Nodes are in the order in which they run.
    """
    import torch

    order = {node: at for at, node in enumerate(graph.nodes)}
    for node in [node for node in graph.nodes if name_of(node) == COPY]:
        held, made = node.args[:2]
        updates = _updates(held, made)
        if not updates or node.users or not all(map(may, updates)):
            continue
        if all(_is_last(each, order, node) for each in updates):
            for each in updates:
                overload = torch.ops.aten
                for part in _UPDATES[name_of(each)].split("."):
                    overload = getattr(overload, part)
                each.target = overload
            graph.erase_node(node)


def _updates(held: Node, made: Node) -> list[Node]:
    """The updates by which `made` follows from the input `held`; none if it is something else."""
    updates = []
    while name_of(made) in _UPDATES:
        updates.append(made)
        made = made.args[0]
    return updates if made is held and held.op == "placeholder" else []


def _is_last(update: Node, order: Mapping[Node, int], copy: Node) -> bool:
    """Whether what an update replaces is read by it and by what comes before it only, and what it
    makes is not a result of the graph.
    """
    old = update.args[0]
    others = set(readers_of(old)) - {update, copy}
    rest = {each for each in update.all_input_nodes if each is not old}
    is_apart = not any(base_of(each) is old for each in rest)
    is_kept = any(each.op == "output" for each in readers_of(update))
    return is_apart and not is_kept and all(order[each] < order[update] for each in others)
