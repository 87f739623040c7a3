"""Groups of neighbouring iterations of one thread: wide accesses to memory around the computation.

Memory decides the width, whatever the dtypes in between: a group loads what it reads as vectors
into registers, computes lane by lane, and stores what it has written as vectors. Only accesses that
every iteration makes take part.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Binary, Buffer, Expr, Load, Select
from tileworkbench.compiler.ir.node import Node
from tileworkbench.compiler.ir.rewrite import bound_by, substitute, variables
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.nests import (
    MEMORY,
    Nest,
    accesses,
    pure_lets,
    update_lanes,
)
from tileworkbench.compiler.lower.threads.partition import Partition
from tileworkbench.compiler.lower.threads.vectors import (
    SHARED,
    motions,
    step_box,
    vector_width,
)
from tileworkbench.compiler.machine.machine import VECTOR_BITS


@dataclass(frozen=True, slots=True)
class LanePlan:
    """Step number `step` in groups of `lanes`; the loads, stores and atomic additions that are
    vectors, each with its width. Each element of a load in `shared` is for that many neighbouring
    lanes.
    """

    step: int | None
    lanes: int
    loads: dict[Load, int]
    stores: dict[st.Store | st.Atomic, int]
    shared: dict[Load, int] = field(default_factory=dict)


SCALAR = LanePlan(None, 1, {}, {})


def plan_lanes(nest: Nest, shared: Partition, context: ThreadContext) -> LanePlan:
    """The widest groups that pay."""
    best = SCALAR
    for number, step in enumerate(shared.steps):
        if step.dim is not None and step.divisor == 1 and step.dim < len(nest.op.vars):
            lanes = step.extent & -step.extent
            if step.dim in shared.bounded:
                extent = nest.shape[step.dim] if nest.shape else 1
                lanes = min(lanes, extent & -extent)
            plan = plan_along(nest, step.dim, number, min(lanes, VECTOR_BITS // 4), context)
            if plan.lanes > best.lanes:
                best = plan
    return best


def plan_along(
    nest: Nest, dim: int, step: int | None, limit: int, context: ThreadContext
) -> LanePlan:
    """The vectors along loop variable `dim`, in groups of at most `limit` iterations."""
    box, lets = step_box(nest.shape or (None,) * len(nest.op.vars)), pure_lets(nest.op.body)
    bound = {var for stmt in st.items(nest.op.body) for var in bound_by(stmt)}

    def width(buffer: Buffer, indices: tuple[Expr, ...], shared: int = 1, most: int = limit) -> int:
        inlined = tuple(substitute(index, lets) for index in indices)
        if any(var in bound for index in inlined for var in variables(index)):
            return 1  # known only in the middle of the group
        moved = motions(inlined, nest.op.vars, box, context.ranges)
        place, ranges = buffer.layout, context.ranges
        return vector_width(buffer, place, inlined, moved, dim, most, ranges, shared)

    allowed = _independent(nest.op.body)
    loads = {
        load: width(load.buffer, load.indices)
        for load in _loads(nest.op.body)
        if load.buffer in allowed and load.predicate is None
    }
    stores: dict[st.Store | st.Atomic, int] = {}
    for stmt in st.items(nest.op.body):
        if isinstance(stmt, st.Store) and stmt.buffer in allowed and stmt.predicate is None:
            stores[stmt] = width(stmt.buffer, stmt.indices)
        elif isinstance(stmt, st.Atomic) and stmt.buffer.scope in MEMORY and not stmt.predicate:
            most = min(limit, update_lanes(nest.op.body, stmt.buffer, context.target))
            stores[stmt] = width(stmt.buffer, stmt.indices, most=most)
    shared: dict[Load, int] = {}
    for load, widest in loads.items():
        for count in SHARED if widest == 1 and load.buffer.dtype.bits <= 32 else ():
            loads[load] = width(load.buffer, load.indices, count)
            if loads[load] > 1:
                shared[load] = count
                break
    spans = [widest * shared.get(load, 1) for load, widest in loads.items() if widest > 1]
    lanes = max((*spans, *stores.values()), default=1)
    if lanes == 1:
        return SCALAR
    return LanePlan(
        step,
        lanes,
        {load: widest for load, widest in loads.items() if widest > 1},
        {stmt: widest for stmt, widest in stores.items() if widest > 1},
        shared,
    )


def _independent(body: st.Stmt) -> set[Buffer]:
    """The buffers in memory whose loads may all go first and whose stores may all go last."""
    stored: dict[Buffer, set[tuple[Expr, ...]]] = {}
    changed: dict[Buffer, set[tuple[Expr, ...]]] = {}  # by any statement of the body
    for buffer, indices, kind in accesses(body):
        if kind != "load":
            changed.setdefault(buffer, set()).add(indices)
    spoiled: set[Buffer] = set()
    buffers: set[Buffer] = set()
    for stmt in st.items(body):
        is_plain = isinstance(stmt, st.Store)
        here = [a for a in accesses(stmt) if a[0].scope in MEMORY]
        for buffer, indices, kind in here:
            buffers.add(buffer)
            if kind != "load":
                continue
            if buffer in stored:  # it would read what was there before
                spoiled.add(buffer)
            if changed.get(buffer, {indices}) != {indices}:
                spoiled.add(buffer)
        for buffer, indices, kind in here:
            if kind != "load":
                stored.setdefault(buffer, set()).add(indices)
                if not is_plain or kind != "store":
                    spoiled.add(buffer)
    return buffers - spoiled


def _loads(body: st.Stmt) -> Iterator[Load]:
    """The loads from memory that every iteration makes, outermost ones of each expression."""
    for stmt in st.items(body):
        if isinstance(stmt, st.Store | st.Atomic | st.Let):
            yield from _always(stmt.value)


def _always(value: Node) -> Iterator[Load]:
    match value:
        case Load(buffer) if buffer.scope in MEMORY:
            yield value
        case Select(cond, _, _, True):
            yield from _always(cond)
        case Binary("logical_and" | "logical_or", a):
            yield from _always(a)
        case _:
            for child in value.children():
                yield from _always(child)
