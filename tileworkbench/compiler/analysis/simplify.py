"""Simpler forms of expressions that are equal for all values of their variables."""

from __future__ import annotations

from functools import wraps
from typing import Any

from tileworkbench.compiler.analysis.division import DIVISIONS
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.build import const, const_int
from tileworkbench.compiler.ir.expr import (
    COMPARISONS,
    LOGICAL,
    Binary,
    Cast,
    Const,
    Expr,
    Select,
    Unary,
)
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.rules import Rule, Rules
from tileworkbench.compiler.ir.types import BOOL


def simplified(value: Expr, ranges: Ranges) -> Expr:
    """`value` with what `ranges` decide folded."""
    return Rewriter(Rules(EXPRESSIONS, ranges))(value)  # type: ignore[no-any-return]


def decide_comparison(node: Binary, ranges: Ranges) -> Expr | None:
    """A comparison that the ranges of its variables decide is true or false."""
    known = ranges.proves(node)
    return None if known is None else const(known, BOOL)


def choose_extremum(node: Binary, ranges: Ranges) -> Expr | None:
    """`min` and `max` of integers whose order is known are one of them."""
    a, b = node.a, node.b
    if not a.dtype.is_int:
        return None
    order = ranges.proves(Binary("le", a, b, BOOL))
    if order is None:
        other = ranges.proves(Binary("le", b, a, BOOL))
        order = None if other is None else not other
    if order is None:
        return None
    return a if order == (node.op == "min") else b


def gather_constants(node: Binary, ranges: Ranges) -> Expr | None:
    """The constants of a sum become one, on its right."""
    if not (isinstance(node.a, Const) or isinstance(node.b, Const)):
        return None
    return build.add(node.a, node.b)


def fold_logical(node: Binary, ranges: Ranges) -> Expr | None:
    """A condition that is decided decides `and` and `or`, or leaves them."""
    made = build.logical(node.op, node.a, node.b)
    return made if made.dtype == node.dtype else None


def choose_branch(node: Select, ranges: Ranges) -> Expr | None:
    """A selection by a constant is what it selects."""
    if not isinstance(node.cond, Const):
        return None
    return build.select(node.cond, node.then, node.other, node.lazy)


def fold_not(node: Unary, ranges: Ranges) -> Expr | None:
    """`not` of a constant, and `not not x`, are done."""
    return build.unary("not", node.a) if node.op == "not" else None


def cast_constant(node: Cast, ranges: Ranges) -> Expr | None:
    """A constant that is converted is a constant."""
    return build.cast(node.value, node.dtype) if isinstance(node.value, Const) else None


def _divides_by_constant(rule: Rule) -> Rule:
    @wraps(rule)
    def apply(node: Binary, ranges: Ranges) -> Expr | None:
        positive = node.a.dtype.is_int and (const_int(node.b) or 0) > 0
        return rule(node, ranges) if positive else None

    return apply


def _of_node(fold: build.Fold) -> Rule:
    """What smart constructors fold, as a rule of operations that are there already: constants may
    have appeared below them since.
    """

    @wraps(fold)
    def apply(node: Binary, ranges: Ranges) -> Expr | None:
        a, b = node.a, node.b
        if not (isinstance(a, Const) or isinstance(b, Const) or a is b):
            return None
        if fold not in build.folds(node.op, a.dtype):
            return None
        try:
            return fold(node.op, a, b, node.dtype)
        except (TypeError, ValueError, ZeroDivisionError):
            return None  # an error of the user's that happens only if this is executed

    return apply


_DIVISIONS = tuple(map(_divides_by_constant, DIVISIONS))
_BY_RANGES: dict[str, tuple[Rule, ...]] = {
    **dict.fromkeys(COMPARISONS, (decide_comparison,)),
    **dict.fromkeys(("floordiv", "floormod"), _DIVISIONS),
    **dict.fromkeys(("min", "max"), (choose_extremum,)),
}
_OF_NODES = {fold: _of_node(fold) for fold in {f for fs in build.FOLDS.values() for f in fs}}

_LAST = {"add": (gather_constants,)}

EXPRESSIONS: dict[Any, tuple[Rule, ...]] = {
    **{
        op: (*_BY_RANGES.get(op, ()), *(_OF_NODES[fold] for fold in found), *_LAST.get(op, ()))
        for op, found in build.FOLDS.items()
    },
    **dict.fromkeys(LOGICAL, (fold_logical,)),
    Select: (choose_branch,),
    Unary: (fold_not,),
    Cast: (cast_constant,),
}
"""The rules of expressions whose operands are simplified already, given `Ranges`."""
