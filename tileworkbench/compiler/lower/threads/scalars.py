"""Code outside tile operators: every thread executes it as it is written, with guards where an
access may leave its tensor.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.ir.build import conjunction
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.rewrite import Rewriter
from tileworkbench.compiler.ir.stmt import Atomic, Stmt, Store
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.iterations import guarded, missing_guards, register_of


def read(node: Any, context: ThreadContext) -> Any:
    """An expression: fragments that it reads are held by every thread, and loads are guarded."""

    def change(value: object) -> object:
        if not isinstance(value, Load):
            return value
        if value.buffer.scope == "local.fragment":
            slot = register_of(value.buffer, value.indices)
            return Load(context.registers(value.buffer), (slot,))
        return guarded(value, context)

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
