"""Loops that count up by one, as passes and lowering make them."""

from __future__ import annotations

from tileworkbench.compiler.ir.build import const
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt
from tileworkbench.compiler.ir.tile import Pipelined


def counting(
    var: Var,
    stop: Expr | int,
    body: Stmt,
    site: int,
    start: Expr | int = 0,
    kind: LoopKind = LoopKind.SERIAL,
) -> For:
    """`for var in range(start, stop)`; numbers become literals of the variable's dtype."""
    first, last = (
        bound if isinstance(bound, Expr) else const(bound, var.dtype) for bound in (start, stop)
    )
    return For(var, first, last, const(1, var.dtype), kind, body, site=site)


def as_serial(loop: Pipelined) -> For:
    """The loop without overlap between its iterations."""
    return counting(loop.var, loop.stop, loop.body, loop.site, loop.start)
