"""Reductions, products and gathers on few elements, as loops of a kernel (`loops`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tileworkbench.pytorch import aten
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.gathers import gather_of
from tileworkbench.pytorch.indices import Index, position, row_major, unravelled, variable
from tileworkbench.pytorch.lines import indented, index_check, shape_text
from tileworkbench.pytorch.loops import LETTERS, Loops, Memory, text
from tileworkbench.pytorch.nodes import Node, is_part, name_of, value_of
from tileworkbench.pytorch.rows import ROWS
from tileworkbench.pytorch.shapes import Extents
from tileworkbench.pytorch.terms import NoRuleError, Term, reduction_text, select

MOST_PRODUCTS = 1 << 16  # multiplications of a batch of products, or of a reduction
_MOST_OF_ONE = 1 << 13  # of one product: others are worth a kernel that several threads run
_LONGEST_SCAN = 512


class RowLoops:
    """What a row operation is made of: loops over rows `i` and their elements `j`, inside of loops
    over the outer ones. `Rows` of the table.
    """

    def __init__(self, loops: Loops, domain: Extents, reduced: Sequence[int]) -> None:
        self.loops, self.domain = loops, domain
        long = [at for at in range(len(domain)) if domain[at] > 1]
        inner = [at for at in long if at in reduced]
        outer = [at for at in long if at not in reduced]
        if len(inner) != 1:
            raise NoRuleError("a reduction over several dimensions, or over none")
        names = iter(LETTERS)
        self.row, self.inner = next(names), next(names)
        self.columns = domain[inner[0]]
        self.row_count = domain[outer[-1]] if outer else 1
        self.indices = [Index()] * len(domain)
        self.indices[inner[0]] = variable(self.inner, self.columns)
        if outer:
            self.indices[outer[-1]] = variable(self.row, self.row_count)
        self.serial = []
        for at, name in zip(outer[:-1], names, strict=False):
            self.serial.append((name, domain[at]))
            self.indices[at] = variable(name, domain[at])
        if len(outer) - 1 > len(self.serial):
            raise NoRuleError("more dimensions than loops")
        loops.inner = self.inner
        self.begun = len(loops.lines)
        self.room: list[str] = []
        self.tiles: dict[str, str] = {}

    def reserve(self, name: str, shape: Extents, dtype: Any) -> None:
        """Make room for a tile, in front of the outer loops."""
        self.room.append(f"{name} = T.alloc_fragment({shape_text(shape)}, T.{dtype_name(dtype)})")

    def _tile(self, wanted: str, dtype: Any) -> str:
        name = self.loops.name(wanted)
        self.reserve(name, (self.row_count, self.columns), dtype)
        return name

    def _full(self, name: str, dtype: Any) -> Term:
        made = Term("element", (f"{name}[{self.row}, {self.inner}]",), dtype, "full")
        self.tiles[made.args[0]] = name
        return made

    def loop(self, kind: str, lines: Any) -> None:
        """Add a loop over elements ("full") or over rows."""
        variables = [(self.row, self.row_count)]
        if kind == "full":
            variables.append((self.inner, self.columns))
        self.loops.lines += self.loops.loop(variables, lines)

    def operand(self, node: Any, indices: Sequence[Index] | None = None) -> Any:
        """An element of an operand, broadcast; what is computed for it is kept in a tile."""
        if not hasattr(node, "op"):
            return node
        terms: list[Term] = []

        def compute() -> Iterable[str]:
            terms.append(self.loops.aligned(node, self.indices if indices is None else indices))
            return []

        probe = self.loops.loop([(self.row, 1)], compute)
        if len(probe) == 1:
            return terms[0]
        name = self._tile("terms", terms[0].dtype)

        def fill() -> Iterable[str]:
            compute()
            return [f"{name}[{self.row}, {self.inner}] = {text(terms[-1])}"]

        self.loop("full", fill)
        return self._full(name, terms[0].dtype)

    def keep(self, name: str, x: Term) -> Term:
        if x.op in ("element", "number"):
            return x
        if x.kind == "full":
            tile = self._tile(name, x.dtype)
            self.loop("full", lambda: [f"{tile}[{self.row}, {self.inner}] = {text(x)}"])
            return self._full(tile, x.dtype)
        row = self.loops.name(name)
        self.reserve(row, (self.row_count,), x.dtype)
        self.loop("row", lambda: [f"{row}[{self.row}] = {text(x)}"])
        return Term("element", (f"{row}[{self.row}]",), x.dtype, "row")

    def sum(self, x: Term) -> Term:
        return self._reduce("sum", x)

    def max(self, x: Term) -> Term:
        return self._reduce("max", x)

    def min(self, x: Term) -> Term:
        return self._reduce("min", x)

    def prod(self, x: Term) -> Term:
        return self._reduce("prod", x)

    def running_sum(self, x: Term) -> Term:
        if self.columns > _LONGEST_SCAN:
            raise NoRuleError(f"a running sum of {self.columns} elements")
        tile = self._of_tile(x)
        made = self._tile("running", x.dtype)
        self.loops.lines.append(f"T.cumsum({tile}, {made}, dim=1)")
        return self._full(made, x.dtype)

    def pick(self, x: Term, column: Term) -> Term:
        raise NoRuleError("an element of a row that another one names")

    def _of_tile(self, x: Term) -> str:
        """The tile that has `x`."""
        if x.kind != "full":
            raise NoRuleError("a reduction of what is the same along a row")
        if x.op == "element" and x.args[0] in self.tiles:
            return self.tiles[x.args[0]]
        tile = self._tile("terms", x.dtype)
        self.loop("full", lambda: [f"{tile}[{self.row}, {self.inner}] = {text(x)}"])
        return tile

    def _reduce(self, how: str, x: Term) -> Term:
        tile = self._of_tile(x)
        made = self.loops.name(f"row_{how}")
        self.reserve(made, (self.row_count,), x.dtype)
        self.loops.lines.append(reduction_text(how, tile, made))
        return Term("element", (f"{made}[{self.row}]",), x.dtype, "row")

    def memory(self, node: Node) -> Memory:
        """New memory for a member, whose room is made in front of the outer loops."""
        lines, self.loops.lines = self.loops.lines, []
        made = self.loops.made(node)
        self.room += self.loops.lines
        self.loops.lines = lines
        return made

    def store(self, node: Node, term: Term, indices: Sequence[Index], is_full: bool) -> None:
        """Add the loop that stores the value of `node` at these indices of it."""
        if term.kind == "full" and not is_full:
            raise NoRuleError("an element where a row's value is")
        memory = self.memory(node)
        place = position(indices, memory.strides).text
        self.loop("full" if is_full else "row", lambda: [f"{memory.name}[{place}] = {text(term)}"])

    def finish(self) -> None:
        """Put the lines into the outer loops."""
        lines = self.loops.lines[self.begun :]
        for name, extent in reversed(self.serial):
            lines = [f"for {name} in T.serial({extent}):", *indented(iter(lines), 1)]
        self.loops.lines[self.begun :] = [*self.room, *lines]
        self.loops.inner = ""


def add_row_operation(loops: Loops, node: Node) -> None:
    """A reduction, a softmax, a norm."""
    operation = ROWS[name_of(node)]
    domain = tuple(value_of(node.args[0]).shape)
    if operation.seen(domain, *node.args) != domain:
        raise NoRuleError("rows of other extents than the operand's")
    most = _MOST_OF_ONE if name_of(node) == "aten.mv.default" else MOST_PRODUCTS
    if value_of(node.args[0]).numel() > most:
        raise NoRuleError("rows of many elements")
    dims = operation.dims(*node.args, **node.kwargs) or range(len(domain))
    reduced = [at % len(domain) for at in dims]
    rows = RowLoops(loops, domain, reduced)
    picked = operation.terms(*node.args, **node.kwargs)
    made = operation.make(rows, *map(rows.operand, picked))
    if not isinstance(made, tuple):
        parts = [(node, made.to(value_of(node).dtype))]
    else:
        parts = [
            (each, rows.keep(str(each.name), made[each.args[1]]))
            for each in node.users
            if is_part(each) and each in loops.members
        ]
    for each, term in parts:
        _store_part(rows, each, term, domain, reduced)
    rows.finish()


def _store_part(
    rows: RowLoops, node: Node, term: Term, domain: Extents, reduced: Sequence[int]
) -> None:
    shape = tuple(value_of(node).shape)
    if shape == domain:
        rows.store(node, term, rows.indices, is_full=True)
        return
    kept = [Index() if at in reduced else index for at, index in enumerate(rows.indices)]
    if len(shape) != len(domain):
        kept = [index for at, index in enumerate(rows.indices) if at not in reduced]
    if len(kept) != len(shape):
        raise NoRuleError("a result of another shape")
    rows.store(node, term, kept, is_full=False)


def add_product(loops: Loops, node: Node) -> None:
    """A product of few elements, or a batch of such."""
    first, second, added = aten.PRODUCTS[name_of(node)]
    a, b = node.args[first], node.args[second]
    *batch, rows, depth = value_of(a).shape
    columns = value_of(b).shape[-1]
    domain = (*batch, rows, columns, depth)
    if node.kwargs or value_of(a).dtype != value_of(b).dtype:
        raise NoRuleError("a product of two kinds, or a scaled one")
    most = MOST_PRODUCTS if batch else _MOST_OF_ONE
    if value_of(node).numel() * depth > most:
        raise NoRuleError("a product of many elements")
    made = RowLoops(loops, domain, [len(domain) - 1])
    *outer, m, n, k = made.indices
    x, y = made.operand(a, [*outer, m, k]), made.operand(b, [*outer, k, n])
    if not x.dtype.is_floating_point:
        raise NoRuleError("a product of integers")
    term = made.sum(x * y)
    if added is not None:
        term = term + made.operand(node.args[added], [*outer, m, n])
    made.store(node, term, [*outer, m, n], is_full=False)
    made.finish()


def add_gather(loops: Loops, node: Node) -> None:
    """Rows of a table; an index that is outside of it is an error."""
    gather = gather_of(node, narrowest=1)
    assert gather is not None
    value, table = value_of(gather.indices), value_of(gather.table)
    if not table.is_contiguous():
        raise NoRuleError("a table that is not contiguous")
    shape = tuple(value.shape)
    strides = row_major(shape)
    place = loops.name("place")
    loops.reserve(place, (max(value.numel(), 1),), value.dtype)
    variables, indices = loops.over(shape, strides)
    at = position(indices, strides).text

    def find() -> Iterator[str]:
        row: Term = loops.aligned(gather.indices, indices)
        if gather.wraps:
            row = select(row < 0, row + gather.rows, row)
        yield f"{place}[{at}] = {text(row)}"
        yield index_check(f"{place}[{at}]", gather.rows)

    loops.lines += loops.loop(variables, find)
    columns = gather.columns

    def element(indices: list[Index]) -> Term:
        row = position(indices[: len(shape)], strides).text
        column = position(indices[len(shape) :], row_major(tuple(table.shape[1:])))
        picked = Index(((f"{place}[{row}]", gather.rows, columns),))
        extents = tuple(table.shape)
        places = unravelled(picked + column, extents, row_major(extents))
        made: Term = loops.value(gather.table, places)
        return made

    memory = loops.made(node)
    loops.store(memory, tuple(value_of(node).shape), memory.strides, element)
