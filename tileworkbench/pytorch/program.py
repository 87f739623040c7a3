"""A group of operations as the text of a `T.prim_func`, as a person would write it.

A kernel is over rows and columns. Values are computed in stages: what needs a reduction over a row
comes after the loop that it reduces. What a later stage uses again stays in a fragment; everything
else is a name inside one loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tileworkbench.pytorch.body import (
    Body,
    Definition,
    Form,
    Output,
    Parameter,
    Product,
    find_uses,
)
from tileworkbench.pytorch.convolutions import summed
from tileworkbench.pytorch.dtypes import compute_dtype, name_of
from tileworkbench.pytorch.gathers import Gather
from tileworkbench.pytorch.nodes import value_of
from tileworkbench.pytorch.prologues import TileLines, leaf_shape
from tileworkbench.pytorch.terms import Term, text_of

LONGEST_ROW = 16384  # columns of a row that is kept in fast memory


def write(
    name: str,
    comments: Sequence[str],
    form: Form,
    parameters: Sequence[Parameter],
    body: Body,
    outputs: Sequence[Output],
    product: Product | None = None,
    tables: Sequence[tuple[Gather, Parameter]] = (),
) -> str:
    """The text of the kernel. Raises `NoRuleError` for a number that T does not write."""
    return (
        "\n".join(_Writer(form, body, parameters, outputs, product, tables).lines(name, comments))
        + "\n"
    )


class _Writer:
    def __init__(
        self,
        form: Form,
        body: Body,
        parameters: Sequence[Parameter],
        outputs: Sequence[Output],
        product: Product | None,
        tables: Sequence[tuple[Gather, Parameter]],
    ) -> None:
        self.tables = tables
        self.form, self.parameters, self.outputs = form, parameters, outputs
        self.definitions = find_uses(body, outputs)
        self.product = product
        self.row, self.column = "row", "j"
        self.is_flat = not form.rows
        self.splits_columns = form.tile[1] < form.columns or product is not None
        stored = {output.term.args[0] for output in outputs if output.term.op == "value"}
        for each in self.definitions:
            # What is short, or for nothing but to be stored, needs no name.
            once = each.uses == 1 and not each.is_kept
            each.is_inline = (
                once and not each.below and (each in stored or len(self._text(each.term)) <= _SHORT)
            )

    def lines(self, name: str, comments: Sequence[str]) -> Iterator[str]:
        form = self.form
        for comment in comments:
            yield f"# {comment}"
        yield "@T.prim_func"
        yield f"def {name}("
        if self.product is not None:
            yield from self._matrices(self.product)
        for gather, table in self.tables:
            yield f"    {table.name}: {_tensor((gather.rows, gather.columns), table.dtype)},"
        for parameter in self.parameters:
            yield f"    {parameter.name}: {_tensor(parameter.shape(form), parameter.dtype)},"
        yield "):"
        for output in self.outputs:
            shape = shape_text(output.shape(form))
            yield f"    {output.name} = T.empty({shape}, T.{name_of(output.dtype)})"
        yield from indented(self._kernel(), 1)
        yield f"    return {', '.join(output.name for output in self.outputs)}"

    def _matrices(self, product: Product) -> Iterator[str]:
        m, n, k = self.form.row_count, self.form.columns, product.depth
        batch = (self.form.batch_count,) if self.form.batches else ()
        if product.window is not None:
            for name, shape in zip(
                (product.a, product.b), product.window.shapes(batch), strict=True
            ):
                yield f"    {name}: {_tensor(shape, product.dtype)},"
            return
        a = (*batch, *((k, m) if product.transposed[0] else (m, k)))
        b = (*batch, *((n, k) if product.transposed[1] else (k, n)))
        yield f"    {product.a}: {_tensor(a, product.dtype)},"
        if product.tile is None:
            if product.b != product.a:
                yield f"    {product.b}: {_tensor(b, product.dtype)},"
            return
        for node, name in product.tile.leaves.items():
            yield f"    {name}: {_tensor(leaf_shape(node), value_of(node).dtype)},"

    def _kernel(self) -> Iterator[str]:
        form, (rows, columns) = self.form, self.form.tile
        across = f"T.ceildiv({form.columns}, {columns})"
        down = f"T.ceildiv({form.row_count}, {rows})" if rows > 1 else str(form.row_count)
        if self.is_flat:
            yield f"with T.Kernel({across}, threads=128) as bx:"
        elif form.batches:
            blocks = f"{across}, {down}, {form.batch_count}"
            yield f"with T.Kernel({blocks}, threads=128) as (bx, by, bz):"
        elif self.splits_columns:
            yield f"with T.Kernel({across}, {down}, threads=128) as (bx, by):"
        else:
            yield f"with T.Kernel({down}, threads=128) as by:"
        yield from indented(self._block(), 1)

    def _block(self) -> Iterator[str]:
        if self.product is not None:
            yield from self._multiply(self.product)
        for each in self.definitions:
            if each.is_kept:
                shape = self.form.tile if each.kind == "full" else self.form.tile[:1]
                dtype = name_of(compute_dtype(each.term.dtype))
                yield f"{each.name} = T.alloc_fragment({shape_text(shape)}, T.{dtype})"
        stages = [each.stage for each in self.definitions]
        stages += [output.term.stage for output in self.outputs]
        for stage in range(max(stages, default=-1) + 1):
            yield from self._stage(stage)

    def _multiply(self, product: Product) -> Iterator[str]:
        (rows, columns), dtype = self.form.tile, name_of(product.dtype)
        if product.window is not None:
            yield from summed(
                product.window,
                self.form.tile,
                product.b,
                product.a,
                dtype,
                is_batch=bool(self.form.batches),
            )
            return
        depth = self.form.depth if product.tile is None else _DEPTH_OF_CODES
        accumulator = name_of(compute_dtype(product.dtype))
        t_a, t_b = product.transposed
        tile_a = (depth, rows) if t_a else (rows, depth)
        tile_b = (columns, depth) if t_b else (depth, columns)
        at_a = f"k * {depth}, by * {rows}" if t_a else f"by * {rows}, k * {depth}"
        at_b = f"bx * {columns}, k * {depth}" if t_b else f"k * {depth}, bx * {columns}"
        if self.form.batches:
            at_a, at_b = f"bz, {at_a}", f"bz, {at_b}"
        flags = ", transpose_A=True" * t_a + ", transpose_B=True" * t_b
        a, b = product.a, product.b
        yield f"{a}_shared = T.alloc_shared({shape_text(tile_a)}, T.{dtype})"
        if product.tile is None:
            shared = f"{b}_shared" if b != a else f"{b}_shared_2"
            yield f"{shared} = T.alloc_shared({shape_text(tile_b)}, T.{dtype})"
            fill = [f"T.copy({b}[{at_b}], {shared})"]
            b = shared
        else:
            yield f"{b} = T.alloc_fragment({shape_text(tile_b)}, T.{dtype})"
            fill = list(self._computed(product.tile, tile_b, product))
        yield f"product = T.alloc_fragment({shape_text(self.form.tile)}, T.{accumulator})"
        yield "T.clear(product)"
        yield f"for k in T.Pipelined(T.ceildiv({product.depth}, {depth}), num_stages=2):"
        yield f"    T.copy({a}[{at_a}], {a}_shared)"
        yield from indented(iter(fill), 1)
        yield f"    T.gemm({a}_shared, {b}, product{flags})"

    def _computed(
        self, tile: TileLines, extents: tuple[int, int], product: Product
    ) -> Iterator[str]:
        """The loop that computes the tile of an operand."""
        columns, depth = extents if product.transposed[1] else extents[::-1]
        of_columns, of_depth = ("i", "j") if product.transposed[1] else ("j", "i")
        yield f"for i, j in T.Parallel({extents[0]}, {extents[1]}):"
        yield f"    column = bx * {columns} + {of_columns}"
        yield f"    depth = k * {depth} + {of_depth}"
        for line in tile.lines:
            yield f"    {line}"
        element = tile.element
        if product.depth % depth:  # what lies behind the last one may be no number
            element = f"T.if_then_else(depth < {product.depth}, {element}, 0)"
        yield f"    {tile.name}[i, j] = {element}"

    def _stage(self, stage: int) -> Iterator[str]:
        here = [each for each in self.definitions if each.stage == stage]
        outputs = [each for each in self.outputs if each.term.stage == stage]
        yield from self._loop("row", here, outputs)
        yield from self._loop("full", here, outputs)
        for each in here:
            if each.reduce:
                (operand,) = each.term.args
                if each.reduce == "cumsum":
                    yield f"T.cumsum({operand.name}, {each.name}, dim=1)"
                    continue
                last = ", nan_propagate=True" if each.reduce != "sum" else ""
                yield f"T.reduce_{each.reduce}({operand.name}, {each.name}, dim=1{last})"

    def _loop(
        self, kind: str, here: Sequence[Definition], outputs: Sequence[Output]
    ) -> Iterator[str]:
        stored = [each for each in outputs if each.is_full == (kind == "full")]
        values = [
            each for each in here if each.kind == kind and not each.reduce and not each.is_inline
        ]
        if not values and not stored:
            return
        rows, columns = self.form.tile
        if self.is_flat:
            yield f"for i in T.Parallel({columns}):"
            yield f"    at = bx * {columns} + i"
        elif kind == "full":
            yield f"for i, j in T.Parallel({rows}, {columns}):"
        else:
            yield f"for i in T.Parallel({rows}):"
        if not self.is_flat and self._needs_row(values, stored):
            block = f"by * {rows}" if rows > 1 else "by"
            yield f"    row = {block} + i"
        if kind == "full" and self.splits_columns and not self.is_flat:
            yield f"    column = bx * {columns} + j"
        for each in values:
            place = each.name + (f"[{self._at(kind)}]" if each.is_kept else "")
            yield f"    {place} = {self._text(each.term)}"
            if each.below:
                said = '"an index is out of range"'
                yield f"    T.device_assert(({place} >= 0) & ({place} < {each.below}), {said})"
        for output in stored:
            index = self._output_index(kind)
            yield f"    {output.name}[{index}] = {self._text(output.term)}"

    def _needs_row(self, values: Sequence[Definition], stored: Sequence[Output]) -> bool:
        def loads(term: Term) -> bool:
            if term.op == "load":
                return any(term.args[0].rows)
            if term.op == "value":
                return bool(term.args[0].is_inline) and loads(term.args[0].term)
            return any(loads(each) for each in term.args if isinstance(each, Term))

        return bool(stored) or any(loads(each.term) for each in values)

    def _at(self, kind: str) -> str:
        return "i, j" if kind == "full" else "i"

    def _output_index(self, kind: str) -> str:
        if self.is_flat:
            return "at"
        row = "bz, row" if self.form.batches else "row"
        return f"{row}, {self._column()}" if kind == "full" else row

    def _column(self) -> str:
        if self.is_flat:
            return "at"
        return "column" if self.splits_columns else "j"

    def _text(self, term: Term) -> str:
        return text_of(term, self._leaf)

    def _leaf(self, term: Term) -> str:
        what = term.args[0]
        if term.op == "gather":
            return f"{what.name}[{self._text(term.args[1])}, {self._column()}]"
        if term.op == "load":
            return f"{what.name}[{what.index(self.form, 'row', self._column())}]"
        if what.stage < 0:
            return "product[i, j]"
        return f"{what.name}[{self._at(what.kind)}]" if what.is_kept else str(what.name)


_SHORT = 40  # characters
_DEPTH_OF_CODES = 64  # of a product whose operand is computed in its tile


def _tensor(shape: tuple[int, ...], dtype: Any) -> str:
    return f"T.Tensor({shape_text(shape)}, T.{name_of(dtype)})"


def shape_text(shape: Sequence[int]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def indented(lines: Iterator[str], depth: int) -> Iterator[str]:
    for line in lines:
        yield "    " * depth + line
