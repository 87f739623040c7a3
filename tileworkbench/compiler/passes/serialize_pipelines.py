"""`T.Pipelined` becomes a serial loop: processors overlap loads with arithmetic by themselves. A
serial loop that runs once is its body: the number that its variable is tells which elements are the
same.

Before::

    for k in T.Pipelined(32, num_stages=3):
        T.copy(A[0:64, k * 32:k * 32 + 32], A_shared)
        for n in T.serial(1):
            B[n * 32, k] = A_shared[n, 0]

After::

    for k in T.serial(32):
        T.copy(A[0:64, k * 32:k * 32 + 32], A_shared)
        B[0 * 32, k] = A_shared[0, 0]
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.ir.build import const
from tileworkbench.compiler.ir.loops import as_serial, iterations
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute, with_body
from tileworkbench.compiler.ir.rules import Rule, Rules
from tileworkbench.compiler.ir.stmt import For, LoopKind, Stmt
from tileworkbench.compiler.ir.tile import Pipelined


def serialize_pipelines(program: Program) -> Program:
    """Turn every pipelined loop into a serial one, and every loop that runs once into its body."""
    program = with_body(program, Rewriter(rewrite_stmt=Rules(PIPELINES))(program.body))
    return with_body(program, Rewriter(rewrite_stmt=Rules(LOOPS))(program.body))


def serialize_pipeline(stmt: Pipelined) -> Stmt:
    """A pipelined loop is a serial one: nothing is copied ahead of its use."""
    return as_serial(stmt)


def run_once(stmt: For) -> Stmt | None:
    """A serial loop that runs once is its body, with the number that its variable is."""
    values = iterations(stmt)
    if values is None or len(values) != 1 or leaves_early(stmt.body):
        return None
    if stmt.kind not in (LoopKind.SERIAL, LoopKind.UNROLLED):
        return None
    body: Stmt = substitute(stmt.body, {stmt.var: const(values[0], stmt.var.dtype)})
    return body


PIPELINES: dict[Any, tuple[Rule, ...]] = {Pipelined: (serialize_pipeline,)}
LOOPS: dict[Any, tuple[Rule, ...]] = {For: (run_once,)}
