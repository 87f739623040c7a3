"""Which buffers a statement with all below it reads and writes, and whether two regions overlap."""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int, sub
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region
from tileworkbench.compiler.ir.rewrite import statements


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
        for access in accesses(stmt):
            if access.reads:
                reads.add(access.buffer)
            if access.writes:
                writes.add(access.buffer)
    return Effects(frozenset(reads), frozenset(writes))


def regions_overlap(a: Region, b: Region) -> bool:
    """Whether two regions of one buffer may have an element in common."""
    if a.buffer is not b.buffer:
        return False
    pairs = zip(a.mins, a.extents, b.mins, b.extents, strict=True)
    return not any(_apart(*pair) for pair in pairs)


def _apart(low_a: Expr, extent_a: Expr, low_b: Expr, extent_b: Expr) -> bool:
    """Whether two intervals, whose distance is known, do not overlap."""
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


def may_leave(body: st.Stmt) -> bool:
    """Whether some statement below `body` ends an iteration early."""
    return any(isinstance(inner, st.Break | st.Continue) for inner in statements(body))
