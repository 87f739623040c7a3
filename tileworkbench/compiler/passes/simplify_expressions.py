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
from tileworkbench.compiler.analysis.simplify import EXPRESSIONS
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Binary, Const
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.rules import Rule, Rules
from tileworkbench.compiler.ir.stmt import Assume, For, If, Seq, Stmt
from tileworkbench.compiler.ir.types import BOOL
from tileworkbench.compiler.passes.optional import optional


@optional("short index arithmetic; branches that are never taken stay")
def simplify_expressions(program: Program) -> Program:
    """Fold what ranges decide: comparisons, divisions, minima, selections and branches."""
    ranges = Ranges(program)
    simplify = _Except(Rules(EXPRESSIONS, ranges), Rules(STATEMENTS, ranges))
    return with_body(program, simplify(program.body))


class _Except(Rewriter):
    """Leaves assumptions alone: each would be decided by the fact that it states."""

    def __call__(self, root: Any) -> Any:
        return root if isinstance(root, Assume) else super().__call__(root)


def take_decided_branch(stmt: If, ranges: Ranges) -> Stmt | None:
    """A branch on a constant is the arm that is taken."""
    if not isinstance(stmt.cond, Const):
        return None
    chosen = stmt.then if stmt.cond.value else stmt.orelse
    return chosen if chosen is not None else Seq(())


def drop_empty_else(stmt: If, ranges: Ranges) -> Stmt | None:
    """An arm without statements goes away."""
    empty = isinstance(stmt.orelse, Seq) and not stmt.orelse.stmts
    return replace(stmt, orelse=None) if empty else None


def drop_loop(stmt: For | tile.Pipelined, ranges: Ranges) -> Stmt | None:
    """A loop that never runs goes away."""
    step = const_int(stmt.step) if isinstance(stmt, For) else 1
    if step is None or step == 0 or stmt.start.dtype != stmt.stop.dtype:
        return None
    empty = Binary("ge" if step > 0 else "le", stmt.start, stmt.stop, BOOL)
    return Seq(()) if ranges.proves(empty) is True else None


def drop_empty_box(stmt: tile.Parallel | tile.Copy | tile.Fill, ranges: Ranges) -> Stmt | None:
    """What is done for no element is not done."""
    extents = stmt.extents if isinstance(stmt, tile.Parallel) else stmt.dst.extents
    return Seq(()) if any(const_int(extent) == 0 for extent in extents) else None


STATEMENTS: dict[Any, tuple[Rule, ...]] = {
    If: (take_decided_branch, drop_empty_else),
    **dict.fromkeys((For, tile.Pipelined), (drop_loop,)),
    **dict.fromkeys((tile.Parallel, tile.Copy, tile.Fill), (drop_empty_box,)),
}
"""The rules of statements whose expressions are simplified already, given `Ranges`."""
