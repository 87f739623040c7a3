"""What is known of a kernel once its text is written, and the names in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.nodes import Node, is_part, name_of, shape_of


@dataclass(frozen=True, slots=True)
class Argument:
    """What the kernel is passed: a node's tensor with its dimensions in `order` (torch's own where
    that is empty), in the kernel's own shape.
    """

    node: Node
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()

    def taken(self, tensor: Any) -> Any:
        """A tensor of the node as the kernel takes it."""
        ordered = tensor.permute(self.order) if self.order else tensor
        return ordered.contiguous().view(self.shape)

    def given(self, tensor: Any) -> Any:
        """The tensor of the node, of what the kernel takes."""
        return _in_torch(self, tensor)


@dataclass(frozen=True, slots=True)
class Result:
    """What the kernel returns for a node: a tensor of the kernel's own `shape`, which is torch's
    with its dimensions in `order`.
    """

    node: Node
    shape: tuple[int, ...]
    order: tuple[int, ...] = ()

    def given(self, tensor: Any) -> Any:
        """The tensor of the node, of what the kernel returns."""
        return _in_torch(self, tensor)

    def stored(self, tensor: Any) -> Any:
        """A tensor of the node as the kernel returns it."""
        ordered = tensor.permute(self.order) if self.order else tensor
        return ordered.reshape(self.shape)


def _in_torch(what: Argument | Result, tensor: Any) -> Any:
    shape, order = shape_of(what.node), what.order
    if not order:
        return tensor.view(shape)
    back = sorted(range(len(order)), key=order.__getitem__)
    return tensor.view([shape[at] for at in order]).permute(back)


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel's text with its name, and what goes in and comes out in order."""

    name: str
    text: str
    arguments: tuple[Argument, ...]
    results: tuple[Result, ...]


def base_name(node: Node, names: Mapping[Node, str], plain: str = "") -> str:
    """The name of what a view or a transposed matrix is of; `plain` for what has none."""
    while node not in names and (
        name_of(node) in (*aten.VIEWS, *aten.TRANSPOSITIONS) or is_part(node)
    ):
        node = node.args[0]
    return names.get(node, plain or str(node.name))


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or with a number behind it where that is taken."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
