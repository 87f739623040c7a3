"""Operations that a kernel starts itself, by T.tma_copy, T.wgmma_gemm and T.atomic_add, and that
may run while it does other work.

One thread starts a load for all: the phase of the barrier must not complete before it has said how
many bytes come. So the same thread arrives there behind the load, where all threads do, or those of
a condition that it fulfils. A product must be waited for where its registers are known to be in
flight, behind it in the same statements.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir.expr import Address, Expr
from tileworkbench.compiler.ir.simt import BarrierArrive, Engine, Role, Start, WaitGroup
from tileworkbench.compiler.ir.stmt import If, Kernel, Seq, Stmt
from tileworkbench.compiler.ir.tile import Copy, Gemm, Parallel, Pipelined


def started_loads(kernel: Kernel) -> list[Start]:
    """The loads by the copy engine that complete at a barrier of the kernel's own."""
    loads = []
    for start, behind, first in _starts(kernel.body, (), 0):
        if start.engine is Engine.TMA and start.barrier is not None and _is_load(start.body):
            thread = _thread(kernel, first)
            if any(_arrives(stmt, start.barrier, thread) for stmt in behind):
                loads.append(start)
    return loads


def started_products(kernel: Kernel) -> list[Start]:
    """The products of warpgroups that are waited for behind."""
    return [
        start
        for start, behind, _ in _starts(kernel.body, (), 0)
        if start.engine is Engine.WGMMA
        and isinstance(start.body, Gemm)
        and any(isinstance(stmt, WaitGroup) and stmt.engine is Engine.WGMMA for stmt in behind)
    ]


def started_sums(kernel: Kernel) -> list[Start]:
    """The additions of tiles to tensors that the copy engine is asked for."""
    return [
        start
        for start, _, _ in _starts(kernel.body, (), 0)
        if start.engine is Engine.TMA_STORE and isinstance(start.body, Parallel)
    ]


def _starts(
    stmt: Stmt, behind: tuple[Stmt, ...], first: int
) -> Iterator[tuple[Start, tuple[Stmt, ...], int]]:
    """Each start, the statements behind it in its sequence, the first thread of its role."""
    match stmt:
        case Start():
            yield stmt, behind, first
        case Seq(stmts):
            for at, each in enumerate(stmts):
                yield from _starts(each, stmts[at + 1 :], first)
        case Pipelined(num_stages=stages) if stages > 1:
            return
        case _:
            first = stmt.start if isinstance(stmt, Role) else first
            for child in stmt.children():
                if isinstance(child, Stmt):
                    yield from _starts(child, (), first)


def _is_load(body: Stmt) -> bool:
    if not isinstance(body, Copy):
        return False
    src, dst = body.src.buffer, body.dst.buffer
    return (src.scope, dst.scope) == ("global", "shared") and src.dtype == dst.dtype


def _thread(kernel: Kernel, number: int) -> dict[str, int]:
    """The indices of a thread by name."""
    indices, stride = {}, 1
    for var, extent in zip(kernel.thread_vars, kernel.threads, strict=False):
        indices[var.name] = number // stride % extent
        stride *= extent
    return indices if number < prod(kernel.threads) else {}


def _arrives(stmt: Stmt, barrier: Address, thread: dict[str, int]) -> bool:
    """Whether the thread arrives at the barrier in `stmt`, whatever else decides."""
    match stmt:
        case BarrierArrive(place, engine):
            return engine is None and place == barrier
        case If(cond, then):
            return _holds(cond, thread) and any(
                isinstance(inner, BarrierArrive) and _arrives(inner, barrier, thread)
                for inner in (then.stmts if isinstance(then, Seq) else (then,))
            )
    return False


def _holds(cond: Expr, thread: dict[str, int]) -> bool:
    try:
        return bool(evaluate(cond, thread))
    except (KeyError, ValueError, ZeroDivisionError):
        return False
