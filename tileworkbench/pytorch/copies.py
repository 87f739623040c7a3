"""Copies of tensors that nobody writes to, left out.

A graph is functional: what reads a copy may as well read what it is a copy of. Models make some to
have elements in order that are so already, and paddings of nothing.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    follow_views,
    name_of,
    readers_of,
    value_of,
)

_COPIES = ("aten.clone.default", "aten.constant_pad_nd.default")


def drop_copies(graph: Any) -> None:
    """Let what reads a copy with the same strides read what was copied. Copies that are results of
    the graph stay, and those of what the graph writes to.
    """
    for node in list(graph.nodes):
        if name_of(node) not in _COPIES or not _is_same(node, node.args[0]):
            continue
        source = node.args[0]
        if any(each.op == "output" for each in readers_of(node)) or _is_written(base_of(source)):
            continue
        node.replace_all_uses_with(source)
        graph.erase_node(node)
        follow_views(source)


def _is_same(node: Node, source: Node) -> bool:
    """Whether a tensor has the sizes and strides of another, all of them known."""
    values = value_of(node), value_of(source)
    forms = [(*each.shape, *each.stride()) for each in values]
    return all(isinstance(n, int) for n in (*forms[0], *forms[1])) and forms[0] == forms[1]


def _is_written(base: Node) -> bool:
    """Whether an operation of the graph writes to the memory of a node."""
    schemas = (getattr(each.target, "_schema", None) for each in readers_of(base))
    return any(schema is not None and schema.is_mutable for schema in schemas)
