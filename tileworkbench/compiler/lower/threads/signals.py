"""Arrivals at a memory barrier that count once for all threads that execute them: one thread
arrives, when the others have done what comes before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.simt import Barrier, BarrierArrive, BarrierExpect, BarrierSignal
from tileworkbench.compiler.ir.stmt import If, Stmt, seq
from tileworkbench.compiler.lower.threads.context import ThreadContext


def lower(signal: BarrierSignal, context: ThreadContext, behind: Sequence[Stmt] = ()) -> Stmt:
    """The arrivals of `signal`, or the bytes that its barrier is to wait for; `behind` are the
    statements that follow it.

    Raises `UnsupportedError` where the threads cannot wait for each other first.
    """
    site = signal.site
    first = binary("eq", context.thread, int_const(0))
    if not signal.bytes_:
        arrivals: list[Stmt] = [BarrierArrive(signal.barrier, site=site)] * signal.arrivals
        return seq([*_meet(site, context), If(first, seq(arrivals), site=site)])
    expect = If(
        first, BarrierExpect(signal.barrier, int_const(signal.bytes_), site=site), site=site
    )
    # The phase must not be over before the first thread has said what it waits for: that thread
    # arrives behind that itself, or those who do wait for it.
    arrives = any(isinstance(s, BarrierArrive) and s.barrier == signal.barrier for s in behind)
    return expect if arrives else seq([expect, *_meet(site, context)])


def _meet(site: int, context: ThreadContext) -> list[Stmt]:
    """The threads that execute a statement wait for each other."""
    threads = context.threads
    if threads == context.block_threads:
        return [Barrier(site=site)]
    if threads == 1:
        return []
    number = None if threads % context.lanes else context.barrier()
    if number is None:
        raise UnsupportedError(
            f"{threads} threads copy to another block and then arrive at its memory barrier, "
            "for which they need a barrier of their own",
            context.span(site),
            hint="let whole warps make the copy, and use fewer groups of threads",
        )
    return [Barrier(number, threads, site=site)]
