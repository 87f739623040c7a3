"""The loops of those who hand tiles over and of those who use them (`schedule/handovers`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.build import all_lanes, binary, const, int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.simt import (
    BarrierArrive,
    BarrierWait,
    Engine,
    WaitGroup,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import Alias, Alloc, If, Let, Stmt, items, seq
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.handovers import Handover, LoopPlan
from tileworkbench.compiler.schedule.producers import with_lets
from tileworkbench.compiler.schedule.rings import started
from tileworkbench.compiler.schedule.versions import with_versions


@dataclass(frozen=True, slots=True)
class HandoverLoops:
    """Makes them in a kernel of warps of `lanes`, whose `thread` is the index of a thread."""

    thread: Expr
    lanes: int
    names: Names

    def of_users(self, loop: Pipelined, plan: LoopPlan) -> Stmt:
        """Each version is waited for in front of its first use, and released behind its last."""
        distance = sub(loop.var, loop.start)
        lets, versions = self.versions(plan, distance, loop)
        stmts: list[Stmt] = []
        for at, stmt in enumerate(plan.stmts):
            for each in plan.handovers:
                if each.first == at:
                    place, parity = each.filled.place(distance), each.filled.parity(distance)
                    stmts.append(BarrierWait(place, parity, site=each.loads[0].site))
            if plan.batches_follow and isinstance(stmt, WaitGroup):
                stmts.append(replace(stmt, pending=1))
            else:
                stmts.append(stmt)
            for each in plan.handovers:
                if each.last == at:
                    stmts += self.release(each, plan, loop, distance)
        made = [stmt for stmt in stmts if isinstance(stmt, Alloc | Alias)]
        before = [stmt for stmt in made if stmt.buffer not in plan.tiles]
        body = seq([*lets, *(stmt for stmt in stmts if not isinstance(stmt, Alloc | Alias))])
        body = with_versions(body, plan.tiles, lambda tile: versions[tile])
        repeated = counting(loop.var, loop.stop, body, loop.site, loop.start)
        return seq([*before, repeated, *self.end(loop, plan), *plan.end(loop)])

    def release(
        self, handover: Handover, plan: LoopPlan, loop: Pipelined, distance: Expr
    ) -> Iterator[Stmt]:
        """Behind a wait for the batch before this one, of the version of that."""
        if not plan.batches_follow:
            yield from self.released(handover, distance)
            return
        before = sub(distance, const(1, distance.dtype))
        released = seq(list(self.released(handover, before)))
        yield If(binary("gt", loop.var, loop.start), released, site=handover.loads[0].site)

    def end(self, loop: Pipelined, plan: LoopPlan) -> Iterator[Stmt]:
        """Behind the loop: the last batch, and the release of its versions if anybody waits."""
        if not plan.batches_follow:
            return
        yield WaitGroup(0, Engine.WGMMA, site=loop.site)
        last = sub(sub(loop.stop, loop.start), const(1, loop.var.dtype))
        releases = [s for each in plan.handovers for s in self.released(each, last)]
        if plan.counters:
            yield If(binary("gt", loop.stop, loop.start), seq(releases), site=loop.site)

    def released(self, handover: Handover, distance: Expr) -> Iterator[Stmt]:
        """One lane says so for its warp, all of which has read what it reads itself."""
        site = handover.loads[0].site
        if handover.by_threads:
            yield WarpBarrier(all_lanes(self.lanes), site=site)
        lane = binary("floormod", self.thread, int_const(self.lanes))
        arrival = BarrierArrive(handover.emptied.place(distance), site=site)
        yield If(binary("eq", lane, int_const(0)), arrival, site=site)

    def of_producer(self, loop: Pipelined, plan: LoopPlan) -> Stmt:
        """Each copy is started as soon as its version is free."""
        distance = sub(loop.var, loop.start)
        lets, versions = self.versions(plan, distance, loop)
        stmts: list[Stmt] = []
        for each in plan.handovers:
            site = each.loads[0].site
            empty, parity = each.emptied.place(distance), each.emptied.parity(distance, True)
            stmts.append(BarrierWait(empty, parity, site=site))
            copies = seq(list(each.loads))
            stmts.append(started(copies, each.filled.place(distance), each.bytes_, site))
        body = with_versions(seq(stmts), plan.tiles, lambda tile: versions[tile])
        row = [*(stmt for stmt in items(loop.body) if isinstance(stmt, Let)), *lets, body]
        made = [stmt if stmt is body else None for stmt in row]
        body = with_lets(row, made) or body
        return seq([counting(loop.var, loop.stop, body, loop.site, loop.start), *plan.end(loop)])

    def versions(
        self, plan: LoopPlan, distance: Expr, loop: Pipelined
    ) -> tuple[list[Stmt], dict[Buffer, Expr]]:
        """Names for the version of each tile."""
        lets: dict[Expr, Let] = {}
        versions: dict[Buffer, Expr] = {}
        for each in plan.handovers:
            index = each.filled.index(distance)
            if index not in lets:
                lets[index] = Let(self.names.var("version", index.dtype), index, site=loop.site)
            versions.update({load.dst.buffer: lets[index].var for load in each.loads})
        return list(lets.values()), versions
