"""The operations of a kernel in torch, on the kernel's own inputs: what the kernel is checked
against."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tileworkbench.pytorch.nodes import Node, is_number, value_of
from tileworkbench.pytorch.regions import Region
from tileworkbench.pytorch.rules import AnyGroup
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizes
from tileworkbench.pytorch.written import Written


def reference_of(group: AnyGroup, what: Written, sizes: OpenSizes) -> Callable[..., Any]:
    """A function of tensors in the kernel's shapes, which returns such tensors. Open sizes are
    those that the graph was captured with.
    """

    def shown(shape: Extents) -> list[int]:
        return [sizes.hint(size) for size in shape]

    def reference(*tensors: Any) -> Any:
        values: dict[Node, Any] = {}
        for each, tensor in zip(what.arguments, tensors, strict=True):
            values[each.node] = each.to_torch(tensor, shown(each.ordered))
            if isinstance(group, Region) and group.updates:
                values[each.node] = values[each.node].clone()  # the kernel's own is left alone
        for node in group.nodes:
            _value(node, values)
        made = [each.to_kernel(values[each.node], shown(each.shape)) for each in what.results]
        return made[0] if len(made) == 1 else tuple(made)

    reference.__name__ = f"torch:{what.name}"
    return reference


def _value(node: Node, values: dict[Node, Any]) -> Any:
    """The tensor of a node. What a kernel reads broadcast, and constants, are made on the way."""
    import torch.fx

    if node not in values and is_number(node):
        values[node] = int(value_of(node).node.hint)
    elif node not in values:
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: _value(each, values))
        values[node] = node.target(*args, **kwargs)
    return values[node]
