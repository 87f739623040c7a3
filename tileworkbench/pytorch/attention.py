"""Attention as one kernel: `scaled_dot_product_attention` without the matrix of scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import log2

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.lines import indented, shape_text
from tileworkbench.pytorch.members import OneOperation
from tileworkbench.pytorch.nodes import (
    Node,
    assigned_names,
    cited,
    is_part,
    seen_through,
    shape_of,
    strides_of,
    value_of,
)
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.sizes import OpenSizeError, is_open
from tileworkbench.pytorch.terms import NoRuleError
from tileworkbench.pytorch.tiles import power_of_two
from tileworkbench.pytorch.written import Tensor, Written, base_name, finished, free_name

LOG2_E = log2(2.718281828459045)
_BLOCK = 64  # queries, and keys, of a tile
FEWEST = 16  # queries or keys that are worth a kernel
WIDEST = 256  # elements of a head, which a block keeps in fast memory
OF_QUERIES = ("row_max", "shift", "rescale", "row_sum", "piece_sum")  # one number for each
NAMES = ("scores", "weights", "acc", "visible", "factor", "unseen")
_HEADS_INSIDE = (0, 2, 1, 3)  # torch's (batch, head, length, width) with the heads behind lengths


@dataclass(frozen=True, slots=True)
class Attention(OneOperation):
    """A group that is attention: its operation, and the results of it that are picked."""

    @property
    def domain(self) -> Extents:
        """The extents that it is computed over, queries by keys or by the width of a head."""
        batch, heads, queries, width = shape_of(self.node.args[0])
        return batch, heads, queries, max(width, shape_of(self.node.args[1])[2])

    def outputs(self) -> list[Node]:
        """The members that other operations read."""
        return [node for node in self.members if is_part(node) and node.users]

    def joined(self, node: Node) -> Attention:
        """With one more of its results. Raises `NoRuleError` for other operations."""
        if not is_part(node):
            raise NoRuleError("no rule for it behind attention")
        return Attention((*self.members, node))


def started(node: Node) -> Attention:
    """The group of one attention. Raises `NoRuleError` for one that runs in torch."""
    query, key = value_of(node.args[0]), shape_of(node.args[1])
    _, heads, queries, width = shape_of(node.args[0])
    if dtype_name(query.dtype) not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"attention of {dtype_name(query.dtype)}")
    if len(node.args) > 3 and node.args[3]:
        raise NoRuleError("attention that drops weights at random")
    for size in (heads, key[1], width):
        if is_open(size):
            raise OpenSizeError(size)
    if width > WIDEST or width % 8:
        raise NoRuleError(f"heads of {width} elements")
    if min(queries, key[2]) < FEWEST:
        raise NoRuleError("attention of few queries or keys is as fast in torch")
    if node.kwargs.get("scale") is not None and not node.kwargs["scale"] > 0:
        raise NoRuleError("a scale of attention that is not positive")
    mask = node.kwargs.get("attn_mask")
    if mask is not None and not value_of(mask).dtype.is_floating_point:
        raise NoRuleError("a mask that is not of floats")
    for each in node.users:
        _order_of(each)
    return Attention((node,))


def written(group: Attention, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of an attention; `names` are those that the user's code has for tensors, `taken`
    are the names of other kernels.
    """
    writer = _Writer(group, names)
    name = free_name("attention", taken)
    text = "\n".join(writer.lines(name)) + "\n"
    wanted = {writer.keys: "keys", writer.queries: "queries", writer.batch: "batch"}
    return finished(name, text, writer.arguments, writer.results, wanted, writer.names)


def block_of(count: int) -> int:
    """Queries, or keys, of a tile."""
    return min(_BLOCK, power_of_two(count))


def rescaled(
    m: int, n: int, width: int, is_narrow: bool, value: str, value_shared: str
) -> Iterator[str]:
    """The lines that make weights of `scores`, rescale what was summed before them, and add the
    values that they weigh; they are loaded from `value`.
    """
    yield "T.copy(row_max, rescale)"
    yield "T.reduce_max(scores, row_max, dim=1, clear=False)"
    yield f"for i in T.Parallel({m}):"
    yield "    # A query that has seen no key yet has no maximum."
    yield "    shift[i] = T.if_then_else(row_max[i] == unseen, 0, row_max[i])"
    yield "    rescale[i] = T.exp2((rescale[i] - shift[i]) * factor)"
    yield f"for i, j in T.Parallel({m}, {n}):"
    yield "    scores[i, j] = T.exp2((scores[i, j] - shift[i]) * factor)"
    yield "T.reduce_sum(scores, piece_sum, dim=1)"
    yield f"for i in T.Parallel({m}):"
    yield "    row_sum[i] = row_sum[i] * rescale[i] + piece_sum[i]"
    yield f"for i, d in T.Parallel({m}, {width}):"
    yield "    acc[i, d] *= rescale[i]"
    if is_narrow:
        yield "T.copy(scores, weights)"
    yield f"T.copy({value}, {value_shared})"
    weights = "weights" if is_narrow else "scores"
    yield f"T.gemm({weights}, {value_shared}, acc, policy=T.GemmWarpPolicy.FullRow)"


