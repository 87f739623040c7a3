"""What sends rows to groups, as loops of a kernel (`loops`): counts of small integers, where groups
end, places that are written to by an index.
"""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.indices import Index, position, variable
from tileworkbench.pytorch.lines import indented, index_check
from tileworkbench.pytorch.loops import Loops, text
from tileworkbench.pytorch.nodes import Node, name_of, value_of
from tileworkbench.pytorch.terms import NoRuleError, Term, select

COUNT = "aten.histc.default"
PUT = "aten.index_put.default"
_SCAN = "aten.cumsum.default"
_EMPTY = "aten.empty_like.default"
ROUTING = (COUNT, PUT, _SCAN, _EMPTY)
_MOST_COUNTS = 1 << 18  # comparisons of values with numbers that are counted
_INTEGERS = ("int8", "uint8", "int16", "int32", "int64")


def is_routing(node: Node) -> bool:
    """Whether an operation has its loops here."""
    has_dtype = len(node.args) > 2 or node.kwargs.get("dtype") is not None
    return name_of(node) in ROUTING and (name_of(node) != _SCAN or has_dtype)


def add_routing(loops: Loops, node: Node) -> None:
    """Add the loops of such an operation."""
    if name_of(node) == _EMPTY:
        loops.made(node)  # room without contents, which another operation fills
    else:
        {COUNT: _add_count, PUT: _add_put, _SCAN: _add_scan}[name_of(node)](loops, node)


def _add_count(loops: Loops, node: Node) -> None:
    """`histc` of integers from 0 on with a bin for each: how often each is there."""
    x, bins, least, most = (*node.args, 100, 0, 0)[:4]
    is_whole = name_of(x) == aten.CONVERSION and _is_integer(x.args[0])
    if not is_whole or value_of(x).dim() != 1 or (least, most) != (0, bins - 1) or bins < 2:
        raise NoRuleError("counts of what are no integers from 0 on, one bin for each")
    count = value_of(x).numel()
    if count * bins > _MOST_COUNTS or bins > 1 << 8:
        raise NoRuleError("counts of many values")
    counts, memory = loops.name("counts"), loops.made(node)
    loops.reserve(counts, (bins,), named("int32"))
    at = Index((("k", count, 1),))
    seen: Term = loops.value(x.args[0], [at])
    loops.lines += [
        f"T.clear({counts})",
        f"for k in T.serial({count}):",
        f"    for i in T.Parallel({bins}):",
        f"        {counts}[i] += T.if_then_else({text(seen)} == i, 1, 0)",
    ]
    made = Term("element", (f"{counts}[i]", 0, count), named("int32"), "full")
    kind = value_of(node).dtype
    where = position([variable("i", bins)], memory.strides).text
    loops.lines += loops.loop(
        [("i", bins)], lambda: [f"{memory.name}[{where}] = {text(made.to(kind))}"]
    )


def _add_scan(loops: Loops, node: Node) -> None:
    """A running sum of few values, which become another dtype first."""
    x = node.args[0]
    dtype = value_of(node).dtype
    if value_of(x).dim() != 1 or not _is_integer(node):
        raise NoRuleError("a running sum in another dtype")
    count, memory = value_of(x).numel(), loops.made(node)
    total = loops.name("total")
    loops.reserve(total, (1,), dtype, "local")
    element: Term = loops.value(x, [Index((("k", count, 1),))])
    loops.lines += [
        f"{total}[0] = 0",
        f"for k in T.serial({count}):",
        f"    {total}[0] = {total}[0] + {text(element.to(dtype))}",
        f"    {memory.name}[k] = {total}[0]",
    ]


def _add_put(loops: Loops, node: Node) -> None:
    """Elements of a row that an index names become others, in order."""
    held, indices, values = node.args[:3]
    shape = tuple(value_of(held).shape)
    accumulates = len(node.args) > 3 and node.args[3]
    if len(shape) != 1 or len(indices) != 1 or indices[0] is None or accumulates:
        raise NoRuleError("an index for each element is torch's own")
    (index,) = indices
    if value_of(index).dim() != 1 or dtype_name(value_of(index).dtype) not in ("int32", "int64"):
        raise NoRuleError("an index for each element is torch's own")
    count = value_of(index).numel()
    if value_of(values).numel() not in (1, count):
        raise NoRuleError("an index for each element is torch's own")
    is_new = name_of(held) == _EMPTY and held in loops.memory and held not in loops.kept
    memory = loops.made(node)
    if not is_new:
        loops.store(memory, shape, memory.strides, lambda at: loops.value(held, at))
    at = Index((("k", count, 1),))
    place: Term = loops.value(index, [at])
    place = select(place < 0, place + shape[0], place)
    one = value_of(values).numel() == 1
    source: Term = loops.value(values, [Index()] * value_of(values).dim() if one else [at])
    name = loops.name("place")

    def body() -> Iterator[str]:
        yield f"{name} = {text(place)}"
        yield index_check(name, shape[0])
        yield f"{memory.name}[{name}] = {text(source.to(value_of(node).dtype))}"

    loops.lines += [f"for k in T.serial({count}):", *indented(body(), 1)]


def _is_integer(node: Node) -> bool:
    return hasattr(node, "op") and dtype_name(value_of(node).dtype) in _INTEGERS
