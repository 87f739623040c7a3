"""Operations that torch runs, called by the functions that Python code calls.

`torch.ops.aten.mm.default` reads its arguments by the operation's schema, one by one and in each
call. `torch.mm` is code that torch has generated for them. Of a view that is two thirds of the
time, and between kernels it runs with cold caches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tileworkbench.pytorch.nodes import name_of

# Functions of torch that take the arguments of an operation in the same order.
_FUNCTIONS = (
    *("addmm.default", "bmm.default", "clone.default", "convolution.default", "mm.default"),
    *("as_strided.default", "permute.default", "select.int", "t.default", "transpose.int"),
    *("unsqueeze.default", "sort.default", "topk.default"),
)
_METHODS = ("view.default", "expand.default")


def call_directly(graph: Any) -> None:
    """Call the operations of a graph without their schemas, where torch has functions for them.
    No operation has a name afterwards.
    """
    functions = _functions()
    for node in list(graph.nodes):
        name = name_of(node)
        if name in functions:
            node.target = functions[name]
        elif name.removeprefix("aten.") in _METHODS:
            node.op, node.target = "call_method", name.split(".")[1]
        else:
            continue
        # A tuple of numbers is a constant of the code, a list is made in each call.
        node.args = tuple(tuple(each) if isinstance(each, list) else each for each in node.args)


def _functions() -> Mapping[str, Any]:
    import torch

    functions = {f"aten.{name}": getattr(torch, name.split(".")[0]) for name in _FUNCTIONS}
    return {**functions, "aten.linear.default": torch.nn.functional.linear}
