"""Linear layers of one row, as what they are: a matrix times a vector.

Decoding has one row. Its time is that of reading the weights, which a kernel does with what follows
from the result in the same loop, as any reduction of rows. Weights that are computed for the layer,
element by element, are never in memory: the kernel reads what they are computed from.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.pytorch.aten import BATCH_NORM, CONVERSION, LAYERS, MAPS, VIEWS
from tileworkbench.pytorch.dtypes import is_known
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.nodes import (
    Node,
    follow_views,
    name_of,
    operands,
    seen_through,
    value_of,
    value_of_call,
)
from tileworkbench.pytorch.tiles import LONGEST_ROW

_LEAST_WEIGHTS = 8192  # fewer are as fast in torch
_INSIDE = {*MAPS, *VIEWS, CONVERSION} - {BATCH_NORM}


def use_vectors(graph: Any) -> None:
    """Put `aten.mv` where a graph multiplies one row by the transpose of a matrix that lies in
    memory row by row. Products of open sizes stay as they are.
    """
    import torch

    aten = torch.ops.aten
    for node in list(graph.nodes):
        parts = _operands(node)
        if parts is None:
            continue
        *bias, x, weight = parts
        rows, columns = value_of(weight).shape
        with graph.inserting_before(node):
            made = _call(graph, node, aten.view.default, x, [columns])
            made = _call(graph, node, aten.mv.default, weight, made)
            made = _call(graph, node, aten.view.default, made, [1, rows])
            for each in bias:
                made = _call(graph, node, aten.add.Tensor, made, each)
        node.replace_all_uses_with(made)
        transposed = node.args[-1]
        graph.erase_node(node)
        if not transposed.users:  # else it would read the matrix
            graph.erase_node(transposed)
        follow_views(made)


def _operands(node: Node) -> tuple[Node, ...] | None:
    """([bias,] x, weight) of a product of one row."""
    if name_of(node) not in LAYERS or node.kwargs:
        return None
    *bias, x, transposed = node.args
    if name_of(transposed) != "aten.t.default":
        return None
    weight = transposed.args[0]
    values = [value_of(each) for each in (x, weight)]
    if not all(isinstance(size, int) for value in values for size in value.shape):
        return None
    is_row = values[0].shape[0] == 1 and all(value.is_contiguous() for value in values)
    kind = dtype_name(values[1].dtype)
    if values[0].dtype != values[1].dtype or kind not in ("float32", "bfloat16", "float16"):
        return None
    if not is_row or values[1].numel() < _LEAST_WEIGHTS or not _is_read_once(weight, transposed):
        return None
    return (*bias, x, weight)


def _is_read_once(matrix: Node, user: Node) -> bool:
    """Whether a kernel of rows can compute a matrix where it reads it: it is an input of the graph,
    or computed for this user alone from such inputs, element by element, and from what is the same
    for rows, columns or groups of them.
    """
    rows, columns = value_of(matrix).shape
    shapes = set[tuple[int, ...]]()
    waiting = [(matrix, user)]
    while waiting:
        node, reader = waiting.pop()
        shapes.add(tuple(value_of(node).shape))
        if node.op == "placeholder":
            continue
        is_own = list(node.users) == [reader] and is_known(value_of(node).dtype)
        if name_of(node) not in _INSIDE or not is_own or columns > LONGEST_ROW:
            return False
        read = map(seen_through, operands(node))
        waiting += [(each, node) for each in read if value_of(each).numel() == rows * columns]
    grouped = shapes - {(rows, columns)}
    return len(grouped) < 2 and all(len(each) == 3 and each[0] == rows for each in grouped)


def _call(graph: Any, like: Node, target: Any, *args: Any) -> Node:
    """A new node with its value, at the user's line of `like`."""
    made = graph.call_function(target, args)
    value = value_of_call(target, args, {})
    made.meta = {"val": value, "stack_trace": like.meta.get("stack_trace")}
    return made
