"""What threads do together, and asynchronous copies, as lines of CUDA C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.c_like.dialect import shown
from tileworkbench.compiler.emit.c_like.statements import GRID_BARRIER, KernelWriter
from tileworkbench.compiler.emit.c_like.text import bare, bits_of, wrapped
from tileworkbench.compiler.emit.cuda import clusters, tensors, wgmma
from tileworkbench.compiler.emit.cuda.addresses import row_address, shared_address
from tileworkbench.compiler.emit.cuda.copies import wait_helper
from tileworkbench.compiler.emit.cuda.exchanges import exchange
from tileworkbench.compiler.emit.cuda.matrices import mma_helper
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.stmt import Stmt

if TYPE_CHECKING:
    from tileworkbench.compiler.emit.cuda.dialect import Cuda


def write(stmt: Stmt, writer: KernelWriter, dialect: Cuda) -> list[str]:
    """The lines of a statement. Raises `UnsupportedError` where CUDA or the machine has nothing
    for it.
    """
    text, use = writer.expressions, writer.expressions.use
    match stmt:
        case simt.Exchange():
            return exchange(stmt, text)
        case simt.Barrier(0, 0, True):
            return ["__syncthreads();"]
        case simt.Barrier(number, count, wait):
            name = "sync" if wait else "arrive"
            return [f'asm volatile("barrier.{name} {number}, {count};" ::: "memory");']
        case simt.GridBarrier():
            return [f"{use('sync_grid')}({GRID_BARRIER.name});"]
        case simt.WarpBarrier(mask):
            return [f"__syncwarp((unsigned){wrapped(text(mask))});"]
        case simt.CommitGroup(simt.Engine.CP_ASYNC):
            return [f"{use('cp_async_commit')}();"]
        case simt.WaitGroup(pending, simt.Engine.CP_ASYNC):
            return [f"{use(*wait_helper(pending))}();"]
        case simt.AsyncCopy():
            return [_copy(stmt, writer)]
        case simt.LoadMatrix(dst, src, count, transpose):
            name = use(f"ldmatrix_x{count}{'_trans' if transpose else ''}")
            return [f"{name}({writer.register_words(dst)}, {row_address(writer, src)});"]
        case simt.StoreMatrix(dst, src, count, transpose):
            name = use(f"stmatrix_x{count}{'_trans' if transpose else ''}")
            return [f"{name}({shared_address(writer, dst)}, {writer.register_words(src)});"]
        case simt.Mma():
            return [_mma(stmt, writer, dialect)]
        case simt.BarrierArrive(engine=None) | simt.BarrierInit() | simt.BarrierWait():
            with writer.uniform():
                return [_memory_barrier(stmt, writer, dialect)]
        case simt.BarrierExpect(barrier, bytes_):
            arrived = -(const_int(bytes_) or 0)
            name = "mbarrier_complete" if arrived > 0 else "mbarrier_expect"
            value = str(arrived) if arrived > 0 else text(bytes_)
            return [f"{use(name)}({shared_address(writer, barrier)}, {value});"]
        case simt.Fence("async"):
            return [f"{use('fence_async')}();"]
        case simt.Fence("block" | "grid" as kind):
            return ["__threadfence_block();" if kind == "block" else "__threadfence();"]
    lines = clusters.write(stmt, writer) or tensors.write(stmt, writer)
    lines = lines or wgmma.write(stmt, writer, dialect.machine)
    if lines is None:
        raise dialect.missing(shown(stmt))
    return lines


def _memory_barrier(
    stmt: simt.BarrierArrive | simt.BarrierInit | simt.BarrierWait,
    writer: KernelWriter,
    dialect: Cuda,
) -> str:
    barrier = stmt.barrier.buffer
    match stmt:
        case simt.BarrierArrive():
            name = "mbarrier_arrive_peer" if barrier in dialect.peers else "mbarrier_arrive"
            given = ""
        case simt.BarrierInit():
            name, given = "mbarrier_init", f", {writer.expressions(stmt.count)}"
        case simt.BarrierWait():
            others_arrive = barrier in dialect.peers.values()
            sleeps = dialect.machine.counts_bytes
            name = "mbarrier_try_wait" if sleeps else "mbarrier_wait"
            name = "mbarrier_wait_cluster" if others_arrive else name
            given = f", {writer.expressions(stmt.parity)}"
    return f"{writer.expressions.use(name)}({shared_address(writer, stmt.barrier)}{given});"


def _copy(stmt: simt.AsyncCopy, writer: KernelWriter) -> str:
    places = f"{shared_address(writer, stmt.dst)}, {writer.expressions.address(stmt.src)}"
    name = f"cp_async_{stmt.elements * bits_of(stmt.dst.buffer.dtype) // 8}"
    if stmt.predicate is None:
        return f"{writer.expressions.use(name)}({places});"
    name = writer.expressions.use(f"{name}_or_zero")
    # An address outside the tensor is never formed: PTX reads nothing for size 0.
    return f"{name}({places}, {bare(writer.expressions(stmt.predicate))});"


def _mma(stmt: simt.Mma, writer: KernelWriter, dialect: Cuda) -> str:
    row = dialect.machine.matrix(stmt.shape, stmt.dtypes)
    if row is None:
        a, b, c = stmt.dtypes
        raise UnsupportedError(
            f"{dialect.platform} has no mma of {stmt.m} x {stmt.n} x {stmt.k} elements of "
            f"{a}, {b} and {c}"
        )
    name, helper = mma_helper(row)
    writer.expressions.use(name, helper)
    words = [writer.register_words(address) for address in (stmt.a, stmt.b)]
    return f"{name}({writer.expressions.address(stmt.c)}, {', '.join(words)});"
