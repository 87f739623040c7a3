"""Element-wise nests by the threads of a block: which iterations, in which groups, under which
guards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import (
    add,
    binary,
    cast,
    conjunction,
    const_int,
    int_const,
    mul,
)
from tileworkbench.compiler.ir.expr import Address, Buffer, Cast, Expr, Load, Ramp, Var
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.tile import Copy, Fill, Parallel
from tileworkbench.compiler.layout.digits import DigitSum, make_sum
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.maps import DigitMap
from tileworkbench.compiler.ops.simt.binding import infer_nest
from tileworkbench.compiler.ops.simt.context import ThreadContext
from tileworkbench.compiler.ops.simt.inference import LayoutMap, Level
from tileworkbench.compiler.ops.simt.iterations import (
    Iterations,
    guarded,
    missing_guards,
    scaled,
)
from tileworkbench.compiler.ops.simt.lanes import SCALAR, LanePlan, plan_along, plan_lanes
from tileworkbench.compiler.ops.simt.nests import Nest, nest_of, pure_lets
from tileworkbench.compiler.ops.simt.partition import Partition, partition

_UNROLL = 16  # trips of a loop without registers that are written out
_ZERO = int_const(0)
_COMBINE = {
    st.AtomicKind.ADD: "add",
    st.AtomicKind.MAX: "max",
    st.AtomicKind.MIN: "min",
    st.AtomicKind.AND: "and",
    st.AtomicKind.OR: "or",
    st.AtomicKind.XOR: "xor",
}


def lower(op: Parallel | Copy | Fill, context: ThreadContext) -> st.Stmt:
    """What one thread does of an element-wise operator."""
    nest = nest_of(op, context)
    if _is_private(nest):
        return _everything(nest, context)
    if nest.shape is None:
        return _strided(nest, context)
    if 0 in nest.shape:
        return st.Seq(())
    loop = nest.op.loop_layout
    if loop is None:
        known = {a.buffer: a.buffer.layout for a in (*nest.fragments, *nest.memory)}
        layouts = LayoutMap({b: found for b, found in known.items() if found is not None})
        loop = infer_nest(nest, layouts, Level.FREE, context).loop
    if loop is None:
        raise TypeError("an element-wise nest without a loop layout")
    shared = partition(loop, context.threads)
    return _Lowering.of(nest, shared, plan_lanes(nest, shared, context), context).run()


def _is_private(nest: Nest) -> bool:
    """Whether it only fills memory of the thread's own: then each thread does all of it."""
    stores = [s for s in _all(nest.op.body) if isinstance(s, st.Store | st.Atomic)]
    return bool(stores) and all(s.buffer.scope.startswith("local") for s in stores) and not (
        nest.fragments
    )


def _all(stmt: st.Stmt) -> list[st.Stmt]:
    found = [stmt]
    for current in found:
        found.extend(child for child in current.children() if isinstance(child, st.Stmt))
    return found


def _everything(nest: Nest, context: ThreadContext) -> st.Stmt:
    rewriter = Rewriter(lambda found: guarded(found, context) if isinstance(found, Load) else found)
    body: st.Stmt = rewriter(nest.op.body)
    for var, extent in reversed(list(zip(nest.op.vars, nest.op.extents, strict=True))):
        small = (const_int(extent) or _UNROLL + 1) <= _UNROLL
        kind = st.LoopKind.UNROLLED if small else st.LoopKind.SERIAL
        body = st.For(var, _ZERO, extent, int_const(1), kind, body, site=nest.op.site)
    return body


