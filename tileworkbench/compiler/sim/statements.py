"""Statements as Python closures; loops and branches are those of `control.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import (
    OUT_OF_RANGE,
    RunError,
    UnsupportedError,
    empty_grid,
    failed_assertion,
)
from tileworkbench.compiler.ir import simt, tile
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer, Cast, Load
from tileworkbench.compiler.ir.program import Stage
from tileworkbench.compiler.ir.rewrite import buffers_of
from tileworkbench.compiler.sim import atomics, externals, flights, panels, tiles
from tileworkbench.compiler.sim.control import (
    Execute,
    branch,
    counted_loop,
    in_sequence,
    leave_loop,
    next_iteration,
    while_loop,
)
from tileworkbench.compiler.sim.expressions import (
    Evaluate,
    ExpressionTranslator,
    Slots,
    vector_indices,
)
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage, allocate, memory_at
from tileworkbench.compiler.sim.observers import Observer, tell_asked
from tileworkbench.compiler.sim.printing import print_lines
from tileworkbench.compiler.sim.privacy import private_buffers, stores_of
from tileworkbench.compiler.sim.private_memory import PrivateStorage
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.values import (
    Mask,
    count_lanes,
    mask_and,
    mask_without,
    storage_dtype,
)


class StatementTranslator:
    """Turns statements into closures that advance a frame.

    `by_predicate` says that operands of a store are computed where its predicate holds, as code of
    threads does; vectors of a processor compute them in all lanes.
    """

    by_predicate = False

    def __init__(
        self,
        expr: ExpressionTranslator | None = None,
        sources: tuple[str, ...] = (),
        observers: tuple[Observer, ...] = (),
    ) -> None:
        self.sources, self.observers = sources, observers
        self.owners: dict[Buffer, Buffer] = {}  # of views
        self.expr = ExpressionTranslator(Slots()) if expr is None else expr
        self.slots = self.expr.slots

    def __call__(self, stmt: st.Stmt) -> Execute:
        if isinstance(stmt, st.Seq):
            return in_sequence([self(child) for child in stmt.stmts])
        return _counted(stmt.site, self.watched(stmt, self._translate(stmt)))

    def watched(self, stmt: st.Stmt, execute: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """`execute` of `stmt`, of which the observers are told; as it is where there are none, or
        it holds other statements.
        """
        observers = self.observers
        if not observers or any(isinstance(child, st.Stmt) for child in stmt.children()):
            return execute

        def told(frame: Any) -> Any:
            for observer in observers:
                observer.began(frame, stmt)
            made = execute(frame)
            for observer in observers:
                observer.ended(frame, stmt)
            return made

        return told

    def _translate(self, stmt: st.Stmt) -> Execute:
        match stmt:
            case st.Let(var, value):
                return _let(self.slots.variable(var), self.expr(value))
            case st.Store():
                return self._store(stmt)
            case st.Alloc():
                return self._alloc(stmt)
            case st.Alias():
                return self._alias(stmt)
            case st.Pointer():
                return self._pointer(stmt)
            case st.ExternCall():
                return externals.translate(stmt, self.expr, self.sources)
            case st.SourceKernel():
                raise UnsupportedError("the simulator does not execute CUDA source")
            case st.Atomic():
                return atomics.translate(stmt, self.expr, self.by_predicate)
            case st.If(cond, then, orelse):
                return branch(self.expr(cond), self(then), None if orelse is None else self(orelse))
            case st.For(kind=st.LoopKind.VECTORIZED):
                return self._vectorized(stmt)
            case st.For(kind=st.LoopKind.BLOCKS):
                return self._block_loop(stmt)
            case st.For(var, start, stop, step):
                return counted_loop(
                    self.slots.variable(var),
                    self.expr.all((start, stop, step)),
                    self(stmt.body),
                    var.name,
                )
            case tile.Pipelined(var, start, stop):
                bounds = self.expr.all((start, stop, int_const(1)))
                return counted_loop(self.slots.variable(var), bounds, self(stmt.body), var.name)
            case st.While(cond, body):
                return while_loop(self.expr(cond), self(body))
            case st.Break():
                return leave_loop
            case st.Continue():
                return next_iteration
            case st.Assume(cond):
                return _check(
                    self.expr(cond),
                    RunError,
                    "an assumption of the kernel (T.assume) does not hold",
                )
            case st.DeviceAssert(message=message) if message.startswith(OUT_OF_RANGE):
                return lambda frame: None  # the access itself is found
            case st.DeviceAssert(cond, message):
                failure = failed_assertion(message, "device assert failed")
                return _check(self.expr(cond), type(failure), failure.message)
            case st.Print():
                return self._print(stmt)
            case st.Breakpoint():
                return lambda frame: None  # a replay is told of it
            case st.Kernel():
                return self._kernel(stmt)
            case tile.Parallel():
                return self._parallel(stmt)
            case simt.Start(body):
                return flights.translate_start(stmt, self(body))
            case simt.CommitGroup(engine):
                return flights.translate_commit(engine)
            case simt.WaitGroup():
                return flights.translate_wait(stmt)
            case tile.Pack():
                return panels.translate_pack(stmt, self.expr)
            case tile.MicroGemm():
                return panels.translate_micro_gemm(stmt, self.expr)
        return tiles.translate(stmt, self.expr)

    def _store(self, stmt: st.Store) -> Execute:
        slot, indices = self.slots.buffer(stmt.buffer), vector_indices(self.expr, stmt.indices)
        value = self.expr(stmt.value)
        width = max((index.dtype.lanes for index in stmt.indices), default=1)
        predicate = None if stmt.predicate is None else self.expr(stmt.predicate)
        widen = width > 1 and stmt.value.dtype.lanes == 1
        scalar = stmt.predicate is not None and stmt.predicate.dtype.lanes == 1
        each, each_thread = width > 1 and scalar, self.by_predicate and scalar
        from_data = stmt.site in self.expr.sites_of_data(stmt.buffer, stmt.indices)
        register = self._register(stmt)

        def store(frame: Frame) -> None:
            active: Mask = frame.mask
            chosen: Any = None
            if width > 1 and type(active) is np.ndarray:
                active = active[..., None]
            if predicate is not None:
                chosen = predicate(frame)
                wide = chosen[..., None] if each and type(chosen) is np.ndarray else chosen
                active = mask_and(active, wide)
                if active is False:
                    if frame.observers:
                        lanes = (*frame.lanes, width) if width > 1 else frame.lanes
                        tell_asked(frame, frame.storages[slot], "store", False, lanes)
                    return
            outer = frame.mask
            if each_thread and chosen is not None:
                frame.mask = mask_and(outer, chosen)
            stored = value(frame)
            if widen and type(stored) is np.ndarray:
                stored = stored[..., None]
            lanes = (*frame.lanes, width) if width > 1 else frame.lanes
            place = tuple([index(frame) for index in indices])
            frame.mask = outer
            frame.from_data = from_data
            if frame.observers:
                frame.register = -1 if register is None else register(frame)
            frame.storages[slot].store(frame, place, stored, active, lanes)
            frame.from_data, frame.register = False, -1

        return store

    def _register(self, stmt: st.Store) -> Evaluate | None:
        """Which element of a thread's own buffer a store to a tensor takes its value from; None
        where it computes it.
        """
        value = stmt.value
        while isinstance(value, Cast):
            value = value.value
        if stmt.buffer.scope != "global" or not isinstance(value, Load):
            return None
        if value.buffer.scope != "local" or len(value.indices) != 1:
            return None
        return vector_indices(self.expr, value.indices)[0]

    def _alloc(self, stmt: st.Alloc) -> Execute:
        buffer, offset = stmt.buffer, stmt.offset
        slot, shape = self.slots.buffer(buffer), self.expr.all(buffer.shape)
        init = None if stmt.init is None else self.expr(stmt.init)
        in_arena = offset is not None and buffer.dtype.bits >= 8

        def alloc(frame: Frame) -> None:
            extents = tuple([extent(frame) for extent in shape])
            memory = frame.arena[offset:] if in_arena else None
            private = frame.lanes if frame.parallel is not None else ()
            made = frame.storages[slot] = allocate(buffer, extents, memory, private)
            made.guarded = buffer.scope == "global" and not frame.strict
            if init is not None:
                made.data[...] = init(frame)
                made.written = None

        return alloc

    def _alias(self, stmt: st.Alias) -> Execute:
        self.owners[stmt.buffer] = self.owners.get(stmt.source, stmt.source)
        slot, source = self.slots.buffer(stmt.buffer), self.slots.buffer(stmt.source)
        shape = self.expr.all(stmt.buffer.shape)

        def alias(frame: Frame) -> None:
            extents = tuple([extent(frame) for extent in shape])
            frame.storages[slot] = frame.storages[source].view(stmt.buffer, extents)

        return alias

    def _pointer(self, stmt: st.Pointer) -> Execute:
        buffer, address = stmt.buffer, self.expr(stmt.address)
        slot, shape = self.slots.buffer(buffer), self.expr.all(buffer.shape)
        strides = self.expr.all(buffer.strides)

        def pointer(frame: Frame) -> None:
            extents = tuple([extent(frame) for extent in shape])
            steps = tuple([step(frame) for step in strides])
            data = memory_at(int(address(frame)), buffer, extents, steps)
            frame.storages[slot] = Storage(buffer, data, guarded=not frame.strict)

        return pointer

    def _print(self, stmt: st.Print) -> Execute:
        values, counters = self.expr.all(stmt.values), self.expr.all(stmt.counters)

        def print_(frame: Frame) -> None:
            if frame.options.prints or frame.observers:
                printed, numbers = ([each(frame) for each in all_] for all_ in (values, counters))
                print_lines(frame, stmt, printed, numbers, frame.mask, frame.lanes)

        return print_

    def _parallel(self, stmt: tile.Parallel) -> Execute:
        slots = [self.slots.variable(var) for var in stmt.vars]
        dtypes = [storage_dtype(var.dtype) for var in stmt.vars]
        extents, body = self.expr.all(stmt.extents), self(stmt.body)
        names = frozenset(store.buffer.name for store in stores_of(stmt.body))
        private, shared = self._private(stmt)

        def parallel(frame: Frame) -> None:
            box = tuple([extent(frame) for extent in extents])
            if min(box, default=1) <= 0:
                return
            for axis, (slot, dtype) in enumerate(zip(slots, dtypes, strict=True)):
                after = (1,) * (len(box) - axis - 1)
                frame.values[slot] = np.arange(box[axis], dtype=dtype).reshape(
                    (1,) * axis + (-1, *after)
                )
            outer = [(slot, frame.storages[slot]) for slot, _ in private]
            for slot, buffer in private:
                frame.storages[slot] = PrivateStorage(frame.storages[slot], buffer, box)
            for slot, owner in shared:
                frame.storages[slot].share(frame.storages[owner])  # type: ignore[attr-defined]
            frame.lanes = box
            frame.parallel = frame.begin_parallel(box, names, stmt.loop_layout)
            body(frame)
            frame.lanes, frame.parallel, frame.mask = (), None, True
            for slot, storage in outer:
                made = frame.storages[slot]
                if isinstance(made, PrivateStorage):
                    made.leave(frame, storage)
                frame.storages[slot] = storage

        return parallel

    def _private(
        self, stmt: tile.Parallel
    ) -> tuple[list[tuple[int, Buffer]], list[tuple[int, int]]]:
        """The thread-private buffers that iterations have to themselves, by slot, and those of them
        that are views of one another: slot and slot of the owner.
        """
        written = private_buffers(stmt)
        roots = {self.owners.get(buffer, buffer) for buffer in written}
        views = [
            each
            for each in buffers_of(stmt.body)
            if self.owners.get(each, each) in roots and each not in written
        ]
        groups: dict[Buffer, list[Buffer]] = {}
        for buffer in (*written, *views):
            groups.setdefault(self.owners.get(buffer, buffer), []).append(buffer)
        shared = [
            (self.slots.buffer(other), self.slots.buffer(members[0]))
            for members in groups.values()
            for other in members[1:]
        ]
        return [(self.slots.buffer(buffer), buffer) for buffer in (*written, *views)], shared

    def _vectorized(self, stmt: st.For) -> Execute:
        """On the CPU the variable is a vector of lanes; before that a vectorised loop is a serial
        one.
        """
        slot, bounds, body = (
            self.slots.variable(stmt.var),
            self.expr.all((stmt.start, stmt.stop, stmt.step)),
            self(stmt.body),
        )
        serial = counted_loop(slot, bounds, body, stmt.var.name)
        dtype = storage_dtype(stmt.var.dtype)

        def vectorized(frame: Frame) -> None:
            if not frame.strict:
                serial(frame)
                return
            lanes = range(*[bound(frame) for bound in bounds])
            frame.values[slot] = np.arange(lanes.start, lanes.stop, lanes.step, dtype=dtype)
            frame.lanes = (len(lanes),)
            body(frame)
            frame.lanes, frame.mask = (), True

        return vectorized

    def _kernel(self, stmt: st.Kernel) -> Execute:
        slots, grid, body = (
            [self.slots.variable(var) for var in stmt.vars],
            self.expr.all(stmt.grid),
            self(stmt.body),
        )
        threads = prod(stmt.threads)

        def kernel(frame: Frame) -> None:
            extents = tuple([extent(frame) for extent in grid])
            if min(extents, default=1) <= 0:
                raise empty_grid(frame.recorder.program.name)
            # What threads repeat is refused or written out when the first stage is left.
            tile_stage = frame.recorder.program.stage is Stage.TILE
            frame.threads = threads if tile_stage else 1
            frame.grid = extents
            for number in _launch(frame, prod(extents)):
                block = frame.block_of(number)
                for slot, position in zip(slots, block, strict=True):
                    frame.values[slot] = position
                _run_block(frame, number, block, body)
            frame.block, frame.block_number = (), 0

        return kernel

    def _block_loop(self, stmt: st.For) -> Execute:
        slot, stop, body = self.slots.variable(stmt.var), self.expr(stmt.stop), self(stmt.body)

        def blocks(frame: Frame) -> None:
            frame.grid = ()
            for number in _launch(frame, stop(frame)):
                frame.values[slot] = number
                _run_block(frame, number, (number,), body)
            frame.block, frame.block_number = (), 0

        return blocks


def _launch(frame: Frame, blocks: int) -> Iterator[int]:
    """The numbers of a launch's blocks in the order they run."""
    frame.launch += 1
    frame.launch_base = frame.recorder.blocks  # so that block numbers go up over launches
    numbers: Sequence[int] = frame.options.chosen(blocks)
    if frame.options.blocks is None:
        numbers = frame.chosen(blocks)
        frame.recorder.launch(blocks, len(numbers))
    yield from numbers if frame.random is None else map(int, frame.random.permutation(numbers))
    frame.recorder.launch_ended(len(numbers))


def _run_block(frame: Frame, number: int, block: tuple[int, ...], body: Execute) -> None:
    frame.block, frame.block_number = block, frame.launch_base + number + 1
    frame.recorder.blocks += 1
    frame.mask, frame.broke = True, False
    body(frame)


def _counted(site: int, execute: Execute) -> Execute:
    def counted(frame: Frame) -> None:
        frame.site = site
        frame.recorder.executed(site, count_lanes(frame.mask, frame.lanes) if frame.lanes else 1)
        execute(frame)

    return counted


def _let(slot: int, value: Evaluate) -> Execute:
    def let(frame: Frame) -> None:
        frame.values[slot] = value(frame)

    return let


def _check(cond: Evaluate, kind: type[RunError], message: str) -> Execute:
    def check(frame: Frame) -> None:
        if mask_without(frame.mask, cond(frame)) is not False:
            where = f", in block ({', '.join(map(str, frame.block))})" if frame.block else ""
            raise located(kind, message + where, frame.recorder.program.span(frame.site))

    return check
