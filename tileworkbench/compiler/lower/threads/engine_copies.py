"""The code of copies that the copy engine does: one thread starts them, all wait.

A load completes at a memory barrier, whose phase also waits for its bytes. Where it is executed
again, a counter of each thread says the parity of the phase. Copies that follow one another share
both. A store reads the tile after the start, so the thread that started it waits until it has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.linear import Linear, combine
from tileworkbench.compiler.analysis.multicasts import Multicast, parted
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.build import add, binary, int_const
from tileworkbench.compiler.ir.expr import TENSOR_MAP, Address, Buffer, Expr, Load, Region
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables
from tileworkbench.compiler.ir.simt import (
    BarrierExpect,
    BarrierInit,
    BarrierSignal,
    BarrierWait,
    CommitGroup,
    Engine,
    Fence,
    Peer,
    Role,
    Start,
    TensorLoad,
    TensorMap,
    TensorStore,
    WaitGroup,
)
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.ir.stmt import Alloc, Atomic, AtomicKind, If, Seq, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, Parallel, Pipelined
from tileworkbench.compiler.ir.types import INT32, UINT64
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.tensor_copies import (
    Impossible,
    TensorCopy,
    Unsuitable,
    between,
    plan,
)

_ZERO, _ONE = int_const(0), int_const(1)


def planned(stmt: Stmt, context: ThreadContext) -> TensorCopy | None:
    """How the copy engine does `stmt`, None where threads do it."""
    if not isinstance(stmt, Copy) or not between(stmt) or context.started:
        return None
    try:
        return plan(stmt, context)
    except Unsuitable:
        return None


def runs(stmts: Sequence[Stmt], context: ThreadContext) -> Iterator[list[Stmt]]:
    """The statements of a sequence, where loads of different tiles that follow one another are one
    run.
    """
    run: list[Stmt] = []
    for stmt in stmts:
        loads = isinstance(stmt, Copy) and stmt.dst.buffer.scope == "shared"
        joins = loads and planned(stmt, context) is not None
        tiles = [each.dst.buffer for each in run if isinstance(each, Copy)]
        if run and not (joins and isinstance(stmt, Copy) and stmt.dst.buffer not in tiles):
            yield run
            run = []
        run.append(stmt)
        if not joins:
            yield run
            run = []
    if run:
        yield run


def lower(stmts: Sequence[Stmt], context: ThreadContext) -> Stmt:
    """Loads that follow one another and do not depend on each other, or one store."""
    copies = [(op, plan(op, context)) for op in stmts if isinstance(op, Copy)]
    first, how = copies[0]
    if first.dst.buffer.scope == "global":
        return _store(first, how, context)
    return _load(copies, context)


def notes(stmt: Stmt, context: ThreadContext) -> Iterator[str]:
    """Who does each copy between global and shared memory, and why."""
    if context.target.machine.box_copies("shared") is None:
        return
    match stmt:
        case Role(start, extent):
            context = context.restricted(start, extent)
        case Start(Parallel() as nest, Engine.TMA_STORE):
            yield _note_of_sum(nest, context)
            return
        case Start(engine=engine) if engine is not Engine.TMA:
            context = replace(context, asynchronous=True, started=True)
        case Start() | Pipelined():
            context = replace(context, asynchronous=True)
        case Copy() if between(stmt):
            yield _note(stmt, context)
        case Seq(stmts) if context.peers:
            for part in parted(stmts):
                if isinstance(part, Multicast):
                    yield _note_of_multicast(part, context)
                else:
                    for each in part:
                        yield from notes(each, context)
            return
    for child in stmt.children():
        if isinstance(child, Stmt):
            yield from notes(child, context)


def _note(op: Copy, context: ThreadContext) -> str:
    loads = op.src.buffer.scope == "global"
    tensor, span = (op.src if loads else op.dst).buffer, context.span(op.site)
    alike = op.src.buffer.dtype == op.dst.buffer.dtype
    others = "cp.async" if loads and alike and context.asynchronous else "threads"
    try:
        how = f"{others}, which the kernel starts" if context.started else str(plan(op, context))
    except Unsuitable as reason:
        how = f"{others}, because {reason}"
    return f"{tensor.name}: {how} (copy{f', line {span.line}' if span else ''})"


def _note_of_multicast(sent: Multicast, context: ThreadContext) -> str:
    op, span = sent.copy, context.span(sent.copy.site)
    try:
        how = f"{plan(op, context)}, multicast to {sent.blocks.bit_count()} blocks"
    except Unsuitable as reason:
        how = f"none, because {reason}"
    return f"{op.src.buffer.name}: {how} (copy{f', line {span.line}' if span else ''})"


def in_pipeline(stmts: Sequence[Stmt], context: ThreadContext) -> Stmt:
    """Loads that follow one another in a pipelined loop, which will start them and wait. A fence
    in front of them says that threads write their tiles, too.
    """
    copies = [(op, plan(op, context)) for op in stmts if isinstance(op, Copy)]
    site = copies[0][0].site
    body = If(elected(context), seq([_boxes(op, how, context) for op, how in copies]), site=site)
    mixed = any(_is_written_by_threads(how.tile, context) for _, how in copies)
    return seq([Fence("async", site=site), body]) if mixed else body


def started(stmt: Start, context: ThreadContext) -> Stmt | None:
    """A load that the kernel starts itself, with a barrier of its own, or an addition to a tensor;
    None where threads do it. Raises `UnsupportedError` where no engine could, whatever the layout.
    """
    op = stmt.body
    if stmt.engine is Engine.TMA_STORE and isinstance(op, Parallel):
        return _sum(op, context)
    if stmt.engine is not Engine.TMA or stmt.barrier is None or not isinstance(op, Copy):
        return None
    try:
        how = plan(op, context)
    except Impossible as reason:
        raise UnsupportedError(
            f"the copy engine cannot make this copy: {reason}",
            context.span(op.site),
            hint=f"use T.copy, which threads do then, or {reason.remedy}",
        ) from None
    except Unsuitable:
        return None
    bytes_ = BarrierExpect(stmt.barrier, int_const(how.bytes_), site=stmt.site)
    load = Start(_boxes(op, how, context), Engine.TMA, stmt.barrier, site=op.site)
    return If(elected(context), seq([bytes_, load]), site=op.site)


def multicast(sent: Multicast, context: ThreadContext) -> Stmt:
    """A load to several blocks, whose barriers expect its bytes already.

    Raises `UnsupportedError` where the engine cannot do it: only the engine counts bytes at
    barriers.
    """
    op = sent.copy
    try:
        how = plan(op, context)
    except Unsuitable as reason:
        raise UnsupportedError(
            "only the copy engine tells memory barriers of other blocks what has come, and it "
            f"cannot make this copy: {reason}",
            context.span(op.site),
            hint="share tiles with T.copy_cluster(..., dst_block=rank, remote_barrier=...)",
        ) from None
    load = Start(_boxes(op, how, context, blocks=sent.blocks), Engine.TMA, sent.barrier)
    return If(elected(context), replace(load, site=op.site), site=op.site)


def _load(copies: Sequence[tuple[Copy, TensorCopy]], context: ThreadContext) -> Stmt:
    site = copies[0][0].site
    barrier = _memory_barrier(context, site)
    total = sum(how.bytes_ for _, how in copies)
    issued: list[Stmt] = [BarrierSignal(barrier, 1, total, site=site)]
    for op, how in copies:
        issued.append(Start(_boxes(op, how, context), Engine.TMA, barrier, site=op.site))
    parity, advance = _parity(context, site)
    wait = BarrierWait(barrier, parity, site=site)
    begin = If(elected(context), seq(issued), site=site)
    return seq([begin, wait, *advance])


def _sum(nest: Parallel, context: ThreadContext) -> Stmt | None:
    """The addition of a tile to a tensor; None where threads do it."""
    try:
        op = added(nest, context.ranges)
        return _store(op, plan(op, context, adds=True), context, "add")
    except Unsuitable:
        return None


def _note_of_sum(nest: Parallel, context: ThreadContext) -> str:
    span = context.span(nest.site)
    line = f", line {span.line}" if span else ""
    try:
        op = added(nest, context.ranges)
        return f"{op.dst.buffer.name}: {plan(op, context, adds=True)} (add{line})"
    except Unsuitable as reason:
        name = next(each.buffer.name for each in statements(nest) if isinstance(each, Atomic))
        return f"{name}: threads, because {reason} (add{line})"


def added(nest: Parallel, ranges: Ranges) -> Copy:
    """What a nest of additions would copy if it did not add: a tile in shared memory, to a part of
    a tensor. Raises `Unsuitable` for another nest.
    """
    match nest.body:
        case Atomic(AtomicKind.ADD, target, to, Load(tile, at), None, None):
            origin = {var: int_const(0) for var in nest.vars}
            extents = dict(zip(nest.vars, nest.extents, strict=True))
            sides = []
            for buffer, indices in ((tile, at), (target, to)):
                moved = [[var for var in nest.vars if var in variables(each)] for each in indices]
                mins = [substitute(each, origin) for each in indices]
                steps = (
                    combine([(ranges.linear(each), 1), (ranges.linear(add(low, own[0])), -1)])
                    for low, own, each in zip(mins, moved, indices, strict=True)
                    if own
                )
                plain = all(step == Linear((), 0) for step in steps)
                if not plain or [var for own in moved for var in own] != list(nest.vars):
                    break
                box = [extents[own[0]] if own else int_const(1) for own in moved]
                sides.append(Region(buffer, tuple(mins), tuple(box)))
            else:
                return Copy(sides[0], sides[1], site=nest.site)
    raise Unsuitable("its two sides are not boxes")


def _store(op: Copy, how: TensorCopy, context: ThreadContext, reduce: str = "") -> Stmt:
    """Behind it the tile may be written again."""
    site = op.site
    issued = seq(
        [
            Start(_boxes(op, how, context, reduce), Engine.TMA_STORE, site=site),
            CommitGroup(Engine.TMA_STORE, site=site),
            WaitGroup(0, Engine.TMA_STORE, sources=True, site=site),
        ]
    )
    return seq([Fence("async", site=site), If(elected(context), issued, site=site)])


def _is_written_by_threads(tile: Buffer, context: ThreadContext) -> bool:
    """Whether threads write a tile, too, which the engine must not overtake."""
    writers = context.uses.writers.get(tile, ())
    if tile not in context.reached:  # what has a name in other blocks is for multicasts only
        writers = tuple(stmt for stmt in writers if not isinstance(stmt, Peer))
    return not all(planned(stmt, context) is not None for stmt in writers)


def elected(context: ThreadContext) -> Expr:
    """The condition that holds for the one thread that starts the copy."""
    return binary("eq", context.thread, _ZERO)


def _memory_barrier(context: ThreadContext, site: int) -> Address:
    """A new memory barrier at which one thread arrives."""
    buffer = Buffer(context.names.fresh("loaded"), UINT64, (_ONE,), "shared.barrier")
    place = Address(buffer, (_ZERO,))
    context.prologue.allocs.append(Alloc(buffer, site=site))
    context.prologue.barriers.append(BarrierInit(place, _ONE, site=site))
    return place


def _parity(context: ThreadContext, site: int) -> tuple[Expr, list[Stmt]]:
    """The parity of the phase to wait for, and what is done behind the wait."""
    if not context.repeated:
        return _ZERO, []
    phase = Buffer(context.names.fresh("phase"), INT32, (), "local.var")
    context.prologue.allocs.append(Alloc(phase, _ZERO, site=site))
    value = Load(phase, ())
    return value, [Store(phase, (), binary("xor", value, _ONE), site=site)]


def _boxes(
    op: Copy, how: TensorCopy, context: ThreadContext, reduce: str = "", blocks: int = 0
) -> Stmt:
    tensor_map = _map(how, context)
    stmts: list[Stmt] = []
    for origin, place in how.places:
        there = Address(tensor_map, origin)
        loads = op.src.buffer is how.tensor
        stmts.append(
            TensorLoad(place, there, blocks, site=op.site)
            if loads
            else TensorStore(there, place, reduce, site=op.site)
        )
    return seq(stmts)


def _map(how: TensorCopy, context: ThreadContext) -> Buffer:
    """The map of a tensor, one for each kind of box."""
    key = (how.tensor, how.box, how.swizzle)
    known = context.prologue.maps.get(key)
    if known is None:
        tensor = how.tensor
        name = context.names.fresh(f"{tensor.name}_map")
        strides = strides_of(tensor)
        made = Buffer(name, tensor.dtype, tensor.shape, TENSOR_MAP, strides)
        known = context.prologue.maps[key] = TensorMap(made, tensor, how.box, how.swizzle)
    return known.buffer
