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
from tileworkbench.compiler.ir.rules import Rules
from tileworkbench.compiler.ir.stmt import Let, Seq, Stmt
from tileworkbench.compiler.passes.optional import optional


@optional("nothing but names that nobody reads")
def drop_unused_lets(program: Program) -> Program:
    """Remove every `Let` whose variable is not read, until none is left."""
    body = program.body
    while True:
        drop = Rules({Let: (drop_unused_let,)}, set(variables(body)))
        shorter = Rewriter(rewrite_stmt=drop)(body)
        if shorter is body:
            return with_body(program, body)
        body = shorter


def drop_unused_let(stmt: Let, used: set[Var]) -> Stmt | None:
    """A scalar that nothing reads is not computed."""
    return None if stmt.var in used else Seq(())
