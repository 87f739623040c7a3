"""Simpler forms of expressions that are equal for all values of their variables."""

from __future__ import annotations

from tileworkbench.compiler.analysis.division import divide
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir import build
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
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.types import BOOL


def simplified(value: Expr, ranges: Ranges) -> Expr:
    """`value` with what `ranges` decide folded."""
    return Rewriter(Simplifier(ranges).expr)(value)  # type: ignore[no-any-return]


class Simplifier:
    """Simplifies expressions by what is known of their variables."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges

    def expr(self, node: object) -> object:
        """A node whose operands are simplified already, simplified."""
        match node:
            case Binary(op, a, b) if op in COMPARISONS:
                known = self.ranges.proves(node)
                return const(known, BOOL) if known is not None else self.rebuild(node)
            case Binary("floordiv" | "floormod", a, b) if (
                a.dtype.is_int and (const_int(b) or 0) > 0
            ):
                return divide(node, self.ranges) or self.rebuild(node)
            case Binary("min" | "max" as op, a, b) if a.dtype.is_int:
                order = self.ranges.proves(Binary("le", a, b, BOOL))
                if order is None:
                    order = _inverted(self.ranges.proves(Binary("le", b, a, BOOL)))
                if order is not None:
                    return a if order == (op == "min") else b
                return node
            case Binary():
                return self.rebuild(node)
            case Select(cond, then, other, lazy):
                return build.select(cond, then, other, lazy) if isinstance(cond, Const) else node
            case Unary("not", a):
                return build.unary("not", a)
            case Cast(value, dtype):
                return build.cast(value, dtype) if isinstance(value, Const) else node
            case Call():
                return node
        return node

    @staticmethod
    def rebuild(node: Binary) -> Expr:
        """The operation made anew, so that constants that appeared below it are folded; the same
        object when nothing folds.
        """
        if not (isinstance(node.a, Const) or isinstance(node.b, Const) or node.a is node.b):
            return node
        try:
            made = (
                build.add(node.a, node.b)
                if node.op == "add"
                else build.binary(node.op, node.a, node.b)
            )
        except (TypeError, ValueError, ZeroDivisionError):
            return node  # an error of the user's that happens only if this is executed
        return made if made.dtype == node.dtype else node


def _inverted(value: bool | None) -> bool | None:
    return None if value is None else not value
