"""Views of tensors, and tensors over addresses, that are made before the launches that use them."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import buffers_of
from tileworkbench.compiler.ir.stmt import Alias, Kernel, Pointer, Seq, Stmt, seq


def with_own_views(body: Stmt, names: Names) -> Stmt:
    """Views that stand before the launches stand in each launch that uses them."""
    if not isinstance(body, Seq) or not any(isinstance(s, Alias | Pointer) for s in body.stmts):
        return body
    views: list[Alias | Pointer] = []
    placed: set[Buffer] = set()
    made: list[Stmt] = []
    for stmt in body.stmts:
        if isinstance(stmt, Alias | Pointer):
            views.append(stmt)
            continue
        if isinstance(stmt, Kernel):
            needed, own = set(buffers_of(stmt.body)), list[Stmt]()
            for view in reversed(views):
                if view.buffer in needed:
                    if isinstance(view, Alias):
                        needed.add(view.source)
                    own.insert(0, view)
            again = bool(placed & needed)
            placed |= {view.buffer for view in views} & needed
            stmt = replace(stmt, body=seq([*own, stmt.body]))
            stmt = with_new_names(stmt, names.fresh) if again else stmt
        made.append(stmt)
    return seq(made)
