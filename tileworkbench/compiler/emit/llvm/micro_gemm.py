"""The product of one tile, C[m, n] += A[m, k] B[k, n], as a function of LLVM IR.

It is multiplied by vectors (`register_blocks.py`) or by tile registers (`amx.py`). Dot products of
bfloat16 are taken where they are exact, which is asked of the operands at run time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tileworkbench.compiler.emit.llvm import amx
from tileworkbench.compiler.emit.llvm.bfloat16_guard import (
    Lines,
    is_exact,
    least_exponent,
)
from tileworkbench.compiler.emit.llvm.gemm_spec import MicroGemmSpec
from tileworkbench.compiler.emit.llvm.register_blocks import Blocks, WideningBlocks
from tileworkbench.compiler.emit.llvm.text import EmittedFunction, FunctionWriter, storage_type


def emit_micro_gemm(spec: MicroGemmSpec, name: str) -> EmittedFunction:
    """Return `void @name(ptr A, i64 lda, ptr B, i64 ldb, ptr C, i64 ldc, i1 accumulate)`.

    A is in `spec.a_layout` with elements of `spec.panel_dtype` and leading dimension `lda`
    (`spec.a_stride` if packed). B is in `spec.b_layout`; `ldb` counts for 'rows' only. C is
    row-major with elements of `spec.acc_dtype` and `ldc` elements from row to row; where
    `accumulate` is false it is overwritten. Pointers need the alignment of their elements only,
    and nothing outside the operands is read or written.
    """
    operands = "ptr noalias readonly %A, i64 %lda, ptr noalias readonly %B, i64 %ldb"
    parameters = f"{operands}, ptr noalias %C, i64 %ldc, i1 %accumulate"
    writer = FunctionWriter(name, "void", parameters)
    if spec.tiles:
        _write_with_tiles(spec, writer)
    elif spec.asks:
        a = least_exponent(writer, spec.isa, _lines_of_a(spec, writer))
        forms = [form(spec, writer).write_tile for form in (Blocks, WideningBlocks)]
        _either(writer, is_exact(writer, a, _least_of_b(spec, writer)), *forms)
    elif spec.dot == "bfloat16":
        # Beside tile registers a dot product takes four times as long as a multiply-add.
        WideningBlocks(spec, writer).write_tile()
    else:
        Blocks(spec, writer).write_tile()
    return writer.finish()


def _either(
    writer: FunctionWriter, safe: str, then: Callable[[], None], otherwise: Callable[[], None]
) -> None:
    """Write what is done if dot products of bfloat16 are exact, and what if they are not."""
    *labels, done = (writer.fresh_label(hint) for hint in ("dot", "widened", "multiplied"))
    writer.branch(safe, *labels)
    for label, write in zip(labels, (then, otherwise), strict=True):
        writer.place(label)
        write()
        writer.jump(done)
    writer.place(done)


def _least_of_b(spec: MicroGemmSpec, writer: FunctionWriter) -> str:
    """The smallest exponent of B: from where packing has left it, or from all of its elements."""
    if not spec.b_least:
        return least_exponent(writer, spec.isa, Lines("%B", 1, spec.b_elements, "0"))
    at = writer.address(storage_type(spec.panel_dtype), "%B", str(spec.b_elements))
    return writer.let(f"load i32, ptr {at}, align 4")


def _write_with_tiles(spec: MicroGemmSpec, writer: FunctionWriter) -> None:
    """Write the product by tile registers, two of rows after the other, and vectors for the rows
    and columns that fill none.

    Rows are asked whether their products are exact just before they are multiplied, which brings
    them into the first-level cache.
    """
    element, memory = storage_type(spec.panel_dtype), storage_type(spec.acc_dtype)
    vectors = Blocks if spec.dot == "int8" else WideningBlocks
    full, columns = divmod(spec.n, spec.nr)
    registers, rows = divmod(spec.m, amx.ROWS)
    least_of_b = _least_of_b(spec, writer) if spec.asks else ""

    def of_rows(row: str, count: int, n: int) -> Blocks:
        a = writer.address(element, "%A", writer.times(row, "%lda"))
        c = writer.address(memory, "%C", writer.times(row, "%ldc"))
        return vectors(replace(spec, m=count, n=n), writer, a, "%B", c)

    def block(first: int, high: int, index: str) -> None:
        row = writer.plus(writer.times(index, high * amx.ROWS), first)
        part = of_rows(row, high * amx.ROWS, full * spec.nr)

        def by_tiles() -> None:
            tiles.write_rows(part.a, part.c, high)

        if least_of_b:
            lines = Lines(part.a, part.spec.m, spec.k, "%lda")
            safe = is_exact(writer, least_exponent(writer, spec.isa, lines), least_of_b)
            _either(writer, safe, by_tiles, part.write_tile)
        else:
            by_tiles()

    tiles = amx.begin(spec, writer)
    pairs, single = divmod(registers, 2)
    writer.repeat(pairs, partial(block, 0, 2))
    if single:
        block(2 * amx.ROWS * pairs, 1, "0")
    amx.end(writer)
    if rows:
        of_rows(str(registers * amx.ROWS), rows, full * spec.nr).write_tile()
    if columns:
        b = writer.address(element, "%B", str(full * spec.panel_stride))
        c = writer.address(memory, "%C", str(full * spec.nr))
        vectors(replace(spec, n=columns), writer, "%A", b, c).write_tile()


def _lines_of_a(spec: MicroGemmSpec, writer: FunctionWriter) -> Lines:
    if spec.a_layout == "rows":
        return Lines("%A", spec.m, spec.k, "%lda")
    groups, width = spec.k_padded // spec.group, spec.m * spec.group
    return Lines("%A", groups, width, writer.times("%lda", spec.group))
