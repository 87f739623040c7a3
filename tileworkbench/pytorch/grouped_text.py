"""The text of a grouped product's kernel (`grouped`): for some rows of each matrix by tiles, for
few rows in all as one product of a row with a matrix each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tileworkbench.bench.products import product_rates
from tileworkbench.pytorch import aten
from tileworkbench.pytorch.body import Names
from tileworkbench.pytorch.dtypes import name_of as dtype_name
from tileworkbench.pytorch.dtypes import named
from tileworkbench.pytorch.grouped import Grouped, parts_of
from tileworkbench.pytorch.lines import indented, index_check, shape_text
from tileworkbench.pytorch.maps import element_of
from tileworkbench.pytorch.nodes import (
    Node,
    cited,
    is_part,
    is_view,
    label_of,
    name_of,
    value_of,
)
from tileworkbench.pytorch.sizes import is_open
from tileworkbench.pytorch.terms import NoRuleError, Term, text_of
from tileworkbench.pytorch.written import (
    Tensor,
    Written,
    base_name,
    finished,
    free_name,
    text_of_kernel,
)

_FEW_ROWS = 2  # of a matrix: a product of each row with its matrix reads no more than tiles would
_MANY_ROWS = 64  # of a tile whose matrix is laid out anew for each
_DEEPEST = 1024  # of a matrix that is laid out whole
_TILE_BYTES = 1 << 18  # of the parts of a matrix in fast memory
_DEPTH = 256  # of such a part where the matrix is deeper
_COLUMNS_OF_A_ROW = 32  # of a block that has one row
_PLAIN: tuple[int, ...] = ()  # the order of dimensions as torch has them
_RESERVED = ("out", "bx", "group", "begin", "end", "m", "i", "j", "k", "row", "column", "where")


def written(group: Grouped, names: Mapping[Node, str], taken: Collection[str] = ()) -> Written:
    """The kernel of a grouped product; see `writing.written`. Raises `NoRuleError` where what
    follows has no form.
    """
    return _Writer(group, names).written(taken)


class _Writer:
    def __init__(self, group: Grouped, names: Mapping[Node, str]) -> None:
        self.group, self.called = group, Names(*_RESERVED)
        self.rows, self.groups, self.depth, self.columns = group.sizes
        self.width = group.domain[1]
        self.kind = dtype_name(value_of(group.product).dtype)
        self.starts = sorted(parts_of(group))
        self.of: dict[Node, Term] = {}
        self.names = names
        self.arguments: list[Tensor] = []
        self.labels: list[str] = []
        rows_of = group.rows_of
        if rows_of is None:
            self.x = self._argument(group.product.args[0], (self.rows, self.depth))
        else:
            self.x = self._argument(rows_of.table, (rows_of.rows, self.depth))
            self.index = self._argument(rows_of.indices, (self.rows,))
        shape, order = (self.groups, self.depth, self.columns), _PLAIN
        if group.is_flipped:
            shape, order = (self.groups, self.columns, self.depth), (0, 2, 1)
        self.w = self._argument(group.matrices, shape, order)
        self.ends = self._argument(group.offsets, (self.groups,))
        self.parts = [self.called.name(f"part{at or ''}") for at in range(len(self.starts))]
        self.element = self._element()

    def _argument(self, node: Node, shape: tuple[int, ...], order: tuple[int, ...] = ()) -> str:
        tensor = Tensor(node, shape, order)
        if tensor in self.arguments:
            return self.labels[self.arguments.index(tensor)]
        self.arguments.append(tensor)
        self.labels.append(self.called.name(base_name(node, self.names)))
        return self.labels[-1]

    # What follows from the product

    def _element(self) -> Term:
        """An element of the result, of those of the parts at `[i, j]` and numbers of the row."""
        parts = parts_of(self.group)
        for start, name in zip(self.starts, self.parts, strict=True):
            for node in parts[start]:
                self.of[node] = Term("element", (f"{name}[i, j]",), named("float32"), "full")
        for node in self.group.members[self.group.members.index(self.group.product) + 1 :]:
            if not is_view(node) and not is_part(node):
                self.of[node] = self._computed(node)
        return self.of[self.group.result]

    def _computed(self, node: Node) -> Term:
        dtype = value_of(node).dtype
        if name_of(node) == aten.CONVERSION:
            converted: Term = self._operand(node.args[0])
            return converted.rounded(dtype)
        return element_of(node, self._operand, lambda _, part: part)

    def _operand(self, value: Any) -> Any:
        if not hasattr(value, "op"):
            return value
        if value in self.of:
            return self.of[value]
        if value in self.group.members:
            raise NoRuleError("a part of a grouped product that is read in two ways")
        name = self._argument(value, (self.rows,))
        return Term("element", (f"{name}[row]",), value_of(value).dtype, "row").to(
            value_of(value).dtype
        )

    # Text

    def written(self, taken: Collection[str]) -> Written:
        group = self.group
        labels = [label_of(each) for each in group.members if not (is_view(each) or is_part(each))]
        name = free_name("_".join(dict.fromkeys((*labels[:2], labels[-1]))), taken)
        few = not is_open(self.rows) and self.rows <= _FEW_ROWS * self.groups
        lines = self._of_single_rows() if few else self._of_tiles()
        about = f"The rows of matrix g end at {self.ends}[g]. A block has columns of one matrix."
        comments = [", ".join(labels), *cited(group.members), about]
        result = Tensor(group.result, (self.rows, self.width))
        text = text_of_kernel(name, comments, self.labels, self.arguments, result, lines)
        wanted = {self.rows: "rows"} if is_open(self.rows) else {}
        return finished(name, text, self.arguments, [result], wanted, self.called)

    def _text(self, leaf: str = "") -> str:
        """The text of an element; `leaf` stands for the product, where that is given."""
        text = text_of(self.element, lambda term: str(term.args[0]))
        for part in self.parts if leaf else ():
            text = text.replace(f"{part}[i, j]", leaf)
        return text

    # Tiles

    def _of_tiles(self) -> Iterator[str]:
        whole = self.depth <= _DEEPEST
        depth = self.depth if whole else _DEPTH
        room = _TILE_BYTES // (depth * len(self.parts) * value_of(self.group.product).itemsize)
        columns = min(128, max(32, 1 << room.bit_length() - 1), -(-self.width // 16) * 16)
        # What lies behind an expert's last row is wasted: so no more than one step of the product.
        rows = product_rates(self.kind).rows if whole else _MANY_ROWS
        yield f"with T.Kernel(T.ceildiv({self.width}, {columns}), {self.groups}) as (bx, group):"
        yield from indented(self._block(rows, columns, depth, whole), 1)

    def _block(self, rows: int, columns: int, depth: int, whole: bool) -> Iterator[str]:
        yield f"begin = T.if_then_else(group > 0, {self.ends}[T.max(group - 1, 0)], 0)"
        yield f"end = {self.ends}[group]"
        yield f"x_tile = T.alloc_shared(({rows}, {depth}), T.{self.kind})"
        if self.group.gather is not None:
            yield f"where = T.alloc_shared(({rows},), T.int64)"
        tile = (columns, depth) if self.group.is_flipped else (depth, columns)
        for part in self.parts:
            yield f"{part}_tile = T.alloc_shared({shape_text(tile)}, T.{self.kind})"
            yield f"{part} = T.alloc_fragment(({rows}, {columns}), T.float32)"
        if whole:
            yield "if begin < end:"
            yield from indented(self._matrices(columns, "0"), 1)
        yield f"for m in T.serial(T.ceildiv(end - begin, {rows})):"
        yield from indented(self._step(rows, columns, depth, whole), 1)
        yield f"if group == {self.groups - 1}:  # rows of no matrix"
        yield f"    for m in T.serial(T.ceildiv({self.rows} - end, {rows})):"
        yield f"        for i, j in T.Parallel({rows}, {columns}):"
        yield f"            row = end + m * {rows} + i"
        yield f"            if row < {self.rows}:"
        yield f"                out[row, bx * {columns} + j] = {self._text('T.float32(0)')}"

    def _matrices(self, columns: int, k: str) -> Iterator[str]:
        """The parts of the matrix that a block has, from depth `k` on."""
        for part, start in zip(self.parts, self.starts, strict=True):
            column = f"bx * {columns}" + (f" + {start}" if start else "")
            at = f"{column}, {k}" if self.group.is_flipped else f"{k}, {column}"
            yield f"T.copy({self.w}[group, {at}], {part}_tile)"

    def _step(self, rows: int, columns: int, depth: int, whole: bool) -> Iterator[str]:
        """Some rows of the block's matrix."""
        if self.group.rows_of is not None:
            yield from self._find(rows)
        flag = ", transpose_B=True" if self.group.is_flipped else ""
        if whole:
            yield from self._rows(rows, depth, "0")
            for part in self.parts:
                yield f"T.gemm(x_tile, {part}_tile, {part}{flag}, clear_accum=True)"
        else:
            for part in self.parts:
                yield f"T.clear({part})"
            yield f"for k in T.serial(T.ceildiv({self.depth}, {depth})):"
            yield from indented(self._rows(rows, depth, f"k * {depth}"), 1)
            yield from indented(self._matrices(columns, f"k * {depth}"), 1)
            for part in self.parts:
                yield f"    T.gemm(x_tile, {part}_tile, {part}{flag})"
        yield f"for i, j in T.Parallel({rows}, {columns}):"
        yield f"    row = begin + m * {rows} + i"
        yield "    if row < end:"
        yield f"        out[row, bx * {columns} + j] = {self._text()}"

    def _find(self, rows: int) -> Iterator[str]:
        """Which rows of the table these are."""
        yield f"for i in T.Parallel({rows}):"
        yield from indented(self._found(f"begin + m * {rows} + i", "where[i]", "end"), 1)

    def _found(self, row: str, where: str, end: str) -> Iterator[str]:
        rows_of = self.group.rows_of
        assert rows_of is not None
        yield f"row = {row}"
        yield f"{where} = T.if_then_else(row < {end}, T.cast({self.index}[row], T.int64), 0)"
        if rows_of.wraps:
            below = f"{where} + {rows_of.rows}"
            yield f"{where} = T.if_then_else({where} < 0, {below}, {where})"
        yield index_check(where, rows_of.rows)

    def _rows(self, rows: int, depth: int, k: str) -> Iterator[str]:
        """The tile of rows, from depth `k` on."""
        if self.group.rows_of is None:
            yield f"T.copy({self.x}[begin + m * {rows}, {k}], x_tile)"
            return
        yield f"for i, j in T.Parallel({rows}, {depth}):"
        yield f"    x_tile[i, j] = {self.x}[where[i], {'j' if k == '0' else f'{k} + j'}]"

    # Single rows

    def _of_single_rows(self) -> Iterator[str]:
        columns = min(_COLUMNS_OF_A_ROW, self.width)
        yield f"with T.Kernel(T.ceildiv({self.width}, {columns}), {self.rows}) as (bx, row):"
        yield from indented(self._single_row(columns), 1)

    def _single_row(self, columns: int) -> Iterator[str]:
        yield "own = T.alloc_local((1,), T.int32)"
        yield "own[0] = 0"
        yield f"for k in T.serial({self.groups}):"
        yield f"    own[0] = own[0] + T.if_then_else({self.ends}[k] <= row, 1, 0)"
        yield "group = own[0]"
        place = "row"
        if self.group.rows_of is not None:
            yield "where = T.alloc_local((1,), T.int64)"
            lines = list(self._found("row", "where[0]", str(self.rows)))[1:]
            yield from iter(lines)
            place = "picked"
            yield "picked = where[0]"
        for part in self.parts:
            yield f"{part} = T.alloc_fragment((1, {columns}), T.float32)"
            yield f"T.clear({part})"
        products = [f"{part}_tile" for part in self.parts]
        tile = (columns, self.depth) if self.group.is_flipped else (self.depth, columns)
        for each in products:
            yield f"{each} = T.alloc_fragment({shape_text(tile)}, T.float32)"
            yield f"{each}_sum = T.alloc_fragment(({columns},), T.float32)"
        yield f"if group < {self.groups}:"
        for each, part, start in zip(products, self.parts, self.starts, strict=True):
            yield from indented(self._row_times(each, part, start, columns, place), 1)
        yield f"for i, j in T.Parallel(1, {columns}):"
        yield f"    out[row, bx * {columns} + j] = {self._text()}"

    def _row_times(
        self, products: str, part: str, start: int, columns: int, place: str
    ) -> Iterator[str]:
        column = f"bx * {columns} + " + (f"{start} + " if start else "")
        flipped = self.group.is_flipped
        extents = (columns, self.depth) if flipped else (self.depth, columns)
        at = f"{column}i, j" if flipped else f"i, {column}j"
        x, w = f"{self.x}[{place}, {'j' if flipped else 'i'}]", f"{self.w}[group, {at}]"
        if self.kind != "float32":
            x, w = f"T.cast({x}, T.float32)", f"T.cast({w}, T.float32)"
        yield f"for i, j in T.Parallel({extents[0]}, {extents[1]}):"
        yield f"    {products}[i, j] = {w} * {x}"
        yield f"T.reduce_sum({products}, {products}_sum, dim={int(flipped)})"
        yield f"for i, j in T.Parallel(1, {columns}):"
        yield f"    {part}[i, j] = {products}_sum[j]"
