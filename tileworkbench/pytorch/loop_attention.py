"""Attention of few queries, as loops of a kernel (`loops`): the scores of a query are one row."""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.pytorch.dtypes import compute_dtype
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.indices import position, variable
from tileworkbench.pytorch.lines import indented
from tileworkbench.pytorch.loop_rows import MOST_PRODUCTS, RowLoops
from tileworkbench.pytorch.loops import Loops, text
from tileworkbench.pytorch.nodes import Node, is_part, value_of
from tileworkbench.pytorch.terms import NoRuleError, Term

_MOST = 4 * MOST_PRODUCTS  # multiplications of queries with keys


def add_attention(loops: Loops, node: Node) -> None:
    """`scaled_dot_product_attention`; a query that sees no key gets zeros, as from torch."""
    _check(node)
    _Attention(loops, node).add()


class _Attention:
    def __init__(self, loops: Loops, node: Node) -> None:
        self.loops, self.node = loops, node
        self.query, self.key, self.value = node.args[:3]
        batch, heads, queries, self.width = value_of(self.query).shape
        shared, self.keys = value_of(self.key).shape[1:3]
        self.rows = RowLoops(loops, (batch, heads, queries, self.keys), [3])
        if self.rows.row_count > 1:  # one query at a time
            self.rows.serial.append((self.rows.row, self.rows.row_count))
        loops.inner = ""
        self.b, self.h, self.q, self.k = self.rows.indices
        self.shared_head = self.h // (heads // shared)
        self.w = variable("w", self.width)
        self.dtype = compute_dtype(value_of(self.query).dtype)
        tile = self._tile
        self.terms = tile("terms", self.keys, self.width)
        self.sums, self.scores = tile("sums", self.keys), tile("scores", 1, self.keys)
        self.top, self.total = tile("top", 1), tile("total", 1)
        self.acc = tile("acc", self.width)

    def _tile(self, wanted: str, *shape: int) -> str:
        name = self.loops.name(wanted)
        self.rows.reserve(name, shape, self.dtype)
        return name

    def add(self) -> None:
        """Add the lines."""
        node = self.node
        (part,) = [each for each in node.users if is_part(each) and each in self.loops.members]
        memory = self.rows.memory(part)
        place = position([self.b, self.h, self.q, self.w], memory.strides).text
        k, scores, top, total = self.rows.inner, self.scores, self.top, self.total
        along, across = (k, self.keys), ("w", self.width)
        unseen = f"-T.infinity(T.{dtype_name(self.dtype)})"
        shift = f"T.if_then_else({top}[0] == {unseen}, 0, {top}[0])"
        self.loops.lines += [
            *self.loops.loop([along, across], self._terms),
            f"T.reduce_sum({self.terms}, {self.sums}, dim=1)",
            *self.loops.loop([along], lambda: self._scores(unseen)),
            f"T.reduce_max({scores}, {top}, dim=1, nan_propagate=True)",
            f"for {k} in T.Parallel({self.keys}):",
            f"    {scores}[0, {k}] = T.exp({scores}[0, {k}] - {shift})",
            f"T.reduce_sum({scores}, {total}, dim=1)",
            f"T.clear({self.acc})",
            f"for {k} in T.serial({self.keys}):",
            *indented(iter(self.loops.loop([across], self._weighed)), 1),
            f"for w in T.Parallel({self.width}):",
            f"    mean = {self.acc}[w] / {total}[0]",
            f"    {memory.name}[{place}] = T.if_then_else({total}[0] == 0, 0, mean)",
        ]
        self.rows.finish()

    def _terms(self) -> Iterator[str]:
        x = self.loops.value(self.query, [self.b, self.h, self.q, self.w])
        y = self.loops.value(self.key, [self.b, self.shared_head, self.k, self.w])
        yield f"{self.terms}[{self.rows.inner}, w] = {text(x * y)}"

    def _scores(self, unseen: str) -> Iterator[str]:
        mask, scale = self.node.kwargs.get("attn_mask"), self.node.kwargs.get("scale")
        k = self.rows.inner
        score = Term("element", (f"{self.sums}[{k}]",), self.dtype, "full")
        score = score * (self.width**-0.5 if scale is None else float(scale))
        if mask is not None:
            score = score + self.loops.aligned(mask, [self.b, self.h, self.q, self.k])
        line = text(score)
        if len(self.node.args) > 4 and self.node.args[4]:
            line = f"T.if_then_else({k} <= {self.q.text}, {line}, {unseen})"
        yield f"{self.scores}[0, {k}] = {line}"

    def _weighed(self) -> Iterator[str]:
        value = self.loops.value(self.value, [self.b, self.shared_head, self.k, self.w])
        yield f"{self.acc}[w] += {self.scores}[0, {self.rows.inner}] * {text(value)}"


def _check(node: Node) -> None:
    query, key = value_of(node.args[0]), value_of(node.args[1])
    kind = dtype_name(query.dtype)
    if kind not in ("float32", "float16", "bfloat16"):
        raise NoRuleError(f"attention of {kind}")
    if len(node.args) > 3 and node.args[3]:
        raise NoRuleError("attention that drops weights at random")
    if query.numel() * key.shape[2] > _MOST:
        raise NoRuleError("attention of many elements")
    if key.shape[2] < 2 or query.shape[-1] < 2:
        raise NoRuleError("attention of one key")
    if [each.args[1] for each in node.users if is_part(each) and each.users] != [0]:
        raise NoRuleError("the logarithms of attention's sums")
    mask = node.kwargs.get("attn_mask")
    if mask is not None and not value_of(mask).dtype.is_floating_point:
        raise NoRuleError("a mask that is not of floats")