def unseen_keys(m: int, n: int, seen: str, common: str) -> Iterator[str]:
    """The lines that hide keys from a tile of scores, where not every query sees them all."""
    yield f"if (k + 1) * {n} > {common}:  # not every query sees all these keys"
    yield f"    for i, j in T.Parallel({m}, {n}):"
    yield f"        scores[i, j] = T.if_then_else({seen}, scores[i, j], unseen)"


class _Writer:
    def __init__(self, group: Attention, names: Mapping[Node, str]) -> None:
        node = group.node
        self.group = group
        self.called = {**assigned_names(node.graph.nodes), **names}
        self.names = Names("b", "h", "d", *NAMES, *OF_QUERIES)
        (self.batch, self.heads, self.queries, self.width) = shape_of(node.args[0])
        self.shared_heads, self.keys = shape_of(node.args[1])[1:3]
        self.dtype = value_of(node.args[0]).dtype
        self.is_causal = bool(node.args[4]) if len(node.args) > 4 else False
        scale = node.kwargs.get("scale")
        self.scale = self.width**-0.5 if scale is None else float(scale)
        self.block_m, self.block_n = block_of(self.queries), block_of(self.keys)
        self.arguments: list[Tensor] = []
        self.results: list[Tensor] = []
        matrices = zip(node.args[:3], ("query", "key", "value"), strict=True)
        self.q, self.k, self.v = (self._matrix(each, plain) for each, plain in matrices)
        mask = node.kwargs.get("attn_mask")
        self.mask = self._mask(seen_through(mask)) if mask is not None else ""
        self.out = self._result(0, "out")
        self.log_sum = self._result(1, "log_sum")

    # Parameters

    def _matrix(self, node: Node, plain: str) -> str:
        name = self.names.name(base_name(node, self.called, plain))
        self.names.name(f"{name}_shared")
        stride = strides_of(node)
        order = _HEADS_INSIDE if stride[1] < stride[2] else ()
        shape = shape_of(node)
        self.arguments.append(Tensor(node, _ordered(shape, order), order))
        return name

    def _mask(self, node: Node) -> str:
        name = self.names.name(base_name(node, self.called, "mask"))
        self.arguments.append(Tensor(node, shape_of(node)))
        return name

    def _result(self, place: int, name: str) -> str:
        nodes = [each for each in self.group.outputs() if each.args[1] == place]
        if not nodes:
            return ""
        (node,) = nodes
        order = _order_of(node)
        self.results.append(Tensor(node, _ordered(shape_of(node), order), order))
        return self.names.name(name)

    def _rows(self, place: int, first: str, count: int, head: str) -> str:
        """The index of `count` rows of one head in a matrix."""
        rows = f"{first} * {count} : ({first} + 1) * {count}"
        inside = self.arguments[place].order
        return f"b, {rows}, {head}, :" if inside else f"b, {head}, {rows}, :"

    def _result_at(self, place: int, row: str, rest: str) -> str:
        inside = self.results[place].order
        return f"b, {row}, h{rest}" if inside else f"b, h, {row}{rest}"

    # Text

    def lines(self, name: str) -> Iterator[str]:
        """The text of the kernel."""
        yield "# scaled_dot_product_attention"
        yield from (f"# {line}" for line in cited([self.group.node]))
        yield f"# A block has {self.block_m} queries of one head and walks over {self.block_n} keys"
        yield "# at a time. Each query keeps its largest score and its sum of weights so far"
        yield "# (FlashAttention-2), so that the matrix of scores is never in memory."
        yield "@T.prim_func"
        yield f"def {name}("
        called = [self.q, self.k, self.v, *([self.mask] if self.mask else [])]
        for argument, each in zip(self.arguments, called, strict=True):
            dtype = dtype_name(value_of(argument.node).dtype)
            yield f"    {each}: T.Tensor({shape_text(argument.shape)}, T.{dtype}),"
        yield "):"
        returned = [each for each in (self.out, self.log_sum) if each]
        for result, each in zip(self.results, returned, strict=True):
            dtype = dtype_name(value_of(result.node).dtype)
            yield f"    {each} = T.empty({shape_text(result.shape)}, T.{dtype})"
        blocks = f"T.ceildiv({self.queries}, {self.block_m}), {self.heads}, {self.batch}"
        yield f"    with T.Kernel({blocks}, threads=128) as (bx, h, b):"
        yield from indented(self._block(), 2)
        yield f"    return {', '.join(returned)}"

    def _block(self) -> Iterator[str]:
        m, n, width, dtype = self.block_m, self.block_n, self.width, dtype_name(self.dtype)
        yield f"{self.q}_shared = T.alloc_shared(({m}, {width}), T.{dtype})"
        yield f"{self.k}_shared = T.alloc_shared(({n}, {width}), T.{dtype})"
        yield f"{self.v}_shared = T.alloc_shared(({n}, {width}), T.{dtype})"
        yield f"scores = T.alloc_fragment(({m}, {n}), T.float32)"
        if self._is_narrow:
            yield f"weights = T.alloc_fragment(({m}, {n}), T.{dtype})"
        yield f"acc = T.alloc_fragment(({m}, {width}), T.float32)"
        for each in OF_QUERIES:
            yield f"{each} = T.alloc_fragment(({m},), T.float32)"
        yield f"T.copy({self.q}[{self._rows(0, 'bx', m, 'h')}], {self.q}_shared)"
        how = f"{self.scale!r} * log2(e)" if not self.mask else "log2(e)"
        yield f"factor = {self._factor!r}  # {how}: exponentials are to base 2"
        yield "unseen = -T.infinity(T.float32)"
        yield "T.clear(acc)"
        yield "T.clear(row_sum)"
        yield "T.fill(row_max, unseen)"
        last = str(self.keys)
        if self.is_causal:
            yield f"visible = T.min({self.keys}, (bx + 1) * {m})  # query i sees keys 0 to i"
            last = "visible"
        yield f"for k in T.Pipelined(T.ceildiv({last}, {n}), num_stages=2):"
        yield from indented(self._step(), 1)
        yield from self._store()

    @property
    def _is_narrow(self) -> bool:
        return dtype_name(self.dtype) != "float32"

    def _step(self) -> Iterator[str]:
        m, n = self.block_m, self.block_n
        group = self.heads // self.shared_heads
        head = "h" if group == 1 else f"h // {group}"
        full_row = "policy=T.GemmWarpPolicy.FullRow"
        keys, values = (self._rows(place, "k", n, head) for place in (1, 2))
        yield f"T.copy({self.k}[{keys}], {self.k}_shared)"
        yield "T.gemm("
        yield f"    {self.q}_shared, {self.k}_shared, scores, transpose_B=True, clear_accum=True,"
        yield f"    {full_row},"
        yield ")"
        yield from self._masking()
        value = f"{self.v}[{values}]"
        yield from rescaled(m, n, self.width, self._is_narrow, value, f"{self.v}_shared")

    @property
    def _factor(self) -> float:
        """What scores are multiplied by to be exponents of 2; what a mask is added to has been
        scaled before.
        """
        return LOG2_E if self.mask else self.scale * LOG2_E

    def _masking(self) -> Iterator[str]:
        """What becomes of scores: a mask is added, and a query does not see keys behind the last
        one, nor later ones of causal attention.
        """
        m, n = self.block_m, self.block_n
        loop = f"for i, j in T.Parallel({m}, {n}):"
        if self.mask:
            yield loop
            yield f"    scores[i, j] = scores[i, j] * {self.scale!r} + {self._mask_element()}"
        if self.is_causal:
            seen = f"k * {n} + j < T.min({self.keys}, bx * {m} + i + 1)"
            common = f"T.min({self.keys}, bx * {m} + 1)"
        elif self.keys % n:
            seen = f"k * {n} + j < {self.keys}"
            common = str(self.keys)
        else:
            return
        yield from unseen_keys(m, n, seen, common)

    def _mask_element(self) -> str:
        argument = self.arguments[3]
        places = ["b", "h", f"bx * {self.block_m} + i", f"k * {self.block_n} + j"]
        shape = argument.shape
        used = [
            "0" if extent == 1 else place
            for extent, place in zip(shape, places[4 - len(shape) :], strict=True)
        ]
        element = f"{self.mask}[{', '.join(used)}]"
        is_wide = dtype_name(value_of(argument.node).dtype) == "float32"
        return element if is_wide else f"T.cast({element}, T.float32)"

    def _store(self) -> Iterator[str]:
        m, width = self.block_m, self.width
        if self.out:
            rows = f"bx * {m} : (bx + 1) * {m}"
            yield f"for i, d in T.Parallel({m}, {width}):"
            yield "    # One that saw no key at all gets zeros, as from torch."
            yield "    acc[i, d] = T.if_then_else(row_sum[i] == 0, 0, acc[i, d] / row_sum[i])"
            yield f"T.copy(acc, {self.out}[{self._result_at(0, rows, ', :')}])"
        if self.log_sum:
            at = self._result_at(len(self.results) - 1, f"bx * {m} + i", "")
            yield f"for i in T.Parallel({m}):"
            scaled = "" if self.mask else f" * {self.scale!r}"
            yield f"    log_of_sum = T.log(row_sum[i]) + shift[i]{scaled}"
            yield f"    {self.log_sum}[{at}] = T.if_then_else(row_sum[i] == 0, 0, log_of_sum)"


def _order_of(node: Node) -> tuple[int, ...]:
    """The order of dimensions in which a result, of which torch promises the strides, is dense."""
    shape, stride = shape_of(node), strides_of(node)
    for order in ((), _HEADS_INSIDE[: len(shape)]):
        places, size = order or tuple(range(len(shape))), 1
        for at in reversed(places):
            if stride[at] != size:
                break
            size *= shape[at]
        else:
            return order
    raise NoRuleError("a result of attention that is not dense")


def _ordered(shape: Sequence[int], order: Sequence[int]) -> Extents:
    return tuple(shape[at] for at in order) if order else tuple(shape)
