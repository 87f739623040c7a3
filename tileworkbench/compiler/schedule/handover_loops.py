"""The loops of those who hand tiles over and of those who use them (`schedule/handovers`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import (
    TRUE,
    add,
    all_lanes,
    binary,
    cast,
    const,
    int_const,
    sub,
)
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.simt import (
    BarrierArrive,
    BarrierWait,
    Engine,
    WaitGroup,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import Alias, Alloc, If, Let, Stmt, items, seq
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.schedule.handovers import Handover, LoopPlan
from tileworkbench.compiler.schedule.overlap import Overlap, lets_of
from tileworkbench.compiler.schedule.producers import with_lets
from tileworkbench.compiler.schedule.rings import Ring, started
from tileworkbench.compiler.schedule.versions import with_versions


@dataclass(frozen=True, slots=True)
class HandoverLoops:
    """Builds these loops. `thread` is the index of a thread in its block, `lanes` the threads of a
    warp.
    """

    thread: Expr
    lanes: int
    names: Names

    def of_users(self, loop: Pipelined, plan: LoopPlan) -> Stmt:
        """Each version is waited for in front of its first use, and released behind its last."""
        distance = sub(loop.var, loop.start)
        lets, versions = self.versions(plan, distance, loop)
        stmts: list[Stmt] = []
        for at, stmt in enumerate(plan.stmts):
            if plan.overlap is not None and at >= plan.overlap.last:
                break
            stmts += self.before(at, plan, loop, distance)
            if plan.batches_follow and isinstance(stmt, WaitGroup):
                stmts.append(replace(stmt, pending=1))
            elif plan.overlap is not None and at == plan.overlap.joined:
                stmts.append(self.joined(stmt, plan, loop, distance))
            else:
                stmts.append(stmt)
            for each in plan.handovers:
                if each.last == at:
                    stmts += self.release(each, plan, loop, distance)
        if plan.overlap is not None and plan.overlap.needed == plan.overlap.last:
            stmts += self.needed(plan.overlap, plan, loop, distance)
        made = [stmt for stmt in plan.stmts if isinstance(stmt, Alloc | Alias)]
        before = [stmt for stmt in made if stmt.buffer not in plan.tiles]
        body = seq([*lets, *(stmt for stmt in stmts if not isinstance(stmt, Alloc | Alias))])
        body = with_versions(body, plan.tiles, lambda tile: versions[tile])
        repeated = counting(loop.var, loop.stop, body, loop.site, loop.start)
        return seq([*before, repeated, *self.end(loop, plan), *plan.end(loop)])

    def before(self, at: int, plan: LoopPlan, loop: Pipelined, distance: Expr) -> Iterator[Stmt]:
        """What the statement `at` waits for."""
        overlap = plan.overlap
        if overlap is not None and overlap.needed == at:
            yield from self.needed(overlap, plan, loop, distance)
        yield from self.filled(at, plan, distance)
        if overlap is not None and plan.turn is not None and overlap.before == at:
            yield self.taken(plan.turn, distance, loop)

    def filled(self, at: int, plan: LoopPlan, distance: Expr) -> Iterator[Stmt]:
        """The tiles that the statement `at` is the first to use."""
        for each in plan.handovers:
            if each.first == at:
                place, parity = each.filled.place(distance), each.filled.parity(distance)
                yield BarrierWait(place, parity, site=each.loads[0].site)

    # A product that goes on during the next iteration

    def joined(self, wait: Stmt, plan: LoopPlan, loop: Pipelined, distance: Expr) -> Stmt:
        """The wait for the first product of this iteration. Except in the first iteration, the last
        product of the iteration before is started in front of it, and still runs behind it.
        """
        assert isinstance(wait, WaitGroup)
        given = list(self.given(plan, loop))
        last = self.late(plan, loop, sub(distance, const(1, distance.dtype)))
        then = seq([*last, *given, replace(wait, pending=1)])
        first = seq([*given, wait])
        return If(binary("gt", loop.var, loop.start), then, first, site=wait.site)

    def late(self, plan: LoopPlan, loop: Pipelined, distance: Expr) -> Sequence[Stmt]:
        """The start of the last product of the iteration that is `distance` behind the loop's
        start.
        """
        overlap = plan.overlap
        assert overlap is not None
        product = plan.stmts[overlap.last : overlap.end]
        code = seq([*lets_of(plan.stmts, overlap.last), *product])
        code = substitute(code, {loop.var: add(distance, loop.start)})
        index = {
            load.dst.buffer: e.filled.index(distance) for e in plan.handovers for load in e.loads
        }
        code = with_versions(code, plan.tiles, lambda tile: index[tile])
        return items(with_new_names(code, self.names.fresh))

    def needed(
        self, overlap: Overlap, plan: LoopPlan, loop: Pipelined, distance: Expr
    ) -> Iterator[Stmt]:
        """The wait for the last product of the iteration before, and the release of its tiles. The
        wait for the tiles of this iteration's last product comes first: compilers move arithmetic
        behind a wait for products, but not behind a wait for a memory barrier.
        """
        yield from self.filled(overlap.last, plan, distance)
        wait = plan.stmts[overlap.end]
        yield wait
        before = sub(distance, const(1, distance.dtype))
        released = seq(list(self.ended(plan, before)))
        if items(released):
            yield If(binary("gt", loop.var, loop.start), released, site=wait.site)

    def ended(self, plan: LoopPlan, distance: Expr) -> Iterator[Stmt]:
        """The release of the tiles whose last use is the last product."""
        assert plan.overlap is not None
        for each in plan.handovers:
            if each.last == plan.overlap.end:
                yield from self.released(each, distance)

    # Warpgroups in turn

    def taken(self, turn: Ring, distance: Expr, loop: Pipelined) -> Stmt:
        """The wait for a turn: a warpgroup starts its products after the warpgroup before it has.
        The first warpgroup comes after the last one's products of the iteration before.
        """
        first = cast(binary("eq", self.group(turn), int_const(0)), distance.dtype)
        count = add(turn.count(distance), first)
        parity = cast(binary("floormod", count, const(2, count.dtype)), INT32)
        return BarrierWait(Address(turn.buffer, (self.group(turn),)), parity, site=loop.site)

    def given(self, plan: LoopPlan, loop: Pipelined) -> Iterator[Stmt]:
        """Each warp passes the turn on to the next warpgroup."""
        turn = plan.turn
        if turn is None:
            return
        after = add(self.group(turn), int_const(1))
        after = binary("floormod", after, int_const(turn.number))
        arrival = BarrierArrive(Address(turn.buffer, (after,)), site=loop.site)
        yield If(self.is_first_lane(), arrival, site=loop.site)

    def group(self, turn: Ring) -> Expr:
        """The warpgroup of the thread."""
        return binary("floordiv", self.thread, int_const(turn.arrivals * self.lanes))

    def is_first_lane(self) -> Expr:
        """Whether the thread is the first one of its warp."""
        lane = binary("floormod", self.thread, int_const(self.lanes))
        return binary("eq", lane, int_const(0))

    # Versions released

    def release(
        self, handover: Handover, plan: LoopPlan, loop: Pipelined, distance: Expr
    ) -> Iterator[Stmt]:
        """The release of a version behind its last use. Where batches of products follow each
        other, the wait in front was for the batch before, so its version is released.
        """
        if not plan.batches_follow:
            yield from self.released(handover, distance)
            return
        before = sub(distance, const(1, distance.dtype))
        released = seq(list(self.released(handover, before)))
        yield If(binary("gt", loop.var, loop.start), released, site=handover.loads[0].site)

    def end(self, loop: Pipelined, plan: LoopPlan) -> Iterator[Stmt]:
        """Behind the loop: the wait for the last batch, and the release of its versions if the loop
        may be executed again.
        """
        last = sub(sub(loop.stop, loop.start), const(1, loop.var.dtype))
        if plan.overlap is not None:
            wait = plan.stmts[plan.overlap.end]
            released = self.ended(plan, last) if plan.counters else ()
            late = seq([*self.late(plan, loop, last), wait, *released])
            some = binary("gt", loop.stop, loop.start)
            yield late if some is TRUE else If(some, late, site=wait.site)
        if not plan.batches_follow:
            return
        yield WaitGroup(0, Engine.WGMMA, site=loop.site)
        releases = [s for each in plan.handovers for s in self.released(each, last)]
        if plan.counters:
            yield If(binary("gt", loop.stop, loop.start), seq(releases), site=loop.site)

    def released(self, handover: Handover, distance: Expr) -> Iterator[Stmt]:
        """The release of a version: one lane arrives for its warp, when all its lanes have read."""
        site = handover.loads[0].site
        if handover.by_threads:
            yield WarpBarrier(all_lanes(self.lanes), site=site)
        arrival = BarrierArrive(handover.emptied.place(distance), site=site)
        yield If(self.is_first_lane(), arrival, site=site)

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
