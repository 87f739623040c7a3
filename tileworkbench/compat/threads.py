"""The rule of TileLang's targets ``c`` and ``llvm``: a block has no threads there."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Kernel, Stmt


def without_threads(program: Program) -> Program:
    """`program` with one thread in the blocks of each launch that does not tell its threads apart,
    so that statements outside T.Parallel and tile operators run once.

    A launch that names its threads, or makes them meet by other means than T.sync_threads(), keeps
    them: TileLang refuses it for these targets.
    """
    return with_body(program, Rewriter(rewrite_stmt=_alone)(program.body))


def _alone(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Kernel) or stmt.thread_vars or stmt.threads == (1,):
        return stmt
    told_apart = any(_is_of_threads(inner) for inner in statements(stmt.body))
    return stmt if told_apart else replace(stmt, threads=(1,))


def _is_of_threads(stmt: Stmt) -> bool:
    if isinstance(stmt, simt.Barrier):
        return stmt.count > 0  # some threads of the block meet
    return type(stmt).__module__ == simt.__name__
