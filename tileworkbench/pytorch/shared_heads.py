"""Heads of keys and values that several heads of queries share, not repeated in memory.

Models repeat them (`expand` and `reshape`, which copies) because attention once asked for as many
heads of keys as of queries. The operation that capture leaves takes fewer, in torch as in kernels.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.nodes import Node, has_fixed_sizes, name_of, shape_of, value_of

_CLONE, _UNSQUEEZE = "aten.clone.default", "aten.unsqueeze.default"


def share_heads(graph: Any) -> None:
    """Let attention read the heads that are repeated for it. Open sizes stay as they are."""
    for node in graph.nodes:
        if name_of(node) != aten.ATTENTION:
            continue
        query, *repeated = node.args[:3]
        shared = [_shared(each) for each in repeated]
        if None not in shared and len({shape_of(each)[1] for each in shared}) == 1:
            node.args = (query, *shared, *node.args[3:])
    graph.eliminate_dead_code()


def _shared(node: Node) -> Node | None:
    """What has each head once, of a tensor (batch, heads, length, width) that has each several
    times in a row; None for other tensors.
    """
    copied = node
    while name_of(copied) in (*aten.VIEWS, _CLONE):
        copied = copied.args[0]
    if name_of(copied) != aten.EXPANSION:
        return None
    single = copied.args[0]
    if name_of(single) != _UNSQUEEZE or not all(map(has_fixed_sizes, (node, copied))):
        return None
    heads, place = single.args
    if value_of(heads).dim() != 4 or not has_fixed_sizes(heads):
        return None
    batch, count, length, width = value_of(heads).shape
    shape = tuple(value_of(copied).shape)
    times = shape[2]
    each_again = place % 5 == 2 and shape == (batch, count, times, length, width)
    made = tuple(value_of(node).shape) == (batch, count * times, length, width)
    return heads if each_again and made and value_of(heads).stride(3) == 1 else None
