"""`T.reduce_*` by the threads of a block: over the slots of a thread, over lanes by shuffles, over
warps through shared memory.

The result's fragment follows from the source's: digits of the reduced dimension that are spread
over threads become replicas, so every thread that held a part holds the result. Values are combined
in the destination's dtype, 16-bit floats in float32 and narrow integers in 32 bits, and rounded
once.

Before::

    T.reduce_max(S, m, dim=1)

After::

    for s in T.unroll(2):
        m[s] = -inf
    for s in T.unroll(2):
        for s_1 in T.unroll(16):
            m[s] = max(m[s], S[...])
    for s in T.unroll(2):
        other = T.shfl_xor(m[s], 1)
        m[s] = max(m[s], other)
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import binary, cast, const_int, int_const, unary
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.stmt import Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Reduce, ReduceKind
from tileworkbench.compiler.ir.types import FLOAT32, INT32, DType
from tileworkbench.compiler.layout.contain import contains
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.maps import DigitMap, evaluate_sum
from tileworkbench.compiler.lower.shared.combining import accumulation_dtype, combine, identity
from tileworkbench.compiler.lower.threads.collective import (
    Combining,
    combine_across,
    route,
    thread_places,
)
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.holding import (
    Holding,
    each_element,
    guarded,
    hold,
)
from tileworkbench.compiler.lower.threads.inference import (
    NOTHING,
    LayoutMap,
    LayoutUpdate,
    Level,
    Proposal,
)
from tileworkbench.compiler.lower.threads.loops import scale, unrolled
from tileworkbench.compiler.lower.threads.reduce_layouts import plan_source, reduced_fragment
from tileworkbench.compiler.lower.threads.staging import (
    SharedTile,
    read_tile,
    workspace,
    write_tile,
)

_UINT32 = DType("uint32")
_REASON = "is held by every thread that has a part of its reduction"
_UNROLLED = 16  # values of shared memory that a thread combines without a loop


# Layouts


def infer_layout(
    op: Reduce, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """The result's fragment, from the source's; any other one is reached through shared memory."""
    if level is Level.STRICT or op.dst.scope != "local.fragment":
        return NOTHING
    if layouts.fragment(op.dst) is not None:
        return NOTHING
    source = layouts.fragment(op.src)
    if op.src.scope == "shared" and level is Level.FREE:
        source = plan_source(_shape(op.src), op.dim, context.threads, context.lanes)
    if source is None:
        return NOTHING
    fragment = reduced_fragment(source, op.dim, len(op.dst.shape) == len(op.src.shape))
    return LayoutUpdate((Proposal(op.dst, fragment, _REASON),))


def _shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(const_int(extent) or 1 for extent in buffer.shape)


# Lowering


def lower(op: Reduce, context: ThreadContext) -> Stmt:
    """The part of one thread."""
    if op.src.scope == "local":
        return _lower_private(op, context)
    if op.dst.scope not in ("shared", "local.fragment"):
        raise UnsupportedError(
            f"T.reduce_{op.kind} of '{op.src.name}' gives the tile '{op.dst.name}', which is "
            "private to each thread",
            context.span(op.site),
            hint="allocate it with T.alloc_fragment or T.alloc_shared",
        )
    return seq(_Reduction(op, context).run())


def working_dtype(dtype: DType) -> DType:
    """What values are combined in."""
    if dtype.is_float or dtype.bits >= 32:
        return accumulation_dtype(dtype)
    return _UINT32 if dtype.kind == "uint" else INT32


class _Values:
    """How values of one reduction are converted and combined."""

    def __init__(self, op: Reduce) -> None:
        self.op = op
        self.dtype = working_dtype(op.dst.dtype)
        self.identity = identity(op.kind, self.dtype)

    def prepare(self, value: Expr) -> Expr:
        """An element of the source, ready to combine."""
        value = cast(value, self.op.dst.dtype)
        if self.op.kind in (ReduceKind.ABSMAX, ReduceKind.ABSSUM) and value.dtype.is_signed:
            value = unary("abs", value)
        return cast(value, self.dtype)

    def combine(self, a: Expr, b: Expr) -> Expr:
        return combine(self.op.kind, a, b, self.op.nan_propagate)

    def finish(self, old: Expr, total: Expr) -> Expr:
        """What the destination becomes, which held `old`."""
        if not self.op.clear:
            total = self.combine(cast(old, self.dtype), total)
        return cast(total, self.op.dst.dtype)


class _Reduction:
    def __init__(self, op: Reduce, context: ThreadContext) -> None:
        self.op, self.context = op, context
        self.values = _Values(op)
        self.shape = _shape(op.src)
        self.keep = len(op.dst.shape) == len(op.src.shape)
        self.stmts: list[Stmt] = []

    def run(self) -> list[Stmt]:
        op, context = self.op, self.context
        source = op.src.layout
        if isinstance(source, Fragment):
            registers = context.registers(op.src)
            places = thread_places(source, op.dim, context.threads)
            held = hold(source, context.threads)
            if places is not None and self._is_plain(held):
                self._reduce(held, lambda slot, index: Load(registers, (slot,)))
                return self.stmts
            read = self._to_shared(source, registers)
        else:
            read = lambda slot, index: Load(op.src, index)  # noqa: E731
        plan = plan_source(self.shape, op.dim, context.threads, context.lanes)
        self._reduce(hold(plan, context.threads), read)
        return self.stmts

    def _is_plain(self, held: Holding) -> bool:
        """Whether each loop over a thread's slots moves along one dimension."""
        rank = len(self.shape)
        return all(step.dim is not None and step.dim < rank for step in held.partition.steps)

    def _to_shared(
        self, source: Fragment, registers: Buffer
    ) -> Callable[[Expr, tuple[Expr, ...]], Expr]:
        """Put the source in shared memory, from where any thread can read it."""
        op, context = self.op, self.context
        staged = workspace(op.src.name, op.src.dtype, self.shape, context)
        self.stmts.append(write_tile(registers, source, staged, context, op.site))
        return lambda slot, index: Load(staged.buffer, staged.at(index))

    def _reduce(self, held: Holding, read: Callable[[Expr, tuple[Expr, ...]], Expr]) -> None:
        op, context = self.op, self.context
        produced = reduced_fragment(held.fragment, op.dim, self.keep)
        kept = [n for n, step in enumerate(held.partition.steps) if step.dim != op.dim]
        totals = self._totals(produced)
        ways = self._ways(held)
        parts, count = totals, ways * produced.slots
        if ways > 1:
            parts = context.temporary(f"{op.dst.name}_parts", totals.dtype, count)
        self._each(count, lambda s: Store(parts, (s,), self.values.identity, site=op.site))
        strides = [ways * self._kept_stride(held, produced, n) for n in kept]
        self.stmts.append(self._combine_own(held, kept, strides, parts, read, ways))
        if ways > 1:
            self._each(produced.slots, lambda s: self._joined(totals, parts, s))
        places = thread_places(held.fragment, op.dim, context.threads) or ()
        self.stmts += combine_across(
            totals,
            produced.slots,
            route(places, context),
            Combining(self.values.combine, self.values.identity),
            context,
            op.site,
        )
        self._deliver(produced, totals)

    def _each(self, count: int, body: Callable[[Expr], Stmt]) -> None:
        self.stmts.append(unrolled(self.context, "s", count, body, self.op.site))

    def _ways(self, held: Holding) -> int:
        """In how many sums a thread adds its elements: two where one instruction adds to both."""
        last = held.partition.steps[-1] if held.partition.steps else None
        paired = self.context.target.machine.adds_pairs and self.values.dtype == FLOAT32
        if not paired or self.op.kind not in (ReduceKind.SUM, ReduceKind.ABSSUM) or last is None:
            return 1
        return 2 if last.dim == self.op.dim and last.extent % 2 == 0 else 1

    def _joined(self, totals: Buffer, parts: Buffer, slot: Expr) -> Stmt:
        """A total from the two sums of its elements."""
        both = [Load(parts, (binary("add", scale(slot, 2), int_const(n)),)) for n in (0, 1)]
        return Store(totals, (slot,), self.values.combine(*both), site=self.op.site)

    def _totals(self, produced: Fragment) -> Buffer:
        """Registers for the results: the destination's own where they fit."""
        op = self.op
        if op.clear and op.dst.dtype == self.values.dtype and self._fits(produced):
            return self.context.registers(op.dst)
        name = f"{op.dst.name}_total"
        return self.context.temporary(name, self.values.dtype, produced.slots)

    def _fits(self, produced: Fragment) -> bool:
        """Whether the threads that hold the destination have its elements, at the same slots."""
        known = self.op.dst.layout
        return isinstance(known, Fragment) and (
            known == produced
            or (known.slots == produced.slots and contains(known, produced, same_slot=True))
        )

    def _kept_stride(self, held: Holding, produced: Fragment, step: int) -> int:
        """How far apart the results of neighbouring values of a step are."""
        mapping = produced.mapping
        assert isinstance(mapping, DigitMap)  # the source has digits

        def slot(value: int) -> int:
            point = [value if n == step else 0 for n in range(len(held.strides))]
            index = list(held.point(point)[:-1])
            index[self.op.dim : self.op.dim + 1] = [0] * (produced.rank == len(self.shape))
            return int(evaluate_sum(mapping.shape, mapping.sums[1], (*index, 0)))

        return slot(1) - slot(0)

    def _combine_own(
        self,
        held: Holding,
        kept: list[int],
        strides: list[int],
        totals: Buffer,
        read: Callable[[Expr, tuple[Expr, ...]], Expr],
        ways: int = 1,
    ) -> Stmt:
        """Combine the thread's own elements: loops over kept steps around loops over reduced
        ones. Neighbours take turns in `ways` totals.
        """
        context, site = self.context, self.op.site
        steps = held.partition.steps
        order = [*kept, *(n for n in range(len(steps)) if n not in kept)]

        def inner(numbers: dict[int, Expr]) -> Stmt:
            if len(numbers) < len(order):
                number = order[len(numbers)]
                extent = steps[number].extent
                in_memory = self.op.src.layout is None or self.op.src.scope == "shared"
                if number not in kept and extent > _UNROLLED and in_memory:
                    return self._serial(extent, lambda s: inner({**numbers, number: s}))
                return unrolled(context, "s", extent, lambda s: inner({**numbers, number: s}), site)
            values = [numbers[n] for n in range(len(order))]
            index = held.indices(values, context)
            places = [scale(numbers[n], s) for n, s in zip(kept, strides, strict=True)]
            turn = [binary("floormod", values[-1], int_const(ways))] if ways > 1 else []
            total = _sum_of([*places, *turn])
            value = self.values.prepare(read(held.slot(values), index[:-1]))
            update = Store(
                totals, (total,), self.values.combine(Load(totals, (total,)), value), site=site
            )
            return guarded(held.bounds(index), update, site)

        return guarded(held.thread_guards(context), inner({}), site)

    def _serial(self, extent: int, body: Callable[[Expr], Stmt]) -> Stmt:
        var = self.context.loop_var("s")
        return counting(var, extent, body(var), self.op.site)

    # The result

    def _deliver(self, produced: Fragment, totals: Buffer) -> None:
        """Bring the results to the destination."""
        op, context = self.op, self.context
        dst = op.dst
        if dst.scope == "shared":
            into_tile = SharedTile(dst, tuple)
            self.stmts.append(
                write_tile(totals, produced, into_tile, context, op.site, self._finish)
            )
        elif self._fits(produced):
            into, layout = context.registers(dst), dst.layout
            assert isinstance(layout, Fragment)  # `_fits` has asked

            def finish(slot: Expr, index: tuple[Expr, ...], predicate: Expr | None) -> Stmt:
                return self._finish(into, (slot,), Load(totals, (slot,)), predicate)

            if totals is not into and hold(layout, context.threads).is_partial:
                self.stmts.append(each_element(context, layout, finish, op.site))
            elif totals is not into:
                self.stmts.append(
                    unrolled(
                        context,
                        "s",
                        produced.slots,
                        lambda s: self._finish(into, (s,), Load(totals, (s,))),
                        op.site,
                    )
                )
        else:
            self._deliver_through_shared(produced, totals)

    def _finish(
        self, buffer: Buffer, at: tuple[Expr, ...], total: Expr, predicate: Expr | None = None
    ) -> Stmt:
        value = self.values.finish(Load(buffer, at, predicate), total)
        return Store(buffer, at, value, predicate, site=self.op.site)

    def _deliver_through_shared(self, produced: Fragment, totals: Buffer) -> None:
        """The destination is held by other threads."""
        op, context = self.op, self.context
        layout, shape = op.dst.layout, _shape(op.dst)
        assert isinstance(layout, Fragment)  # inference gives every fragment one
        staged = workspace(op.dst.name, self.values.dtype, shape, context)
        into = context.registers(op.dst)
        self.stmts += [
            write_tile(totals, produced, staged, context, op.site),
            read_tile(staged, into, layout, context, op.site, self._finish),
        ]


