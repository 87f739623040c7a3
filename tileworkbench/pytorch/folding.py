"""Parts of a graph that depend on none of its inputs: positions, masks. They are computed once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.nodes import (
    Node,
    filled_with,
    has_fixed_sizes,
    is_number,
    name_of,
    readers_of,
    value_of,
)

_MOST_ELEMENTS = 1 << 20  # of a tensor that is kept
_WITHOUT_CONTENTS = ("aten.empty.", "aten.empty_like.", "aten.new_empty", "aten.empty_strided.")


def fold_constants(module: Any) -> None:
    """Compute what follows from no input when the graph is compiled. `module` keeps the tensors,
    under names that the graph reads. Numbers that kernels write out stay as they are.
    """
    import torch
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    graph = module.graph
    known: dict[Node, Any] = {}
    with torch.no_grad(), unset_fake_temporarily():  # torch compiles with tensors without contents
        for node in graph.nodes:
            if _is_constant(node, known):
                args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
                known[node] = node.target(*args, **kwargs)
    for node, tensor in known.items():
        if name_of(node) in aten.CONSTANTS or all(user in known for user in node.users):
            continue
        name = f"folded_{node.name}"
        module.register_buffer(name, tensor, persistent=False)
        with graph.inserting_before(node):
            held = graph.get_attr(name)
        held.meta = dict(node.meta)
        node.replace_all_uses_with(held)
    graph.eliminate_dead_code()


def drop_examples(graph: Any) -> None:
    """Let no tensor of one number wait for one that it only has the form of: `zeros_like(x)` of
    fixed sizes is `full(...)`. Of tensors in other orders it stays.
    """
    import torch

    for node in list(graph.nodes):
        number = filled_with(node)
        if number is None or not node.all_input_nodes or not has_fixed_sizes(node):
            continue
        value = value_of(node)
        if isinstance(number, torch.fx.Node) or not value.is_contiguous():
            continue
        form = {"dtype": value.dtype, "device": value.device}
        with graph.inserting_before(node):
            made = graph.call_function(
                torch.ops.aten.full.default, (list(value.shape), number), form
            )
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        graph.erase_node(node)


def _is_constant(node: Node, known: Mapping[Node, Any]) -> bool:
    """Whether a node is the same in each call, small, and for others to read only."""
    import torch

    value = value_of(node)
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return False
    if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
        return False
    if any(each not in known or is_number(each) for each in node.all_input_nodes):
        return False
    if not all(isinstance(size, int) for size in value.shape) or value.numel() > _MOST_ELEMENTS:
        return False
    is_pure = not node.target._schema.is_mutable and not name_of(node).startswith(_WITHOUT_CONTENTS)
    is_random = torch.Tag.nondeterministic_seeded in node.target.tags
    # A result of the graph is the caller's, who may write to it.
    return is_pure and not is_random and all(user.op != "output" for user in readers_of(node))
