"""A block whose rows have nothing to do with each other becomes several blocks of few rows.

A GPU shares the rows of a tile out to its warps. One worker of a processor computes them after each
other, and each operator of a block goes through all rows before the next one begins: the tile then
comes from a farther cache each time, and loads are waited for without anything to compute. Of few
rows a block has what it needs in registers and in the innermost cache. No number is computed in
another way.

Where the last block goes beyond the tensors, blocks without any row of theirs are left out.

Before::

    with T.Kernel(16, threads=128) as bx:
        tile = T.alloc_fragment((64, 1024), "float32")
        total = T.alloc_fragment((64,), "float32")
        T.copy(X[bx * 64:bx * 64 + 64, 0:1024], tile)
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(64, 1024):
            Y[bx * 64 + i, j] = tile[i, j] / total[i]

After::

    with T.Kernel(1024, threads=128) as bx:
        tile = T.alloc_fragment((1, 1024), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X[bx:bx + 1, 0:1024], tile)
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(1, 1024):
            Y[bx + i, j] = tile[i, j] / total[i]
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import binary, ceildiv, const, int_const, mul
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, variables, with_body
from tileworkbench.compiler.ir.stmt import Kernel, Let, Stmt, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.regions import wide_dims
from tileworkbench.compiler.lower.shared.regroup import regrouped
from tileworkbench.compiler.lower.shared.row_blocks import Rows, is_loop, outside_of_nests
from tileworkbench.compiler.passes.optional import optional

# Bytes of a tile that a block keeps: enough for some vectors, fewer where the next block goes on in
# the same row; where a loop goes through the rows piece by piece, enough to do something else while
# a sum waits for the last one.
_LEAST, _LEAST_OF_PIECES, _LEAST_IN_LOOPS = 512, 256, 2048


@optional("few rows at once: a block keeps all rows of its tile")
def split_rows(program: Program) -> Program:
    """Give blocks of row-wise kernels as few rows as are worth a block."""
    ranges = Ranges(program)

    def split(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Kernel) or stmt.swizzle is not None or stmt.thread_vars:
            return stmt
        for block in stmt.vars:
            rows = Rows.of(stmt, block, ranges)
            made = None if rows is None else _with_rows(rows, _worth(rows))
            if made is not None:
                return made
        return stmt

    return with_body(program, Rewriter(rewrite_stmt=split)(program.body))


def _worth(rows: Rows) -> int:
    """How many rows a block keeps."""
    if rows.are_elements:
        return rows.count
    least = _LEAST if rows.block is rows.kernel.vars[0] else _LEAST_OF_PIECES
    if any(map(is_loop, statements(rows.kernel.body))):
        least = _LEAST_IN_LOOPS
    # Each block makes what its rows share anew, which should be worth it.
    least = max(least, rows.shared_bytes())
    parts = (n for n in range(1, rows.count) if rows.count % n == 0)
    return next((n for n in parts if n * rows.row_bytes >= least), rows.count)


def _with_rows(rows: Rows, left: int) -> Kernel | None:
    """The kernel with so many rows a block; None where it has them, or cannot have fewer."""
    if left == rows.count:
        return None
    body = _nests(rows, left)
    body = None if body is None else _without_block_names(_smaller(rows, left, body), rows)
    if body is None:
        return None
    kernel, at = rows.kernel, rows.kernel.vars.index(rows.block)
    blocks = _blocks(rows, kernel.grid[at], left)
    return replace(kernel, grid=(*kernel.grid[:at], blocks, *kernel.grid[at + 1 :]), body=body)


def _nests(rows: Rows, left: int) -> Stmt | None:
    """The body with nests over fewer rows; None where one needs the number of a row or block."""
    failed = False

    def change(stmt: Stmt) -> Stmt:
        nonlocal failed
        item = rows.item(stmt) if isinstance(stmt, Parallel) else None
        if not isinstance(stmt, Parallel) or item is None:
            return stmt
        body = regrouped(stmt.body, rows.block, item, rows.count, left, rows.ranges, rows.tiles)
        failed |= body is None
        extents = tuple(
            const(left, extent.dtype) if var is item else extent
            for var, extent in zip(stmt.vars, stmt.extents, strict=True)
        )
        return replace(stmt, extents=extents, body=body or stmt.body)

    made: Stmt = Rewriter(rewrite_stmt=change)(rows.kernel.body)
    return None if failed else made


def _smaller(rows: Rows, left: int, body: Stmt) -> Stmt:
    """The body with smaller tiles, and copies of as many rows."""
    fewer = {tile: replace(tile, shape=(int_const(left), *tile.shape[1:])) for tile in rows.tiles}
    tiles = set(fewer.values())

    def shrink(node: object) -> object:
        if isinstance(node, Buffer):
            return fewer.get(node, node)
        if isinstance(node, Region) and node.buffer in tiles:
            return replace(node, extents=(int_const(left), *node.extents[1:]))
        if isinstance(node, Region) and rows.moves(node):
            return _moved(rows, node, left)
        return node

    return Rewriter(shrink)(body)  # type: ignore[no-any-return]


def _moved(rows: Rows, region: Region, left: int) -> Region:
    """The rows of a tensor that a block with fewer of them accesses."""
    mins, extents = list(region.mins), list(region.extents)
    dim = wide_dims(region)[0]
    linear = rows.ranges.linear(mins[dim])
    terms = tuple((atom, left if atom is rows.block else factor) for atom, factor in linear.terms)
    mins[dim] = to_expr(Linear(terms, linear.constant), mins[dim].dtype)
    extents[dim] = const(left, extents[dim].dtype)
    return replace(region, mins=tuple(mins), extents=tuple(extents))


def _without_block_names(body: Stmt, rows: Rows) -> Stmt | None:
    """The body without names of what depends on the block; None where one is still needed."""
    names: set[Var] = {
        stmt.var
        for stmt in outside_of_nests(body)
        if isinstance(stmt, Let) and rows.by_block(stmt.value)
    }

    def drop(stmt: Stmt) -> Stmt:
        return seq([]) if isinstance(stmt, Let) and stmt.var in names else stmt

    made: Stmt = Rewriter(rewrite_stmt=drop)(body)
    return None if names & set(variables(made)) else made


def _blocks(rows: Rows, before: Expr, left: int) -> Expr:
    """How many blocks there are, none of them without a row."""
    all_ = mul(before, const(rows.count // left, before.dtype))
    if len(rows.lengths) != 1:
        return all_
    (length,) = rows.lengths
    needed = ceildiv(length, const(left, length.dtype))
    fewer = before is ceildiv(length, const(rows.count, length.dtype))
    fewer = fewer or rows.ranges.proves(binary("le", needed, all_)) is True
    return needed if fewer else binary("min", all_, needed)
