"""Regions: all operations on few elements between two of many, as one kernel.

With one token a model is hundreds of operations on some hundred elements, between products that
read its weights. Each call from Python takes longer than such an operation. So operations get
levels: 0 for what follows from the inputs, one more behind each product. Those of one level are one
kernel of one block, which does them in the order of the graph (`loops`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.indices import Index, position
from tileworkbench.pytorch.lines import indented, index_check, shape_text
from tileworkbench.pytorch.loop_attention import add_attention
from tileworkbench.pytorch.loop_routing import COUNT, add_routing, is_routing
from tileworkbench.pytorch.loop_rows import add_gather, add_product, add_row_operation
from tileworkbench.pytorch.loops import (
    COPIES,
    INDEX_COPY,
    Loops,
    Memory,
    text,
)
from tileworkbench.pytorch.members import Members
from tileworkbench.pytorch.nodes import (
    Node,
    base_of,
    cited,
    has_fixed_sizes,
    is_part,
    is_read_outside,
    is_tuple,
    is_view,
    is_work,
    label_of,
    name_of,
    operands,
    readers_of,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError, Term, number
from tileworkbench.pytorch.written import Written, finished, free_name

_CAT = "aten.cat.default"
_PAD = "aten.constant_pad_nd.default"
UPDATES = (INDEX_COPY, aten.COPY)
_LEAST_OPERATIONS = 16  # of a graph, on few elements; in others there are no regions
_MOST_ELEMENTS = 1 << 16  # of a value in a region
_MOST_BESIDE = 1 << 12  # of a value in a region of a graph that has larger ones
_LEAST_BESIDE = 3  # operations of such a region
_LABELS = 3


@dataclass(frozen=True, slots=True)
class Region(Members):
    """Operations that are one kernel of one block; `after` are those outside that have to run
    before, since they read what the region writes to.
    """

    after: tuple[Node, ...] = ()

    @property
    def domain(self) -> Extents:
        """The extents of its largest value."""
        shapes = [shape_of(each) for each in self.members if not is_tuple(each)]
        return max(shapes, key=prod)

    @property
    def weight(self) -> int:
        """How many operations it stands for."""
        return sum(not is_part(each) for each in self.members)

    @property
    def updates(self) -> tuple[Node, ...]:
        """The members that write to inputs of the graph."""
        return tuple(each for each in self.members if name_of(each) in UPDATES)

    def outputs(self) -> list[Node]:
        """The members that other operations read."""
        return [
            node
            for node in self.members
            if not is_tuple(node)
            and name_of(node) not in UPDATES
            and is_read_outside(node, self.members)
        ]


# Which operations


def find_regions(nodes: Sequence[Node]) -> list[Region]:
    """The regions of a graph whose values, but for its inputs, have few elements each. In other
    graphs those that send rows to groups: there each operation would be a call on few elements.
    """
    works = [node for node in nodes if is_work(node)]
    if any(each.name.startswith("primals") for each in nodes):
        return []  # a graph for gradients
    large = any(not _is_small(each) for each in works if name_of(each) not in (*UPDATES, *COPIES))
    if large and not any(map(is_routing, works)):
        return []
    inside = {node for node in works if (not large or _is_beside(node)) and has_loops(node)}
    inside |= {n for n in nodes if is_part(n) and n.args[0] in inside}
    if not large and len(inside) < _LEAST_OPERATIONS:
        return []
    regions = _by_level(nodes, inside)
    if large:
        return [
            each
            for each in regions
            if each.weight >= _LEAST_BESIDE and any(map(is_routing, each.members))
        ]
    return regions


def _is_beside(node: Node) -> bool:
    """Whether an operation of a graph with large values may be part of a region."""
    return name_of(node) not in UPDATES and all(
        _is_small(each, _MOST_BESIDE) for each in (node, *operands(node))
    )


def _by_level(nodes: Sequence[Node], inside: set[Node]) -> list[Region]:
    """The regions of what is `inside`, one for each level."""
    order = {node: at for at, node in enumerate(nodes)}
    levels: dict[Node, int] = {}
    after: dict[Node, list[Node]] = {}
    for node in nodes:
        if name_of(node) in UPDATES:
            held = set(readers_of(_root(node)))
            after[node] = [each for each in held if order[each] < order[node] and not is_view(each)]
            if any(each not in inside for each in after[node]):
                inside.discard(node)
        before = [*operands(node), *(after.get(node, ()) if node in inside else ())]
        levels[node] = max((seen_from(node, each, levels, inside) for each in before), default=0)
    by_level: dict[int, list[Node]] = {}
    for node in nodes:
        if node in inside:
            by_level.setdefault(levels[node], []).append(node)
    regions = []
    waited = {each for nodes_before in after.values() for each in nodes_before}
    for members in by_level.values():
        earlier = [each for node in members for each in after.get(node, ()) if each not in members]
        regions.append(Region(tuple(members), tuple(dict.fromkeys(earlier))))
    return [
        each
        for each in regions
        if each.updates or waited & set(each.members) or (each.weight > 1 and each.outputs())
    ]


def may_update(node: Node) -> bool:
    """Whether an update of an input, which nothing else reads before, can be part of a region."""
    held = node.args[0]
    if name_of(node) != "aten.index_copy.default" or held.op != "placeholder":
        return False
    others = {each for each in readers_of(held) if not is_view(each)} - {node}
    source = value_of(node.args[3])
    is_known = value_of(held).is_contiguous() and source.dim() == value_of(held).dim()
    is_only_one = all(name_of(each) == aten.COPY for each in others)
    return is_known and _is_small(node.args[3]) and is_only_one


def _is_small(node: Node, most: int = _MOST_ELEMENTS) -> bool:
    values = value_of(node)
    parts = values if isinstance(values, tuple | list) else (values,)
    return all(each is None or (hasattr(each, "numel") and _count(each) <= most) for each in parts)


def _count(value: Any) -> int:
    sizes = tuple(value.shape)
    return prod(sizes) if all(isinstance(n, int) for n in sizes) else _MOST_ELEMENTS + 1


def seen_from(
    node: Node, operand: Node, levels: Mapping[Node, int], inside: Collection[Node]
) -> int:
    """The level that a node has by one of its operands."""
    base = base_of(operand)
    while is_part(base):
        base = base.args[0]
    comes_later = node in inside and base.op == "call_function" and base not in inside
    is_new = comes_later and is_work(base)
    return levels[operand] + (1 if is_new else 0)


def _root(node: Node) -> Node:
    """The input whose memory an update writes to."""
    while name_of(node) in UPDATES or is_view(node):
        node = node.args[0]
    return node


def has_loops(node: Node) -> bool:
    """Whether an operation can be part of a region."""
    if name_of(node) in COPIES and not has_fixed_sizes(node):
        return False
    parts = tuple(each for each in node.users if is_part(each)) if is_tuple(node) else ()
    try:
        written(Region((node, *parts)), {})
    except NoRuleError:
        return False
    return True


# The kernel


def written(region: Region, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a region; see `writing.written`. Raises `NoRuleError` where an operation has
    no loops.
    """
    outputs = region.outputs()
    loops = Loops(region.members, _inlined(region, outputs), outputs, names)
    for node in region.members:
        if node not in loops.inlined and not is_part(node):
            _add(loops, node)
    name = free_name(_kernel_name(region), taken)
    text = "\n".join(_lines(region, loops, name)) + "\n"
    arguments = [each for each, _ in loops.arguments]
    results = [each for each, _ in loops.results]
    return finished(name, text, arguments, results, {}, loops)


