"""Loops over registers, and the arithmetic of their indices."""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.build import add, int_const, mul
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Ramp
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt
from tileworkbench.compiler.lower.threads.context import ThreadContext


def unrolled(
    context: ThreadContext, name: str, extent: int, body: Callable[[Expr], Stmt], site: int
) -> Stmt:
    """`body` for 0 .. extent - 1, as an unrolled loop where there is more than one."""
    if extent == 1:
        return body(int_const(0))
    var = context.loop_var(name)
    zero, one = int_const(0), int_const(1)
    return For(var, zero, int_const(extent), one, LoopKind.UNROLLED, body(var), site=site)


def scale(value: Expr, factor: int) -> Expr:
    """`value * factor`, with constants gathered."""
    if isinstance(value, Binary) and value.op == "add":
        return add(scale(value.a, factor), scale(value.b, factor))
    if isinstance(value, Binary) and value.op == "mul" and isinstance(value.b, Const):
        return mul(value.a, int_const(int(value.b.value) * factor))
    return mul(value, int_const(factor))


def shift(start: Expr, index: Expr) -> Expr:
    """`start + index`, where `index` may be a vector of neighbours."""
    if isinstance(index, Ramp):
        return Ramp(shift(start, index.base), index.stride, index.lanes)
    return add(start, index)
