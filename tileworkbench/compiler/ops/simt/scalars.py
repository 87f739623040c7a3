"""Code outside tile operators: every thread executes it as it is written, with guards where an
access may leave its tensor, and vectors where the user asked for them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.ir.build import conjunction, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.stmt import Atomic, For, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ops.simt.context import ThreadContext
from tileworkbench.compiler.ops.simt.groups import Group
from tileworkbench.compiler.ops.simt.iterations import (
    SymbolicIterations,
    guarded,
    missing_guards,
    register_of,
)
from tileworkbench.compiler.ops.simt.lanes import plan_along
from tileworkbench.compiler.ops.simt.nests import analyse, pure_lets


def read(node: Any, context: ThreadContext) -> Any:
    """An expression: fragments that it reads are held by every thread, and loads are guarded."""

    def change(found: object) -> object:
        if not isinstance(found, Load):
            return found
        if found.buffer.scope == "local.fragment":
            slot = register_of(found.buffer, found.indices)
            return Load(context.registers(found.buffer), (slot,))
        return guarded(found, context)

    return Rewriter(change)(node)


def guard(stmt: Stmt, context: ThreadContext) -> Stmt:
    """A store or atomic access that is skipped outside its tensor; other statements as they are."""
    if not isinstance(stmt, Store | Atomic):
        return stmt
    missing = missing_guards(stmt.buffer, stmt.indices, stmt.predicate, context)
    if not missing:
        return stmt
    predicate = conjunction([*conjuncts(stmt.predicate), *missing])
    if isinstance(stmt, Atomic) and stmt.previous is not None and stmt.safe is None:
        safe = context.safe_values.get(stmt.buffer.name)
        return replace(stmt, predicate=predicate, safe=safe)
    return replace(stmt, predicate=predicate)


def vectorize(loop: For, context: ThreadContext) -> Stmt | None:
    """The user's vector loop with wide accesses to memory; None where none is possible."""
    extent = const_int(loop.stop)
    if (const_int(loop.start), const_int(loop.step)) != (0, 1) or not extent:
        return None
    nest = analyse(Parallel((loop.var,), (loop.stop,), loop.body, site=loop.site), context.ranges)
    plan = plan_along(nest, 0, 0, extent & -extent, context)
    if nest.fragments or plan.lanes == 1:
        return None
    group = context.loop_var(loop.var.name)
    trips = extent // plan.lanes
    first = int_const(0) if trips == 1 else mul(group, int_const(plan.lanes))
    iterations = SymbolicIterations(nest, (first,))
    body = Group(nest, iterations, plan, context, pure_lets(loop.body)).lower()
    if trips == 1:
        return body
    stop = int_const(trips)
    return For(group, loop.start, stop, loop.step, LoopKind.UNROLLED, body, site=loop.site)
