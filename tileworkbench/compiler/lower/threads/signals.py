"""Arrivals that come once for all threads that execute an operation: one of them makes them, behind
what the others have done.
"""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.simt import Barrier, BarrierArrive, BarrierSignal
from tileworkbench.compiler.ir.stmt import If, Stmt, seq
from tileworkbench.compiler.lower.threads.context import ThreadContext


def lower(signal: BarrierSignal, context: ThreadContext) -> Stmt:
    """The arrivals of `signal` at a memory barrier of another block.

    Raises `UnsupportedError` where the threads cannot wait for each other first.
    """
    site, threads = signal.site, context.threads
    if signal.bytes_:
        raise UnsupportedError(
            "there is no code yet for bytes that another block's memory barrier counts",
            context.span(site),
            hint="share tiles with T.copy_cluster(..., dst_block=rank, remote_barrier=...)",
        )
    if threads == context.block_threads:
        meet: list[Stmt] = [Barrier(site=site)]
    elif threads == 1:
        meet = []
    else:
        number = None if threads % context.lanes else context.barrier()
        if number is None:
            raise UnsupportedError(
                f"{threads} threads copy to another block and then arrive at its memory barrier, "
                "for which they need a barrier of their own",
                context.span(site),
                hint="let whole warps make the copy, and use fewer groups of threads",
            )
        meet = [Barrier(number, threads, site=site)]
    arrivals: list[Stmt] = [BarrierArrive(signal.barrier, site=site)] * signal.arrivals
    first = binary("eq", context.thread, int_const(0))
    return seq([*meet, If(first, seq(arrivals), site=site)])