def _lines(region: Region, loops: Loops, name: str) -> Iterator[str]:
    yield f"# {', '.join(_label(each) for each in region.members if not is_part(each))}"
    yield from (f"# {line}" for line in cited(region.members, _LABELS))
    yield "# These values have few elements: one block does all, one operation after the other."
    yield "@T.prim_func"
    yield f"def {name}("
    for tensor, memory in loops.arguments:
        shape, dtype = shape_text(tensor.shape), dtype_name(memory.dtype)
        yield f"    {memory.name}: T.Tensor({shape}, T.{dtype}),"
    yield "):"
    for tensor, memory in loops.results:
        shape, dtype = shape_text(tensor.shape), dtype_name(memory.dtype)
        yield f"    {memory.name} = T.empty({shape}, T.{dtype})"
    yield "    with T.Kernel(1, threads=128) as bx:"
    yield from indented(iter(loops.lines), 2)
    if loops.results:
        yield f"    return {', '.join(memory.name for _, memory in loops.results)}"


def _kernel_name(region: Region) -> str:
    labels = list(dict.fromkeys(_label(n) for n in region.members if not is_part(n)))
    if len(labels) > _LABELS:
        labels = [*labels[: _LABELS - 1], labels[-1]]
    return "_".join(labels).strip("_")


def _label(node: Node) -> str:
    return "attention" if name_of(node) == aten.ATTENTION else label_of(node)


def _is_pointwise(node: Node) -> bool:
    name = name_of(node)
    return name in aten.MAPS or name in (aten.CONVERSION, aten.CONVOLUTION, *COPIES)


def _add(loops: Loops, node: Node) -> None:
    """Add the loops of one operation."""
    name = name_of(node)
    shape = () if is_tuple(node) else tuple(value_of(node).shape)
    if name == aten.COPY:
        memory = _written_to(loops, node)
        source, dtype = node.args[1], value_of(node).dtype

        def copied(indices: list[Index]) -> Term:
            made: Term = loops.aligned(source, indices).to(dtype)
            return made

        loops.store(memory, shape, memory.strides, copied)
        loops.memory[node] = memory
    elif _is_pointwise(node):
        memory = loops.made(node)
        loops.store(memory, shape, memory.strides, lambda at: loops.computed(node, at))
    elif name == _CAT:
        _add_cat(loops, node)
    elif name == _PAD:
        _add_pad(loops, node)
    elif name == INDEX_COPY:
        _add_index_copy(loops, node)
    elif is_routing(node):
        add_routing(loops, node)
    elif name in ROWS:
        add_row_operation(loops, node)
    elif name in aten.PRODUCTS:
        add_product(loops, node)
    elif name in aten.GATHERS:
        add_gather(loops, node)
    elif name == aten.ATTENTION:
        add_attention(loops, node)
    else:
        raise NoRuleError("no rule for it")


