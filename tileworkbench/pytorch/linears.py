"""Linear layers that torch runs, as one operation each.

Capture takes a layer apart into a view, a transposed weight, a product and a view. Run one by one
from Python these four cost more than the product, where that has one row.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch.aten import LAYERS
from tileworkbench.pytorch.nodes import Node, name_of, value_of

_FLAT = ("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default")


def join_linears(graph: Any) -> None:
    """Put `aten.linear` where a graph has the parts of one; the parts that nothing else reads
    remain to be eliminated. Layers of open sizes stay as they are.
    """
    import torch

    for node in reversed(list(graph.nodes)):  # a layer before the product that is a part of it
        layer = _layer(node) if node.users else None
        if layer is None:
            continue
        with graph.inserting_before(node):
            joined = graph.call_function(torch.ops.aten.linear.default, layer)
        joined.meta = dict(node.meta)
        node.replace_all_uses_with(joined)
        graph.erase_node(node)


def _layer(node: Node) -> tuple[Any, ...] | None:
    """(x, weight, bias or None) of the layer that ends with a node."""
    product = node
    if name_of(node) in _FLAT and isinstance(node.args[0], type(node)):
        product = node.args[0]
    if name_of(product) not in LAYERS or product.kwargs:
        return None
    *bias, flat, transposed = product.args
    if name_of(transposed) != "aten.t.default" or (bias and len(_shape(bias[0]) or ()) != 1):
        return None
    x = flat.args[0] if name_of(flat) in _FLAT and product is not node else flat
    weight, made = _shape(transposed.args[0]), _shape(node)
    taken = _shape(x)
    if taken is None or weight is None or made != (*taken[:-1], weight[0]):
        return None
    return (x, transposed.args[0], bias[0]) if bias else (x, transposed.args[0])


def _shape(node: Node) -> tuple[int, ...] | None:
    """The extents of a node's tensor, None where one is open or not known."""
    value = value_of(node)
    if value is None or not all(isinstance(size, int) for size in value.shape):
        return None
    return tuple(value.shape)
