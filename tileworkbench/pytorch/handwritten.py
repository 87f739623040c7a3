"""Attention that was written out: two products with a softmax between them, as one kernel.

What stands between the first product and the softmax (scales, masks, biases, a soft cap) is
computed from each score in its tile. Queries, keys and values are read through the views that make
them, so heads that share keys need no copies of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.attention import (
    FEWEST,
    LOG2_E,
    NAMES,
    OF_QUERIES,
    WIDEST,
    Attention,
    block_of,
    rescaled,
    unseen_keys,
)
from tileworkbench.pytorch.axes import (
    Axis,
    Extended,
    Index,
    as_it_is,
    regrouped,
    text_of_axes,
    viewed_at,
    whole,
)
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.elements import Elements, is_element
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.nodes import (
    Node,
    cited,
    name_of,
    operands,
    shape_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError, Term
from tileworkbench.pytorch.written import Tensor, Written, base_name, finished, free_name

_PRODUCTS = ("aten.bmm.default", "aten.mm.default")
_SOFTMAX = "aten._softmax.default"
_THROUGH = (*aten.VIEWS, *aten.TRANSPOSITIONS, aten.EXPANSION, "aten.clone.default")
_BEHIND = (*aten.VIEWS, aten.EXPANSION, aten.CONVERSION)  # of a softmax


@dataclass(frozen=True, slots=True)
class Handwritten(Attention):
    """The operations of an attention; the last one is the second product."""

    scores: Node = None
    softmax: Node = None

    @property
    def domain(self) -> Extents:
        """Batch, queries, and the larger of keys and the width of a head."""
        *batch, queries, keys = shape_of(self.softmax)
        return prod(batch), queries, max(keys, shape_of(self.members[-1])[-1])

    def outputs(self) -> list[Node]:
        """What other operations read."""
        return [self.members[-1]]

    def joined(self, node: Node) -> Attention:
        """Raises `NoRuleError`: nothing joins it."""
        raise NoRuleError("no rule for it behind attention")


def attention_of(product: Node) -> Handwritten | None:
    """The attention that ends with a product, None for other products."""
    if name_of(product) not in _PRODUCTS:
        return None
    inside: set[Node] = {product}
    node = product.args[0]
    while name_of(node) in _BEHIND and _is_inside(node, inside):
        inside.add(node)
        node = node.args[0]
    if name_of(node) != _SOFTMAX or not _is_inside(node, inside):
        return None
    softmax, rank = node, len(shape_of(node))
    if node.args[1] % rank != rank - 1:
        return None
    inside.add(softmax)
    scores = _first_product(softmax, inside)
    if scores is None:
        return None
    inside.add(scores)
    for each in _backwards(scores.graph, product):
        if name_of(each) in _THROUGH and _is_inside(each, inside):
            inside.add(each)
    members = tuple(each for each in product.graph.nodes if each in inside)
    group = Handwritten(members, scores, softmax)
    try:
        _check(group)
        written(group, {})
    except NoRuleError as error:
        if isinstance(error, OpenSizeError):
            raise
        return None
    return group


def _is_inside(node: Node, inside: set[Node]) -> bool:
    return bool(node.users) and all(user in inside for user in node.users)


def _backwards(graph: object, product: Node) -> Iterator[Node]:
    node = product.prev
    while node.op not in ("placeholder", "root"):  # constants may stand between operations
        yield node
        node = node.prev


def _first_product(softmax: Node, inside: set[Node]) -> Node | None:
    """The product whose results the softmax is of; what lies between joins `inside`."""
    for each in _backwards(softmax.graph, softmax):
        if is_element(each) and _is_inside(each, inside):
            inside.add(each)
    size = prod(shape_of(softmax))
    read = {operand for each in inside for operand in operands(each)}
    chosen = [
        each
        for each in read
        if name_of(each) in _PRODUCTS and _is_inside(each, inside) and prod(shape_of(each)) == size
    ]
    return chosen[0] if len(chosen) == 1 and chosen[0] not in inside else None


def _check(group: Handwritten) -> None:
    first, second = group.scores, group.members[-1]
    dtype = dtype_name(value_of(first.args[0]).dtype)
    if dtype not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"attention of {dtype}")
    if dtype_name(value_of(second).dtype) != dtype:
        raise NoRuleError("attention of two dtypes")
    queries, keys = shape_of(group.softmax)[-2:]
    if min(queries, keys) < FEWEST:
        raise NoRuleError("attention of few queries or keys is as fast in torch")
    for width in (shape_of(first.args[0])[-1], shape_of(second)[-1]):
        if is_open(width):
            raise OpenSizeError(width)
        if width > WIDEST or width % 8:
            raise NoRuleError(f"heads of {width} elements")


def written(group: Handwritten, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of an attention; see `attention.written`."""
    *batch, queries, keys = shape_of(group.softmax)
    widths = shape_of(group.scores.args[0])[-1], shape_of(group.members[-1])[-1]
    cuts = Extended(
        {"bh": [*batch] or [1], "row": [queries], "column": [keys], "d": [widths[0]]}
        | {"e": [widths[1]]}
    )
    made: Written = cuts.until_fine(lambda cut: _Writer(group, names, cut).written(taken))
    return made


