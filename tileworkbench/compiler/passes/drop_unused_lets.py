"""Scalars that nothing reads are not computed.

Passes that write index arithmetic as sums put values in the place of names; these names are left.

Before::

    offset = k * 32
    C[k * 32 + tx] = 0.0

After::

    C[k * 32 + tx] = 0.0
"""

from __future__ import annotations

from tileworkbench.compiler.ir.expr import Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, variables, with_body
from tileworkbench.compiler.ir.stmt import Let, Seq, Stmt, seq
from tileworkbench.compiler.passes.optional import optional


@optional("nothing but names that nobody reads")
def drop_unused_lets(program: Program) -> Program:
    """Remove every `Let` whose variable is not read, until none is left."""
    body = program.body
    while True:
        used: set[Var] = set(variables(body))

        def drop(stmt: Stmt, used: set[Var] = used) -> Stmt:
            if not isinstance(stmt, Seq):
                return Seq(()) if isinstance(stmt, Let) and stmt.var not in used else stmt
            kept = [s for s in stmt.stmts if s != Seq(())]
            return stmt if len(kept) == len(stmt.stmts) else seq(kept)

        shorter = Rewriter(rewrite_stmt=drop)(body)
        if shorter is body:
            return with_body(program, body)
        body = shorter
