"""What is known of a kernel once its text is written, and the names in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.nodes import Node, is_number, is_part, name_of, shape_of, value_of
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import formula, is_open, spelled


@dataclass(frozen=True, slots=True)
class Tensor:
    """What the kernel takes or returns for a node: torch's tensor with its dimensions in `order`
    (torch's own where that is empty), in the kernel's own `shape`.
    """

    node: Node
    shape: Extents
    order: tuple[int, ...] = ()

    @property
    def ordered(self) -> Extents:
        """The extents of torch's tensor in this order."""
        shape = shape_of(self.node)
        return tuple(shape[at] for at in self.order) if self.order else shape

    def to_kernel(self, tensor: Any, shape: Sequence[int]) -> Any:
        """A tensor of torch as the kernel has it, in which it is of this `shape`."""
        ordered = (tensor.permute(self.order) if self.order else tensor).contiguous()
        return ordered if ordered.shape == shape else ordered.view(shape)

    def to_torch(self, tensor: Any, ordered: Sequence[int]) -> Any:
        """A tensor of the kernel as torch has it; its extents in this order are `ordered`."""
        viewed = tensor if tensor.shape == ordered else tensor.view(ordered)
        if not self.order:
            return viewed
        return viewed.permute(sorted(range(len(self.order)), key=self.order.__getitem__))


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel's text with its name, and what goes in and comes out in order.

    `known` says where an open size is in a call: the node and the dimension of its tensor, -1 where
    the node is a size itself. `note` says why the kernel does not do more, where that is a choice.
    """

    name: str
    text: str
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    known: dict[int, tuple[Node, int]]
    note: str = ""


def text_of_kernel(
    name: str,
    comments: Iterable[str],
    labels: Iterable[str],
    arguments: Iterable[Tensor],
    result: Tensor,
    body: Iterable[str],
) -> str:
    """The text of a kernel that takes `arguments`, called `labels`, and returns one tensor, `out`,
    which the lines of `body` fill.
    """

    def tensor(each: Tensor) -> str:
        return f"({shape_text(each.shape)}, T.{dtype_name(value_of(each.node).dtype)})"

    named_arguments = zip(labels, arguments, strict=True)
    lines = [
        *(f"# {comment}" for comment in comments),
        "@T.prim_func",
        f"def {name}(",
        *(f"    {label}: T.Tensor{tensor(each)}," for label, each in named_arguments),
        "):",
        f"    out = T.empty{tensor(result)}",
        *indented(iter(body), 1),
        "    return out",
    ]
    return "\n".join(lines) + "\n"


def finished(
    name: str,
    text: str,
    arguments: Sequence[Tensor],
    results: Sequence[Tensor],
    wanted: Mapping[int, str],
    names: Names,
) -> Written:
    """The kernel with names for open sizes; `wanted` are names for some, `names` are those in the
    text. Raises `OpenSizeError` for a size that does not follow from those of the arguments.
    """
    everywhere = _open_sizes([each.node for each in arguments])
    known: dict[int, tuple[Node, int]] = {}
    for each in (*arguments, *results):
        for size in (*each.shape, *each.ordered):
            follows = formula(size, everywhere)
            known |= {part: everywhere[part] for part in follows.sizes}
    text = spelled(text, [each.shape for each in arguments], wanted, names)
    return Written(name, text, tuple(arguments), tuple(results), known)


def _open_sizes(arguments: Sequence[Node]) -> dict[int, tuple[Node, int]]:
    """Where open sizes are in a kernel's arguments, or else in the inputs of their graph."""
    if not any(is_open(size) for node in arguments for size in shape_of(node)):
        return {}
    places: dict[int, tuple[Node, int]] = {}
    for node in (*arguments, *(n for n in arguments[0].graph.nodes if n.op == "placeholder")):
        shape: Extents = node.meta.get("extents", ())
        if is_number(node):
            shape = (node.meta["sizes"].number(value_of(node)),)
        for at, size in enumerate(shape, -1 if is_number(node) else 0):
            if is_open(size):
                places.setdefault(size, (node, at))
    return places


def base_name(node: Node, names: Mapping[Node, str], plain: str = "") -> str:
    """The name of what a view or a transposed matrix is of; `plain` for what has none."""
    while node not in names and (
        name_of(node) in (*aten.VIEWS, *aten.TRANSPOSITIONS, aten.EXPANSION) or is_part(node)
    ):
        node = node.args[0]
    return names.get(node, plain or str(node.name))


def free_name(name: str, taken: Collection[str]) -> str:
    """`name`, or with a number behind it where that is taken."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free