class _Writer:
    def __init__(
        self, group: Handwritten, called: Mapping[Node, str], extents: Mapping[str, Sequence[int]]
    ) -> None:
        self.group, self.called = group, called
        self.names = Names("bh", "d", *NAMES, *OF_QUERIES)
        self.axes = {name: whole(name, own) for name, own in extents.items()}
        self.leaves: dict[Node, str] = {}
        self.product = group.members[-1]
        *_, self.queries, self.keys = shape_of(group.softmax)
        self.batch = prod(shape_of(group.softmax)[:-2])
        self.width, self.out_width = (
            shape_of(each)[-1] for each in (group.scores.args[0], self.product)
        )
        self.m, self.n = block_of(self.queries), block_of(self.keys)
        self.dtype = dtype_name(value_of(self.product).dtype)
        first, second = group.scores, self.product
        self.q, self.q_rows = self._rows(first.args[0], ("row", "d"), "bx", self.m)
        self.k, self.k_rows = self._rows(first.args[1], ("d", "column"), "k", self.n)
        self.v, self.v_rows = self._rows(second.args[1], ("column", "e"), "k", self.n)
        self.lines, self.element = self._score()
        self.out = self.names.name("out")

    def _leaf(self, node: Node) -> str:
        if node not in self.leaves:
            self.leaves[node] = self.names.name(base_name(node, self.called))
        return self.leaves[node]

    def _index(self, node: Node, *coordinates: str) -> Index:
        """The index of an operand of a product."""
        batch = (self.axes["bh"],) if len(shape_of(node)) == 3 else ()
        return (*batch, *(self.axes[each] for each in coordinates))

    def _rows(
        self, operand: Node, coordinates: tuple[str, str], block: str, count: int
    ) -> tuple[str, str]:
        """(what holds the rows of an operand, the index of `count` of them)."""
        source, index = viewed_at(operand, self._index(operand, *coordinates), _THROUGH)
        places, order = [], []
        for axes in index:
            of = [each.coordinate for each in axes if each.extent != 1]
            own = next((each for each in of if each != "bh"), "")
            order += [own] * bool(own)
            if own in ("row", "column"):
                if of != [own]:
                    raise NoRuleError("rows that other shapes cut across")
                places.append(f"{block} * {count} : ({block} + 1) * {count}")
            elif own:
                places.append(_columns(axes))
            else:
                places.append(text_of_axes(axes))
        if len(order) != 2 or order[1] not in ("d", "e"):
            raise NoRuleError("rows that other shapes cut across")
        return self._leaf(source), ", ".join(places)

    def _score(self) -> tuple[list[str], str]:
        """The lines that follow a score, and what is left of it."""
        scores, softmax = self.group.scores, self.group.softmax
        term = Term("element", ("scores[i, j]",), named("float32"), "full")
        index = self._index(scores, "row", "column")
        elements = Elements(
            self.group.members, self.names, as_it_is(self._leaf), {scores: (term, index)}
        )
        shape = shape_of(softmax)
        at = (*_batch(self.axes["bh"], shape[:-2]), self.axes["row"], self.axes["column"])
        lines, (element,) = elements.lines([elements.at(softmax.args[0], at)])
        return lines, element

    def written(self, taken: Collection[str]) -> Written:
        """The text with its arguments and its result."""
        name = free_name("attention", taken)
        text = "\n".join(self._text(name)) + "\n"
        arguments = [Tensor(node, shape_of(node) or (1,)) for node in self.leaves]
        shape = (self.batch, self.queries, self.out_width)
        wanted = {self.keys: "keys", self.queries: "queries"}
        return finished(name, text, arguments, [Tensor(self.product, shape)], wanted, self.names)

    def _text(self, name: str) -> Iterator[str]:
        yield "# attention"
        yield from (f"# {line}" for line in cited(self.group.members, 6))
        yield f"# A block has {self.m} queries of one head and walks over {self.n} keys"
        yield "# at a time. Each query keeps its largest score and its sum of weights so far"
        yield "# (FlashAttention-2), so that the matrix of scores is never in memory."
        yield "@T.prim_func"
        yield f"def {name}("
        for node, leaf in self.leaves.items():
            shape = shape_text(shape_of(node) or (1,))
            yield f"    {leaf}: T.Tensor({shape}, T.{dtype_name(value_of(node).dtype)}),"
        yield "):"
        shape = shape_text((self.batch, self.queries, self.out_width))
        yield f"    {self.out} = T.empty({shape}, T.{self.dtype})"
        blocks = f"T.ceildiv({self.queries}, {self.m}), {self.batch}"
        yield f"    with T.Kernel({blocks}, threads=128) as (bx, bh):"
        yield from indented(self._block(), 2)
        yield f"    return {self.out}"

    def _block(self) -> Iterator[str]:
        m, n, dtype = self.m, self.n, self.dtype
        yield f"q_shared = T.alloc_shared(({m}, {self.width}), T.{dtype})"
        yield f"k_shared = T.alloc_shared(({n}, {self.width}), T.{dtype})"
        yield f"v_shared = T.alloc_shared(({n}, {self.out_width}), T.{dtype})"
        yield f"scores = T.alloc_fragment(({m}, {n}), T.float32)"
        if dtype != "float32":
            yield f"weights = T.alloc_fragment(({m}, {n}), T.{dtype})"
        yield f"acc = T.alloc_fragment(({m}, {self.out_width}), T.float32)"
        for each in OF_QUERIES:
            yield f"{each} = T.alloc_fragment(({m},), T.float32)"
        yield f"T.copy({self.q}[{self.q_rows}], q_shared)"
        yield f"factor = {LOG2_E!r}  # log2(e): exponentials are to base 2"
        yield "unseen = -T.infinity(T.float32)"
        yield "T.clear(acc)"
        yield "T.clear(row_sum)"
        yield "T.fill(row_max, unseen)"
        yield f"for k in T.Pipelined(T.ceildiv({self.keys}, {n}), num_stages=2):"
        yield from indented(self._step(), 1)
        yield f"for i, d in T.Parallel({m}, {self.out_width}):"
        yield "    acc[i, d] = acc[i, d] / row_sum[i]"
        yield f"T.copy(acc, {self.out}[bh, bx * {m} : (bx + 1) * {m}, :])"

    def _step(self) -> Iterator[str]:
        m, n = self.m, self.n
        yield f"T.copy({self.k}[{self.k_rows}], k_shared)"
        yield "T.gemm("
        yield "    q_shared, k_shared, scores, transpose_B=True, clear_accum=True,"
        yield "    policy=T.GemmWarpPolicy.FullRow,"
        yield ")"
        if self.lines or self.element != "scores[i, j]":
            text = " ".join((*self.lines, self.element))
            yield f"for i, j in T.Parallel({m}, {n}):"
            for coordinate, place in (("row", f"bx * {m} + i"), ("column", f"k * {n} + j")):
                if coordinate in text:
                    yield f"    {coordinate} = {place}"
            yield from indented(iter(self.lines), 1)
            yield f"    scores[i, j] = {self.element}"
        if self.keys % n:
            yield from unseen_keys(m, n, f"k * {n} + j < {self.keys}", str(self.keys))
        is_narrow = self.dtype != "float32"
        yield from rescaled(m, n, self.out_width, is_narrow, f"{self.v}[{self.v_rows}]", "v_shared")


def _columns(axes: Sequence[Axis]) -> str:
    """The index of all elements of a head, which lie behind those of other heads."""
    *before, last = (each for each in axes if each.extent != 1)
    if last.inner != 1 or last.extent != last.whole:
        raise NoRuleError("heads that other shapes cut across")
    if not before:
        return ":"
    start = text_of_axes(tuple(before))
    start = f"({start}) * {last.extent}" if " " in start else f"{start} * {last.extent}"
    return f"{start} : {start} + {last.extent}"


def _batch(axes: Sequence[Axis], extents: Extents) -> Index:
    """The index along the dimensions of a batch."""
    return regrouped((tuple(axes),), extents)
