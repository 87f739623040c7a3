"""Element-wise blocks that lie side by side in the rows of a tensor become one.

Nothing is shared between the elements of such a kernel, so its tiles are only an order of
traversal. A tile of 128 columns reads half a kilobyte and then jumps to the next row, where the
processor's prefetcher starts anew and another page has to be found; whole rows are one stream.

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

from dataclasses import replace

from tileworkbench.compiler.analysis.access import accesses
from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import Binary, Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute, variables, with_body
from tileworkbench.compiler.ir.stmt import Kernel, Stmt
from tileworkbench.compiler.ir.tile import Parallel

_MIN_BLOCKS = 32  # kept for the workers, unless
_MAX_ELEMENTS = 1 << 16  # the block is this small: 100 us at most


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
    grid = [const_int(extent) or 0 for extent in kernel.grid]
    extents = [const_int(extent) or 0 for extent in nest.extents]
    if not all(grid) or not all(extents):
        return kernel
    block, column, width = kernel.vars[0], nest.vars[-1], extents[-1]
    joined = _blocks_to_join(grid, extents)
    if joined == 1 or not _streams(nest, block, column, ranges):
        return kernel
    body = _with_columns(nest.body, block, column, width, joined, joined == grid[0], ranges)
    if body is None:
        return kernel
    wide = (*nest.extents[:-1], const(width * joined, column.dtype))
    left = (const(grid[0] // joined, kernel.grid[0].dtype), *kernel.grid[1:])
    return replace(kernel, grid=left, body=replace(nest, extents=wide, body=body))


def _blocks_to_join(grid: list[int], extents: list[int]) -> int:
    """The largest number of neighbours that leaves the workers enough to share."""
    blocks, elements = 1, 1
    for extent in grid:
        blocks *= extent
    for extent in extents:
        elements *= extent
    return max(
        count
        for count in range(1, grid[0] + 1)
        if grid[0] % count == 0
        and (count == 1 or blocks // count >= _MIN_BLOCKS or elements * count <= _MAX_ELEMENTS)
    )


def _streams(nest: Parallel, block: Var, column: Var, ranges: Ranges) -> bool:
    """Whether all accesses that move with the column do so along rows, and are known to be in
    range: a wide nest at a border would test every element.
    """
    for access in accesses(nest.body):
        for d, index in enumerate(access.indices):
            moves = {block, column} & set(variables(index))
            last = d == len(access.indices) - 1
            if moves and not (last and all(ranges.in_range(index, access.buffer.shape[d]))):
                return False
    return True


def _with_columns(
    body: Stmt, block: Var, column: Var, width: int, joined: int, whole: bool, ranges: Ranges
) -> Stmt | None:
    """`body` with `block * (width * joined) + column` for `block * width + column`; None where the
    two are used in another way.
    """
    new_block, new_column = Var(f"{block.name}'", block.dtype), Var(f"{column.name}'", column.dtype)

    def change(found: object) -> object:
        if not isinstance(found, Binary) or found.op not in ("add", "sub"):
            return found
        linear = ranges.linear(found)
        factor = linear.coefficient(column)
        if not factor or linear.coefficient(block) != factor * width:
            return found
        others = tuple(term for term in linear.terms if term[0] not in (block, column))
        start = () if whole else ((new_block, factor * width * joined),)
        return to_expr(
            Linear((*others, *start, (new_column, factor)), linear.constant), found.dtype
        )

    made: Stmt = Rewriter(change)(body)
    if {block, column} & set(variables(made)):
        return None
    back: dict[Var, Expr] = {new_block: block, new_column: column}
    return substitute(made, back)  # type: ignore[no-any-return]
