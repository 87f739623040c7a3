"""The first operand of a product is read where it lies in global memory, without a copy of it.

The micro-kernel reads rows of A as they are, from any memory. A tile that is a plain copy of a box
which is inside of its tensor, and which only one gemm reads, is of no use then.

Before::

    for k in T.serial(4):
        T.copy(A[0:64, k * 128:k * 128 + 128], A_shared)
        T.copy(B[0:64, k * 128:k * 128 + 128], B_shared)
        T.gemm(A_shared, B_shared, C_local, transpose_B=True)

After::

    for k in T.serial(4):
        T.copy(B[0:64, k * 128:k * 128 + 128], B_shared)
        T.gemm(A[0:64, k * 128:k * 128 + 128], B_shared, C_local, transpose_B=True)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.effects import constant_buffers, uses
from tileworkbench.compiler.analysis.micro_tile import choose_micro_tile
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Gemm
from tileworkbench.compiler.lower.shared.regions import is_whole, wide_dims
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target


@optional("operands read where they lie: products copy both of theirs")
@dataclass(frozen=True, slots=True)
class ReadInPlace:
    """Let gemms read rows of their first operand where they lie in global memory."""

    target: Target

    def __call__(self, program: Program) -> Program:
        reader = _Reader(program, self.target)
        body = Rewriter(rewrite_stmt=reader.visit)(program.body)
        return with_body(program, Rewriter(rewrite_stmt=reader.without)(body))


class _Reader:
    def __init__(self, program: Program, target: Target) -> None:
        self.target = target
        self.ranges = Ranges(program)
        self.constant = constant_buffers(program.body)
        self.replaced: set[Buffer] = set()
        self.uses = uses(program.body)

    def without(self, stmt: Stmt) -> Stmt:
        """No statement for the allocation of a tile that nothing uses any more."""
        is_unused = isinstance(stmt, Alloc) and stmt.buffer in self.replaced
        return seq(()) if is_unused else stmt

    def visit(self, stmt: Stmt) -> Stmt:
        """A sequence without the copies that its gemms do not need."""
        if not isinstance(stmt, Seq):
            return stmt
        made: list[Stmt] = []
        for each in stmt.stmts:
            if isinstance(each, Gemm) and (copy := self.needless(each, made)) is not None:
                made = [other for other in made if other is not copy]
                each = replace(each, a=copy.src)
                self.replaced.add(copy.dst.buffer)
            made.append(each)
        return seq(made) if len(made) < len(stmt.stmts) else stmt

    def needless(self, product: Gemm, before: list[Stmt]) -> Copy | None:
        """The copy among the statements before a gemm that makes its first operand for nothing."""
        tile = product.a.buffer
        if self.uses[tile] != 2 or product.transpose_a or not self.reads_rows(product):
            return None
        copies = (each for each in before if isinstance(each, Copy) and each.dst.buffer is tile)
        copy = next(copies, None)
        if copy is None or not (is_whole(copy.dst) and is_whole(product.a)):
            return None
        return copy if self.is_inside(copy.src, tile) else None

    def reads_rows(self, product: Gemm) -> bool:
        """Whether the micro-kernel multiplies elements of A as they are."""
        a, c = product.a, product.c
        m, k = (const_int(extent) or 0 for extent in a.extents[-2:])
        n = const_int(c.extents[-1]) or 0
        if a.buffer.dtype != product.b.buffer.dtype or not (m and k and n):
            return False
        micro = choose_micro_tile(m, n, k, a.buffer.dtype, c.buffer.dtype, self.target)
        return micro is not None and micro.panel_dtype == a.buffer.dtype and k % micro.group == 0

    def is_inside(self, source: Region, tile: Buffer) -> bool:
        """Whether a box of rows, as large as a tile, lies inside of a tensor that nobody writes."""
        buffer, shape = source.buffer, const_shape(source.buffer)
        if shape is None or buffer not in self.constant or buffer.dtype != tile.dtype:
            return False
        dims, extents = wide_dims(source), [const_int(extent) for extent in source.extents]
        rows = list(range(len(shape)))[-2:]
        if dims != rows or [extents[dim] for dim in dims] != [const_int(n) for n in tile.shape]:
            return False
        bounds = map(self.ranges.bounds, source.mins)
        return all(
            low.low is not None
            and low.low >= 0
            and low.high is not None
            and extent is not None
            and low.high + extent <= size
            for low, extent, size in zip(bounds, extents, shape, strict=True)
        )
