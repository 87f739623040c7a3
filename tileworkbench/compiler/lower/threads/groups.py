"""One group of neighbouring iterations: wide accesses around the computation of each lane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from tileworkbench.compiler.analysis.access import conjuncts
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import (
    binary,
    cast,
    conjunction,
    const_int,
    int_const,
    is_zero,
    mul,
)
from tileworkbench.compiler.ir.expr import (
    Address,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Var,
)
from tileworkbench.compiler.ir.rewrite import Rewriter, substitute, walk
from tileworkbench.compiler.ir.simt import AsyncCopy
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.threads import copies_in_line
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.iterations import (
    SymbolicIterations,
    ThreadIterations,
    guarded,
    missing_guards,
)
from tileworkbench.compiler.lower.threads.lanes import LanePlan, plan_along
from tileworkbench.compiler.lower.threads.nests import Nest, analyse, pure_lets

_ZERO = int_const(0)
_COMBINE = {
    st.AtomicKind.ADD: "add",
    st.AtomicKind.MAX: "max",
    st.AtomicKind.MIN: "min",
    st.AtomicKind.AND: "and",
    st.AtomicKind.OR: "or",
    st.AtomicKind.XOR: "xor",
}


@dataclass(slots=True)
class Group:
    """The lowering of a nest's body for the group of iterations that a thread takes at once."""

    nest: Nest
    iterations: ThreadIterations
    plan: LanePlan
    context: ThreadContext
    lets: Mapping[Var, Expr]
    loaded: dict[Load, Buffer] = field(default_factory=dict)
    written: dict[int, Buffer] = field(default_factory=dict)

    def lower(self) -> st.Stmt:
        """Vector loads, the lanes one by one, vector stores; or vectors throughout for a copy."""
        if self.plan.lanes == 1:
            return self.statement(self.nest.op.body, _ZERO)
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
        body = self.statement(self.nest.op.body, lane)
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
        vector = self.loaded[load] = self.context.temporary(name, load.buffer.dtype, elements)
        return [
            st.Store(
                vector,
                (Ramp(int_const(start), int_const(1), width),),
                self.vector(load, start * shared, width),
                site=self.reader(load),
            )
            for start in range(0, elements, width)
        ]

    def reader(self, load: Load) -> int:
        """The site of the first statement that reads `load`."""
        reading: st.Stmt = self.nest.op
        for node in walk(self.nest.op.body):
            if isinstance(node, st.Stmt):
                reading = node
            elif node is load:
                break
        return reading.site

    def vector(self, load: Load, start: int, width: int) -> Load:
        """The load of `width` lanes from lane `start` on."""
        whole = guarded(replace(load, indices=self.inline(load.indices)), self.context)
        at = int_const(start)
        indices = self.place(whole.indices, at)
        predicate = None if whole.predicate is None else self.expr(whole.predicate, at)
        safe = None if whole.safe is None else self.expr(whole.safe, at)
        return Load(load.buffer, _widened(indices, width), predicate, safe)

    def store_vector(
        self, stmt: st.Store | st.Atomic, value: Expr, start: int, width: int
    ) -> st.Stmt:
        """The store, or the atomic addition, of `width` lanes from lane `start` on."""
        at, places = int_const(start), self.inline(stmt.indices)
        missing = missing_guards(stmt.buffer, places, None, self.context)
        predicate = conjunction([self.expr(cond, at) for cond in (*missing, *self.once())])
        indices = _widened(self.place(places, at), width)
        return replace(stmt, indices=indices, value=value, predicate=predicate)

    def moved(self) -> list[st.Stmt] | None:
        """A nest that only moves or adds elements, converted perhaps, as vectors; None for any
        other.
        """
        body = self.nest.op.body
        if not isinstance(body, st.Store) and body not in self.plan.stores:
            return None
        if not isinstance(body, st.Store | st.Atomic) or body.predicate is not None:
            return None
        lanes = self.plan.lanes
        if isinstance(body.value, Const) and body in self.plan.stores:
            width = self.plan.stores[body]
            filled = Broadcast(body.value, width)
            return [self.store_vector(body, filled, at, width) for at in range(0, lanes, width)]
        value = body.value.value if isinstance(body.value, Cast) else body.value
        if not isinstance(value, Load) or value.predicate is not None:
            return None
        if value in self.plan.shared:
            return None
        is_turned = self.turns(body, value)
        read = self.plan.loads.get(value) or self.register_lanes(
            value.buffer, value.indices, is_turned
        )
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

    def turns(self, stmt: st.Store | st.Atomic, load: Load) -> bool:
        """Whether elements as short as parts of a register may be stored from several registers
        apart: where no matrix instruction does that for a warp. None does for bytes.
        """
        bits, machine = load.buffer.dtype.bits, self.context.target.machine
        alone = bits == 8 or (bits == 16 and machine.move(loads=True) is None)
        return alone and load.buffer.dtype == stmt.buffer.dtype

    def register_lanes(
        self, buffer: Buffer, indices: tuple[Expr, ...], may_be_apart: bool = False
    ) -> int:
        """The lanes when a group is neighbouring registers of a fragment, or some that are evenly
        apart, else 0.
        """
        if buffer.scope != "local.fragment":
            return 0
        apart = self.iterations.apart(buffer, self.inline(indices))
        return self.plan.lanes if apart == 1 or (apart and may_be_apart) else 0

    def move(self, stmt: st.Store | st.Atomic, load: Load, start: int, width: int) -> st.Stmt:
        """One vector from its source to its destination."""
        if load.buffer.scope == "local.fragment":
            slot = self.slot(load.buffer, load.indices, int_const(start))
            apart = self.iterations.apart(load.buffer, self.inline(load.indices))
            value = Load(self.context.registers(load.buffer), _widened((slot,), width, apart))
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
                copies_in_line.engine_of(self.context.target.machine) is not None,
                site=stmt.site,
            )
        return self.put(stmt, value, start, width)

    def put(self, stmt: st.Store | st.Atomic, value: Expr, start: int, width: int) -> st.Stmt:
        """Store a vector, converted, to memory or to registers."""
        converted = cast(value, stmt.buffer.dtype)
        if stmt.buffer.scope == "local.fragment":
            slot = self.slot(stmt.buffer, stmt.indices, int_const(start))
            registers = self.context.registers(stmt.buffer)
            return st.Store(registers, _widened((slot,), width), converted, site=stmt.site)
        return self.store_vector(stmt, converted, start, width)

    def is_asynchronous(self, stmt: st.Store | st.Atomic, value: Load, width: int) -> bool:
        """Whether the copy engine can take a vector of a copy that may come later."""
        engine = self.context.target.machine.thread_copies
        return (
            self.context.asynchronous
            and isinstance(stmt, st.Store)
            and engine is not None
            and value.buffer.scope == "global"
            and stmt.buffer.scope == "shared"
            and stmt.buffer not in self.context.peers
            and value.buffer.dtype == stmt.buffer.dtype
            and width * stmt.buffer.dtype.bits in [8 * size for size in engine.sizes]
            and (value.predicate is None or is_zero(value.safe))
            and not self.once()
            and (not engine.in_line or self.is_in_line(value))
        )

    def is_in_line(self, value: Load) -> bool:
        """Whether the nest was laid out for an engine that fills a tile by whole warps."""
        if value.predicate is not None or self.context.started:
            return False
        loop = copies_in_line.plan(self.nest, LayoutMap({}), self.context)
        return loop is not None and self.nest.op.loop_layout in (None, loop)

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
        return self.iterations.slot(buffer, self.inline(indices), lane)

    def place(self, indices: tuple[Expr, ...], lane: Expr) -> tuple[Expr, ...]:
        return tuple(self.expr(index, lane) for index in indices)

    def expr(self, value: Expr, lane: Expr) -> Expr:
        return self.scalar(value, lane)  # type: ignore[no-any-return]

    def statement(self, stmt: st.Stmt, lane: Expr) -> st.Stmt:
        """A statement of the body, for one lane; vector loops of the user's beside others are wide
        accesses where they can be.
        """
        if isinstance(stmt, st.Seq) and any(map(_is_vector_loop, stmt.stmts)):
            return st.seq([self.statement(child, lane) for child in stmt.stmts])
        if _is_vector_loop(stmt) and not self.once():
            vectors = vectorize(self.iterations.substitute(stmt, lane), self.context)
            if vectors is not None:
                return vectors
        made: st.Stmt = self.scalar(self.with_vectors(self.with_targets(stmt, lane), lane), lane)
        return made

    def scalar(self, root: Any, lane: Expr) -> Any:
        """A statement or expression of the body without vectors, for one lane."""

        def change(node: object) -> object:
            if not isinstance(node, Load):
                return node
            if node.buffer.scope == "local.fragment":
                slot = self.slot(node.buffer, node.indices, lane)
                return Load(self.context.registers(node.buffer), (slot,))
            return guarded(node, self.context)

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

        made = Rewriter(change, change_stmt)(root)
        return self.iterations.substitute(made, lane)

    def with_targets(self, root: st.Stmt, lane: Expr) -> st.Stmt:
        """Stores that are vectors go to the register array of their group."""
        if not self.written:
            return root
        stmts = [
            st.Store(self.written[id(stmt)], (lane,), stmt.value, site=stmt.site)
            if isinstance(stmt, st.Store | st.Atomic) and id(stmt) in self.written
            else stmt
            for stmt in st.items(root)
        ]
        return st.seq(stmts)

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
        conditions = [*conjuncts(stmt.predicate), *missing, *self.once()]
        return replace(stmt, predicate=conjunction(conditions))

    def atomic(self, stmt: st.Atomic, lane: Expr) -> st.Stmt:
        if stmt.buffer.scope == "local.fragment":
            registers = self.context.registers(stmt.buffer)
            slot = self.slot(stmt.buffer, stmt.indices, lane)
            value = binary(_COMBINE[stmt.kind], Load(registers, (slot,)), stmt.value)
            replica = self.iterations.replica()
            return st.Store(registers, (slot,), value, replica, site=stmt.site)
        missing = missing_guards(stmt.buffer, stmt.indices, stmt.predicate, self.context)
        conditions = [*conjuncts(stmt.predicate), *missing, *self.once()]
        safe = stmt.safe
        if missing and safe is None and stmt.previous is not None:
            safe = self.context.safe_values.get(stmt.buffer.name)
        return replace(stmt, predicate=conjunction(conditions), safe=safe)


