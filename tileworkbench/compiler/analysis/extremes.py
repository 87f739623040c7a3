"""The largest and smallest value of a sum over a box of loop variables."""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.analysis.access import depends_on
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.ir.build import add, cast, const, mul, sub
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.types import DType


def at_extreme(linear: Linear, box: Mapping[Var, Expr], highest: bool, dtype: DType) -> Expr | None:
    """The value of the sum where each variable of `box` (0 <= variable < extent) makes it largest,
    or smallest.

    None when a variable occurs inside an atom.
    """
    variables = frozenset(box)
    total: Expr = const(0, dtype)
    for atom, factor in linear.terms:
        part: Expr = atom
        if atom in variables:
            if (factor > 0) != highest:
                continue
            part = sub(box[atom], const(1, dtype))
        elif depends_on(atom, variables):
            return None
        total = add(total, mul(cast(part, dtype), const(factor, dtype)))
    return add(total, const(linear.constant, dtype))


def to_expr(linear: Linear, dtype: DType) -> Expr:
    """A sum as an expression: positive terms first, the constant last."""
    total: Expr = const(0, dtype)
    for atom, factor in sorted(linear.terms, key=lambda term: term[1] < 0):
        part = cast(atom, dtype)
        if factor < 0:
            total = sub(total, mul(part, const(-factor, dtype)))
        else:
            total = add(total, mul(part, const(factor, dtype)))
    return add(total, const(linear.constant, dtype))
