"""Nodes of torch's graphs: what an operation is called, what it reads, and the shapes of values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizes

Node = Any  # of torch.fx


def name_of(node: Node) -> str:
    """The operation of a call as the table names it; "" for what is no operation of torch."""
    if node.op != "call_function":
        return ""
    target = node.target
    return _name_of_operation(target) if hasattr(target, "_schema") else str(target)


@cache
def _name_of_operation(operation: Any) -> str:
    """torch writes it anew each time, and it is asked for a thousand times for each operation."""
    return str(operation)


def value_of(node: Node) -> Any:
    """The tensor without contents that torch has computed for a node."""
    return node.meta.get("val")


def value_of_call(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What an operation makes of the values of nodes."""
    import torch.fx

    values, options = torch.fx.map_arg((args, kwargs), value_of)
    return target(*values, **options)


def shape_of(node: Node) -> Extents:
    """The extents of a node's tensor; an open size is its stand-in."""
    extents: Extents = node.meta.get("extents") or tuple(value_of(node).shape)
    return extents


def strides_of(node: Node) -> Extents:
    """The strides of a node's tensor; an open size is its stand-in."""
    strides: Extents = node.meta.get("strides") or tuple(value_of(node).stride())
    return strides


def offset_of(node: Node) -> int:
    """Where in its storage a node's tensor begins; an open number is its stand-in."""
    offset = node.meta.get("offset")
    return int(value_of(node).storage_offset() if offset is None else offset)


def stand_in(node: Node, sizes: OpenSizes) -> None:
    """Note the extents and strides of a node's tensor with stand-ins for open sizes."""
    import torch

    value = value_of(node)
    node.meta["sizes"] = sizes
    if isinstance(value, torch.Tensor) and value.layout == torch.strided:
        node.meta["extents"] = tuple(map(sizes.number, value.shape))
        node.meta["strides"] = tuple(map(sizes.number, value.stride()))
        node.meta["offset"] = sizes.number(value.storage_offset())


def is_number(node: Node) -> bool:
    """Whether a node is a size or what follows from sizes, not a tensor."""
    return isinstance(value_of(node), _symbolic())


@cache
def _symbolic() -> tuple[type, ...]:
    import torch

    return torch.SymInt, torch.SymFloat, torch.SymBool


def changes(node: Node) -> bool:
    """Whether an operation takes a number that torch keeps open, not as a size."""
    name = name_of(node)
    takes_numbers = name in aten.MAPS or name in aten.BATCH_NORMS
    takes_numbers |= name in ROWS and not ROWS[name].takes_sizes
    return takes_numbers and any(map(is_number, node.all_input_nodes))


def operands(node: Node) -> list[Node]:
    """The tensors that a call takes, in order."""
    return [each for each in node.all_input_nodes if not is_number(each)]


def inputs_of(node: Node) -> list[Node]:
    """All nodes that a call takes, those of sizes too."""
    return list(node.all_input_nodes)


def is_part(node: Node) -> bool:
    """Whether it picks one result of an operation that has several."""
    return name_of(node) == "<built-in function getitem>"


def seen_through(node: Node) -> Node:
    """What a node broadcasts: a kernel reads that, and repeats nothing in memory."""
    while name_of(node) == aten.EXPANSION:
        node = node.args[0]
    return node


_VIEWS = (*aten.VIEWS, *aten.TRANSPOSITIONS, *aten.SLICES, aten.EXPANSION)


def unviewed(node: Node) -> Node:
    """What a node has the elements of in the same order."""
    while name_of(node) in aten.VIEWS:
        node = node.args[0]
    return node


def is_view(node: Node) -> bool:
    """Whether a node is memory of another one, or a part of such views."""
    return name_of(node) in _VIEWS or (is_part(node) and is_view(node.args[0]))


def base_of(node: Node) -> Node:
    """The node whose memory a node is: its own, or that of what it is a view of."""
    while is_view(node):
        node = node.args[0]
    return node


def readers_of(node: Node) -> Iterator[Node]:
    """What reads a node's memory, also through views of it."""
    for user in node.users:
        yield user
        if is_view(user):
            yield from readers_of(user)