def _sum_of(values: list[Expr]) -> Expr:
    total: Expr = int_const(0)
    for value in values:
        total = binary("add", total, value)
    return total


def _lower_private(op: Reduce, context: ThreadContext) -> Stmt:
    """Each thread reduces its own array."""
    values = _Values(op)
    total = context.temporary(f"{op.dst.name}_total", values.dtype, 1)
    zero = (int_const(0),)
    kept = [d for d in range(len(op.src.shape)) if d != op.dim]
    loops = {d: context.loop_var("s") for d in range(len(op.src.shape))}
    index = tuple(loops[d] for d in range(len(op.src.shape)))
    into: list[Expr] = [loops[d] for d in kept]
    if len(op.dst.shape) > len(kept):
        into.insert(op.dim, int_const(0))
    element = values.prepare(Load(op.src, index))
    update = Store(total, zero, values.combine(Load(total, zero), element), site=op.site)

    def loop(d: int, body: Stmt) -> Stmt:
        return counting(loops[d], op.src.shape[d], body, op.site)

    finish = values.finish(Load(op.dst, tuple(into)), Load(total, zero))
    body = seq(
        [
            Store(total, zero, values.identity, site=op.site),
            loop(op.dim, update),
            Store(op.dst, tuple(into), finish, site=op.site),
        ]
    )
    for d in reversed(kept):
        body = loop(d, body)
    return body
