"""The blocks of a cluster: their barrier, and the shared memory of other blocks; and launches that
overlap (PTX ISA, "mapa", "barrier.cluster", "griddepcontrol").

A tile of another block is a generic pointer, which plain loads and stores take. A memory barrier of
another block is a 32-bit address, as the instructions on memory barriers take it.
"""

from __future__ import annotations

from tileworkbench.compiler.emit.c_like.helpers import Helper
from tileworkbench.compiler.emit.c_like.statements import KernelWriter
from tileworkbench.compiler.emit.c_like.text import wrapped
from tileworkbench.compiler.emit.cuda.features import CLUSTER, EARLY
from tileworkbench.compiler.emit.cuda.functions import asm, function
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import (
    ClusterArrive,
    ClusterBarrier,
    ClusterWait,
    GridDependency,
    Peer,
)
from tileworkbench.compiler.ir.stmt import Stmt


def _ordered(name: str, *texts: str, feature: str = CLUSTER) -> Helper:
    lines = "\n".join(f'  asm volatile("{text}" ::: "memory");' for text in texts)
    return Helper(function(f"void {name}()", lines), (), feature)


def _mapped(name: str, c_type: str, letter: str, text: str) -> Helper:
    """The address that another block has for the same variable."""
    mapped = asm(f"{text} %0, %1, %2;", f'"={letter}"(theirs)', f'"{letter}"(own), "r"(rank)')
    body = f"  {c_type} theirs;\n{mapped}\n  return theirs;"
    return Helper(function(f"{c_type} {name}({c_type} own, unsigned rank)", body), (), CLUSTER)


_WAIT = """  unsigned done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 "
                 "p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  } while (!done);"""
_ARRIVE = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];"

CLUSTERS: dict[str, Helper] = {
    "cluster_arrive": _ordered("cluster_arrive", "barrier.cluster.arrive;"),
    "cluster_arrive_relaxed": _ordered("cluster_arrive_relaxed", "barrier.cluster.arrive.relaxed;"),
    "cluster_wait": _ordered("cluster_wait", "barrier.cluster.wait;"),
    "cluster_sync": _ordered("cluster_sync", "barrier.cluster.arrive;", "barrier.cluster.wait;"),
    "launch_wait": _ordered("launch_wait", "griddepcontrol.wait;", feature=EARLY),
    "launch_next": _ordered("launch_next", "griddepcontrol.launch_dependents;", feature=EARLY),
    "peer_memory": _mapped("peer_memory", "void*", "l", "mapa.u64"),
    "peer_address": _mapped("peer_address", "unsigned", "r", "mapa.shared::cluster.u32"),
    "mbarrier_arrive_peer": Helper(
        function(
            "void mbarrier_arrive_peer(unsigned barrier)",
            asm(_ARRIVE, "", '"r"(barrier)', "memory"),
        ),
        (),
        CLUSTER,
    ),
    "mbarrier_wait_cluster": Helper(
        function("void mbarrier_wait_cluster(unsigned barrier, unsigned parity)", _WAIT),
        (),
        CLUSTER,
    ),
}


def peers(program: Program) -> dict[Buffer, Buffer]:
    """The program's names for memory of other blocks, each with the memory of this block that
    corresponds to it.
    """
    named = (stmt for stmt in statements(program.body) if isinstance(stmt, Peer))
    return {stmt.buffer: stmt.source for stmt in named}


def write(stmt: Stmt, writer: KernelWriter) -> list[str] | None:
    """The lines of a statement about other blocks or launches, None for others."""
    use = writer.expressions.use
    match stmt:
        case Peer():
            return [_named_peer(stmt, writer)]
        case ClusterArrive(relaxed):
            return [f"{use('cluster_arrive_relaxed' if relaxed else 'cluster_arrive')}();"]
        case ClusterWait():
            return [f"{use('cluster_wait')}();"]
        case ClusterBarrier():
            return [f"{use('cluster_sync')}();"]
        case GridDependency(wait):
            return [f"{use('launch_wait' if wait else 'launch_next')}();"]
    return None


def _named_peer(stmt: Peer, writer: KernelWriter) -> str:
    """The definition of the name of another block's memory."""
    rank = writer.expressions(stmt.rank)
    own, theirs = writer.named(stmt.source), writer.named(stmt.buffer)
    if stmt.buffer.scope == "shared.barrier":
        own = f"{writer.expressions.use('smem_address')}({own})"
        writer.addresses[stmt.buffer] = theirs
        place = f"{writer.expressions.use('peer_address')}({own}, {rank})"
        return f"const unsigned {theirs} = {place};"
    pointer = f"{writer.memory_type(stmt.buffer.dtype)}*"
    place = f"{writer.expressions.use('peer_memory')}({own}, {rank})"
    return f"{pointer} const {theirs} = ({pointer}){wrapped(place)};"
