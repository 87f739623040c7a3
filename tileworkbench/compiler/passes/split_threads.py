"""Code of single threads becomes loops over the threads of a block, cut where threads wait for each
other or act together.

A worker runs a block by running these loops one after another. What all threads of a block compute
alike is computed once; tile operators are executed once, where they stand. What a thread keeps from
one loop to the next has an element of an array for it. Where threads take different ways to a
barrier or an exchange, masks say which of them are on it.

Before::

    with T.Kernel(8, threads=128, thread_vars=["tx"]) as bx:
        S[tx] = A[bx, tx]
        T.sync_threads()
        B[bx, tx] = S[127 - tx]

After::

    with T.Kernel(8, threads=1) as bx:
        for tx_1 in T.Parallel(128):
            S[tx_1] = A[bx, tx_1]
        for tx_2 in T.Parallel(128):
            B[bx, tx_2] = S[127 - tx_2]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.effects import exposes
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.simt import THREAD_LEVEL
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind, ExternCall, Kernel, Stmt
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.target import Target


@dataclass(frozen=True, slots=True)
class SplitThreads:
    """Turn the threads of every launch that tells them apart into loops."""

    target: Target

    def __call__(self, program: Program) -> Program:
        if not any(map(tells_threads_apart, launches(program.body))):
            return program
        # Imported here: most kernels do not tell their threads apart, and need none of it.
        from tileworkbench.compiler.lower.thread_loops.grid import with_workspaces
        from tileworkbench.compiler.lower.thread_loops.loops import in_loops
        from tileworkbench.compiler.passes.bind_threads import bind_thread
        from tileworkbench.compiler.passes.insert_barriers import with_barriers

        names = Names(program)
        workspaces: list[Buffer] = []

        def split(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel) or not tells_threads_apart(stmt):
                return stmt
            kernel = with_barriers(bind_thread(stmt, names), program, names)
            made, needed = in_loops(kernel, program, self.target, names)
            workspaces.extend(needed)
            return made

        body = Rewriter(rewrite_stmt=split)(program.body)
        note = "threads of a block are executed in loops between the places where they meet (simt)"
        made = with_workspaces(with_body(program, body), workspaces)
        return replace(made, notes=(*program.notes, note))


def launches(stmt: Stmt) -> Iterator[Kernel]:
    """The kernels below `stmt`, which stand in no other."""
    if isinstance(stmt, Kernel):
        yield stmt
        return
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from launches(child)


def tells_threads_apart(kernel: Kernel) -> bool:
    """Whether running the kernel's code once per block is not enough: it names its threads, they
    meet or exchange values, or each of them updates memory.
    """
    if kernel.thread_vars:
        return True
    stack: list[Stmt] = [kernel.body]
    alone = all(extent == 1 for extent in kernel.threads)
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, THREAD_LEVEL):
            return True
        if isinstance(stmt, Parallel):
            continue
        if isinstance(stmt, Atomic) and not alone and stmt.kind not in _PLAIN:
            return True
        if isinstance(stmt, ExternCall) and not alone and exposes(stmt):
            return True
        stack.extend(child for child in stmt.children() if isinstance(child, Stmt))
    return False


_PLAIN = (AtomicKind.LOAD, AtomicKind.STORE)
