"""Operations that were started are done where they start, and waits for groups of them go.

That is one of the orders in which they may happen, and the one that code without an engine for them
has. The simulator runs the program before this pass in the latest order instead, so it finds a wait
that is missing. Arrivals that wait for operations become plain ones.

Before::

    with T.started("cp.async"):
        T.copy(A[0:64], A_shared)
    T.commit_group()
    T.wait_group(pending=0)

After::

    T.copy(A[0:64], A_shared)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.simt import BarrierArrive, CommitGroup, Start, WaitGroup
from tileworkbench.compiler.ir.stmt import Seq, Stmt


def complete_operations(program: Program) -> Program:
    """Execute every operation where it starts."""
    return with_body(program, Rewriter(rewrite_stmt=_complete)(program.body))


def _complete(stmt: Stmt) -> Stmt:
    match stmt:
        case Start(body):
            return body
        case CommitGroup() | WaitGroup():
            return Seq(())
        case BarrierArrive(_, engine) if engine is not None:
            return replace(stmt, engine=None)
    return stmt
