"""The blocks of a cluster become one block, in which each of them is a role.

A worker runs a cluster as a whole. What a block has in shared memory is there once for each rank,
so that memory of another block is that of another role; the barrier of the cluster is one of all
threads, a barrier of a block one of its role. Blocks that neither wait for each other nor share
memory are blocks like any others.

Before::

    with T.Kernel(8, threads=32, cluster=(2,)) as bx:
        S = T.alloc_shared((64,), "float32")
        T.cluster_sync()
        S_peer = T.peer(S, bx % 2 ^ 1)
        T.copy(A[bx, 0:64], S_peer)

After::

    with T.Kernel(4, threads=64, thread_vars=["tx"], blocks=2) as bx:
        S_1 = T.alloc_shared((64,), "float32")
        S_2 = T.alloc_shared((64,), "float32")
        with T.threads(0, 32):
            T.sync_threads(id=512, count=64)
            T.copy(A[bx * 2, 0:64], S_2)
        with T.threads(32, 32):
            T.sync_threads(id=512, count=64)
            T.copy(A[bx * 2 + 1, 0:64], S_1)
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Kernel, Stmt, seq
from tileworkbench.compiler.passes.simplify_expressions import simplify_expressions
from tileworkbench.compiler.passes.split_threads import launches


def unite_clusters(program: Program) -> Program:
    """Make one block of each cluster whose blocks share memory or wait for each other.

    Raises `UnsupportedError` for blocks that are not whole warps, and where one keeps something
    over a barrier of the grid.
    """
    if not any(kernel.cluster for kernel in launches(program.body)):
        return program
    # Imported here: most kernels have no clusters.
    from tileworkbench.compiler.lower.thread_loops.clusters import united
    from tileworkbench.compiler.lower.thread_loops.grid import (
        split_at_grid_barriers,
        with_workspaces,
    )
    from tileworkbench.compiler.lower.thread_loops.peers import PeerResolver
    from tileworkbench.compiler.passes.bind_threads import bind_thread

    names = Names(program)
    workspaces: list[Buffer] = []
    ranks: dict[Buffer, tuple[Buffer, ...]] = {}  # of a block's memory, that of each rank

    def unite(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Kernel) or not stmt.cluster:
            return stmt
        if not any(isinstance(s, (*simt.CLUSTER_WIDE, simt.Peer)) for s in statements(stmt)):
            return replace(stmt, cluster=())
        parts, needed = split_at_grid_barriers(bind_thread(stmt, names), names, program)
        workspaces.extend(needed)
        return seq([united(part, program, names, ranks) for part in parts])

    body = Rewriter(rewrite_stmt=unite)(program.body)
    made = with_workspaces(with_body(program, body), workspaces)
    if not any(isinstance(stmt, simt.Peer) for stmt in statements(made.body)):
        return made
    # Which block is meant is mostly known once indices are simple.
    simple = simplify_expressions(made)
    return with_body(simple, PeerResolver(ranks, names).visit(simple.body))
