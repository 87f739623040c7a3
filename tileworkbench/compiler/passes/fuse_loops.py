"""Element-wise nests over the same box that follow one another become one nest, and reductions
compute what they read.

What the first writes and the second reads is then at hand; a tile that nothing reads afterwards is
not written at all. Nests are fused where each tile or tensor that one of them writes and the other
touches is touched by both at the same element, a different one in each iteration. A loop that goes
over all elements of a tile computes each just before it reads it; loops over the same rows, which
the reductions of two tiles are, become one.

Before::

    for i, j in T.Parallel(4, 64):
        X_local[i, j] = X_local[i, j] / row_sum[i]
    for i_1, j_1 in T.Parallel(4, 64):
        Y[bx * 4 + i_1, j_1] = X_local[i_1, j_1]

After::

    for i, j in T.Parallel(4, 64):
        value = X_local[i, j] / row_sum[i]
        Y[bx * 4 + i, j] = value

Before::

    for i, j in T.Parallel(4, 128):
        square[i, j] = X[bx * 4 + i, j] * X[bx * 4 + i, j]
    for i_1 in T.serial(4):
        partial = T.alloc_local((64,), "float32")
        for l in T.Parallel(64):
            partial[l] = 0.0
        for k in T.serial(2):
            for l_1 in T.Parallel(64):
                partial[l_1] = partial[l_1] + square[i_1, k * 64 + l_1]
        total[i_1] = T.lanes_sum(partial[T.Ramp(0, 1, 64)])

After::

    for i_1 in T.serial(4):
        partial = T.alloc_local((64,), "float32")
        for l in T.Parallel(64):
            partial[l] = 0.0
        for k in T.serial(2):
            for l_1 in T.Parallel(64):
                value = X[bx * 4 + i_1, k * 64 + l_1] * X[bx * 4 + i_1, k * 64 + l_1]
                partial[l_1] = partial[l_1] + value
        total[i_1] = T.lanes_sum(partial[T.Ramp(0, 1, 64)])
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import element_accesses
from tileworkbench.compiler.analysis.effects import hides_accesses
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, buffers_of, statements, with_body
from tileworkbench.compiler.ir.stmt import Alloc, Seq, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.shared.loop_fusion import LoopFuser, last
from tileworkbench.compiler.lower.shared.nest_fusion import NestFuser, is_plain
from tileworkbench.compiler.passes.optional import optional

_TILES = ("shared", "local.fragment")


@optional("values at hand: each nest writes its tile and the next one reads it again")
def fuse_loops(program: Program) -> Program:
    """Fuse neighbouring `T.Parallel` nests of lets and stores, and reductions with those that they
    read; tiles that nothing reads go away.
    """
    nests = sum(isinstance(stmt, Parallel) for stmt in statements(program.body))
    if nests < 2 or hides_accesses(program.body):
        return program
    fuser = _Fuser(program)
    body = Rewriter(rewrite_stmt=fuser.visit)(program.body)
    return with_body(program, _without_unread(body) if body is not program.body else body)


class _Fuser:
    def __init__(self, program: Program) -> None:
        self.nests = NestFuser(program)
        self.loops = LoopFuser(self.nests)

    def visit(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Seq):
            return stmt
        done: list[Stmt] = []
        for child in stmt.stmts:
            at = last(done)
            fused = self.nests.fuse(done[at], child) if at is not None else None
            if at is not None and fused is not None:
                # What stands between them only makes room, which the fused nest may need.
                del done[at]
            done.append(self.loops.around_nests(done, fused or child))
        if done == list(stmt.stmts):
            return stmt
        return seq(self.drop_dead_tiles(done))

    def drop_dead_tiles(self, stmts: list[Stmt]) -> list[Stmt]:
        """The statements without stores to tiles of this sequence that nothing reads later."""
        own = {s.buffer for s in stmts if isinstance(s, Alloc) and s.buffer.scope in _TILES}
        later: set[Buffer] = set()
        done: list[Stmt] = []
        for stmt in reversed(stmts):
            if isinstance(stmt, Parallel) and is_plain(stmt):
                stmt = self.without_dead_stores(stmt, own - later)
            if not isinstance(stmt, Alloc):
                later.update(buffers_of(stmt))
            done.append(stmt)
        return done[::-1]

    def without_dead_stores(self, nest: Parallel, dead: set[Buffer]) -> Parallel:
        stmts = list(items(nest.body))
        kept = [s for at, s in enumerate(stmts) if not self.is_dead(s, stmts[at + 1 :], nest, dead)]
        return nest if len(kept) == len(stmts) or not kept else replace(nest, body=seq(kept))

    def is_dead(self, stmt: Stmt, after: list[Stmt], nest: Parallel, dead: set[Buffer]) -> bool:
        """Whether a store writes what neither this nest nor a later statement reads."""
        if not isinstance(stmt, Store) or stmt.buffer not in dead:
            return False
        places = {a.indices for a in element_accesses(nest.body) if a.buffer is stmt.buffer}
        if len(places) != 1 or not self.nests.is_injective(stmt.indices, nest):
            return False
        return not any(a.buffer is stmt.buffer and a.reads for a in element_accesses(seq(after)))


def _without_unread(body: Stmt) -> Stmt:
    """The body without tiles that nothing but stores of elements touches."""
    stmts = list(statements(body))
    tiles = {s.buffer for s in stmts if isinstance(s, Alloc) and s.buffer.scope in _TILES}
    dead = tiles - {
        use.buffer
        for stmt in stmts
        for use in accesses(stmt)
        if use.reads or not isinstance(stmt, Store)
    }

    def drop(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store | Alloc) and stmt.buffer in dead:
            return seq([])
        empty = isinstance(stmt, Parallel) and not items(stmt.body)
        return seq([]) if empty else stmt

    return Rewriter(rewrite_stmt=drop)(body) if dead else body
