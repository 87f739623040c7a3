"""Views of views that torch makes, as one view each, and as one for all that read the same."""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch.nodes import Node, base_of, drop_unused, is_view, value_of


def shorten_views(graph: Any) -> None:
    """Let what reads a view of a view of a graph's own tensor read one view of it, which others
    read too, or the tensor itself where that is the same. Views of inputs stay: where those begin
    in memory is not known.
    """
    import torch

    made: dict[tuple[Any, ...], Node] = {}
    for node in list(graph.nodes):
        base = base_of(node)
        if base is node or not _is_new(base) or not _is_fixed(node, base):
            continue
        value, whole = value_of(node), value_of(base)
        size, stride = tuple(value.shape), tuple(value.stride())
        offset = value.storage_offset()
        if (size, stride, offset) == (tuple(whole.shape), tuple(whole.stride()), 0):
            _replace(node, base)
            continue
        key = (base, size, stride, offset)
        if key not in made and not is_view(node.args[0]):
            made[key] = node
        elif key not in made:
            with graph.inserting_before(node):
                arguments = (base, list(size), list(stride), offset)
                made[key] = graph.call_function(torch.ops.aten.as_strided.default, arguments)
            made[key].meta = dict(node.meta)
        if made[key] is not node:
            _replace(node, made[key])
    drop_unused(graph)


def _is_new(node: Node) -> bool:
    """Whether a node makes a tensor of its own: it is no input, and updates none."""
    schema = getattr(node.target, "_schema", None)
    return node.op == "call_function" and not (schema is not None and schema.is_mutable)


def _is_fixed(node: Node, base: Node) -> bool:
    """Whether a view and what it is of are tensors of fixed sizes, in the memory of `base`."""
    import torch

    tensors = (value_of(node), value_of(base))
    if not all(isinstance(each, torch.Tensor) for each in tensors):
        return False
    numbers = [n for each in tensors for n in (*each.shape, *each.stride(), each.storage_offset())]
    value, whole = tensors
    is_one = value.untyped_storage()._cdata == whole.untyped_storage()._cdata
    return is_one and whole.storage_offset() == 0 and all(isinstance(n, int) for n in numbers)


def _replace(node: Node, by: Node) -> None:
    """Let all but the graph's results read `by`: those are the tensors that torch expects."""
    node.replace_all_uses_with(by, delete_user_cb=lambda user: user.op != "output")