def _strided(nest: Nest, context: ThreadContext) -> st.Stmt:
    """A nest of symbolic extents: vectors in row-major order, one in `threads` for each thread."""
    op = nest.op
    last = len(op.vars) - 1
    plan = plan_along(nest, last, 0, 16, context)
    lanes = plan.lanes
    while lanes > 1 and not context.ranges.divides(lanes, op.extents[last]):
        lanes //= 2
    if lanes < plan.lanes:
        plan = plan_along(nest, last, 0, lanes, context) if lanes > 1 else SCALAR
    counts = list(op.extents)
    counts[last] = binary("floordiv", counts[last], int_const(plan.lanes))
    total: Expr = int_const(1)
    for count in counts:
        total = mul(total, count)
    step = context.loop_var("step")
    flat = add(scaled(step, context.threads), context.thread)
    trips = binary("floordiv", add(total, int_const(context.threads - 1)), int_const(context.threads))
    values: list[Expr] = []
    rest = flat
    for at in reversed(range(1, len(counts))):
        values.append(binary("floormod", rest, counts[at]))
        rest = binary("floordiv", rest, counts[at])
    values.append(rest)
    values.reverse()
    values[last] = scaled(values[last], plan.lanes)
    found = _Strided(nest, tuple(values), plan.lanes, context)
    body = _Lowering(nest, found, plan, context, pure_lets(op.body)).group()
    inside = st.If(binary("lt", flat, total), body, site=op.site)
    return st.For(step, _ZERO, trips, int_const(1), st.LoopKind.SERIAL, inside, site=op.site)


@dataclass(frozen=True, slots=True)
class _Strided:
    """The iterations of a thread in a nest of symbolic extents."""

    nest: Nest
    values: tuple[Expr, ...]
    lanes: int
    context: ThreadContext

    def substitute(self, root: Any, lane: Expr) -> Any:
        found = dict(zip(self.nest.op.vars, self.values, strict=True))
        last = self.nest.op.vars[-1]
        return substitute(root, {**found, last: add(found[last], lane)})

    def replica(self) -> Expr | None:
        return None


