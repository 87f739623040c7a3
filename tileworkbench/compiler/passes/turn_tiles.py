"""Tiles whose first dimension products sum over are stored with it last.

A lane of MFMA wants neighbours along K. Where rows of an operand run along N, each warp would turn
what it reads. What waits in registers anyway is turned there, once: threads load blocks of a few
rows, and store each column of a block as neighbours.

Before::

    T.copy(B[k * 32:k * 32 + 32, 0:128], B_ahead)
    T.copy(B_ahead, B_shared)
    T.gemm(A_shared, B_shared, C_local)

After::

    T.copy(B[k * 32:k * 32 + 32, 0:128], B_ahead)  # a block of 4 x 8 elements for each thread
    for i, j in T.Parallel(32, 128):
        B_shared[j, i] = B_ahead[i, j]
    T.gemm(A_shared, B_shared, C_local, transpose_B=True)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int, is_zero
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Kernel, Stmt, Store
from tileworkbench.compiler.ir.tile import Copy, Gemm, Parallel
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.gemm import plan_of
from tileworkbench.compiler.lower.threads.registers import register_map
from tileworkbench.compiler.lower.threads.turned import turned_block, turned_layout
from tileworkbench.compiler.lower.threads.uses import Uses
from tileworkbench.compiler.machine.instructions import Scope
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target

_BITS = (8, 16)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A tile with its dimensions exchanged, and the block of each thread that fills it."""

    tile: Buffer
    block: Fragment


@optional("operands whose rows run along N are turned by each warp that reads them")
@dataclass(frozen=True, slots=True)
class TurnTiles:
    """Exchange the dimensions of tiles that threads fill from registers, where all that reads them
    are products that sum over the first one.
    """

    target: Target

    def __call__(self, program: Program) -> Program:
        names = Names(program)

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            turns = dict(self._turns(program, stmt))
            return _turned(stmt, turns, names) if turns else stmt

        return with_body(program, Rewriter(rewrite_stmt=change)(program.body))

    def _turns(self, program: Program, kernel: Kernel) -> Iterator[tuple[Buffer, _Turn]]:
        context = ThreadContext.of(program, kernel, self.target)
        threads = {id(stmt): each for stmt, each in with_contexts(kernel.body, context)}
        seen = {stmt.source for stmt in statements(kernel.body) if isinstance(stmt, Alias)}
        for stmt in statements(kernel.body):
            if (
                isinstance(stmt, Alloc)
                and stmt.buffer.scope == "shared"
                and stmt.buffer not in seen
            ):
                turn = self._turn(stmt.buffer, context.uses, threads)
                if turn is not None:
                    yield stmt.buffer, turn

    def _turn(self, tile: Buffer, uses: Uses, threads: dict[int, ThreadContext]) -> _Turn | None:
        readers, shape = uses.readers.get(tile, ()), const_shape(tile)
        writers = [_filled(stmt, tile, uses) for stmt in uses.writers.get(tile, ())]
        if tile.layout is not None or tile.dtype.bits not in _BITS or not readers:
            return None
        if self.target.machine.turns(tile.dtype.bits):  # lanes turn what they read
            return None
        if shape is None or len(shape) != 2 or not writers or not all(writers):
            return None
        operands = [_operand(stmt, tile, threads.get(id(stmt))) for stmt in readers]
        context = threads[id(uses.writers[tile][0])]
        if not all(operands) or any(n & n - 1 for n in (*shape, context.threads)):
            return None
        operand = operands[0]
        assert operand is not None
        most = register_map(operand).run
        blocks = turned_block(shape, tile.dtype.bits, context.threads, most)
        if blocks is None:
            return None
        layout = turned_layout(shape, tile.dtype.bits, operand, blocks, self.target.machine)
        changed = replace(tile, shape=tile.shape[::-1], layout=layout)
        return _Turn(changed, blocks.loaded)


