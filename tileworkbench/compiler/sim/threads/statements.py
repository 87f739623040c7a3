"""Programs that run thread by thread: the statements of a kernel as closures over all threads of a
block, or as code for strands where they can block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.effects import written_below
from tileworkbench.compiler.diagnostics import empty_grid
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.program import Program, Stage
from tileworkbench.compiler.ir.rewrite import statements, variables
from tileworkbench.compiler.sim.control import Execute, branch, counted_loop, while_loop
from tileworkbench.compiler.sim.expressions import Evaluate
from tileworkbench.compiler.sim.flights import translate_fence, translate_start
from tileworkbench.compiler.sim.memory import Storage, allocate, memory_at
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.pipeline.trace import TraceRecorder
from tileworkbench.compiler.sim.printing import print_lines
from tileworkbench.compiler.sim.statements import StatementTranslator
from tileworkbench.compiler.sim.threads import (
    barriers,
    boxes,
    copies,
    matrix,
    mbarriers,
    phases,
    wgmma,
)
from tileworkbench.compiler.sim.threads.arena import ArenaStorage
from tileworkbench.compiler.sim.threads.collective import different_values, translate_collective
from tileworkbench.compiler.sim.threads.exchange import translate_exchange
from tileworkbench.compiler.sim.threads.launch import Launch
from tileworkbench.compiler.sim.threads.multicasts import is_multicast, unfolded
from tileworkbench.compiler.sim.threads.peers import noting_when, translate_peer
from tileworkbench.compiler.sim.threads.plan import KernelPlan, plan_kernel
from tileworkbench.compiler.sim.threads.register_file import translate_set_registers
from tileworkbench.compiler.sim.threads.registers import LaneStorage
from tileworkbench.compiler.sim.threads.strands import (
    Blocking,
    Branch,
    Code,
    ConditionLoop,
    CountedLoop,
    Meet,
    Part,
    Parting,
    RolePart,
    Sequence,
    agreed,
)
from tileworkbench.compiler.sim.threads.tensors import ThreadTensor
from tileworkbench.compiler.sim.values import storage_dtype

_MATRICES: dict[type[st.Stmt], Any] = {
    simt.LoadMatrix: matrix.translate_load,
    simt.LoadTurned: matrix.translate_turned,
    simt.StoreMatrix: matrix.translate_store,
    simt.Mma: matrix.translate_mma,
    simt.Wgmma: wgmma.translate_wgmma,
}
BLOCKING = (
    *(simt.Barrier, simt.WarpBarrier, simt.GridBarrier, simt.ClusterBarrier, simt.ClusterWait),
    *(simt.BarrierWait, simt.SetRegisters),
)
_SPECIAL = (st.LoopKind.VECTORIZED, st.LoopKind.BLOCKS)
_AROUND = (st.Seq, st.For, st.While, tile.Pipelined, simt.Start)
_COMPOUND = (st.If, st.For, st.While, tile.Pipelined, simt.Role)


def runs_by_threads(program: Program) -> bool:
    """Whether `program` says what each thread does."""
    if program.stage is Stage.SIMT:
        return True
    return any(
        isinstance(stmt, (*simt.THREAD_LEVEL, *simt.ASYNCHRONOUS, *simt.LOWERED))
        or (isinstance(stmt, st.Kernel) and bool(stmt.thread_vars))
        for stmt in statements(program.body)
    )


class ThreadTranslator(StatementTranslator):
    """Turns the statements of a program into closures: those of its kernels over all threads."""

    by_predicate = True

    def __init__(
        self,
        program: Program,
        trace: TraceRecorder | None = None,
        observers: tuple[Observer, ...] = (),
    ) -> None:
        super().__init__(sources=program.sources, observers=observers)
        self._program, self._trace = program, trace
        self._stored = written_below(program.body)
        self._plan: KernelPlan | None = None
        self._blocks = StatementTranslator(self.expr, program.sources, observers)
        self._blocks.owners = self.owners
        self._blocking: dict[int, bool] = {}
        self._numbers = 0

    def bind(self, buffer: Buffer, storage: Storage) -> Storage:
        """The memory of a parameter as threads access it."""
        return ThreadTensor(storage, buffer in self._stored)

    def __call__(self, stmt: st.Stmt) -> Execute:
        if self._plan is None or isinstance(stmt, (st.Seq, *_COMPOUND)):
            return super().__call__(stmt)
        if isinstance(stmt, tile.OPERATORS):
            return self._leaf(stmt, translate_collective(stmt, self._blocks))
        return self._leaf(stmt, self.watched(stmt, self._translate(stmt)))

    def _leaf(self, stmt: st.Stmt, execute: Execute) -> Execute:
        site = stmt.site
        if self._trace is not None:
            execute = self._trace.watch(stmt, execute)

        def leaf(frame: Any) -> None:
            frame.site = site
            active = frame.threads if frame.mask is True else np.count_nonzero(frame.mask)
            frame.recorder.executed(site, int(active))
            if frame.apart:
                frame.synchronise()
            execute(frame)
            if frame.lock_step:
                frame.synchronise()

        return leaf

    def _translate(self, stmt: st.Stmt) -> Execute:
        if self._plan is None:
            return super()._translate(stmt)
        made: Any = None
        match stmt:
            case st.If(cond, then, orelse):
                other = None if orelse is None else self(orelse)
                made = branch(self._decision(cond), self(then), other)
            case st.For(var, start, stop, step, kind) if kind not in _SPECIAL:
                bounds = tuple(map(self._decision, (start, stop, step)))
                made = counted_loop(self.slots.variable(var), bounds, self(stmt.body), var.name)
            case st.While(cond, body):
                made = while_loop(self._decision(cond), self(body))
            case simt.Exchange():
                made = translate_exchange(stmt, self.expr)
            case simt.BarrierInit():
                made = mbarriers.translate_init(stmt, self.expr, fenced=self._plan.lock_step)
            case simt.BarrierArrive() | simt.BarrierExpect() | simt.BarrierSignal():
                made = mbarriers.translate(stmt, self.expr)
            case simt.ClusterArrive(relaxed):
                made = phases.translate_arrive(relaxed)
            case simt.Peer():
                made = translate_peer(stmt, self.expr)
            case st.Alloc() | st.Alias() if self._plan.cluster_wide:
                made = noting_when(self.slots.buffer(stmt.buffer), super()._translate(stmt))
            case simt.Fence(kind):
                made = translate_fence(kind)
            case simt.GridDependency():  # launches follow one another here
                made = _go_on
            case simt.TensorMap() | simt.TensorLoad() | simt.TensorStore():
                made = boxes.translate(stmt, self.expr)
            case simt.AsyncCopy():
                made = copies.translate_copy(stmt, self.expr)
            case simt.Start() if is_multicast(stmt):
                made = self(unfolded(stmt))
            case simt.Start(body, barrier=barrier) if barrier is not None:
                attach = mbarriers.translate_attach(barrier, self.expr)
                made = translate_start(stmt, self(body), attach)
            case simt.CommitGroup(simt.Engine.CP_ASYNC) if self._plan.lock_step is False:
                made = copies.translate_commit()
            case simt.WaitGroup(engine=simt.Engine.CP_ASYNC) if self._plan.lock_step is False:
                made = copies.translate_wait(stmt)
            case _ if type(stmt) in _MATRICES:
                made = _MATRICES[type(stmt)](stmt, self.expr)
            case simt.Role(start, count, body):
                made = _role(start, start + count, self(body))
            case _:
                made = super()._translate(stmt)
        return made  # type: ignore[no-any-return]

    def _decision(self, cond: Expr) -> Evaluate:
        """A condition or a bound; where threads run in lock step, reading it is a step of its own.
        """
        evaluate = self.expr(cond)
        if self._plan is None or not self._plan.lock_step or not has_loads(cond):
            return evaluate

        def decide(frame: Any) -> Any:
            if frame.apart:
                frame.synchronise()
            value = evaluate(frame)
            frame.synchronise()
            return value

        return decide

    # Statements that can block

    def code(self, stmt: st.Stmt) -> Part:
        """`stmt` as a closure, or as code when threads can block in it."""
        if not self._blocks_in(stmt):
            return self(stmt)
        site = stmt.site
        match stmt:
            case st.Seq(stmts):
                return Sequence(tuple(self._parts(stmts)))
            case st.If(cond, then, orelse):
                other = None if orelse is None else self.code(orelse)
                return Branch(self._decision(cond), self.code(then), other, site)
            case st.For(var, start, stop, step):
                return self._loop_code(var, (start, stop, step), stmt.body, site)
            case tile.Pipelined(var, start, stop):
                return self._loop_code(var, (start, stop, int_const(1)), stmt.body, site)
            case st.While(cond, body):
                return ConditionLoop(self._decision(cond), self.code(body), site)
            case simt.Role(start, count, body):
                return RolePart(start, start + count, self.code(body))
        arrive = self._arrive(stmt)
        if self._trace is not None:
            arrive = self._trace.watch(stmt, arrive)
        made = Blocking(self.watched(stmt, arrive), site)
        if isinstance(stmt, simt.BarrierWait) and variables(stmt.barrier):
            return Sequence((Parting(mbarriers.translate_groups(stmt, self.expr), site), made))
        return made

    def _parts(self, stmts: tuple[st.Stmt, ...]) -> Iterator[Part]:
        """The statements of a sequence. In front of an operator of all threads, those that may have
        parted wait for each other.
        """
        parting = any(isinstance(s, simt.Role | st.If) and self._blocks_in(s) for s in stmts)
        for stmt in stmts:
            if parting and _takes_all(stmt):
                yield Meet(stmt.site)
            yield self.code(stmt)

    def _loop_code(self, var: Any, bounds: tuple[Any, ...], body: st.Stmt, site: int) -> Code:
        start, stop, step = map(self._decision, bounds)
        slot, part = self.slots.variable(var), self.code(body)
        return CountedLoop(slot, (start, stop, step), part, site, var.name)

    def _arrive(self, stmt: st.Stmt) -> barriers.Arrive:
        self._numbers += 1
        match stmt:
            case simt.Barrier():
                return barriers.translate_barrier(stmt, self._numbers)
            case simt.Exchange():
                return barriers.translate_block_exchange(stmt, self.expr, self._numbers)
            case simt.WarpBarrier():
                return barriers.translate_warp_barrier(stmt, self.expr)
            case simt.BarrierWait():
                return mbarriers.translate_wait(stmt, self.expr)
            case simt.SetRegisters():
                return translate_set_registers(stmt)
            case simt.ClusterWait():
                return phases.translate_wait()
        return barriers.translate_grid_barrier(isinstance(stmt, simt.ClusterBarrier))

    def _blocks_in(self, stmt: st.Stmt) -> bool:
        known = self._blocking.get(id(stmt))
        if known is None:
            known = self._blocking[id(stmt)] = (
                isinstance(stmt, BLOCKING)
                or (isinstance(stmt, simt.Exchange) and stmt.is_barrier)
                or any(
                    self._blocks_in(child)
                    for child in stmt.children()
                    if isinstance(child, st.Stmt)
                )
            )
        return known

    # Memory

    def _alloc(self, stmt: st.Alloc) -> Execute:
        plan, buffer = self._plan, stmt.buffer
        if plan is None:
            return super()._alloc(stmt)
        slot, shape = self.slots.buffer(buffer), self.expr.all(buffer.shape)
        init = None if stmt.init is None else self.expr(stmt.init)
        if buffer.scope in ("local", "local.var"):
            return _alloc_registers(slot, buffer, shape, init)
        if buffer.scope == "shared.barrier":
            return _alloc_barriers(slot, buffer, shape)
        base = plan.bases.get(buffer)
        if base is not None:
            return _alloc_shared(slot, buffer, shape, base)

        def alloc(frame: Any) -> None:
            made = allocate(buffer, tuple([one(frame) for one in shape]))
            made.guarded = buffer.scope == "global" and frame.lock_step
            threads = buffer.scope in ("global", "shared")
            frame.storages[slot] = ThreadTensor(made, True) if threads else made

        return alloc

    def _pointer(self, stmt: st.Pointer) -> Execute:
        if self._plan is None:
            return super()._pointer(stmt)
        buffer, address = stmt.buffer, self.expr(stmt.address)
        slot, shape = self.slots.buffer(buffer), self.expr.all(buffer.shape)
        strides = self.expr.all(buffer.strides)

        def pointer(frame: Any) -> None:
            extents = tuple([one(frame) for one in shape])
            steps = tuple([one(frame) for one in strides])
            place = agreed(address(frame), frame)
            if type(place) is np.ndarray:
                raise different_values(frame, buffer.name)
            data = memory_at(int(place), buffer, extents, steps)
            storage = Storage(buffer, data, guarded=frame.lock_step)
            frame.storages[slot] = ThreadTensor(storage, buffer in self._stored)

        return pointer

    def _print(self, stmt: st.Print) -> Execute:
        values, counters = self.expr.all(stmt.values), self.expr.all(stmt.counters)

        def print_(frame: Any) -> None:
            if not (frame.options.prints or frame.observers):
                return
            printed, numbers = ([each(frame) for each in all_] for all_ in (values, counters))
            if any(type(value) is np.ndarray for value in (*printed, *numbers)):
                print_lines(frame, stmt, printed, numbers, frame.mask, frame.lanes)
            elif frame.active().any():  # all threads would write the same
                print_lines(frame, stmt, printed, numbers, True, ())

        return print_

    def _kernel(self, stmt: st.Kernel) -> Execute:
        plan = self._plan = plan_kernel(self._program, stmt)
        grid = self.expr.all(stmt.grid)
        block_slots = [self.slots.variable(var) for var in stmt.vars]
        thread_slots = [
            (self.slots.variable(var), storage_dtype(var.dtype)) for var in stmt.thread_vars
        ]
        body = self.code(stmt.body)
        code = body if isinstance(body, Code) else Sequence((body,))
        self._plan = None

        def kernel(frame: Any) -> None:
            extents = tuple([one(frame) for one in grid])
            if min(extents, default=1) <= 0:
                raise empty_grid(frame.recorder.program.name)
            dtypes = tuple(storage_dtype(var.dtype) for var in self.slots.variables)
            launch = Launch(frame, plan, stmt.threads, thread_slots, block_slots, dtypes)
            launch.run(code, extents, stmt.cluster)

        return kernel


def _takes_all(stmt: st.Stmt) -> bool:
    """Whether `stmt` holds an operator of the whole block outside of roles and branches."""
    if isinstance(stmt, (*tile.OPERATORS, simt.BarrierSignal)):
        return True
    inner = stmt.children() if isinstance(stmt, _AROUND) else ()
    return any(_takes_all(child) for child in inner if isinstance(child, st.Stmt))


def _role(start: int, stop: int, body: Execute) -> Execute:
    def role(frame: Any) -> None:
        outer = frame.mask
        threads = np.arange(frame.threads)
        chosen = (threads >= start) & (threads < stop) & np.asarray(outer)
        if chosen.any():
            owned, frame.mask = frame.owned, chosen
            if frame.lock_step:
                frame.owned, frame.apart = chosen, False
            body(frame)
            frame.owned, frame.apart = owned, frame.lock_step
            # Threads that left a loop inside the role stay out of it.
            gone = chosen & ~np.broadcast_to(np.asarray(frame.mask), chosen.shape)
            frame.mask = outer
            if gone.any():
                rest = np.broadcast_to(np.asarray(outer), chosen.shape) & ~gone
                frame.mask = rest if rest.any() else False

    return role


def _alloc_registers(slot: int, buffer: Buffer, shape: Any, init: Any) -> Execute:
    def alloc(frame: Any) -> None:
        extents = tuple([one(frame) for one in shape])
        storage = frame.storages[slot]
        if not isinstance(storage, LaneStorage) or storage.data.shape != (frame.threads, *extents):
            storage = frame.storages[slot] = LaneStorage(buffer, extents, frame.threads)
        if init is None:
            storage.forget(frame.mask)
        else:
            storage.fill(init(frame), frame.mask)

    return alloc


def _alloc_barriers(slot: int, buffer: Buffer, shape: Any) -> Execute:
    def alloc(frame: Any) -> None:
        extents = tuple([one(frame) for one in shape])
        if not isinstance(frame.storages[slot], mbarriers.MbarrierStorage):
            frame.storages[slot] = mbarriers.MbarrierStorage(allocate(buffer, extents))

    return alloc


def _alloc_shared(slot: int, buffer: Buffer, shape: Any, base: int) -> Execute:
    def alloc(frame: Any) -> None:
        extents = tuple([one(frame) for one in shape])
        storage = ArenaStorage(buffer, extents, base, frame.shared)
        frame.storages[slot] = storage
        if frame.is_whole() and frame.mask is True:
            frame.shared.forget(base, storage.data.nbytes)

    return alloc


def _go_on(frame: Any) -> None:
    """Nothing to do."""
