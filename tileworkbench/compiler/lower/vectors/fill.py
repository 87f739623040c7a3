"""`T.fill` and `T.clear`: an element-wise nest that stores one value."""

from __future__ import annotations

from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import Stmt, Store
from tileworkbench.compiler.ir.tile import Fill
from tileworkbench.compiler.lower.shared.regions import element, wide_dims
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.elementwise import nest


def infer_layout(op: Fill, context: Context) -> tuple[Vote, ...]:
    """The destination is written by elements."""
    return (Vote(op.dst.buffer, "is filled element by element"),)


def lower(op: Fill, context: Context) -> Stmt:
    """One store per element."""
    dims = wide_dims(op.dst)

    def assign(variables: tuple[Expr, ...]) -> Stmt:
        index = element(op.dst, dict(zip(dims, variables, strict=True)))
        return Store(op.dst.buffer, index, op.value, site=op.site)

    return nest(context, tuple(op.dst.extents[d] for d in dims), op.site, assign)
