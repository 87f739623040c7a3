"""Two element-wise nests over the same box as one.

What the first writes and the second reads is then at hand. Nests are fused where each tile or
tensor that one of them writes and the other touches is touched by both at the same element, a
different one in each iteration.
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.access import Motion, depends_on, element_accesses, motion
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.effects import Access
from tileworkbench.compiler.ir.expr import Const, Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute, walk
from tileworkbench.compiler.ir.stmt import Let, Stmt, Store, items, seq
from tileworkbench.compiler.ir.tile import Parallel

_IN_STEP = (Motion.CONTIGUOUS, Motion.UNIFORM, Motion.REPEATED)


class NestFuser:
    """Fuses nests of a program."""

    def __init__(self, program: Program) -> None:
        self.ranges, self.names = Ranges(program), Names(program)

    def fuse(self, first: Stmt, second: Stmt) -> Parallel | None:
        """The two nests as one, or None where that is not possible or does not pay."""
        if not isinstance(first, Parallel) or not isinstance(second, Parallel):
            return None
        if not (is_plain(first) and is_plain(second)):
            return None
        first, second = without_unit_dims(first), without_unit_dims(second)
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


def _with_values(stmt: Stmt, known: dict[Load, Expr]) -> Stmt:
    def change(node: object) -> object:
        return known.get(node, node) if isinstance(node, Load) else node

    return Rewriter(change)(stmt)  # type: ignore[no-any-return]


def without_unit_dims(nest: Parallel) -> Parallel:
    """The nest without variables that are always 0, but for one if all are."""
    pairs = list(zip(nest.vars, nest.extents, strict=True))
    kept = [pair for pair in pairs if const_int(pair[1]) != 1] or pairs[-1:]
    if len(kept) == len(pairs):
        return nest
    zeros = {var: const(0, var.dtype) for var, _ in pairs if var not in dict(kept)}
    variables, extents = zip(*kept, strict=True)
    return replace(nest, vars=variables, extents=extents, body=substitute(nest.body, zeros))


def is_plain(nest: Parallel) -> bool:
    """Whether a nest holds nothing but lets and stores."""
    return all(isinstance(stmt, Let | Store) for stmt in items(nest.body))
