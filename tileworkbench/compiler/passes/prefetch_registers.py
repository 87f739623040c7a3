"""Copies that run ahead go through registers, where no engine copies from global to shared memory.

A thread that stores what it loads waits for the load at once. So a copy that works on a later
iteration becomes two: the load comes first in the step, and the store comes last, behind the
products that hide its latency. The tile needs one version less: its old values have been read when
the store comes.

An engine that fills tiles by whole warps (gfx950) takes the copies that suit it, where shared
memory has room for the version more.

Before::

    for k in T.Pipelined(32, num_stages=2, order=(0, 1), stage=(0, 1)):
        T.copy(A[0:128, k * 32:k * 32 + 32], A_shared)
        T.gemm(A_shared, B_shared, C_local)

After::

    for k in T.Pipelined(32, num_stages=2, order=(0, 2, 1), stage=(0, 0, 1)):
        A_ahead = T.alloc_fragment((128, 32), "float16")
        T.copy(A[0:128, k * 32:k * 32 + 32], A_ahead)
        T.copy(A_ahead, A_shared)
        T.gemm(A_shared, B_shared, C_local)
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Region
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alloc, Kernel, Stmt, declares, items, seq
from tileworkbench.compiler.ir.tile import Copy, Pipelined
from tileworkbench.compiler.lower.threads.copies_in_line import engine_of, suits
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.schedule.pipelines import Item, schedule_of
from tileworkbench.compiler.schedule.versions import needed_versions
from tileworkbench.compiler.target import Target

_LEAST_BITS = 8  # smaller elements share a register's byte


@optional("overlap: loads to registers are waited for at once")
@dataclass(frozen=True, slots=True)
class PrefetchRegisters:
    """Split the copies of pipelined loops that run ahead into a load and a store, but for those
    that an engine takes.
    """

    target: Target

    def __call__(self, program: Program) -> Program:
        names, taken = Names(program), self._taken(program)

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Pipelined) or not stmt.stage:
                return stmt
            return _split(stmt, names, taken)

        return with_body(program, Rewriter(rewrite_stmt=change)(program.body))

    def _taken(self, program: Program) -> frozenset[int]:
        """The copies that the engine does, by identity: all that suit it, where the tiles in their
        versions fit into shared memory, else none.
        """
        machine, ranges = self.target.machine, Ranges(program)
        if engine_of(machine) is None:
            return frozenset()
        taken: set[int] = set()
        for kernel in (stmt for stmt in statements(program.body) if isinstance(stmt, Kernel)):
            if _shared_bytes(kernel, program) <= machine.shared.most:
                threads = prod(kernel.threads)
                copies = (stmt for stmt in statements(kernel.body) if isinstance(stmt, Copy))
                taken |= {id(op) for op in copies if suits(op, machine, threads, ranges)}
        return frozenset(taken)


def _shared_bytes(kernel: Kernel, program: Program) -> int:
    """The bytes of all tiles of a kernel, in as many versions as its loops as they are need."""
    versions: dict[Buffer, int] = {}
    for loop in statements(kernel.body):
        if isinstance(loop, Pipelined) and loop.stage:
            versions |= needed_versions(loop, program)
    tiles = (stmt.buffer for stmt in statements(kernel.body) if isinstance(stmt, Alloc))
    return sum(
        versions.get(tile, 1) * prod(const_shape(tile) or ()) * tile.dtype.bits // 8
        for tile in tiles
        if tile.scope == "shared"
    )


def _split(loop: Pipelined, names: Names, taken: frozenset[int]) -> Pipelined:
    schedule = schedule_of(loop, {})
    ahead = [item for item in schedule if id(item.stmt) not in taken and _is_ahead(item, schedule)]
    if not ahead:
        return loop
    stmts: list[Stmt] = []
    places: list[tuple[int, int, int]] = []  # of what is scheduled: rank, former place, stage
    scheduled = iter(schedule)
    for stmt in items(loop.body):
        if declares(stmt):
            stmts.append(stmt)
            continue
        item = next(scheduled)
        if isinstance(stmt, Copy) and item in ahead:
            tile = _registers(stmt, names)
            here = Region(tile, tuple(int_const(0) for _ in tile.shape), tile.shape)
            load, store = replace(stmt, dst=here), replace(stmt, src=here, coalesced_width=None)
            stmts += [Alloc(tile, site=stmt.site), load, store]
            places += [(0, item.order, item.stage), (1, item.order, item.stage)]
        else:
            stmts.append(stmt)
            places.append((0, item.order, item.stage))
    order = [0] * len(places)
    for place, at in enumerate(sorted(range(len(places)), key=lambda at: places[at][:2])):
        order[at] = place
    return replace(
        loop, body=seq(stmts), order=tuple(order), stage=tuple(stage for _, _, stage in places)
    )


def _is_ahead(item: Item, schedule: list[Item]) -> bool:
    """Whether the statement copies from global memory to a tile that only later stages use."""
    stmt = item.stmt
    if not isinstance(stmt, Copy) or stmt.src.buffer.scope != "global":
        return False
    tile = stmt.dst.buffer
    users = [each for each in schedule if each is not item and tile in each.effects.reads]
    return (
        tile.scope == "shared"
        and stmt.src.buffer.dtype.bits >= _LEAST_BITS
        and all(const_int(extent) is not None for extent in stmt.dst.extents)
        and bool(users)
        and all(user.stage > item.stage for user in users)
    )


def _registers(copy: Copy, names: Names) -> Buffer:
    """A tile in registers for what the copy loads, before it is converted."""
    name = names.fresh(f"{copy.src.buffer.name}_ahead")
    return Buffer(name, copy.src.buffer.dtype, copy.dst.extents, "local.fragment")
