"""A group of operations as the text of a `T.prim_func`, as a person would write it.

A kernel is over rows and columns. Values are computed in stages: what needs a reduction over a row
comes after the loop that it reduces. What a later stage uses again stays in a fragment; everything
else is a name inside one loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from tileworkbench.pytorch.lines import indented, index_check, shape_text
from tileworkbench.pytorch.nodes import value_of
from tileworkbench.pytorch.prologues import COORDINATES, TileLines
from tileworkbench.pytorch.terms import NEUTRAL, Term, number, reduction_text, text_of


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
        self.place = "j"  # of a column in a row of a block
        self.stage = 0  # that is written
        self.picked = ""  # the column of an element that is computed for itself
        self.is_flat = not form.rows
        self.splits_columns = form.tile[1] < form.columns or product is not None

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
        names = dict.fromkeys((product.a, product.b))  # one, of what is multiplied by itself
        for name, shape, tile in zip(names, (a, b), product.tiles, strict=False):
            if tile is None:
                yield f"    {name}: {_tensor(shape, product.dtype)},"
                continue
            for node, (leaf, extents) in tile.leaves.items():
                yield f"    {leaf}: {_tensor(extents, value_of(node).dtype)},"

    def _kernel(self) -> Iterator[str]:
        form, (rows, columns) = self.form, self.form.tile
        across = f"T.ceildiv({form.columns}, {columns})"
        down = f"T.ceildiv({form.row_count}, {rows})" if rows > 1 else str(form.row_count)
        if self.is_flat:
            yield f"with T.Kernel({across}, threads=128) as bx:"
        elif form.batches:
            blocks = f"{across}, {down}, {form.batch_count}"
            yield f"with T.Kernel({blocks}, threads=128) as (bx, by, bz):"
        elif self.splits_columns and not form.has_pieces:
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
            if each.whole:
                (rows, columns), pieces = self.form.tile, self._pieces
                yield "# Computed once: a function costs more than a place in memory."
                shape = (rows, pieces * columns)
                dtype = name_of(compute_dtype(each.term.dtype))
                yield f"{each.whole} = T.alloc_fragment({shape_text(shape)}, T.{dtype})"
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
        depth = _DEPTH_OF_COMPUTED if any(product.tiles) else self.form.depth
        accumulator = name_of(compute_dtype(product.dtype))
        sizes = {"row": rows, "depth": depth, "column": columns}
        turned = ("", ", transpose_A=True"), ("", ", transpose_B=True")
        flags, names, fill = "", list[str](), list[str]()
        for place, name in enumerate((product.a, product.b)):
            is_turned, tile = product.transposed[place], product.tiles[place]
            order = COORDINATES[place][::-1] if is_turned else COORDINATES[place]
            shape = shape_text([sizes[each] for each in order])
            flags += turned[place][is_turned]
            if tile is not None:
                yield f"{name} = T.alloc_fragment({shape}, T.{dtype})"
                fill += self._computed(tile, order, sizes, product.depth)
                names.append(name)
                continue
            at = ", ".join(f"{_BLOCKS[each]} * {sizes[each]}" for each in order)
            shared = f"{name}_shared_2" if f"{name}_shared" in names else f"{name}_shared"
            yield f"{shared} = T.alloc_shared({shape}, T.{dtype})"
            fill.append(f"T.copy({name}[{'bz, ' if self.form.batches else ''}{at}], {shared})")
            names.append(shared)
        yield f"product = T.alloc_fragment({shape_text(self.form.tile)}, T.{accumulator})"
        yield "T.clear(product)"
        yield f"for k in T.Pipelined(T.ceildiv({product.depth}, {depth}), num_stages=2):"
        yield from indented(iter(fill), 1)
        yield f"    T.gemm({', '.join(names)}, product{flags})"

    def _computed(
        self, tile: TileLines, order: Sequence[str], sizes: Mapping[str, int], depth: int
    ) -> Iterator[str]:
        """The loop that computes the tile of an operand, `order` of whose coordinates is that of
        the tile.
        """
        yield f"for i, j in T.Parallel({', '.join(str(sizes[each]) for each in order)}):"
        own = dict(zip(order, "ij", strict=True))
        for each in sorted(order, key=_BLOCKS.__getitem__):
            yield f"    {each} = {_BLOCKS[each]} * {sizes[each]} + {own[each]}"
        for line in tile.lines:
            yield f"    {line}"
        element = tile.element
        if depth % sizes["depth"]:  # what lies behind the last one may be no number
            element = f"T.if_then_else(depth < {depth}, {element}, 0)"
        yield f"    {tile.name}[i, j] = {element}"

    def _stage(self, stage: int) -> Iterator[str]:
        here = [each for each in self.definitions if stage in {at for at, _ in each.made_in}]
        outputs = [each for each in self.outputs if each.term.stage == stage]
        self.stage = stage
        self._choose_names(stage, here, outputs)
        reduced = [each for each in here if each.reduce]
        yield from self._loop("row", here, outputs)
        elements = [*self._loop("full", here, outputs), *map(self._reduction, reduced)]
        if not self.form.has_pieces:
            yield from elements
        elif elements:
            yield from map(_beginning, reduced)
            yield f"for k in T.serial(T.ceildiv({self.form.columns}, {self.form.tile[1]})):"
            yield from indented(iter(elements), 1)

    @property
    def _pieces(self) -> int:
        """Of a row that is read in pieces, how many."""
        return -(-self.form.columns // self.form.tile[1])

    def _choose_names(
        self, stage: int, here: Sequence[Definition], outputs: Sequence[Output]
    ) -> None:
        """Have what needs no name in this stage written where it is used: it is short, or for
        nothing but to be stored.
        """
        stored = {output.term.args[0] for output in outputs if output.term.op == "value"}
        for each in here:
            again = len(each.made_in) > 1  # other stages compute it for themselves
            uses = {loop: n for loop, n in each.used_in.items() if not again or loop[0] == stage}
            once = uses == {(stage, each.kind): 1} and not (each.reduce or each.below)
            each.is_inline = once and (each in stored or len(self._text(each.term)) <= _SHORT)

    def _reduction(self, made: Definition) -> str:
        (operand,) = made.term.args
        if made.reduce == "cumsum":
            return f"T.cumsum({operand.name}, {made.name}, dim=1)"
        return reduction_text(made.reduce, operand.name, made.name, more=self.form.has_pieces)

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
        terms = [*(each.term for each in values), *(each.term for each in stored)]
        loaded = [each for term in terms for each in _loaded(term)]
        self.place = "j"
        if self.is_flat:
            yield f"for i in T.Parallel({columns}):"
            yield f"    at = bx * {columns} + i"
        elif any(each.part is not None for each in loaded) and not self.form.has_pieces:
            many, width = self.form.parts
            self.place = f"k * {width} + j"
            yield f"for i, k, j in T.Parallel({rows}, {many}, {width}):"
        elif kind == "full":
            yield f"for i, j in T.Parallel({rows}, {columns}):"
        else:
            yield f"for i in T.Parallel({rows}):"
        if not self.is_flat and (stored or any(any(each.rows) for each in loaded)):
            block = f"by * {rows}" if rows > 1 else "by"
            yield f"    row = {block} + i"
        if kind == "full" and self.splits_columns and not self.is_flat:
            yield f"    column = {'k' if self.form.has_pieces else 'bx'} * {columns} + j"
        for each in values:
            place = each.name + (f"[{self._at(kind)}]" if each.is_kept else "")
            yield f"    {place} = {self._text(each.term)}"
            if each.whole:
                yield f"    {each.whole}[i, column] = {place}"
            if each.below:
                yield f"    {index_check(place, each.below)}"
        for output in stored:
            index = self._output_index(kind)
            yield f"    {output.name}[{index}] = {self._text(output.term)}"

    def _at(self, kind: str) -> str:
        return f"i, {self.place}" if kind == "full" else "i"

    def _output_index(self, kind: str) -> str:
        if self.is_flat:
            return "at"
        row = "bz, row" if self.form.batches else "row"
        return f"{row}, {self._column()}" if kind == "full" else row

    def _column(self) -> str:
        if self.picked:
            return self.picked
        if self.is_flat:
            return "at"
        return "column" if self.splits_columns else self.place

    def _text(self, term: Term) -> str:
        return text_of(term, self._leaf)

    def _leaf(self, term: Term) -> str:
        if term.op == "column":
            return self._column()
        what = term.args[0]
        if term.op == "pick":
            self.picked = self._text(term.args[1])
            text = self._text(what)
            self.picked = ""
            return text
        if term.op == "gather":
            return f"{what.name}[{self._text(term.args[1])}, {self._column()}]"
        if term.op == "load":
            return f"{what.name}[{what.index(self.form, 'row', self._column())}]"
        if what.stage < 0:
            return "product[i, j]"
        if what.whole and (self.stage, "full") not in what.made_in:
            return f"{what.whole}[i, {self._column()}]"
        return f"{what.name}[{self._at(what.kind)}]" if what.is_kept else str(what.name)


_SHORT = 40  # characters
_DEPTH_OF_COMPUTED = 64  # of a product whose operand is computed in its tile
_BLOCKS = {"column": "bx", "row": "by", "depth": "k"}  # the block of a coordinate


def _beginning(made: Definition) -> str:
    """The statement before the first piece of rows that are reduced."""
    start = number(NEUTRAL[made.reduce], made.term.dtype)
    return f"T.fill({made.name}, {text_of(start, str)})"


def _loaded(term: Term) -> Iterator[Parameter]:
    """What an element's text loads."""
    if term.op == "load":
        yield term.args[0]
    inner = term.args
    if term.op == "value":
        inner = (term.args[0].term,) if term.args[0].is_inline else ()
    for each in inner:
        if isinstance(each, Term):
            yield from _loaded(each)


def _tensor(shape: tuple[int, ...], dtype: Any) -> str:
    return f"T.Tensor({shape_text(shape)}, T.{name_of(dtype)})"