def _add_cat(loops: Loops, node: Node) -> None:
    dim = node.args[1] if len(node.args) > 1 else 0
    memory, begun = loops.made(node), 0
    for each in node.args[0]:
        shape = tuple(value_of(each).shape)
        if len(shape) != len(memory.strides):
            raise NoRuleError("a part of another shape")
        offset = begun * memory.strides[dim]
        term = functools.partial(loops.value, each)
        loops.store(memory, shape, memory.strides, term, offset)
        begun += shape[dim]


def _add_pad(loops: Loops, node: Node) -> None:
    data, pads, *filled = node.args
    if min(pads) < 0:
        raise NoRuleError("a padding that takes elements away")
    value = value_of(node)
    before = [0] * (value.dim() - len(pads) // 2) + list(pads[-2::-2])
    memory = loops.made(node)
    number_of = number(filled[0] if filled else 0, value.dtype)
    loops.store(memory, tuple(value.shape), memory.strides, lambda at: number_of.to(value.dtype))
    start = sum(at * stride for at, stride in zip(before, memory.strides, strict=True))
    term = functools.partial(loops.value, data)
    loops.store(memory, tuple(value_of(data).shape), memory.strides, term, start)


def _written_to(loops: Loops, node: Node) -> Memory:
    held = node.args[0]
    root = _root(held)
    if root.op != "placeholder" or is_view(held) or not value_of(root).is_contiguous():
        raise NoRuleError("an update of what is no input")
    return loops.memory.get(held) or loops.argument(root)


def _add_index_copy(loops: Loops, node: Node) -> None:
    held, dim, index, source = node.args
    memory = _written_to(loops, node)
    extent = value_of(held).shape[dim]
    shape = tuple(value_of(source).shape)
    if len(shape) != len(memory.strides):
        raise NoRuleError("an update of another shape")
    place = loops.name("place")
    count = value_of(index).numel()
    loops.reserve(place, (count,), value_of(index).dtype)
    variables, (at,) = loops.over((count,), (1,))

    def find() -> Iterator[str]:
        own = [at] if value_of(index).dim() else []
        yield f"{place}[{at.text}] = {text(loops.value(index, own))}"
        yield index_check(f"{place}[{at.text}]", extent)

    loops.lines += loops.loop(variables, find)
    variables, indices = loops.over(shape, memory.strides)
    moved = list(indices)
    moved[dim] = Index(((f"{place}[{indices[dim].text}]", extent, 1),))
    where = position(moved, memory.strides).text
    loops.lines += loops.loop(
        variables, lambda: [f"{memory.name}[{where}] = {text(loops.value(source, indices))}"]
    )
    loops.memory[node] = memory


# What is computed where it is read


def _inlined(region: Region, outputs: Collection[Node]) -> set[Node]:
    """The members that need no memory: others read them once, element by element, before anything
    writes to what they are computed from.
    """
    order = {node: at for at, node in enumerate(region.members)}
    inlined: set[Node] = set()
    done: dict[Node, int] = {}  # the place of the last operation that computes a member
    for node in reversed(region.members):
        users = [each for each in readers_of(node) if not is_view(each)]
        last = max((done.get(each, 1 << 30) for each in users), default=1 << 30)
        if node not in outputs and _may_inline(node, users) and not _is_late(node, last, region):
            inlined.add(node)
            done[node] = last
        else:
            done[node] = order[node]
    return inlined


def _may_inline(node: Node, users: Sequence[Node]) -> bool:
    if name_of(node) in COPIES:
        return True
    if not _is_pointwise(node) or len(users) != 1:
        return False
    (user,) = users
    if name_of(user) in (_CAT, COUNT, *UPDATES):
        return True
    domain = user.args[0] if name_of(user) in ROWS else user
    is_element = _is_pointwise(user) and name_of(user) not in (*COPIES, aten.CONVOLUTION)
    return (is_element or name_of(user) in ROWS) and (
        value_of(domain).numel() == value_of(node).numel()
    )


def _is_late(node: Node, last: int, region: Region) -> bool:
    """Whether the memory that a node reads is written to before `last`, where it is computed."""
    order = {each: at for at, each in enumerate(region.members)}
    taken = operands(node)[1:] if name_of(node) == "aten.copy.default" else operands(node)
    read = {_root(each) for each in taken}
    return any(order[node] < order[each] <= last and _root(each) in read for each in region.updates)
