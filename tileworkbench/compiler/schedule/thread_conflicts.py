"""Accesses of different threads that may touch one byte and have to be ordered, by whatever means.

Buffers in one place are one memory. Accesses to a ring of versions conflict where the versions may
be equal.
"""

from __future__ import annotations

from collections import Counter

from tileworkbench.compiler.analysis.dataflow import effects_of
from tileworkbench.compiler.analysis.effects import owners, written
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alias, Alloc, For, Kernel, Stmt, While
from tileworkbench.compiler.schedule.lifetimes import shared_bytes
from tileworkbench.compiler.schedule.thread_accesses import (
    ThreadAccess,
    ThreadAccesses,
    iterations_apart,
    same_version,
)


class ThreadConflicts:
    """The conflicts of one kernel; `lanes` are the threads of a warp."""

    def __init__(self, kernel: Kernel, ranges: Ranges, lanes: int) -> None:
        self.kernel, self.ranges, self.lanes = kernel, ranges, lanes
        self.places = self.arena()
        self.accesses = ThreadAccesses(kernel, ranges, frozenset(self.places))
        self.found: dict[int, tuple[ThreadAccess, ...]] = {}

    def arena(self) -> dict[Buffer, tuple[str, int, int]]:
        """Where each buffer is that threads exchange data through: memory, first byte and end."""
        places: dict[Buffer, tuple[str, int, int]] = {}
        body = self.kernel.body
        for stmt in statements(body):
            if isinstance(stmt, Alloc) and stmt.buffer.scope == "shared":
                start, memory = stmt.offset or 0, "shared"
                if stmt.offset is None:  # without a place yet: apart from all others
                    memory = stmt.buffer.name
                places[stmt.buffer] = (memory, start, start + shared_bytes(stmt.buffer))
        sources = owners(body)
        effects = effects_of(body)
        times = Counter(buffer for stmt in statements(body) for buffer in written(stmt))
        again = {buffer for buffer, count in times.items() if count > 1}
        for buffer in sorted(effects.writes & (effects.reads | again), key=lambda b: b.name):
            if buffer.scope == "global":
                places[buffer] = (buffer.name, 0, 1)
        for stmt in statements(body):
            if isinstance(stmt, Alias) and sources[stmt.buffer] in places:
                places[stmt.buffer] = places[sources[stmt.buffer]]
        return places

    def own(self, stmt: Stmt) -> tuple[ThreadAccess, ...]:
        """The accesses of the expressions of `stmt` itself, which `of` lists first."""
        return self.of(stmt)[: len(self.accesses.own(stmt))]

    def of(self, stmt: Stmt) -> tuple[ThreadAccess, ...]:
        """The accesses of `stmt` and everything below it."""
        known = self.found.get(id(stmt))
        if known is None:
            known = self.found[id(stmt)] = self.accesses.of(stmt)
        return known

    def conflict(
        self, before: list[ThreadAccess], accesses: tuple[ThreadAccess, ...]
    ) -> tuple[ThreadAccess, ThreadAccess] | None:
        """The first of `before` and of `accesses` that conflict, None where none do."""
        pairs = ((one, access) for access in accesses for one in before)
        return next((pair for pair in pairs if self.conflicts(*pair)), None)

    def conflicts(self, a: ThreadAccess, b: ThreadAccess) -> bool:
        """Whether different threads may touch one byte, one of them writing."""
        if not (a.write or b.write) or (a.atomic and b.atomic):
            return False
        if a.asynchronous and b.asynchronous and a.write and b.write:
            return False
        memory, start, end = self.places[a.buffer]
        other, other_start, other_end = self.places[b.buffer]
        if memory != other or start >= other_end or other_start >= end:
            return False
        if a.buffer is not b.buffer:
            return True
        versions = (a.version, b.version)
        if None not in versions and same_version(*versions, self.ranges) is False:  # type: ignore[arg-type]
            return False
        same = [
            x is y or same_version(x, y, self.ranges) for x, y in zip(a.base, b.base, strict=True)
        ]
        group = self.lanes if a.warps_met or b.warps_met else 1
        known = [(a.rows, b.rows)] if same[0] else []
        known += [(a.owners, b.owners)] if all(same) else []
        return all(
            first is None or second is None or first.conflict(second, group)
            for first, second in known
        )

    def reach(self, loop: For | While) -> int:
        """How many iterations back the accesses lie that may conflict with those of now, as far
        as versions tell.
        """
        if isinstance(loop, While):
            return 1
        return iterations_apart(self.of(loop.body), loop.var, self.ranges)