def _filled(stmt: Stmt, tile: Buffer, uses: Uses) -> Copy | None:
    """The copy from global memory to the registers from which `stmt` fills all of the tile."""
    if not isinstance(stmt, Copy) or stmt.src.buffer.scope != "local.fragment":
        return None
    if stmt.dst.buffer is not tile:  # but a view of it
        return None
    held = stmt.src.buffer
    loads, stores = uses.writers.get(held, ()), uses.readers.get(held, ())
    if len(loads) != 1 or len(stores) != 1 or held.dtype != tile.dtype:
        return None
    (load,) = loads
    whole = all(
        region.extents == tile.shape and all(map(is_zero, region.mins))
        for region in (stmt.src, stmt.dst)
    )
    free = isinstance(load, Copy) and load.loop_layout is None and load.coalesced_width is None
    if not whole or not free or stmt.loop_layout is not None or held.layout is not None:
        return None
    assert isinstance(load, Copy)
    in_rows = const_int(load.src.extents[-1]) == const_int(tile.shape[-1])
    return load if load.src.buffer.scope == "global" and in_rows else None


def _operand(stmt: Stmt, tile: Buffer, context: ThreadContext | None) -> Fragment | None:
    """How a lane holds the operand that `tile` is of the product `stmt`, over ``[n, k]``, where K
    is its first dimension; None for other statements.
    """
    if not isinstance(stmt, Gemm) or context is None or stmt.c.buffer is tile:
        return None
    is_a, is_b = stmt.a.buffer is tile, stmt.b.buffer is tile
    if is_a == is_b or not (stmt.transpose_a if is_a else not stmt.transpose_b):
        return None
    try:
        plan = plan_of(_exchanged(stmt, {tile}), context)
    except TileValueError:  # the warps cannot share it, which is told later
        return None
    if plan is None or plan.instruction.scope is not Scope.WARP:
        return None
    operand = plan.instruction.a if is_a else plan.instruction.b
    return operand.fragment if operand.dtype == tile.dtype else None


def _exchanged(stmt: Gemm, tiles: set[Buffer]) -> Gemm:
    """The product that reads `tiles` with their dimensions exchanged."""
    a, b = stmt.a.buffer in tiles, stmt.b.buffer in tiles
    return replace(
        stmt,
        transpose_a=stmt.transpose_a != a,
        transpose_b=stmt.transpose_b != b,
        a=_across(stmt.a, stmt.a.buffer) if a else stmt.a,
        b=_across(stmt.b, stmt.b.buffer) if b else stmt.b,
    )


def _across(region: Region, buffer: Buffer) -> Region:
    return Region(buffer, region.mins[::-1], region.extents[::-1])


def _turned(kernel: Kernel, turns: dict[Buffer, _Turn], names: Names) -> Stmt:
    stores = {
        stmt.src.buffer: stmt
        for stmt in statements(kernel.body)
        if isinstance(stmt, Copy) and stmt.dst.buffer in turns
    }

    def change(stmt: Stmt) -> Stmt:
        match stmt:
            case Alloc(tile) if tile in turns:
                return replace(stmt, buffer=turns[tile].tile)
            case Gemm():
                made = _exchanged(stmt, set(turns))
                a, b = (
                    replace(each, buffer=turns[each.buffer].tile) if each.buffer in turns else each
                    for each in (made.a, made.b)
                )
                return replace(made, a=a, b=b)
            case Copy(dst=Region(buffer)) if buffer in stores:
                return replace(stmt, loop_layout=turns[stores[buffer].dst.buffer].block)
            case Copy(dst=Region(tile)) if tile in turns:
                return _store(stmt, turns[tile].tile, names)
        return stmt

    made: Stmt = Rewriter(rewrite_stmt=change)(kernel)
    return made


def _store(copy: Copy, tile: Buffer, names: Names) -> Parallel:
    """The store of what `copy` holds to the tile with its dimensions exchanged."""
    first, last = (Var(names.fresh(name), INT32) for name in "ij")
    value: Expr = Load(copy.src.buffer, (first, last))
    body = Store(tile, (last, first), value, site=copy.site)
    return Parallel((first, last), copy.src.extents, body, site=copy.site)
