"""Which buffers a statement with all below it reads and writes, and whether two regions meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tileworkbench.compiler.analysis.effects import written
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import const_int, sub
from tileworkbench.compiler.ir.expr import Buffer, Const, Expr, Load, Region
from tileworkbench.compiler.ir.rewrite import statements, walk


@dataclass(frozen=True, slots=True)
class Effects:
    """The buffers read and written, in the order met."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    def conflicts(self, later: Effects) -> Buffer | None:
        """A buffer through which `later` depends on this: one of the two writes it."""
        shared = (self.writes & (later.reads | later.writes)) | (self.reads & later.writes)
        return min(shared, key=lambda buffer: buffer.name, default=None)

    def through(self, views: Mapping[Buffer, Buffer]) -> Effects:
        """The same of the memory behind `views`."""
        if not views:
            return self
        return Effects(
            frozenset(views.get(buffer, buffer) for buffer in self.reads),
            frozenset(views.get(buffer, buffer) for buffer in self.writes),
        )


def effects_of(root: st.Stmt) -> Effects:
    """What `root` and every statement below it read and write."""
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for stmt in statements(root):
        writes.update(_written(stmt))
        reads.update(_read(stmt))
        for child in stmt.children():
            if not isinstance(child, st.Stmt):
                reads.update(found.buffer for found in walk(child) if isinstance(found, Load))
    return Effects(frozenset(reads), frozenset(writes))


def _written(stmt: st.Stmt) -> tuple[Buffer, ...]:
    match stmt:
        case simt.AsyncCopy(dst=address) | simt.StoreMatrix(dst=address):
            return (address.buffer,)
        case simt.LoadMatrix(dst=address) | simt.Mma(c=address):
            return (address.buffer,)
        case simt.BarrierInit(barrier) | simt.BarrierArrive(barrier):
            return (barrier.buffer,)
        case simt.BarrierExpect(barrier) | simt.BarrierWait(barrier):
            return (barrier.buffer,)
    return written(stmt)


def _read(stmt: st.Stmt) -> tuple[Buffer, ...]:
    """The buffers that `stmt` itself reads other than through a `Load`."""
    match stmt:
        case tile.Copy(src=region):
            return (region.buffer,)
        case tile.Scan(_, src, dst):
            return (src.buffer, dst.buffer)
        case tile.Gemm(a, b, c, clear=clear):
            fresh = isinstance(clear, Const) and bool(clear.value)
            return (a.buffer, b.buffer) if fresh else (a.buffer, b.buffer, c.buffer)
        case tile.Reduce(src=src, dst=target, clear=fresh):
            return (src,) if fresh else (src, target)
        case st.Atomic(buffer=buffer):
            return (buffer,)
        case simt.AsyncCopy(src=address) | simt.LoadMatrix(src=address):
            return (address.buffer,)
        case simt.StoreMatrix(src=address):
            return (address.buffer,)
        case simt.Mma(a_, b_, c_):
            return (a_.buffer, b_.buffer, c_.buffer)
    return ()


def regions_overlap(a: Region, b: Region) -> bool:
    """Whether two regions of one buffer may have an element in common."""
    if a.buffer is not b.buffer:
        return False
    pairs = zip(a.mins, a.extents, b.mins, b.extents, strict=True)
    return not any(_apart(*pair) for pair in pairs)


def _apart(low_a: Expr, extent_a: Expr, low_b: Expr, extent_b: Expr) -> bool:
    """Whether two intervals whose distance is known do not meet."""
    distance = const_int(sub(low_b, low_a))
    length_a, length_b = const_int(extent_a), const_int(extent_b)
    if distance is None or length_a is None or length_b is None:
        return False
    return distance >= length_a or -distance >= length_b


def leaves_early(
    body: st.Stmt, kind: type[st.Stmt] | tuple[type[st.Stmt], ...] = (st.Break, st.Continue)
) -> bool:
    """Whether a `break` or `continue` in `body` belongs to the loop around it."""
    if isinstance(body, kind):
        return True
    if isinstance(body, st.For | st.While | tile.Pipelined):
        return False
    return any(leaves_early(child, kind) for child in body.children() if isinstance(child, st.Stmt))
