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

from tileworkbench.compiler.analysis.division import divide
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
)
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.stmt import Assume, For, If, Seq, Stmt, seq
from tileworkbench.compiler.ir.types import BOOL
from tileworkbench.compiler.passes.optional import optional


@optional("short index arithmetic; branches that are never taken stay")
def simplify_expressions(program: Program) -> Program:
    """Fold what ranges decide: comparisons, divisions, minima, selections and branches."""
    simplifier = _Simplifier(Ranges(program))
    return with_body(program, _Except(simplifier.expr, simplifier.stmt)(program.body))


def simplified(value: Expr, ranges: Ranges) -> Expr:
    """`value` with what `ranges` decide folded."""
    return Rewriter(_Simplifier(ranges).expr)(value)  # type: ignore[no-any-return]


class _Except(Rewriter):
    """Leaves assumptions alone: what they say would decide them."""

    def __call__(self, root: Any) -> Any:
        return root if isinstance(root, Assume) else super().__call__(root)


class _Simplifier:
    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def expr(self, found: object) -> object:
        match found:
            case Binary(op, a, b) if op in COMPARISONS:
                known = self.ranges.proves(found)
                return const(known, BOOL) if known is not None else self.rebuild(found)
            case Binary("floordiv" | "floormod", a, b) if (
                a.dtype.is_int and (const_int(b) or 0) > 0
            ):
                return divide(found, self.ranges) or self.rebuild(found)
            case Binary("min" | "max" as op, a, b) if a.dtype.is_int:
                order = self.ranges.proves(Binary("le", a, b, BOOL))
                if order is None:
                    order = _inverted(self.ranges.proves(Binary("le", b, a, BOOL)))
                if order is not None:
                    return a if order == (op == "min") else b
                return found
            case Binary():
                return self.rebuild(found)
            case Select(cond, then, other, lazy):
                return build.select(cond, then, other, lazy) if isinstance(cond, Const) else found
            case Unary("not", a):
                return build.unary("not", a)
            case Cast(value, dtype):
                return build.cast(value, dtype) if isinstance(value, Const) else found
            case Call():
                return found
        return found

    @staticmethod
    def rebuild(found: Binary) -> Expr:
        """The operation through its constructor, which folds constants that appeared below; itself
        when nothing folds.
        """
        if not (isinstance(found.a, Const) or isinstance(found.b, Const) or found.a is found.b):
            return found
        try:
            made = (
                build.add(found.a, found.b)
                if found.op == "add"
                else build.binary(found.op, found.a, found.b)
            )
        except (TypeError, ValueError, ZeroDivisionError):
            return found  # an error of the user's that happens only if this is executed
        return made if made.dtype == found.dtype else found

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


def _inverted(value: bool | None) -> bool | None:
    return None if value is None else not value


def _is_empty(stmt: Stmt | None) -> bool:
    return isinstance(stmt, Seq) and not stmt.stmts
