"""Reducers: fragments of which every thread has a copy for its own contributions.

A contribution (`Atomic` on a fragment) goes to the copy of the thread that makes it, so that loops
around it need no exchange. The copies are combined once, when the result is read.
"""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import cast
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.stmt import AtomicKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, Fill, ReduceKind
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.shared.combining import combine, identity
from tileworkbench.compiler.lower.threads import parallel
from tileworkbench.compiler.lower.threads.collective import (
    Combining,
    combine_across,
    route,
    thread_places,
)
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.holding import each_element
from tileworkbench.compiler.lower.threads.loops import unrolled
from tileworkbench.compiler.lower.threads.reduce import working_dtype

_KINDS = {
    AtomicKind.ADD: ReduceKind.SUM,
    AtomicKind.MAX: ReduceKind.MAX,
    AtomicKind.MIN: ReduceKind.MIN,
    AtomicKind.AND: ReduceKind.BITAND,
    AtomicKind.OR: ReduceKind.BITOR,
    AtomicKind.XOR: ReduceKind.BITXOR,
}


def start(op: Fill, context: ThreadContext) -> Stmt:
    """Neutral values in all threads, also in those without a copy, which are combined with the
    others; the first value, a contribution as well, in one copy.
    """
    buffer, layout = op.dst.buffer, op.dst.buffer.layout
    neutral = identity(_KINDS[context.reducers[buffer]], buffer.dtype)
    if not isinstance(layout, Fragment) or layout.replicate == 1:
        return parallel.lower(op, context)
    registers = context.registers(buffer)

    def nothing(slot: Expr) -> Stmt:
        return Store(registers, (slot,), neutral, site=op.site)

    everywhere = unrolled(context, "s", layout.slots, nothing, op.site)
    if op.value is neutral:
        return everywhere

    def first(slot: Expr, index: tuple[Expr, ...], predicate: Expr | None) -> Stmt:
        return Store(registers, (slot,), op.value, predicate, site=op.site)

    return seq([everywhere, each_element(context, layout, first, op.site, once=True)])


def finish(op: Copy, context: ThreadContext) -> Stmt:
    """Combine the copies of each element, so that all hold the result; then copy it.

    Raises `UnsupportedError` where no digits of the thread number the copies.
    """
    buffer, layout = op.src.buffer, op.src.buffer.layout
    if not isinstance(layout, Fragment) or layout.replicate == 1:
        return parallel.lower(op, context)
    places = thread_places(layout, layout.rank, context.threads)
    if places is None:
        raise UnsupportedError(
            f"the threads' copies of the reducer '{buffer.name}' cannot be combined: its layout is "
            f"'{layout}'",
            context.span(op.site),
            hint="contribute from one T.Parallel nest, at its variables",
        )
    kind = _KINDS[context.reducers[buffer]]
    registers, dtype = context.registers(buffer), working_dtype(buffer.dtype)
    narrow = dtype != buffer.dtype
    values = registers
    stmts: list[Stmt] = []

    def move(into: Buffer, source: Buffer) -> Stmt:
        return unrolled(
            context,
            "s",
            layout.slots,
            lambda s: Store(into, (s,), cast(Load(source, (s,)), into.dtype), site=op.site),
            op.site,
        )

    if narrow:
        values = context.temporary(f"{buffer.name}_total", dtype, layout.slots)
        stmts.append(move(values, registers))
    stmts += combine_across(
        values,
        layout.slots,
        route(places, context),
        Combining(lambda a, b: combine(kind, a, b, False), identity(kind, dtype)),
        context,
        op.site,
    )
    if narrow:
        stmts.append(move(registers, values))
    return seq([*stmts, parallel.lower(op, context)])
