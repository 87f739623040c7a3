"""Atomic accesses: the lanes of a parallel loop come one after another, in row-major order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Const
from tileworkbench.compiler.ir.stmt import AtomicKind
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.arithmetic import binary_function
from tileworkbench.compiler.sim.expressions import ExpressionTranslator, vector_indices
from tileworkbench.compiler.sim.extrema import MAX, MIN, Extremum
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.observers import tell_asked, tell_written
from tileworkbench.compiler.sim.values import Value, from_storage, mask_and, over_lanes

Array = np.ndarray[Any, Any]
# What numpy repeats for equal indices. Narrow floats round after each step: see `_steps`.
_AT_ONCE: dict[AtomicKind, np.ufunc | Extremum] = {
    AtomicKind.ADD: np.add,
    AtomicKind.MAX: MAX,
    AtomicKind.MIN: MIN,
    AtomicKind.AND: np.bitwise_and,
    AtomicKind.OR: np.bitwise_or,
    AtomicKind.XOR: np.bitwise_xor,
}


def translate(
    stmt: st.Atomic, expr: ExpressionTranslator, by_predicate: bool
) -> Callable[[Frame], None]:
    """The closure of an atomic access, whose operands are only computed where its predicate holds
    if `by_predicate`.

    Outside a parallel loop the threads of the block come one after another.
    """
    kind, dtype = stmt.kind, stmt.buffer.dtype
    slot, indices = expr.slots.buffer(stmt.buffer), vector_indices(expr, stmt.indices)
    operand = expr(stmt.value)
    width = max((index.dtype.lanes for index in stmt.indices), default=1)
    predicate = None if stmt.predicate is None else expr(stmt.predicate)
    fallback = expr(stmt.safe if stmt.safe is not None else Const(0, dtype))
    target = None if stmt.previous is None else expr.slots.variable(stmt.previous)
    from_data = stmt.site in expr.sites_of_data(stmt.buffer, stmt.indices)
    repeats = kind not in (AtomicKind.LOAD, AtomicKind.STORE)

    def atomic(frame: Frame) -> None:
        storage, lanes = frame.storages[slot], frame.lanes
        outer = frame.mask
        active = outer if predicate is None else mask_and(outer, predicate(frame))
        frame.mask = active if by_predicate else outer
        if width > 1:
            lanes = (*lanes, width)
            active = active[..., None] if type(active) is np.ndarray else active
        index = tuple([position(frame) for position in indices])
        values: Any = None if active is False else operand(frame)
        frame.mask = outer
        frame.from_data = from_data
        index, valid = storage.bounds(frame, "atomic", index, active, lanes)
        frame.from_data = False
        active = mask_and(active, valid)
        if frame.observers:
            tell_asked(frame, storage, "atomic", active, lanes)
        unread = storage.safe if storage.guarded else fallback(frame)
        before = np.full(lanes, unread, storage.data.dtype)
        if active is not False:
            storage.note_atomic(frame, index, active, kind is not AtomicKind.STORE, lanes)
            chosen = over_lanes(active, lanes)
            place = tuple(
                np.broadcast_to(np.asarray(at), lanes)[chosen] for at in storage.place(index)
            )
            values = np.broadcast_to(np.asarray(values, before.dtype), lanes)[chosen]
            for _ in range(1 if lanes or not repeats else frame.threads):
                held = _update(storage.data, dtype, place, values, kind, target is not None)
                if held is not None:
                    before[chosen] = held
            if frame.observers:
                _tell(frame, storage, kind, place, chosen, lanes)
        if target is not None:
            frame.values[target] = from_storage(before if lanes else before[()], dtype)

    return atomic


def _update(
    data: Any, dtype: DType, place: tuple[Any, ...], values: Array, kind: AtomicKind, asks: bool
) -> Array | None:
    """One access after another; what each element held before its own, or None where nobody `asks`
    and numpy can do all at once.
    """
    at_once = kind in _AT_ONCE and isinstance(data, np.ndarray)
    if not asks and at_once and (dtype.is_int or dtype.bits >= 32):
        _AT_ONCE[kind].at(data, place, values)
        return None
    return _steps(data, dtype, place, values, kind)


def _tell(
    frame: Frame,
    storage: Storage,
    kind: AtomicKind,
    place: tuple[Any, ...],
    chosen: Array,
    lanes: tuple[int, ...],
) -> None:
    """Tell the observers of an access by the lanes `chosen`, each at its entry of `place`."""
    if kind is not AtomicKind.STORE:
        threads = np.broadcast_to(frame.threads_of(lanes), lanes)[chosen]
        for observer in frame.observers:
            observer.read(frame, storage, place, threads)
    if kind is not AtomicKind.LOAD:
        tell_written(frame, storage, place, chosen, lanes)


def _steps(
    data: Array, dtype: DType, place: tuple[Array, ...], values: Array, kind: AtomicKind
) -> Array:
    """One access after another; what each element held before its own."""
    combine = _combination(kind, dtype)
    held = np.empty(values.shape, data.dtype)
    for lane, at in enumerate(zip(*place, strict=True)):
        held[lane] = data[at]
        data[at] = combine(from_storage(data[at], dtype), from_storage(values[lane], dtype))
    return held


def _combination(kind: AtomicKind, dtype: DType) -> Callable[[Value, Value], Value]:
    """What an element becomes, from what it holds and the operand."""
    if kind is AtomicKind.STORE:
        return lambda held, value: value
    if kind is AtomicKind.LOAD:
        return lambda held, value: held
    return binary_function(str(kind), dtype)
