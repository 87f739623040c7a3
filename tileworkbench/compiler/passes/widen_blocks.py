"""Element-wise blocks that lie side by side in the rows of a tensor become one.

Nothing is shared between the elements of such a kernel, so its tiles are only an order of
traversal. A tile of 128 columns reads half a kilobyte and then jumps to the next row, where the
processor's prefetcher starts anew and another page has to be found; whole rows are one stream.
Where tiles do not divide the rows, or it is not known, the last block is as wide as what is left.
Of a tile with so many rows that whole ones would make a large block, a block has fewer.

Before::

    with T.Kernel(32, 32, threads=128) as (bx, by):
        for i, j in T.Parallel(128, 128):
            B[by * 128 + i, bx * 128 + j] = A[by * 128 + i, bx * 128 + j] * 2.0

After::

    with T.Kernel(1, 32, threads=128) as (bx, by):
        for i, j in T.Parallel(128, 4096):
            B[by * 128 + i, j] = A[by * 128 + i, j] * 2.0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.access import element_accesses
from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import binary, ceildiv, const, const_int, mul, sub
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    statements,
    with_body,
)
from tileworkbench.compiler.ir.stmt import Kernel, Let, Seq, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.regroup import MIN_BLOCKS, moving, regrouped
from tileworkbench.compiler.passes.optional import optional

_MAX_ELEMENTS = 1 << 16  # of a block that workers need not share: 100 us at most


@optional("long runs of memory: each block keeps the rows of its own tile")
def widen_blocks(program: Program) -> Program:
    """Join the blocks along x of kernels that are a single element-wise nest."""
    ranges = Ranges(program)

    def widen(stmt: Stmt) -> Stmt:
        return _widen(stmt, ranges) if isinstance(stmt, Kernel) else stmt

    return with_body(program, Rewriter(rewrite_stmt=widen)(program.body))


def _widen(kernel: Kernel, ranges: Ranges) -> Kernel:
    nest = kernel.body
    if not isinstance(nest, Parallel) or kernel.swizzle is not None or len(nest.vars) < 2:
        return kernel
    extents = [const_int(extent) or 0 for extent in nest.extents]
    if not all(extents):
        return kernel
    count, blocks = const_int(kernel.grid[0]), _product(kernel.grid)
    most = _blocks_to_join(count, blocks, prod(extents))
    if count is not None and most < count:
        fewer = _with_fewer_rows(kernel, nest, prod(extents) * count / _MAX_ELEMENTS, ranges)
        if fewer is not None and (whole := _joined(fewer, count, ranges)) is not None:
            return whole
    return _joined(kernel, most, ranges) or kernel


def _joined(kernel: Kernel, most: int, ranges: Ranges) -> Kernel | None:
    """The kernel with up to `most` blocks along x in one; None where they stay as they are."""
    nest = kernel.body
    assert isinstance(nest, Parallel)
    rows = _Rows(nest, kernel.vars[0], nest.vars[-1], const_int(nest.extents[-1]) or 0, ranges)
    count = const_int(kernel.grid[0])
    if rows.are_whole() and count is not None:
        joined = max(n for n in range(1, most + 1) if count % n == 0)
        width: Expr = const(rows.width * joined, rows.column.dtype)
        left: Expr = const(count // joined, kernel.grid[0].dtype)
    else:
        length = rows.length(kernel.grid[0])
        if length is None:
            return None
        joined = most
        chunk = const(rows.width * joined, length.dtype)
        width = binary("min", chunk, sub(length, mul(rows.block, chunk)))
        left = ceildiv(length, chunk)
        if joined == count:
            width = length
    after = 0 if joined == count else rows.width * joined
    body = regrouped(nest.body, rows.block, rows.column, rows.width, after, ranges)
    if joined == 1 or body is None:
        return None
    wide = replace(nest, extents=(*nest.extents[:-1], width), body=body)
    return replace(kernel, grid=(left, *kernel.grid[1:]), body=wide)


def _with_fewer_rows(kernel: Kernel, nest: Parallel, times: float, ranges: Ranges) -> Kernel | None:
    """The kernel with at least so many times as many blocks along y, of as many times fewer rows;
    None where the rows do not allow it.
    """
    rows = const_int(nest.extents[0]) or 0
    parts = min((n for n in range(1, rows + 1) if n >= times and rows % n == 0), default=1)
    if parts == 1 or len(kernel.vars) < 2:
        return None
    body = regrouped(nest.body, kernel.vars[1], nest.vars[0], rows, rows // parts, ranges)
    if body is None:
        return None
    extents = (const(rows // parts, nest.extents[0].dtype), *nest.extents[1:])
    across, along, *others = kernel.grid
    more = mul(along, const(parts, along.dtype))
    return replace(
        kernel,
        grid=(across, more, *others),
        body=replace(nest, extents=extents, body=body),
    )


def _product(extents: tuple[Expr, ...]) -> int | None:
    known = [const_int(extent) for extent in extents]
    return None if None in known else prod(n for n in known if n is not None)


def _blocks_to_join(count: int | None, blocks: int | None, elements: int) -> int:
    """The largest number of `count` neighbours, with so many `elements` each, that leaves the
    workers enough of all `blocks` to share.
    """
    small = max(1, _MAX_ELEMENTS // elements)
    enough = 1 if blocks is None else max(1, blocks // MIN_BLOCKS)
    return max(small, enough) if count is None else min(count, max(small, enough))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The element-wise `nest` of a tile, whose `width` columns are those of `block`."""

    nest: Parallel
    block: Var
    column: Var
    width: int
    ranges: Ranges

    def moving(self) -> Iterator[tuple[Access, int]]:
        """The accesses that move with the column, and the dimension along which they do."""
        for access in element_accesses(self.nest.body):
            for d, index in enumerate(access.indices):
                if self.moves(index):
                    yield access, d

    def moves(self, index: Expr) -> bool:
        return bool(moving(index, self.ranges) & {self.block, self.column})

    def are_whole(self) -> bool:
        """Whether all these accesses run along rows, and are known to be in range."""
        return all(
            d == len(access.indices) - 1
            and all(self.ranges.in_range(access.indices[d], access.buffer.shape[d]))
            for access, d in self.moving()
        )

    def length(self, blocks: Expr) -> Expr | None:
        """How many columns the tensors have, where all have as many, the blocks cover them and
        nothing happens in the iterations beyond; None otherwise.
        """
        place = Linear(((self.block, self.width), (self.column, 1)), 0)
        lengths = set[Expr]()
        for access, d in self.moving():
            rest = combine([(self.ranges.linear(access.indices[d]), 1), (place, -1)])
            if d != len(access.indices) - 1 or rest.terms or rest.constant:
                return None
            lengths.add(access.buffer.shape[d])
        idle = all(
            isinstance(stmt, Let | Seq)
            or (isinstance(stmt, Store) and self.moves(stmt.indices[-1]))
            for stmt in statements(self.nest.body)
        )
        if len(lengths) != 1 or not idle:
            return None
        (length,) = lengths
        covered = mul(blocks, const(self.width, blocks.dtype))
        return length if self.ranges.proves(binary("le", length, covered)) else None
