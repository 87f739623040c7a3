"""Branches that only some threads take become roles of these threads.

A role has barriers and tile operators of its own, so its threads must be known when the kernel is
compiled, and stand in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.uniformity import Uniformity
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import conjunction
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, substitute, variables
from tileworkbench.compiler.ir.simt import BarrierArrive, BarrierWait, Role
from tileworkbench.compiler.ir.stmt import If, Kernel, Let, Seq, Stmt, seq
from tileworkbench.compiler.ir.tile import COLLECTIVE, Copy, Fill, Parallel, Pipelined

_ELEMENTWISE = (Copy, Fill, Parallel, Pipelined)


def with_roles(kernel: Kernel, program: Program, lanes: int) -> Kernel:
    """Tile operators that only some threads reach are theirs: the branch becomes a role. So does
    one in which whole warps, of `lanes` threads, pass data on through shared memory.

    Raises `UnsupportedError` for operators where these are not threads in a row.
    """
    uniformity = Uniformity(kernel)
    lets = {stmt.var: stmt.value for stmt in statements(kernel.body) if isinstance(stmt, Let)}

    def change(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, If) or not uniformity.varies(stmt.cond):
            return stmt
        operators = any(isinstance(inner, COLLECTIVE) for inner in statements(stmt))
        if not operators and not _exchanges(stmt):
            return stmt
        try:
            return as_roles(stmt)
        except UnsupportedError:
            if operators:
                raise
            return stmt  # without barriers, which it may not need

    def as_roles(stmt: If) -> Stmt:
        own = [cond for cond in conjuncts(stmt.cond) if uniformity.varies(cond)]
        common = conjunction([cond for cond in conjuncts(stmt.cond) if cond not in own])
        if stmt.orelse is not None and common is not None:
            raise _not_in_a_row(program, stmt)
        inside = threads_where(own, kernel, lets, program, stmt)
        roles = [_role(inside, stmt.then, program, stmt, lanes)]
        if stmt.orelse is not None:
            outside = [at for at in range(kernel.threads[0]) if at not in set(inside)]
            roles.append(_role(outside, stmt.orelse, program, stmt, lanes))
        body = seq(roles)
        return body if common is None else If(common, body, site=stmt.site)

    body = Rewriter(rewrite_stmt=change)(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def threads_where(
    conditions: list[Expr],
    kernel: Kernel,
    lets: Mapping[Var, Expr],
    program: Program,
    stmt: If,
) -> list[int]:
    """The threads for which all conditions hold."""
    while any(var in lets for cond in conditions for var in variables(cond)):
        conditions = [substitute(cond, lets) for cond in conditions]
    name = kernel.thread_vars[0].name
    try:
        return [
            thread
            for thread in range(kernel.threads[0])
            if all(evaluate(cond, {name: thread}) for cond in conditions)
        ]
    except (KeyError, ValueError):
        raise _not_in_a_row(program, stmt) from None


def _role(threads: list[int], body: Stmt, program: Program, stmt: If, lanes: int) -> Stmt:
    if not threads:
        return Seq(())
    if threads != list(range(threads[0], threads[0] + len(threads))):
        raise _not_in_a_row(program, stmt)
    if (threads[0] % lanes or len(threads) % lanes) and not _is_elementwise(body):
        raise UnsupportedError(
            f"a tile operator for which threads {threads[0]} to {threads[-1]} work together needs "
            "whole warps",
            program.span(stmt.site),
            hint=f"let the groups of threads begin at multiples of {lanes}",
        )
    return Role(threads[0], len(threads), body, site=stmt.site)


def _is_elementwise(body: Stmt) -> bool:
    """Whether no thread needs registers of another one."""
    operators = [inner for inner in statements(body) if isinstance(inner, COLLECTIVE)]
    return bool(operators) and all(isinstance(inner, _ELEMENTWISE) for inner in operators)


def _exchanges(stmt: If) -> bool:
    """Whether threads might pass data on through shared memory within the branch, or to others by
    way of memory barriers, where no barrier of the block may stand.
    """
    if any(isinstance(inner, BarrierWait | BarrierArrive) for inner in statements(stmt)):
        return True
    effects = effects_of(stmt)
    return any(buffer.scope == "shared" for buffer in effects.writes & effects.reads)


def _not_in_a_row(program: Program, stmt: Stmt) -> UnsupportedError:
    return UnsupportedError(
        "a tile operator stands under a condition that is not the same for all threads and does "
        "not name threads in a row",
        program.span(stmt.site),
        hint="give the operator to groups of threads with T.ws, or take it out of the `if`",
    )
