"""A warpgroup of its own starts the copies of a loop whose products are those of warpgroups.

The threads of the kernel do what they did, without these copies. One thread of a further warpgroup
behind them, the producer, runs ahead as far as there is room; one lane of each other warp signals
when there is. Registers that the producer does not need go to the others. Of two products in an
iteration the last one runs beside the next iteration (`schedule/overlap`).

Before::

    for k in T.Pipelined(8, num_stages=3, order=(0, 1, 2, 3), stage=(0, 2, 2, 2)):
        if tx == 0:
            T.tensor_load(T.address_of(A_shared[0, 0]), T.address_of(A_map[0, k * 64]))
        with T.started("wgmma"):
            T.wgmma(T.address_of(A_shared[0, 0]), ...)
        T.commit_group(engine="wgmma")
        T.wait_group(pending=0, engine="wgmma")

After::

    with T.threads(128, 128):
        if tx == 128:
            for k in T.serial(8):
                T.barrier_wait(T.address_of(emptied[k % 3]), T.int32(k % 6 < 3))
                T.barrier_signal(T.address_of(filled[k % 3]), arrivals=1, bytes_=16384)
                with T.started("tma", T.address_of(filled[k % 3])):
                    T.tensor_load(T.address_of(A_shared[k % 3, 0, 0]), ...)
    with T.threads(0, 128):
        for k in T.serial(8):
            T.barrier_wait(T.address_of(filled[k % 3]), T.int32(k % 6 >= 3))
            with T.started("wgmma"):
                T.wgmma(T.address_of(A_shared[k % 3, 0, 0]), ...)
            T.commit_group(engine="wgmma")
            T.wait_group(pending=1, engine="wgmma")
            if k > 0:
                if tx % 32 == 0:
                    T.barrier_arrive(T.address_of(emptied[(k - 1) % 3]))
        T.wait_group(pending=0, engine="wgmma")
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import binary, int_const
from tileworkbench.compiler.ir.expr import Buffer, Load
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.renaming import with_new_names
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, walk, with_body
from tileworkbench.compiler.ir.simt import (
    Barrier,
    BarrierInit,
    Role,
    SetRegisters,
    TensorMap,
)
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    If,
    Kernel,
    Let,
    Stmt,
    items,
    seq,
)
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.passes.expand_pipelines import expand_pipelines
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.schedule import warpgroups
from tileworkbench.compiler.schedule.handover_loops import HandoverLoops
from tileworkbench.compiler.schedule.handovers import (
    LoopPlan,
    Unsuitable,
    plan_of,
    products,
)
from tileworkbench.compiler.schedule.lifetimes import place, timeline
from tileworkbench.compiler.schedule.producers import producer_of
from tileworkbench.compiler.target import Target


@optional("copies are started by the threads that multiply")
@dataclass(frozen=True, slots=True)
class SpecializeWarps:
    """Give the copies of pipelined products of warpgroups to a warpgroup of their own."""

    target: Target

    def __call__(self, program: Program) -> Program:
        names, notes = Names(program), list[str]()

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            loops = list(products(stmt.body))
            try:
                if not loops:
                    return stmt
                work = _Specialization(stmt, program, self.target, names)
                made = work.run()
                said = {at: _division(made) + _products(plan) for at, plan in work.plans.items()}
            except Unsuitable as reason:
                text = f"its threads start the copies, too, because {reason}"
                made, said = stmt, {id(loop): text for loop, _ in loops}
            notes.extend(_note(loop, said[id(loop)], program) for loop, _ in loops)
            return made

        body = Rewriter(rewrite_stmt=change)(program.body)
        return replace(program, body=body, notes=(*program.notes, *notes)) if notes else program


def _note(loop: Pipelined, said: str, program: Program) -> str:
    span = program.span(loop.site)
    return f"loop '{loop.var.name}': {said}{f' (T.Pipelined, line {span.line})' if span else ''}"


def _division(kernel: Kernel) -> str:
    """Who does what in a kernel with a producer."""
    roles = [stmt for stmt in items(kernel.body) if isinstance(stmt, Role)]
    texts = []
    for role, what in zip(roles[::-1], ("multiply", "start the copies"), strict=False):
        counts = [s.count for s in items(role.body) if isinstance(s, SetRegisters)]
        registers = f", of {counts[0]} registers," if counts else ""
        texts.append(f"threads {role.start} to {role.start + role.extent - 1}{registers} {what}")
    return "; ".join(texts)


def _products(plan: LoopPlan) -> str:
    """Whether products go on while threads do something else."""
    if plan.overlap is None:
        return f"; they wait for each product, because {plan.apart}" if plan.apart else ""
    turns = ", warpgroups in turn" if plan.turn is not None else ""
    return f"; the last product of an iteration goes on during the next one{turns}"


class _Specialization:
    """A kernel with roles. Raises `Unsuitable`."""

    def __init__(self, kernel: Kernel, program: Program, target: Target, names: Names) -> None:
        self.kernel, self.program, self.machine = kernel, program, target.machine
        self.names, self.threads = names, kernel.threads[0]
        self.loops = HandoverLoops(kernel.thread_vars[0], self.machine.lanes, names)
        self.tiles: dict[Buffer, Buffer] = {}  # in versions
        self.plans: dict[int, LoopPlan] = {}

    def run(self) -> Kernel:
        """The kernel with a producer behind its own threads."""
        kernel, machine = self.kernel, self.machine
        warpgroups.check(kernel, machine)
        maps = {
            stmt.buffer: stmt for stmt in statements(kernel.body) if isinstance(stmt, TensorMap)
        }
        loops: dict[int, Stmt] = {}
        for loop, repeated in products(kernel.body):
            warps = self.threads // machine.lanes
            plan = plan_of(loop, kernel, self.program, maps, repeated, warps, self.names.fresh)
            plan = warpgroups.overlapped(plan, kernel, machine, self.names.fresh)
            self.plans[id(loop)] = plan
            self.tiles.update(plan.tiles)
            loops[id(loop)] = self.loops.of_producer(loop, plan)
        counters = {each for plan in self.plans.values() for each in plan.counters}
        producer = with_new_names(producer_of(kernel, loops, counters), self.names.fresh)
        shared, consumer = _parted(self.consumer())
        group = WARPGROUP_WARPS * machine.lanes
        alone = binary("eq", kernel.thread_vars[0], int_const(self.threads))
        both: list[list[Stmt]] = [consumer, [If(alone, producer, site=kernel.site)]]
        divided = warpgroups.registers(kernel, machine)
        if divided is not None:
            fewer, more = divided
            both[0].insert(0, SetRegisters(more, True, site=kernel.site))
            both[1].insert(0, SetRegisters(fewer, False, site=kernel.site))
        roles = [
            Role(self.threads, group, seq(both[1]), site=kernel.site),
            Role(0, self.threads, seq(both[0]), site=kernel.site),
        ]
        body = seq([*self.made(), *shared, *roles])
        made = replace(kernel, threads=(self.threads + group,), body=body)
        self.check_memory(made)
        return made

    def made(self) -> Iterator[Stmt]:
        """Tiles and memory barriers, which both roles know."""
        for stmt in statements(self.kernel.body):
            if isinstance(stmt, Alloc) and stmt.buffer in self.tiles:
                yield replace(stmt, buffer=self.tiles[stmt.buffer])
        for plan in self.plans.values():
            yield from (Alloc(each, int_const(0)) for each in plan.counters)
            for each in plan.handovers:
                yield from each.filled.initialised()
                yield from each.emptied.initialised()
            if plan.turn is not None:
                yield from plan.turn.initialised()

    def check_memory(self, kernel: Kernel) -> None:
        """What one role uses is there as long as the other one runs."""
        program = expand_pipelines(with_body(self.program, kernel))
        limit = self.machine.shared.most
        for stmt in statements(program.body):
            if isinstance(stmt, Kernel):
                _, used = place(timeline(stmt, program).lives)
                if used > limit:
                    raise Unsuitable(f"apart, they need {used} of {limit} bytes of shared memory")

    def consumer(self) -> Stmt:
        """The kernel without the copies that a producer starts."""

        def change(stmt: Stmt) -> Stmt:
            match stmt:
                case Pipelined() if id(stmt) in self.plans:
                    return self.loops.of_users(stmt, self.plans[id(stmt)])
                case Alloc(buffer) if buffer in self.tiles:
                    return seq([])
                case Barrier(count=0):
                    return replace(stmt, count=self.threads)
            made = stmt.map_children(
                lambda child: change(child) if isinstance(child, Stmt) else child
            )
            return seq(items(made)) if made is not stmt else made

        return change(self.kernel.body)


def _parted(body: Stmt) -> tuple[list[Stmt], list[Stmt]]:
    """What both roles know, and what one of them does."""
    known: list[Stmt] = []
    own: list[Stmt] = []
    for stmt in items(body):
        is_known = isinstance(stmt, TensorMap | BarrierInit) or (
            isinstance(stmt, Alloc) and (stmt.init is None or not own)
        )
        plain = isinstance(stmt, Let | Alias) and not any(isinstance(n, Load) for n in walk(stmt))
        (known if is_known or (plain and not own) else own).append(stmt)
    return known, own
