"""The accesses of a lowered program and what they cost, without running it.

One block is walked: block indices are zero, unrolled loops take all their iterations, other loops
the first, and both sides of a branch are taken. An access whose address depends on memory has no
requests, and is `Unlisted`. Symbols are taken to be large and divisible.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Address, Buffer, Cast, Expr, Load, Ramp, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import LoopKind
from tileworkbench.compiler.layout.descriptors import UNIT, Descriptor
from tileworkbench.compiler.machine.instructions import WARPGROUP_WARPS
from tileworkbench.compiler.sim.abstract import Evaluator, own_loads
from tileworkbench.compiler.sim.expressions import vector_indices
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.recorder import Recorder
from tileworkbench.compiler.sim.threads.arena import Arena, ArenaStorage
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.matrix import matrix_kind
from tileworkbench.compiler.sim.threads.pieces import (
    TMA_LOAD,
    TMA_STORE,
    WGMMA,
    Boxes,
    dealt,
    operand_bytes,
)
from tileworkbench.compiler.sim.threads.plan import plan_kernel
from tileworkbench.compiler.sim.threads.requests import Request, RequestRecorder, WarpAccess
from tileworkbench.compiler.sim.values import mask_and, storage_dtype

Array = np.ndarray[Any, Any]
_MOST_TRIPS = 1 << 10


def list_requests(program: Program) -> tuple[WarpAccess, ...]:
    """The accesses of global and shared memory of the kernels of `program`, which is of stage SIMT:
    in program order, those of equal site, buffer and kind as one, with the requests of each.
    """
    return list_all(program)[0]


@dataclass(frozen=True, slots=True)
class Unlisted:
    """An access whose address is known when the kernel runs, so that nothing of it is counted.

    `buffer`, `scope` and `kind` are as in `AccessCount`; `reason` says what the address depends on.
    """

    span: Span | None
    buffer: str
    scope: str
    kind: str
    reason: str

    @property
    def text(self) -> str:
        """``line 8: load of A: its address depends on 'B', known only when the kernel runs``."""
        where = f"line {self.span.line}: " if self.span is not None else ""
        return f"{where}{self.kind} of {self.buffer}: {self.reason}"


def list_all(program: Program) -> tuple[tuple[WarpAccess, ...], tuple[Unlisted, ...]]:
    """What `list_requests` finds, and the accesses that it leaves out, in program order."""
    with np.errstate(all="ignore"):
        lister = _Lister(program)
        accesses = lister.run()
    listed = {(a.count.site, a.count.buffer, a.count.kind) for a in accesses}
    return accesses, tuple(
        Unlisted(program.sites[site] if site else None, buffer.name, buffer.scope, kind, reason)
        for (site, buffer, kind), reason in lister.unlisted.items()
        if (site, buffer.name, kind) not in listed
    )


class _Lister(Evaluator[ThreadFrame]):
    def __init__(self, program: Program) -> None:
        recorder = Recorder(program)
        frame = ThreadFrame([], [], recorder, SimOptions(), False, np.zeros(0, np.uint8))
        super().__init__(frame)
        self._program = program
        self._requests = RequestRecorder(frame.warp, frame.counters.memory)
        self._shared: dict[Buffer, ArenaStorage] = {}
        self._maps: dict[Buffer, simt.TensorMap] = {}
        self.unlisted: dict[tuple[int, Buffer, str], str] = {}

    def run(self) -> tuple[WarpAccess, ...]:
        self.assign_parameters(self._program)
        self._visit(self._program.body)
        return self._requests.accesses(self._program)

    # Statements

    def _visit(self, stmt: st.Stmt) -> None:
        self.frame.site = getattr(stmt, "site", 0)
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self._visit(child)
                return
            case st.Kernel():
                self._kernel(stmt)
                return
            case simt.Role(start, extent, body):
                threads = np.arange(self.frame.threads)
                self._under((threads >= start) & (threads < start + extent), body)
                return
        for access in own_loads(stmt):
            register = self._target(stmt, access)
            self._access(access.buffer, access.indices, access.predicate, "load", 1, register)
        self._step(stmt)

    def _step(self, stmt: st.Stmt) -> None:
        match stmt:
            case st.Let(var, value):
                self.assign(var, self.value(value))
            case st.Alias(buffer, source) if source in self._shared:
                extents = tuple(int(self.value(extent)) for extent in buffer.shape)
                owner = self._shared[source]
                self._shared[buffer] = ArenaStorage(buffer, extents, owner.base, owner.arena)
            case st.For():
                self._loop(stmt)
            case st.While(_, body):
                self._visit(body)
            case st.If(cond, then, orelse):
                chosen = self.value(cond)
                self._under(chosen, then)
                if orelse is not None:
                    self._under(None if chosen is None else np.logical_not(chosen), orelse)
            case st.Store(buffer, indices, value, predicate):
                register = self._source(value)
                self._access(buffer, indices, predicate, "store", 1, register)
            case st.Atomic(_, buffer, indices, value, _, predicate):
                register = self._source(value)
                self._access(buffer, indices, predicate, "atomic", 1, register)
            case simt.AsyncCopy(dst, src, elements, predicate):
                self._access(src.buffer, src.indices, predicate, "cp.async", elements)
                self._access(dst.buffer, dst.indices, None, "cp.async", elements)
            case simt.Start(body):
                self._visit(body)
            case simt.TensorMap(buffer):
                self._maps[buffer] = stmt
            case simt.TensorLoad(dst, src):
                self._box(src, dst, TMA_LOAD)
            case simt.TensorStore(dst, src):
                self._box(dst, src, TMA_STORE)
            case simt.Wgmma(a, b, n=n, k=k, a_form=a_form, b_form=b_form):
                if a_form:
                    self._operand(a, a_form, (simt.Wgmma.m, k))
                self._operand(b, b_form, (n, k))
            case simt.LoadMatrix(dst, src, count, transpose):
                self._matrix(src, dst, count, matrix_kind("ldmatrix", count, transpose))
            case simt.LoadTurned(dst, src, elements):
                register = self._register(dst.buffer, dst.indices, elements)
                self._access(src.buffer, src.indices, None, "load", elements, register)
            case simt.StoreMatrix(dst, src, count, transpose):
                self._matrix(dst, src, count, matrix_kind("stmatrix", count, transpose))

    def _kernel(self, kernel: st.Kernel) -> None:
        frame, plan = self.frame, plan_kernel(self._program, kernel)
        frame.threads = prod(kernel.threads)
        frame.lanes, frame.mask = (frame.threads,), True
        for var in kernel.vars:
            self.assign(var, 0)
        linear = np.arange(frame.threads)
        for var, extent in zip(kernel.thread_vars, kernel.threads, strict=False):
            self.assign(var, (linear % extent).astype(storage_dtype(var.dtype)))
            linear = linear // extent
        arena = Arena(plan.shared_bytes, plan.granule, 1, False)
        for buffer, base in plan.bases.items():
            extents = tuple(int(self.value(extent)) for extent in buffer.shape)
            self._shared[buffer] = ArenaStorage(buffer, extents, base, arena)
        self._visit(kernel.body)
        frame.lanes, frame.mask, frame.threads = (), True, 1

    def _under(self, chosen: Any, body: st.Stmt) -> None:
        """Walk `body` with the active threads for which `chosen` holds. Where it holds for none, or
        is unknown, all of them take it, as they may in other iterations.
        """
        outer = self.frame.mask
        active = outer if chosen is None else mask_and(outer, chosen)
        self.frame.mask = outer if active is False else active
        self._visit(body)
        self.frame.mask = outer

    def _loop(self, loop: st.For) -> None:
        bounds = [self.value(bound) for bound in (loop.start, loop.stop, loop.step)]
        trips: Any = [0 if bounds[0] is None else bounds[0]]
        if loop.kind is LoopKind.UNROLLED and all(isinstance(bound, int) for bound in bounds):
            trips = range(*bounds)[:_MOST_TRIPS]
        for trip in trips:
            self.assign(loop.var, trip)
            self._visit(loop.body)

    # Accesses

    def _access(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        predicate: Expr | None,
        kind: str,
        elements: int = 1,
        register: str = "",
    ) -> None:
        """One access by each active thread of `elements` elements, or as many as an index has."""
        if buffer.scope not in ("global", "shared"):
            return
        located = self._first_addresses(buffer, indices)
        if located is None:
            self._leave_out(buffer, indices, kind)
            return
        addresses, lanes = located
        active = self.frame.active()
        if predicate is not None:
            holds = self.value(predicate)
            chosen = active if holds is None else active & np.asarray(holds)
            active = chosen if chosen.any() else active
        width = max(_bits(buffer) * max(elements, lanes) // 8, 1)
        self._record(buffer, kind, width, Request(addresses, active, register))

    def _matrix(self, address: Address, registers: Address, count: int, kind: str) -> None:
        located = self._first_addresses(address.buffer, address.indices)
        if located is None:
            self._leave_out(address.buffer, address.indices, kind)
        else:
            giving = self.frame.active() & (
                np.arange(self.frame.threads) % self.frame.warp < 8 * count
            )
            held = 32 * count // _bits(registers.buffer)
            register = self._register(registers.buffer, registers.indices, held)
            self._record(address.buffer, kind, 16, Request(located[0], giving, register))

    def _box(self, there: Address, here: Address, kind: str) -> None:
        """A copy of a box by the first of the active threads, in pieces."""
        stmt, tile = self._maps[there.buffer], self._shared[here.buffer]
        shape = [self.value(each) for each in (*there.buffer.shape, *there.buffer.strides)]
        origin, index = ([self.value(at) for at in each.indices] for each in (there, here))
        for buffer, values in ((stmt.source, (*shape, *origin)), (here.buffer, tuple(index))):
            if None in values:
                indices = (there if buffer is stmt.source else here).indices
                self._leave_out(buffer, indices, kind)
                return
        thread = int(np.flatnonzero(self.frame.active())[0])
        starts = [_of_thread(at, thread) for at in origin]
        first = tile.base + _of_thread(tile.locate(tuple(index)), thread) * tile.bits // 8
        rank = len(origin)
        pieces = Boxes(
            stmt.box, tile.bits // 8, stmt.swizzle, tuple(shape[:rank]), tuple(shape[rank:])
        )
        places, inside = pieces.there(starts)
        lanes = np.arange(self.frame.threads) // self.frame.warp == thread // self.frame.warp
        for request in dealt(places, inside, lanes):
            self._record(stmt.source, kind, UNIT, Request(*request))
        for request in dealt(pieces.here(first), np.ones_like(inside), lanes):
            self._record(here.buffer, kind, UNIT, Request(*request))

    def _operand(self, address: Address, form: tuple[int, ...], extents: tuple[int, int]) -> None:
        """What each active warpgroup reads of shared memory for a product, in pieces."""
        located = self._first_addresses(address.buffer, address.indices)
        if located is None:
            self._leave_out(address.buffer, address.indices, WGMMA)
            return
        leading, stride, swizzle, transposed = form
        descriptor = Descriptor(leading, stride, swizzle, bool(transposed))
        groups = np.arange(self.frame.threads) // (WARPGROUP_WARPS * self.frame.warp)
        size = _bits(address.buffer) // 8
        for group in np.unique(groups[self.frame.active()]):
            lanes = groups == group
            start = int(located[0][np.argmax(lanes)])
            places = operand_bytes(descriptor, *extents, size, start)
            for request in dealt(places, np.ones(len(places), np.bool_), lanes):
                self._record(address.buffer, WGMMA, UNIT, Request(*request))

    def _leave_out(self, buffer: Buffer, indices: tuple[Expr, ...], kind: str) -> None:
        """An access without a known address: what it depends on is read from memory."""
        nodes = [node for index in indices for node in walk(index)]
        read = [f"'{node.buffer.name}'" for node in nodes if isinstance(node, Load)]
        named = [f"'{v.name}'" for v in nodes if isinstance(v, Var) and self.value(v) is None]
        names = " and ".join(dict.fromkeys(read + named)) or "the tensor's strides"
        reason = f"its address depends on {names}, known only when the kernel runs"
        self.unlisted.setdefault((self.frame.site, buffer, kind), reason)

    def _record(self, buffer: Buffer, kind: str, width: int, request: Request) -> None:
        storage = self._shared.get(buffer)
        self._requests.add(
            self.frame.site,
            buffer.name,
            buffer.scope,
            kind,
            width,
            request,
            _bits(buffer),
            0 if storage is None else storage.base,
            0 if storage is None else 8 * storage.data.nbytes // _bits(buffer),
        )

    # Registers

    def _target(self, stmt: st.Stmt, load: Load) -> str:
        """The register that `stmt` loads into, if loading is all that it does."""
        if isinstance(stmt, st.Store) and _plain(stmt.value) is load:
            return self._register(stmt.buffer, stmt.indices, load.dtype.lanes)
        return ""

    def _source(self, value: Expr) -> str:
        """The register that holds `value`."""
        value = _plain(value)
        if isinstance(value, Load):
            return self._register(value.buffer, value.indices, value.dtype.lanes)
        return ""

    def _register(self, buffer: Buffer, indices: tuple[Expr, ...], count: int) -> str:
        if buffer.scope != "local":
            return ""
        first = indices[-1].base if isinstance(indices[-1], Ramp) else indices[-1]
        values = [self.value(index) for index in (*indices[:-1], first)]
        if not all(isinstance(index, int) for index in values):
            return ""
        last = f"{values[-1]}:{values[-1] + count}" if count > 1 else str(values[-1])
        return f"{buffer.name}[{', '.join([*map(str, values[:-1]), last])}]"

    def _first_addresses(
        self, buffer: Buffer, indices: tuple[Expr, ...]
    ) -> tuple[Array, int] | None:
        """(the byte address of the first element for each thread, elements of a vector)."""
        evaluate = vector_indices(self.expressions, indices)
        lanes = max((index.dtype.lanes for index in indices), default=1)
        shape = (self.frame.threads,) if lanes == 1 else (self.frame.threads, lanes)
        index = self.all_values(evaluate)
        place = None if index is None else self._place(buffer, index)
        if place is None:
            return None
        places = np.broadcast_to(np.asarray(place), shape)
        first = places if lanes == 1 else places[:, 0]
        storage = self._shared.get(buffer)
        base = 0 if storage is None else storage.base
        return base + first * _bits(buffer) // 8, lanes

    def _place(self, buffer: Buffer, index: tuple[Any, ...]) -> Any:
        storage = self._shared.get(buffer)
        if storage is not None:
            return storage.locate(index)
        factors = [self.value(each) for each in buffer.strides or buffer.shape]
        if any(factor is None for factor in factors):
            return None
        place: Any = np.zeros((), np.int64)
        for position, factor in zip(index, factors, strict=True):
            if buffer.strides:
                place = place + np.asarray(position, np.int64) * factor
            else:
                place = place * factor + np.asarray(position, np.int64)
        return place


def _of_thread(value: Any, thread: int) -> int:
    """What `value`, one number or one for each thread, is for `thread`."""
    values = np.asarray(value)
    return int(values[thread] if values.ndim else values)


def _bits(buffer: Buffer) -> int:
    return buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes


def _plain(value: Expr) -> Expr:
    """`value` without conversions."""
    while isinstance(value, Cast):
        value = value.value
    return value