def follow_views(node: Node) -> None:
    """Give the views of a node, whose memory is another now, the values that follow from it."""
    for each in readers_of(node):
        if is_view(each):
            each.meta["val"] = value_of_call(each.target, each.args, each.kwargs)


def drop_unused(graph: Any) -> None:
    """Remove what nothing reads, but for operations that write to tensors."""
    graph.eliminate_dead_code(
        lambda node: node.is_impure() or getattr(node.target, "is_update", False)
    )


def is_read_outside(node: Node, members: Collection[Node]) -> bool:
    """Whether others than `members` read a node's memory, also through views."""
    return any(not is_view(each) and each not in members for each in readers_of(node))


def is_tuple(node: Node) -> bool:
    """Whether an operation has several results."""
    return isinstance(value_of(node), tuple | list)


def constant_of(node: Node) -> Any:
    """The number that a node fills a tensor with, None for other nodes. One that waits for a tensor
    of fixed sizes, which it only has the form of, is none: see `folding.drop_examples`.
    """
    filled = filled_with(node)
    if filled is None or all(map(is_number, node.all_input_nodes)):
        return filled
    return None if has_fixed_sizes(node) else filled


def filled_with(node: Node) -> Any:
    """The number that a node fills a tensor with, whatever it reads."""
    name = name_of(node)
    if name in aten.FILLED:
        return node.args[aten.FILLED[name]]
    return 0 if name in aten.ZEROS else 1 if name in aten.ONES else None


def has_fixed_sizes(node: Node) -> bool:
    """Whether no size of a node's tensor is open."""
    return all(isinstance(size, int) for size in value_of(node).shape)


def is_for_channels(node: Node, operand: Node) -> bool:
    """Whether an operand has a number for each channel of a batch normalisation's images."""
    return name_of(node) == aten.BATCH_NORM and operand is not seen_through(node.args[0])


def is_work(node: Node) -> bool:
    """Whether a node computes something: it does not only say how memory is read, and is no
    constant and no part of a result.
    """
    if node.op != "call_function" or is_part(node) or is_number(node):
        return False
    return name_of(node) not in _VIEWS and constant_of(node) is None


def label_of(node: Node) -> str:
    """The operation in short: "gelu" of aten.gelu.default."""
    parts = name_of(node).split(".")
    return parts[1].lstrip("_") if len(parts) > 1 else parts[0]


def assigned_names(nodes: Iterable[Node]) -> dict[Node, str]:
    """What the user's code calls results: ``mean = ...`` names the last operation of its line. The
    last one of ``return ...`` is "return", which no variable is called.
    """
    last: dict[tuple[str, int, str], Node] = {}
    for node in nodes:
        line = line_of(node)
        if line is not None:
            last[line] = node
    made = {}
    for (_, _, text), node in last.items():
        assignment = re.match(r"([^\W\d]\w*)\s*=(?!=)", text)
        if assignment:
            made[node] = assignment[1]
        elif text.startswith("return "):
            made[node] = "return"
    return made


def name_in_kernel(node: Node, called: Mapping[Node, str]) -> str:
    """What a result is called in a kernel: as in the user's code, or after its operation."""
    name = called.get(node, "return")
    return str(node.name) if name == "return" else name


_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)\n\s*(.*)')


def line_of(node: Node) -> tuple[str, int, str] | None:
    """(file, line, text) of the user's code that an operation comes from, if torch kept it."""
    return _last_line(node.meta.get("stack_trace") or "")


@lru_cache(maxsize=4096)
def _last_line(trace: str) -> tuple[str, int, str] | None:
    frames = _FRAME.findall(trace)
    if not frames:
        return None
    file, line, _, text = frames[-1]
    return file, int(line), text.strip()


def cited(nodes: Iterable[Node], most: int = 4) -> Iterator[str]:
    """The lines of the user's code that operations come from, for a comment each."""
    lines = dict.fromkeys(filter(None, map(line_of, nodes)))
    return (f"line {line}: {text}" for _, line, text in list(lines)[:most] if text)
