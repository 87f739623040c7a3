"""Element-wise nests over the same box that follow one another become one nest.

What the first writes and the second reads is then at hand; a tile that nothing reads afterwards is
not written at all. Nests are fused where each tile or tensor that one of them writes and the other
touches is touched by both at the same element, a different one in each iteration.

Before::

    for i, j in T.Parallel(4, 64):
        X_local[i, j] = X_local[i, j] / row_sum[i]
    for i_1, j_1 in T.Parallel(4, 64):
        Y[bx * 4 + i_1, j_1] = X_local[i_1, j_1]

After::

    for i, j in T.Parallel(4, 64):
        value = X_local[i, j] / row_sum[i]
        Y[bx * 4 + i, j] = value
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import Motion, depends_on, element_accesses, motion
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    buffers_of,
    statements,
    substitute,
    walk,
    with_body,
)
from tileworkbench.compiler.ir.stmt import Alias, Alloc, Let, Pointer, Seq, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.passes.optional import optional

_TILES = ("shared", "local.fragment")
_IN_STEP = (Motion.CONTIGUOUS, Motion.UNIFORM, Motion.REPEATED)


@optional("values at hand: each nest writes its tile and the next one reads it again")
def fuse_loops(program: Program) -> Program:
    """Fuse neighbouring `T.Parallel` nests of lets and stores; tiles that nothing reads go away."""
    stmts = list(statements(program.body))
    if any(isinstance(stmt, Alias | Pointer) for stmt in stmts):
        return program  # two names for one memory
    if sum(isinstance(stmt, Parallel) for stmt in stmts) < 2:
        return program
    fuser = _Fuser(program)
    return with_body(program, Rewriter(rewrite_stmt=fuser.visit)(program.body))


class _Fuser:
    def __init__(self, program: Program) -> None:
        self.ranges, self.names = Ranges(program), Names(program)

    def visit(self, stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Seq):
            return stmt
        done: list[Stmt] = []
        changed: set[int] = set()
        for child in stmt.stmts:
            at = _last_nest(done)
            fused = self.fuse(done[at], child) if at is not None else None
            if at is None or fused is None:
                done.append(child)
                continue
            # What stands between them only makes room, which the fused nest may need.
            done.append(fused)
            del done[at]
            changed.add(len(done) - 1)
        if not changed:
            return stmt
        return seq(self.drop_dead_tiles(done))

    def fuse(self, first: Stmt, second: Stmt) -> Parallel | None:
        """The two nests as one, or None where that is not possible or does not pay."""
        if not isinstance(first, Parallel) or not isinstance(second, Parallel):
            return None
        if not (_is_plain(first) and _is_plain(second)):
            return None
        first, second = _without_unit_dims(first), _without_unit_dims(second)
        if first.extents != second.extents:
            return None
        moved = substitute(second.body, dict(zip(second.vars, first.vars, strict=True)))
        both = [list(element_accesses(body)) for body in (first.body, moved)]
        if not self.moves_in_step([*both[0], *both[1]], first.vars[-1]):
            return None
        if not self.touches_alike(both[0], both[1], first):
            return None
        body = self.forward(seq([first.body, moved]))
        return replace(first, body=body)

    def moves_in_step(self, uses: list[Access], var: Var) -> bool:
        return all(motion(access, var, self.ranges) in _IN_STEP for access in uses)

    def touches_alike(self, first: list[Access], second: list[Access], nest: Parallel) -> bool:
        """Whether iterations of the two nests share no element but with themselves."""
        written = {access.buffer for access in (*first, *second) if access.writes}
        shared = written & {a.buffer for a in first} & {a.buffer for a in second}
        for buffer in shared:
            places = {a.indices for a in (*first, *second) if a.buffer is buffer}
            if len(places) != 1 or not self.is_injective(places.pop(), nest):
                return False
        return True

    def is_injective(self, indices: tuple[Expr, ...], nest: Parallel) -> bool:
        """Whether every variable of the nest alone moves one of the indices."""
        box = frozenset(nest.vars)
        alone: set[Var] = set()
        for index in indices:
            moving = [term for term in self.ranges.linear(index).terms if depends_on(term[0], box)]
            if len(moving) == 1 and isinstance(moving[0][0], Var):
                alone.add(moving[0][0])
        wide = {v for v, n in zip(nest.vars, nest.extents, strict=True) if const_int(n) != 1}
        return wide <= alone

    def forward(self, body: Stmt) -> Stmt:
        """Values that were just stored are taken from a name instead of from memory."""
        made: list[Stmt] = []
        known: dict[Load, Expr] = {}
        stmts = list(items(body))
        for at, stmt in enumerate(stmts):
            if known:
                stmt = _with_values(stmt, known)
            if isinstance(stmt, Store):
                load = Load(stmt.buffer, stmt.indices)
                for stale in [old for old in known if old.buffer is stmt.buffer]:
                    del known[stale]
                read = any(load in set(walk(later)) for later in stmts[at + 1 :])
                if read and stmt.predicate is None:
                    value = stmt.value
                    if not isinstance(value, Var | Const):
                        value = self.names.var("value", stmt.value.dtype)
                        made.append(Let(value, stmt.value, site=stmt.site))
                        stmt = replace(stmt, value=value)
                    known[load] = value
            made.append(stmt)
        return seq(made)

    def drop_dead_tiles(self, stmts: list[Stmt]) -> list[Stmt]:
        """The statements without stores to tiles of this sequence that nothing reads later."""
        own = {s.buffer for s in stmts if isinstance(s, Alloc) and s.buffer.scope in _TILES}
        later: set[Buffer] = set()
        done: list[Stmt] = []
        for stmt in reversed(stmts):
            if isinstance(stmt, Parallel) and _is_plain(stmt):
                stmt = self.without_dead_stores(stmt, own - later)
            if not isinstance(stmt, Alloc):
                later.update(buffers_of(stmt))
            done.append(stmt)
        kept = [s for s in done if not (isinstance(s, Alloc) and s.buffer in own - later)]
        return kept[::-1]

    def without_dead_stores(self, nest: Parallel, dead: set[Buffer]) -> Parallel:
        stmts = list(items(nest.body))
        kept = [s for at, s in enumerate(stmts) if not self.is_dead(s, stmts[at + 1 :], nest, dead)]
        return nest if len(kept) == len(stmts) or not kept else replace(nest, body=seq(kept))

    def is_dead(self, stmt: Stmt, after: list[Stmt], nest: Parallel, dead: set[Buffer]) -> bool:
        """Whether a store writes what neither this nest nor a later statement reads."""
        if not isinstance(stmt, Store) or stmt.buffer not in dead:
            return False
        places = {a.indices for a in element_accesses(nest.body) if a.buffer is stmt.buffer}
        if len(places) != 1 or not self.is_injective(stmt.indices, nest):
            return False
        return not any(a.buffer is stmt.buffer and a.reads for a in element_accesses(seq(after)))


def _with_values(stmt: Stmt, known: dict[Load, Expr]) -> Stmt:
    def change(node: object) -> object:
        return known.get(node, node) if isinstance(node, Load) else node

    return Rewriter(change)(stmt)  # type: ignore[no-any-return]


def _last_nest(done: list[Stmt]) -> int | None:
    """The place of the last statement that does something, if it is a nest."""
    for at in range(len(done) - 1, -1, -1):
        if not isinstance(done[at], Alloc):
            return at if isinstance(done[at], Parallel) else None
    return None


def _without_unit_dims(nest: Parallel) -> Parallel:
    """The nest without variables that are always 0, but for one if all are."""
    pairs = list(zip(nest.vars, nest.extents, strict=True))
    kept = [pair for pair in pairs if const_int(pair[1]) != 1] or pairs[-1:]
    if len(kept) == len(pairs):
        return nest
    zeros = {var: const(0, var.dtype) for var, _ in pairs if var not in dict(kept)}
    variables, extents = zip(*kept, strict=True)
    return replace(nest, vars=variables, extents=extents, body=substitute(nest.body, zeros))


def _is_plain(nest: Parallel) -> bool:
    """Whether a nest holds nothing but lets and stores."""
    return all(isinstance(stmt, Let | Store) for stmt in items(nest.body))
