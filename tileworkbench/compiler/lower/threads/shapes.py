"""Other instructions for the products of a kernel than each would take by itself: where one takes
the result of another one, and where layouts do not agree.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.lower.threads.chains import products_in_chains
from tileworkbench.compiler.lower.threads.context import ThreadContext, with_contexts
from tileworkbench.compiler.lower.threads.gemm import plan_of, product_of
from tileworkbench.compiler.lower.threads.mma import deeper, shape_name
from tileworkbench.compiler.machine.instructions import MatrixInstruction, Scope


def in_depth(body: Stmt, context: ThreadContext) -> dict[int, Gemm]:
    """Products whose operand A is the result of another one by deeper instructions, and those other
    ones by several across that deal their columns out accordingly, by the `id` of the statement.
    """
    plans = {
        id(stmt): (plan_of(stmt, threads), threads)
        for stmt, threads in with_contexts(body, context)
        if isinstance(stmt, Gemm)
    }
    changed: dict[int, Gemm] = {}
    for chain in products_in_chains(body):
        takers = [stmt for stmt in chain if product_of(stmt).chained]
        givers = [stmt for stmt in chain if stmt not in takers]
        if not takers or not givers or any(each.b.buffer.scope != "shared" for each in chain):
            continue
        for stmt in takers:
            plan = plans[id(stmt)][0]
            for row, before in deeper(plan, context.target) if plan is not None else ():
                changed[id(stmt)] = replace(stmt, instruction=f"{shape_name(row)}x{row.k}")
                changed |= {id(each): replace(each, instruction=before) for each in givers}
    fits = all(_has_plan(new, plans[key][1]) for key, new in changed.items())
    return changed if fits else {}


def _has_plan(op: Gemm, context: ThreadContext) -> bool:
    try:
        return plan_of(op, context) is not None
    except TileValueError:  # the warps cannot share it
        return False


def one_by_one(body: Stmt, context: ThreadContext) -> dict[int, Gemm]:
    """The products below `body` that are made of several across, each for itself, by the `id` of
    the statement.
    """
    return {
        id(stmt): replace(stmt, instruction=f"{row.name}_{row.m}x{row.n // row.across}")
        for stmt, row, _ in _of_warps(body, context)
        if row.across > 1
    }


def of_one_shape(body: Stmt, context: ThreadContext) -> dict[int, Gemm]:
    """The products below `body` by the narrowest shape that any of them has, by the `id` of the
    statement; empty where all have one shape already.

    Rows of results of different shapes lie in different lanes, so no fragment suits both.
    """
    plans = list(_of_warps(body, context))
    edge = min((row.m for _, row, _ in plans), default=0)
    changed = {}
    for stmt, row, threads in plans:
        if row.m != edge:
            product = replace(stmt, instruction=f"{row.name}_{edge}x{edge}")
            if plan_of(product, threads) is None:
                return {}
            changed[id(stmt)] = product
    return changed


def _of_warps(
    body: Stmt, context: ThreadContext
) -> Iterator[tuple[Gemm, MatrixInstruction, ThreadContext]]:
    """The products of warps below `body`, with the instruction of each."""
    for stmt, threads in with_contexts(body, context):
        if isinstance(stmt, Gemm):
            plan = plan_of(stmt, threads)
            if plan is not None and plan.instruction.scope is Scope.WARP:
                yield stmt, plan.instruction, threads
