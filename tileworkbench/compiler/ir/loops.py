"""Loops that count: those that passes and lowering make, and the values that they count."""

from __future__ import annotations

from tileworkbench.compiler.ir.build import const, const_int
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


def iterations(loop: For | Pipelined) -> range | None:
    """The values of the loop's variable, None where they are not constant."""
    step = const_int(loop.step) if isinstance(loop, For) else 1
    start, stop = const_int(loop.start), const_int(loop.stop)
    return None if start is None or stop is None or not step else range(start, stop, step)
