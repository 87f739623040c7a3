"""The accesses of a lowered program and what they cost, without running it.

One block is walked: block indices are zero, unrolled loops take all their iterations, other loops
the first, and both sides of a branch are taken. Where an address depends on memory the access is
left out. Symbols are taken to be large and divisible.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RunError
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.simt import WARP
from tileworkbench.compiler.ir.stmt import LoopKind
from tileworkbench.compiler.sim.expressions import ExpressionTranslator, Slots, vector_indices
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.report import AccessCount, Recorder
from tileworkbench.compiler.sim.threads.arena import Arena, ArenaStorage
from tileworkbench.compiler.sim.threads.counters import Counters
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.matrix import matrix_kind
from tileworkbench.compiler.sim.threads.plan import plan_kernel
from tileworkbench.compiler.sim.values import mask_and, storage_dtype

Array = np.ndarray[Any, Any]
_SYMBOL = 1 << 12
_MOST_TRIPS = 1 << 10


class _UnknownError(Exception):
    """A value depends on memory."""


class _Unknown(Storage):
    """Memory whose contents are not known."""

    __slots__ = ()

    def __init__(self) -> None:
        """Nothing is known."""

    def load(self, *place: Any) -> Any:
        raise _UnknownError


def list_accesses(program: Program) -> tuple[AccessCount, ...]:
    """The accesses of global and shared memory of the kernels of `program`, which is of stage SIMT:
    in program order, those of equal site, buffer and kind summed.
    """
    with np.errstate(all="ignore"):
        return _Lister(program).run()


class _Lister:
    def __init__(self, program: Program) -> None:
        self._program, self._slots = program, Slots()
        self._expr = ExpressionTranslator(self._slots)
        self._counters = Counters()
        self._shared: dict[Buffer, ArenaStorage] = {}
        self._frame = ThreadFrame(
            [], [], Recorder(program), SimOptions(), False, np.zeros(0, np.uint8)
        )

    def run(self) -> tuple[AccessCount, ...]:
        for symbol in self._program.symbols:
            self._assign(symbol, _SYMBOL)
        for param in self._program.params:
            if isinstance(param.value, Var):
                self._assign(param.value, 1)
        self._visit(self._program.body)
        return self._counters.accesses(self._program)

    # Values

    def _assign(self, var: Var, value: Any) -> None:
        slot = self._slots.variable(var)
        self._grow()
        self._frame.values[slot] = value

    def _grow(self) -> None:
        frame, slots = self._frame, self._slots
        frame.values += [_UnknownError] * (len(slots.variables) - len(frame.values))
        frame.storages += [_Unknown() for _ in range(len(slots.buffers) - len(frame.storages))]

    def _value(self, value: Expr) -> Any:
        """What `value` is for each thread, None where it is not known."""
        evaluate = self._expr(value)
        self._grow()
        try:
            return evaluate(self._frame)
        except (_UnknownError, RunError, TypeError, AttributeError):
            return None  # an unknown variable is no number

    # Statements

    def _visit(self, stmt: st.Stmt) -> None:
        self._frame.site = getattr(stmt, "site", 0)
        match stmt:
            case st.Seq(stmts):
                for child in stmts:
                    self._visit(child)
                return
            case st.Kernel():
                self._kernel(stmt)
                return
            case simt.Role(start, extent, body):
                threads = np.arange(self._frame.threads)
                self._under((threads >= start) & (threads < start + extent), body)
                return
        for access in _loads(stmt):
            self._access(access.buffer, access.indices, access.predicate, "load")
        self._step(stmt)

    def _step(self, stmt: st.Stmt) -> None:
        match stmt:
            case st.Let(var, value):
                known = self._value(value)
                self._assign(var, _UnknownError if known is None else known)
            case st.Alloc(buffer) if buffer in self._shared:
                pass
            case st.For():
                self._loop(stmt)
            case st.While(_, body):
                self._visit(body)
            case st.If(cond, then, orelse):
                chosen = self._value(cond)
                self._under(chosen, then)
                if orelse is not None:
                    self._under(None if chosen is None else np.logical_not(chosen), orelse)
            case st.Store(buffer, indices, _, predicate):
                self._access(buffer, indices, predicate, "store")
            case st.Atomic(_, buffer, indices, _, _, predicate):
                self._access(buffer, indices, predicate, "atomic")
            case simt.AsyncCopy(dst, src, elements, predicate):
                self._access(src.buffer, src.indices, predicate, "cp.async", elements)
                self._access(dst.buffer, dst.indices, None, "cp.async", elements)
            case simt.LoadMatrix(_, src, count, transpose):
                self._matrix(src, count, matrix_kind("ldmatrix", count, transpose))
            case simt.StoreMatrix(dst, _, count, transpose):
                self._matrix(dst, count, matrix_kind("stmatrix", count, transpose))

    def _kernel(self, kernel: st.Kernel) -> None:
        frame, plan = self._frame, plan_kernel(self._program, kernel)
        frame.threads = prod(kernel.threads)
        frame.lanes, frame.mask = (frame.threads,), True
        for var in kernel.vars:
            self._assign(var, 0)
        linear = np.arange(frame.threads)
        for var, extent in zip(kernel.thread_vars, kernel.threads, strict=False):
            self._assign(var, (linear % extent).astype(storage_dtype(var.dtype)))
            linear = linear // extent
        arena = Arena(plan.shared_bytes, plan.granule, 1, False)
        for buffer, base in plan.bases.items():
            extents = tuple(int(self._value(extent)) for extent in buffer.shape)
            self._shared[buffer] = ArenaStorage(buffer, extents, base, arena)
        self._visit(kernel.body)
        frame.lanes, frame.mask, frame.threads = (), True, 1

    def _under(self, chosen: Any, body: st.Stmt) -> None:
        """`body` by the active threads of `chosen`; by all of them where that is none or unknown,
        as other iterations may take it.
        """
        outer = self._frame.mask
        active = outer if chosen is None else mask_and(outer, chosen)
        self._frame.mask = outer if active is False else active
        self._visit(body)
        self._frame.mask = outer

    def _loop(self, loop: st.For) -> None:
        bounds = [self._value(bound) for bound in (loop.start, loop.stop, loop.step)]
        trips: Any = [0 if bounds[0] is None else bounds[0]]
        if loop.kind is LoopKind.UNROLLED and all(isinstance(bound, int) for bound in bounds):
            trips = range(*bounds)[:_MOST_TRIPS]
        for trip in trips:
            self._assign(loop.var, trip)
            self._visit(loop.body)

    # Accesses

    def _access(
        self,
        buffer: Buffer,
        indices: tuple[Expr, ...],
        predicate: Expr | None,
        kind: str,
        elements: int = 1,
    ) -> None:
        """One access by each active thread of `elements` elements, or as many as an index has."""
        if buffer.scope not in ("global", "shared"):
            return
        found = self._first_addresses(buffer, indices)
        if found is None:
            return
        addresses, lanes = found
        active = self._frame.active()
        if predicate is not None:
            holds = self._value(predicate)
            chosen = active if holds is None else active & np.asarray(holds)
            active = chosen if chosen.any() else active
        width = max(_bits(buffer) * max(elements, lanes) // 8, 1)
        count = self._counters.shared if buffer.scope == "shared" else self._counters.global_
        count(self._frame.site, buffer.name, kind, addresses, active, width)

    def _matrix(self, address: Address, count: int, kind: str) -> None:
        found = self._first_addresses(address.buffer, address.indices)
        if found is not None:
            giving = self._frame.active() & (np.arange(self._frame.threads) % WARP < 8 * count)
            name = address.buffer.name
            self._counters.shared(self._frame.site, name, kind, found[0], giving, 16)

    def _first_addresses(
        self, buffer: Buffer, indices: tuple[Expr, ...]
    ) -> tuple[Array, int] | None:
        """(the byte address of the first element for each thread, elements of a vector)."""
        evaluate = vector_indices(self._expr, indices)
        self._grow()
        lanes = max((index.dtype.lanes for index in indices), default=1)
        shape = (self._frame.threads,) if lanes == 1 else (self._frame.threads, lanes)
        try:
            index = tuple([one(self._frame) for one in evaluate])
            place = self._place(buffer, index)
        except (_UnknownError, RunError, TypeError, AttributeError):
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
        place: Any = np.zeros((), np.int64)
        if buffer.strides:
            for position, stride in zip(index, buffer.strides, strict=True):
                place = place + np.asarray(position, np.int64) * self._value(stride)
            return place
        for position, extent in zip(index, buffer.shape, strict=True):
            place = place * self._value(extent) + np.asarray(position, np.int64)
        return place


def _bits(buffer: Buffer) -> int:
    return buffer.dtype.bits if buffer.dtype.bits == 4 else 8 * buffer.dtype.bytes


def _loads(stmt: st.Stmt) -> Iterator[Load]:
    """The loads in the expressions of `stmt` itself, each once."""
    seen: set[Node] = set()
    stack = [child for child in stmt.children() if not isinstance(child, st.Stmt | Buffer)]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, Load):
            yield node
        stack.extend(child for child in node.children() if not isinstance(child, Buffer))
