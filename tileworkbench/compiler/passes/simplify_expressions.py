"""Expressions become what they always are, given the ranges of the variables; branches that are
decided go away.

Before::

    for i in T.serial(8):
        if i < 8:
            A_local[(i * 4 + 3) // 4] = 0.0

After::

    for i in T.serial(8):
        A_local[i] = 0.0
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.analysis.simplify import Simplifier
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import (
    Binary,
    Const,
    Expr,
)
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.stmt import Assume, For, If, Seq, Stmt, seq
from tileworkbench.compiler.ir.types import BOOL
from tileworkbench.compiler.passes.optional import optional


@optional("short index arithmetic; branches that are never taken stay")
def simplify_expressions(program: Program) -> Program:
    """Fold what ranges decide: comparisons, divisions, minima, selections and branches."""
    simplifier = _Statements(Ranges(program))
    return with_body(program, _Except(simplifier.expr, simplifier.stmt)(program.body))


class _Except(Rewriter):
    """Leaves assumptions alone: each would be decided by the fact that it states."""

    def __call__(self, root: Any) -> Any:
        return root if isinstance(root, Assume) else super().__call__(root)


class _Statements(Simplifier):
    """Statements too, whose expressions are simplified already."""

    def stmt(self, stmt: Stmt) -> Stmt:
        match stmt:
            case If(Const() as cond, then, orelse):
                chosen = then if cond.value else orelse
                return chosen if chosen is not None else Seq(())
            case If(cond, then, orelse) if _is_empty(orelse):
                return replace(stmt, orelse=None)
            case For() | tile.Pipelined() if self.never_runs(stmt):
                return Seq(())
            case tile.Parallel(_, extents) if _has_none(extents):
                return Seq(())
            case tile.Copy(dst=region) | tile.Fill(dst=region) if _has_none(region.extents):
                return Seq(())
            case Seq(stmts) if any(isinstance(child, Seq) for child in stmts):
                return seq(stmts)
        return stmt

    def never_runs(self, stmt: For | tile.Pipelined) -> bool:
        step = const_int(stmt.step) if isinstance(stmt, For) else 1
        if step is None or step == 0:
            return False
        empty = Binary("ge" if step > 0 else "le", stmt.start, stmt.stop, BOOL)
        return stmt.start.dtype == stmt.stop.dtype and self.ranges.proves(empty) is True


def _has_none(extents: tuple[Expr, ...]) -> bool:
    """Whether a box is known to be empty."""
    return any(const_int(extent) == 0 for extent in extents)


def _is_empty(stmt: Stmt | None) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts
