"""Decisions that read what their branches write: read first, decided later.

A barrier can stand between two statements, not between a condition and what follows it. So a
condition, or a bound of a loop, becomes a scalar in front of its statement.

    if S[0] > 0:                     positive = S[0] > 0
        S[tx] = 0          ->        if positive:
                                         S[tx] = 0

    while S[0] > 0:                  while True:
        S[tx] = S[tx] - 1  ->            again = S[0] > 0
                                         if not again:
                                             break
                                         S[tx] = S[tx] - 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.build import TRUE, unary
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.stmt import Break, For, If, Let, Stmt, While, seq
from tileworkbench.compiler.ir.tile import Parallel


def with_decisions_apart(root: Stmt, depends: Callable[[Stmt], bool], names: Names) -> Stmt:
    """`root` with the decisions of each statement that `depends` in scalars of their own."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Parallel):
            return stmt
        made = stmt.map_children(lambda child: change(child) if isinstance(child, Stmt) else child)
        if isinstance(made, If | For | While) and depends(stmt):
            return _apart(made, names)
        return made

    return change(root)


def _apart(stmt: If | For | While, names: Names) -> Stmt:
    lets: list[Stmt] = []

    def named(value: Expr, name: str) -> Expr:
        if not has_loads(value):
            return value
        var = names.var(name, value.dtype)
        lets.append(Let(var, value, site=stmt.site))
        return var

    match stmt:
        case If(cond):
            made: Stmt = replace(stmt, cond=named(cond, "decided"))
        case While(cond, body):
            done = If(unary("not", named(cond, "again")), Break(site=stmt.site), site=stmt.site)
            return replace(stmt, cond=TRUE, body=seq([*lets, done, body]))
        case For(start=start, stop=stop, step=step):
            bounds = [named(value, "bound") for value in (start, stop, step)]
            made = replace(stmt, start=bounds[0], stop=bounds[1], step=bounds[2])
    return seq([*lets, made])
