"""An element of an element-wise operation, of those of its operands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import promote
from tileworkbench.pytorch.nodes import Node, name_of, operands, value_of
from tileworkbench.pytorch.terms import Keep, Term


def element_of(node: Node, operand: Callable[[Any], Any], keep: Keep) -> Term:
    """The element, as far as the operation's dtype has room for it. `operand` gives that of an
    argument, `keep` gives a part of the formula a name.
    """

    def taken(argument: Any) -> Any:
        return _fitting(argument, node) if type(argument) is int else operand(argument)

    name = name_of(node)
    parts = [keep] if name in aten.STEPS else []
    arguments = map(taken, node.args)
    options = {key: taken(each) for key, each in node.kwargs.items()}
    return aten.MAPS[name](*parts, *arguments, **options).wrapped(value_of(node).dtype)


def _fitting(value: int, node: Node) -> int:
    """A number beside tensors of integers, which have it begin anew behind their largest one."""
    dtype = functools.reduce(promote, (value_of(each).dtype for each in operands(node)))
    if dtype.is_floating_point or str(dtype) == "torch.bool":
        return value
    size = 1 << (8 * dtype.itemsize)
    value %= size
    return value - size if dtype.is_signed and 2 * value >= size else value