@dataclass(slots=True)
class _Lowering:
    nest: Nest
    iterations: Iterations | _Strided
    plan: LanePlan
    context: ThreadContext
    lets: Mapping[Var, Expr]
    loops: tuple[tuple[Var, int], ...] = ()
    loaded: dict[Load, Buffer] = field(default_factory=dict)
    written: dict[int, Buffer] = field(default_factory=dict)

    @classmethod
    def of(
        cls, nest: Nest, shared: Partition, plan: LanePlan, context: ThreadContext
    ) -> _Lowering:
        values: list[Expr] = []
        loops: list[tuple[Var, int]] = []
        extents: list[int] = []
        lane_dim: int | None = None
        for number, step in enumerate(shared.steps):
            trips = step.extent // plan.lanes if number == plan.step else step.extent
            name = nest.op.vars[step.dim].name if step.dim is not None else "step"
            extents.append(trips)
            if trips == 1:
                values.append(_ZERO)
            else:
                var = context.loop_var(name)
                context.ranges.enter(var, _ZERO, int_const(trips), 1)
                loops.append((var, trips))
                values.append(var)
            if number == plan.step:
                lane_dim = len(values)
                values.append(_ZERO)
                extents.append(plan.lanes)
        box = (*extents, shared.box[-1])
        found = Iterations(
            nest,
            shared,
            box,
            _split(shared, box, lane_dim),
            tuple(values),
            lane_dim,
            plan.lanes,
            context,
            {(access.buffer, access.indices): access for access in nest.fragments},
        )
        return cls(nest, found, plan, context, pure_lets(nest.op.body), tuple(loops))

    def run(self) -> st.Stmt:
        """The loops of the thread around one group of iterations."""
        iterations, site = self.iterations, self.nest.op.site
        assert isinstance(iterations, Iterations)
        body = self.group()
        bound = iterations.bound_guard(_ZERO)
        if bound is not None:
            body = st.If(bound, body, site=site)
        replica = iterations.replica()
        alone = replica is not None and self.nest.stores_memory and not self.nest.writes_fragment
        guards = [iterations.thread_guard(), replica if alone else None]
        trips = 1
        for _, extent in self.loops:
            trips *= extent
        unrolled = bool(self.nest.fragments) or trips <= _UNROLL
        kind = st.LoopKind.UNROLLED if unrolled else st.LoopKind.SERIAL
        for var, extent in reversed(self.loops):
            body = st.For(var, _ZERO, int_const(extent), int_const(1), kind, body, site=site)
        guard = conjunction([cond for cond in guards if cond is not None])
        return body if guard is None else st.If(guard, body, site=site)

    # One group of lanes

    def group(self) -> st.Stmt:
        """Vector loads, the lanes one by one, vector stores; or vectors throughout for a copy."""
        if self.plan.lanes == 1:
            return self.scalar(self.nest.op.body, _ZERO)
        moved = self.moved()
        if moved is not None:
            return st.seq(moved)
        stmts: list[st.Stmt] = []
        for load, width in self.plan.loads.items():
            stmts += self.load_vector(load, width)
        for stmt in self.plan.stores:
            self.written[id(stmt)] = self.context.temporary(
                f"{stmt.buffer.name}_lanes", stmt.buffer.dtype, self.plan.lanes
            )
        lane = self.context.loop_var("lane")
        self.context.ranges.enter(lane, _ZERO, int_const(self.plan.lanes), 1)
        body = self.scalar(self.nest.op.body, lane)
        stmts.append(
            st.For(
                lane,
                _ZERO,
                int_const(self.plan.lanes),
                int_const(1),
                st.LoopKind.UNROLLED,
                body,
                site=self.nest.op.site,
            )
        )
        for stmt, width in self.plan.stores.items():
            source = self.written[id(stmt)]
            for start in range(0, self.plan.lanes, width):
                value = Load(source, (Ramp(int_const(start), int_const(1), width),))
                stmts.append(self.store_vector(stmt, value, start, width))
        return st.seq(stmts)

    def load_vector(self, load: Load, width: int) -> list[st.Stmt]:
        """Vector loads of a whole group into a register array."""
        shared = self.plan.shared.get(load, 1)
        elements = self.plan.lanes // shared
        name = f"{load.buffer.name}_lanes"
        found = self.loaded[load] = self.context.temporary(name, load.buffer.dtype, elements)
        return [
            st.Store(
                found,
                (Ramp(int_const(start), int_const(1), width),),
                self.vector(load, start * shared, width),
                site=self.nest.op.site,
            )
            for start in range(0, elements, width)
        ]

    def vector(self, load: Load, start: int, width: int) -> Load:
        """The load of `width` lanes from lane `start` on."""
        whole = guarded(replace(load, indices=self.inline(load.indices)), self.context)
        at = int_const(start)
        indices = self.place(whole.indices, at)
        predicate = None if whole.predicate is None else self.expr(whole.predicate, at)
        safe = None if whole.safe is None else self.expr(whole.safe, at)
        return Load(load.buffer, _widened(indices, width), predicate, safe)

    def store_vector(self, stmt: st.Store, value: Expr, start: int, width: int) -> st.Stmt:
        """The store of `width` lanes from lane `start` on."""
        at, places = int_const(start), self.inline(stmt.indices)
        missing = missing_guards(stmt.buffer, places, None, self.context)
        predicate = conjunction([self.expr(cond, at) for cond in (*missing, *self.once())])
        indices = _widened(self.place(places, at), width)
        return st.Store(stmt.buffer, indices, value, predicate, site=stmt.site)

    def moved(self) -> list[st.Stmt] | None:
        """A nest that only moves elements, converted perhaps, as vectors; None for any other."""
        body = self.nest.op.body
        if not isinstance(body, st.Store) or body.predicate is not None:
            return None
        value = body.value.value if isinstance(body.value, Cast) else body.value
        if not isinstance(value, Load) or value.predicate is not None:
            return None
        lanes = self.plan.lanes
        if value in self.plan.shared:
            return None
        read = self.plan.loads.get(value) or self.register_lanes(value.buffer, value.indices)
        write = self.plan.stores.get(body) or self.register_lanes(body.buffer, body.indices)
        if not read or not write:
            return None
        converts_in_memory = value is not body.value and not any(
            buffer.scope == "local.fragment" for buffer in (value.buffer, body.buffer)
        )
        if read == write or not converts_in_memory:
            width = min(read, write)
            return [self.move(body, value, start, width) for start in range(0, lanes, width)]
        stmts = self.load_vector(value, read)
        source = self.loaded[value]
        for start in range(0, lanes, write):
            part = Load(source, (Ramp(int_const(start), int_const(1), write),))
            stmts.append(self.put(body, part, start, write))
        return stmts

    def register_lanes(self, buffer: Buffer, indices: tuple[Expr, ...]) -> int:
        """The lanes when a group is neighbouring registers of a fragment, else 0."""
        if buffer.scope != "local.fragment" or not isinstance(self.iterations, Iterations):
            return 0
        access = self.iterations.accesses.get((buffer, self.inline(indices)))
        if access is None or not self.iterations.lane_stride(access):
            return 0
        return self.plan.lanes

    def move(self, stmt: st.Store, load: Load, start: int, width: int) -> st.Stmt:
        """One vector from its source to its destination."""
        if load.buffer.scope == "local.fragment":
            slot = self.slot(load.buffer, load.indices, int_const(start))
            value = Load(self.context.registers(load.buffer), _widened((slot,), width))
            return self.put(stmt, value, start, width)
        value = self.vector(load, start, width)
        if self.is_asynchronous(stmt, value, width):
            indices = self.place(self.inline(stmt.indices), int_const(start))
            source = self.place(self.inline(load.indices), int_const(start))
            return AsyncCopy(
                Address(stmt.buffer, indices),
                Address(load.buffer, source),
                width,
                value.predicate,
                site=stmt.site,
            )
        return self.put(stmt, value, start, width)

    def put(self, stmt: st.Store, value: Expr, start: int, width: int) -> st.Stmt:
        """Store a vector, converted, to memory or to registers."""
        converted = cast(value, stmt.buffer.dtype)
        if stmt.buffer.scope == "local.fragment":
            slot = self.slot(stmt.buffer, stmt.indices, int_const(start))
            registers = self.context.registers(stmt.buffer)
            return st.Store(registers, _widened((slot,), width), converted, site=stmt.site)
        return self.store_vector(stmt, converted, start, width)

    def is_asynchronous(self, stmt: st.Store, value: Load, width: int) -> bool:
        """Whether the copy engine can take a vector of a pipelined loop."""
        size = width * stmt.buffer.dtype.bits
        return (
            self.context.pipelined
            and self.context.target.compute_capability >= 80
            and value.buffer.scope == "global"
            and stmt.buffer.scope == "shared"
            and value.buffer.dtype == stmt.buffer.dtype
            and size in (32, 64, 128)
            and (value.predicate is None or value.safe is None or _is_zero(value.safe))
            and not self.once()
        )

    # Expressions

    def once(self) -> list[Expr]:
        """The condition that only the first copy of an iteration touches memory, where the whole
        nest is not under it already.
        """
        if not self.nest.writes_fragment:
            return []
        replica = self.iterations.replica()
        return [] if replica is None else [replica]

    def inline(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(substitute(index, self.lets) for index in indices) if self.lets else indices

    def slot(self, buffer: Buffer, indices: tuple[Expr, ...], lane: Expr) -> Expr:
        assert isinstance(self.iterations, Iterations)  # nests of symbolic extents have no fragments
        return self.iterations.slot(buffer, self.inline(indices), lane)

    def place(self, indices: tuple[Expr, ...], lane: Expr) -> tuple[Expr, ...]:
        return tuple(self.expr(index, lane) for index in indices)

    def expr(self, value: Expr, lane: Expr) -> Expr:
        return self.scalar(value, lane)  # type: ignore[no-any-return]

    def scalar(self, root: Any, lane: Expr) -> Any:
        """A statement or expression of the body, for one lane."""

        def change(found: object) -> object:
            if not isinstance(found, Load):
                return found
            if found.buffer.scope == "local.fragment":
                slot = self.slot(found.buffer, found.indices, lane)
                return Load(self.context.registers(found.buffer), (slot,))
            return guarded(found, self.context)

        def change_stmt(stmt: st.Stmt) -> st.Stmt:
            match stmt:
                case st.Store():
                    return self.store(stmt, lane)
                case st.Atomic():
                    return self.atomic(stmt, lane)
                case st.Print():
                    replica = self.iterations.replica()
                    return stmt if replica is None else st.If(replica, stmt, site=stmt.site)
            return stmt

        if isinstance(root, st.Stmt):
            root = self.with_vectors(self.with_targets(root, lane), lane)
        made = Rewriter(change, change_stmt)(root)
        return self.iterations.substitute(made, lane)

    def with_targets(self, root: st.Stmt, lane: Expr) -> st.Stmt:
        """Stores that are vectors go to the register array of their group."""
        if not self.written:
            return root
        found = [
            replace(stmt, buffer=self.written[id(stmt)], indices=(lane,))
            if isinstance(stmt, st.Store) and id(stmt) in self.written
            else stmt
            for stmt in (root.stmts if isinstance(root, st.Seq) else (root,))
        ]
        return st.seq(found)

    def with_vectors(self, root: Any, lane: Expr) -> Any:
        """Loads that are vectors come from the register array of their group."""
        if not self.loaded:
            return root
        if isinstance(root, Load) and root in self.loaded:
            shared = self.plan.shared.get(root, 1)
            return Load(self.loaded[root], (binary("floordiv", lane, int_const(shared)),))
        return root.map_children(lambda child: self.with_vectors(child, lane))

    def store(self, stmt: st.Store, lane: Expr) -> st.Stmt:
        if stmt.buffer.scope == "local.fragment":
            slot = self.slot(stmt.buffer, stmt.indices, lane)
            return replace(stmt, buffer=self.context.registers(stmt.buffer), indices=(slot,))
        if stmt.buffer.scope.startswith("local"):
            return stmt
        missing = missing_guards(stmt.buffer, stmt.indices, stmt.predicate, self.context)
        found = [*conjuncts(stmt.predicate), *missing, *self.once()]
        return replace(stmt, predicate=conjunction(found))

    def atomic(self, stmt: st.Atomic, lane: Expr) -> st.Stmt:
        if stmt.buffer.scope == "local.fragment":
            registers = self.context.registers(stmt.buffer)
            slot = self.slot(stmt.buffer, stmt.indices, lane)
            value = binary(_COMBINE[stmt.kind], Load(registers, (slot,)), stmt.value)
            replica = self.iterations.replica()
            return st.Store(registers, (slot,), value, replica, site=stmt.site)
        missing = missing_guards(stmt.buffer, stmt.indices, stmt.predicate, self.context)
        found = [*conjuncts(stmt.predicate), *missing, *self.once()]
        safe = stmt.safe
        if missing and safe is None and stmt.previous is not None:
            safe = self.context.safe_values.get(stmt.buffer.name)
        return replace(stmt, predicate=conjunction(found), safe=safe)


def _split(
    shared: Partition, box: tuple[int, ...], lane_dim: int | None
) -> tuple[DigitSum, ...]:
    """The index with the step before `lane_dim` cut in groups and lanes."""
    if lane_dim is None:
        return shared.sums
    variables = list(Index.variables(box))
    lane = variables.pop(lane_dim)
    variables[lane_dim - 1] = variables[lane_dim - 1] * box[lane_dim] + lane
    found = DigitMap(shared.box, shared.sums).evaluate(variables)
    return tuple(
        total.sum if isinstance(total, Index) else make_sum(box, total, ()) for total in found
    )


def _widened(indices: tuple[Expr, ...], width: int) -> tuple[Expr, ...]:
    """The indices of `width` elements from `indices` on."""
    if width == 1:
        return indices
    last = indices[-1]
    return (*indices[:-1], Ramp(last, cast(int_const(1), last.dtype), width))


def _is_zero(value: Expr) -> bool:
    return getattr(value, "value", None) == 0
