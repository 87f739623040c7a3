"""Groups of threads that execute different code, each with that code.

A group is a range of threads that always take the same branches where they may have to wait: no
role ends inside it, and no branch on the thread's index. Its code is the kernel's without the parts
of other threads, with names of its own. A tile operator for several groups is executed by the first
one, between two barriers of all of them.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.lower.thread_loops.block import Block, Scope
from tileworkbench.compiler.lower.thread_loops.ranges import ThreadRanges

_COMMON = ("shared", "local.fragment", "shared.barrier")
BARRIERS = 16  # of a block; those of the next block of a cluster have the next numbers
OF_CLUSTER = 512  # the number of the barrier of all blocks of a cluster
HIDDEN = 1024  # from here on, numbers of barriers that the compiler adds
_TOGETHER = (*tile.OPERATORS, simt.BarrierSignal)


def waits(root: st.Stmt) -> bool:
    """Whether a thread may have to wait for others below `root`."""
    return any(
        isinstance(stmt, simt.BarrierWait | simt.Barrier)
        or (isinstance(stmt, simt.Exchange) and stmt.is_barrier)
        for stmt in statements(root)
    )


def groups_of(kernel: st.Kernel, ranges: ThreadRanges) -> list[Scope]:
    """The groups of a kernel; a single one when all threads can go the same way."""
    (count,) = kernel.threads
    cuts = {0, count}
    if any(isinstance(stmt, simt.Role) and waits(stmt) for stmt in statements(kernel.body)):
        for stmt in statements(kernel.body):
            if isinstance(stmt, simt.Role):
                cuts |= {stmt.start, stmt.start + stmt.extent}
    for stmt in statements(kernel.body):
        if isinstance(stmt, st.If) and waits(stmt):
            pieces = ranges.split(stmt.cond, 0, count)
            if pieces is not None and len(pieces) > 1:
                cuts |= {start for start, _, _ in pieces}
    places = sorted(cuts)
    return [Scope(start, stop - start) for start, stop in pairwise(places)]


@dataclass(slots=True)
class Specialised:
    """What all groups have in common, and the code of each."""

    common: list[st.Stmt]
    bodies: list[st.Stmt]


def specialise(
    kernel: st.Kernel, groups: list[Scope], ranges: ThreadRanges, block: Block
) -> Specialised:
    """The code of `kernel` for each of its `groups`."""
    meetings = {
        id(stmt): HIDDEN + number
        for number, stmt in enumerate(
            stmt for stmt in statements(kernel.body) if isinstance(stmt, _TOGETHER)
        )
    }
    common = [stmt for stmt in statements(kernel.body) if _is_common(stmt)]
    (count,) = kernel.threads
    bodies = []
    for group in groups:
        writer = _Specialiser(group, ranges, meetings, count)
        body = writer.visit(kernel.body, Scope(0, count))
        bodies.append(with_new_names(body, block.names.fresh))
    return Specialised(common, bodies)


def _is_common(stmt: st.Stmt) -> bool:
    return isinstance(stmt, st.Alias | simt.BarrierInit) or (
        isinstance(stmt, st.Alloc) and stmt.buffer.scope in _COMMON
    )


class _Specialiser:
    def __init__(
        self, group: Scope, ranges: ThreadRanges, meetings: dict[int, int], count: int
    ) -> None:
        self.group = group
        self.ranges = ranges
        self.meetings = meetings
        self.count = count

    def visit(self, stmt: st.Stmt, scope: Scope) -> st.Stmt:
        """`stmt`, which the threads of `scope` execute, for this group."""
        if _is_common(stmt):
            return st.Seq(())
        if isinstance(stmt, _TOGETHER):
            return self.together(stmt, scope)
        match stmt:
            case simt.Role(start, extent, body):
                return self.role(body, scope.narrowed(start, extent))
            case st.If(cond, then, orelse):
                pieces = self.ranges.split(cond, self.group.start, self.group.extent)
                whole = self.ranges.split(cond, scope.start, scope.extent)
                if pieces is not None and len(pieces) == 1 and whole is not None:
                    side = then if pieces[0][2] else orelse
                    inner = _part(whole, self.group, scope)
                    return st.Seq(()) if side is None else self.visit(side, inner)
            case simt.Barrier():
                return replace(stmt, count=stmt.count or self.count)
            case st.Seq(stmts):
                return st.seq([self.visit(child, scope) for child in stmts])
        return stmt.map_children(
            lambda child: self.visit(child, scope) if isinstance(child, st.Stmt) else child
        )

    def role(self, body: st.Stmt, scope: Scope) -> st.Stmt:
        stop = scope.start + scope.extent
        if self.group.start >= stop or self.group.start + self.group.extent <= scope.start:
            return st.Seq(())
        return self.visit(body, scope)

    def together(self, stmt: st.Stmt, scope: Scope) -> st.Stmt:
        """A tile operator: by this group alone, or by the first of several."""
        if scope.extent <= self.group.extent:
            return stmt
        barrier = simt.Barrier(self.meetings[id(stmt)], scope.extent, site=stmt.site)
        if scope.start == self.group.start:
            return st.Seq((barrier, stmt, barrier))
        return st.Seq((barrier, barrier))


def _part(whole: list[tuple[int, int, bool]], group: Scope, scope: Scope) -> Scope:
    """The threads of `scope` that take the same side of a branch as `group`, when they are a range
    around it.
    """
    for start, extent, _ in whole:
        if start <= group.start < start + extent:
            return scope.narrowed(start, extent)
    return scope