def _is_vector_loop(stmt: st.Stmt) -> bool:
    return isinstance(stmt, st.For) and stmt.kind is st.LoopKind.VECTORIZED


def _widened(indices: tuple[Expr, ...], width: int, apart: int = 1) -> tuple[Expr, ...]:
    """The indices of `width` elements from `indices` on."""
    if width == 1:
        return indices
    last = indices[-1]
    return (*indices[:-1], Ramp(last, cast(int_const(apart), last.dtype), width))


def vectorize(loop: st.For, context: ThreadContext) -> st.Stmt | None:
    """The user's vector loop with wide accesses to memory; None where none is possible."""
    extent = const_int(loop.stop)
    if (const_int(loop.start), const_int(loop.step)) != (0, 1) or not extent:
        return None
    nest = analyse(Parallel((loop.var,), (loop.stop,), loop.body, site=loop.site), context.ranges)
    plan = plan_along(nest, 0, 0, extent & -extent, context)
    if nest.fragments or plan.lanes == 1:
        return None
    group = context.loop_var(loop.var.name)
    trips = extent // plan.lanes
    first = int_const(0) if trips == 1 else mul(group, int_const(plan.lanes))
    iterations = SymbolicIterations(nest, (first,))
    body = Group(nest, iterations, plan, context, pure_lets(loop.body)).lower()
    if trips == 1:
        return body
    stop = int_const(trips)
    return st.For(group, loop.start, stop, loop.step, st.LoopKind.UNROLLED, body, site=loop.site)
