"""`T.Pipelined` becomes a serial loop: processors overlap loads with arithmetic by themselves.

Before::

    for k in T.Pipelined(32, num_stages=3):
        T.copy(A[0:64, k * 32:k * 32 + 32], A_shared)

After::

    for k in T.serial(32):
        T.copy(A[0:64, k * 32:k * 32 + 32], A_shared)
"""

from __future__ import annotations

from tileworkbench.compiler.ir.loops import as_serial
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.rules import Rules
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined


def serialize_pipelines(program: Program) -> Program:
    """Turn every pipelined loop into a serial one."""
    serialize = Rules({Pipelined: (serialize_pipeline,)})
    return with_body(program, Rewriter(rewrite_stmt=serialize)(program.body))


def serialize_pipeline(stmt: Pipelined) -> Stmt:
    """A pipelined loop is a serial one: nothing is copied ahead of its use."""
    return as_serial(stmt)
