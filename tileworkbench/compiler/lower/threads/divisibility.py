"""What symbolic extents must be multiples of for the rows of every tensor to be whole vectors."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from tileworkbench.compiler.analysis.evaluate import is_on_host
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import binary, cast, const_int, int_const
from tileworkbench.compiler.ir.expr import Binary, Buffer, Cast, Expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, buffers_of, statements, with_body
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.ir.stmt import Assume, For, LoopKind, Stmt, seq
from tileworkbench.compiler.ir.tile import OPERATORS
from tileworkbench.compiler.machine.machine import VECTOR_BITS


def vector_facts(program: Program) -> tuple[Expr, ...]:
    """Conditions ``N % 8 == 0`` under which tile operators may read and write vectors of 16 bytes
    wherever they go along rows; none where the program assumes them already.
    """
    ranges = Ranges(program)
    multiples: dict[Expr, int] = {}
    for buffer in _tensors(program):
        width = VECTOR_BITS // max(buffer.dtype.bits, 1)
        for length in _row_lengths(buffer):
            linear = ranges.linear(length)
            whole = gcd(width, linear.constant)  # no fact takes a constant rest away
            for term, factor in linear.terms:
                needed = whole // gcd(whole, factor)
                if not ranges.divides(needed, term) and is_on_host(term, program):
                    extent = _innermost(term)
                    ranges.assume(_is_multiple(extent, needed))
                    multiples[extent] = max(needed, multiples.get(extent, 1))
    return tuple(_is_multiple(extent, number) for extent, number in multiples.items())


def _is_multiple(extent: Expr, number: int) -> Expr:
    rest = binary("floormod", extent, cast(int_const(number), extent.dtype))
    return binary("eq", rest, cast(int_const(0), extent.dtype))


def _tensors(program: Program) -> Iterator[Buffer]:
    """The tensors that tile operators and vector loops read or write, each once."""
    wide = (
        stmt
        for stmt in statements(program.body)
        if isinstance(stmt, OPERATORS)
        or (isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED)
    )
    touched = dict.fromkeys(buffer for stmt in wide for buffer in buffers_of(stmt))
    return (buffer for buffer in touched if buffer.scope == "global" and buffer.shape)


def _row_lengths(buffer: Buffer) -> list[Expr]:
    """What a vector must divide not to lie across two rows, the innermost first."""
    *outer, last = strides_of(buffer)
    if const_int(last) != 1:
        return []
    return [buffer.shape[-1], *reversed(outer)]


def _innermost(term: Expr) -> Expr:
    """The last factor of a product: rows of that many elements are inside all others."""
    while True:
        if isinstance(term, Cast):
            term = term.value
        elif isinstance(term, Binary) and term.op == "mul":
            term = term.b
        else:
            return term


def is_changed_by(program: Program, facts: tuple[Expr, ...], under: Program) -> bool:
    """Whether `under`, lowered with the assumptions `facts`, differs from `program` in more than
    these.
    """

    def drop(stmt: Stmt) -> Stmt:
        return seq([]) if isinstance(stmt, Assume) and stmt.cond in facts else stmt

    return with_body(under, Rewriter(rewrite_stmt=drop)(under.body)) != program
