"""A launch becomes a loop over its blocks, which workers share; the block indices are computed from
the block's number.

x runs fastest. With `T.use_swizzle` the blocks are visited in panels of rows or columns,
alternately forwards and backwards, so that neighbours in time use the same tiles.

Before::

    with T.Kernel(8, 4, threads=128) as (bx, by):
        C[bx, by] = 0.0

After::

    for block in T.blocks(32):
        bx = block % 8
        by = block // 8
        C[bx * 4 + by] = 0.0
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.build import add, binary, cast, const, mul, select, sub
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.stmt import For, Kernel, Let, LoopKind, Stmt, seq
from tileworkbench.compiler.ir.types import INT32


def bind_blocks(program: Program) -> Program:
    """Turn every launch into a block loop; the program is in the CPU stage from here on."""
    names = Names(program)

    def bind(stmt: Stmt) -> Stmt:
        return _bind(stmt, names) if isinstance(stmt, Kernel) else stmt

    return replace(program, body=Rewriter(rewrite_stmt=bind)(program.body), stage=Stage.CPU)


def _bind(stmt: Kernel, names: Names) -> Stmt:
    block, total = launch_size(stmt, names)
    body = seq([*block_indices(stmt, block, names), stmt.body])
    zero, one = const(0, block.dtype), const(1, block.dtype)
    return For(block, zero, total, one, LoopKind.BLOCKS, body, site=stmt.site)


def launch_size(stmt: Kernel, names: Names) -> tuple[Var, Expr]:
    """A variable for the number of a block, and how many blocks there are; both in 32 bits."""
    total: Expr = const(1, INT32)
    for extent in stmt.grid:
        total = mul(total, cast(extent, INT32))
    return names.var("block", INT32), total


def block_indices(stmt: Kernel, block: Var, names: Names) -> list[Stmt]:
    """The launch's block indices, computed from the number of the block."""
    return _swizzled(stmt, block, names) if is_swizzled(stmt) else _plain(stmt, block)


def _plain(stmt: Kernel, block: Var) -> list[Stmt]:
    """x = block % X, y = block // X % Y, z = block // (X * Y)."""
    lets: list[Stmt] = []
    rest: Expr = block
    for at, (var, extent) in enumerate(zip(stmt.vars, stmt.grid, strict=True)):
        extent = cast(extent, block.dtype)
        last = at == len(stmt.vars) - 1
        index = rest if last else binary("floormod", rest, extent)
        lets.append(Let(var, cast(index, var.dtype), site=stmt.site))
        if not last:
            rest = binary("floordiv", rest, extent)
    return lets


def is_swizzled(stmt: Kernel) -> bool:
    """Whether the blocks are visited in panels."""
    return stmt.swizzle is not None and stmt.swizzle[0] > 1 and len(stmt.vars) >= 2


def _swizzled(stmt: Kernel, block: Var, names: Names) -> list[Stmt]:
    """Panels of `size` rows (order "row") are walked column by column, every second panel
    backwards.

    Within a plane of X * Y blocks: panel p = n // (size * X), the last one may be lower; inside it
    the slow index runs along the panel and the fast one across it. Order "column" exchanges the
    roles of x and y.
    """
    most, order = stmt.swizzle or (1, "row")
    dtype = block.dtype
    extents = [cast(extent, dtype) for extent in stmt.grid]
    long, high = (0, 1) if order.startswith("row") else (1, 0)
    # A panel higher than the plane is the plane, whose blocks 32 bits can count.
    size = binary("min", const(most, dtype), extents[high])
    lets: list[Stmt] = []

    def let(name: str, value: Expr) -> Var:
        var = names.var(name, dtype)
        lets.append(Let(var, value, site=stmt.site))
        return var

    plane = mul(extents[0], extents[1])
    number = let("plane_block", binary("floormod", block, plane)) if len(extents) > 2 else block
    area = mul(size, extents[long])  # at most the plane's blocks
    panel = let("panel", binary("floordiv", number, area))
    inside = binary("floormod", number, area)
    height = let("panel_height", binary("min", size, sub(extents[high], mul(panel, size))))
    along = let("along_panel", binary("floordiv", inside, height))
    backwards = binary("eq", binary("floormod", panel, const(2, dtype)), const(1, dtype))
    turned = select(backwards, sub(sub(extents[long], const(1, dtype)), along), along)
    across = add(mul(panel, size), binary("floormod", inside, height))
    values = {long: turned, high: across, 2: binary("floordiv", block, plane)}
    for at, var in enumerate(stmt.vars):
        lets.append(Let(var, cast(values[at], var.dtype), site=stmt.site))
    return lets
