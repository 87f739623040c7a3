"""Copies and fills of memory that each thread has for itself: every thread executes its own."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.expr import Region
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel
from tileworkbench.compiler.lower.vectors import copy, fill
from tileworkbench.compiler.lower.vectors.context import Context

_PRIVATE = ("local", "local.var")


def expand_local_tiles(body: Stmt, context: Context, names: Names) -> Stmt:
    """`body` with these operators as serial loops over elements."""
    context = replace(context, names=names)

    def expand(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Copy) and (_is_private(stmt.src) or _is_private(stmt.dst)):
            return _serial(copy.lower(stmt, context))
        if isinstance(stmt, Fill) and _is_private(stmt.dst):
            return _serial(fill.lower(stmt, context))
        return stmt

    return Rewriter(rewrite_stmt=expand)(body)  # type: ignore[no-any-return]


def _is_private(region: Region) -> bool:
    return region.buffer.scope in _PRIVATE


def _serial(nest: Stmt) -> Stmt:
    """An element-wise nest as serial loops."""
    if not isinstance(nest, Parallel):
        return nest
    body = nest.body
    for var, extent in reversed(list(zip(nest.vars, nest.extents, strict=True))):
        body = counting(var, extent, body, nest.site)
    return body
