"""Tile operators become the code of one thread: register arrays, vector accesses, matrix
instructions.

Each operator is lowered once, before pipelines are expanded; the statements it becomes keep its
place in the schedule. Threads still run in lock step here: barriers come later, from what the
statements access.

Before::

    C_local = T.alloc_fragment((128, 128), "float32", layout=Fragment(...))
    T.fill(C_local, 0.0)

After::

    C_local = T.alloc_local((128,), "float32")
    for i in T.unroll(128):
        C_local[i] = 0.0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tileworkbench.compiler.analysis.multicasts import Multicast, parted
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.diagnostics import CompileError, ResourceError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, statements
from tileworkbench.compiler.ir.simt import (
    BarrierSignal,
    CommitGroup,
    Engine,
    Role,
    Start,
    WaitGroup,
)
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import (
    Alias,
    Alloc,
    For,
    Kernel,
    LoopKind,
    Seq,
    Stmt,
    While,
    declares,
    items,
    seq,
)
from tileworkbench.compiler.ir.tile import OPERATORS, Pipelined
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads import element_loads, engine_copies, scalars, signals
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.groups import vectorize
from tileworkbench.compiler.lower.threads.prints import written_once
from tileworkbench.compiler.lower.threads.table import lower
from tileworkbench.compiler.target import MOST_LOCAL_BYTES, Target


@dataclass(frozen=True, slots=True)
class LowerToThreads:
    """Lower every tile operator for the layouts that were chosen."""

    target: Target

    def __call__(self, program: Program) -> Program:
        names, notes = Names(program), list(program.notes)

        def change(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Kernel):
                return stmt
            context = replace(ThreadContext.of(program, stmt, self.target), names=names)
            notes.extend(engine_copies.notes(stmt, context))
            body = _lower(written_once(stmt).body, context)
            notes.extend(element_loads.notes(stmt.body, body, context))
            made = replace(stmt, body=seq([*context.prologue.stmts, body]))
            _check_local_memory(made, context)
            return made

        body = Rewriter(rewrite_stmt=change)(program.body)
        return program if body is program.body else replace(program, body=body, notes=tuple(notes))


def _check_local_memory(kernel: Kernel, context: ThreadContext) -> None:
    """Raise `ResourceError` where arrays of a thread are larger than its memory."""
    sizes = {
        stmt: -(-prod(const_shape(stmt.buffer) or ()) * stmt.buffer.dtype.bits // 8)
        for stmt in statements(kernel.body)
        if isinstance(stmt, Alloc) and stmt.buffer.scope == "local"
    }
    if sum(sizes.values()) > MOST_LOCAL_BYTES:
        largest = max(sizes, key=lambda stmt: sizes[stmt])
        raise ResourceError(
            f"a thread keeps {sum(sizes.values())} bytes in its registers and local memory, which "
            f"have {MOST_LOCAL_BYTES}: '{largest.buffer.name}' {sizes[largest]}",
            context.span(largest.site),
            hint="use smaller tiles, or more threads",
        )


def _lower(stmt: Stmt, context: ThreadContext) -> Stmt:
    """`stmt` as what `context.thread` executes."""
    match stmt:
        case Role(start, extent, body):
            return replace(stmt, body=_lower(body, context.restricted(start, extent)))
        case Start(body):
            load = engine_copies.started(stmt, context)
            started = stmt.engine is not Engine.TMA
            within = replace(context, asynchronous=started, started=started)
            return _lower(body, within) if load is None else load
        case CommitGroup(Engine.TMA_STORE) | WaitGroup(engine=Engine.TMA_STORE):
            return Seq(())  # who starts it commits and waits
        case BarrierSignal():
            return signals.lower(stmt, context)
        case Pipelined():
            return _lower_pipeline(stmt, replace(context, asynchronous=True, repeated=True))
        case Alloc(buffer) if isinstance(buffer.layout, Fragment):
            registers = context.registers(buffer)
            context.prologue.allocs.append(Alloc(registers, site=stmt.site))
            return Seq(())
        case Alias():
            return _lower_operator(stmt, context)
    if isinstance(stmt, OPERATORS):
        return _lower_operator(stmt, context)
    if isinstance(stmt, Seq):
        return seq(list(_lower_sequence(stmt, context)))
    if isinstance(stmt, For | While):
        context = replace(context, repeated=True)
    if isinstance(stmt, For) and stmt.kind is LoopKind.VECTORIZED:
        vectors = vectorize(stmt, context)
        if vectors is not None:
            return vectors
    made = stmt.map_children(
        lambda child: (
            _lower(child, context) if isinstance(child, Stmt) else scalars.read(child, context)
        )
    )
    return scalars.guard(made, context)


def _lower_sequence(stmts: Seq, context: ThreadContext) -> Iterator[Stmt]:
    """The code of statements that follow one another."""
    for part in parted(stmts.stmts) if context.peers else [stmts.stmts]:
        if isinstance(part, Multicast):
            yield engine_copies.multicast(part, context)
            continue
        for run in engine_copies.runs(part, context):
            if isinstance(run[0], BarrierSignal):
                at = next(at for at, stmt in enumerate(stmts.stmts) if stmt is run[0])
                yield signals.lower(run[0], context, stmts.stmts[at + 1 :])
            else:
                yield _lower_run(run, context)


def _lower_run(run: list[Stmt], context: ThreadContext) -> Stmt:
    """A statement, or several copies that the engine does together."""
    return _lower(run[0], context) if len(run) == 1 else engine_copies.lower(run, context)


def _lower_operator(stmt: Stmt, context: ThreadContext) -> Stmt:
    """One operator's code; its errors name its line."""
    try:
        if engine_copies.planned(stmt, context):
            return engine_copies.lower([stmt], context)
        return lower(stmt, context)
    except CompileError as error:
        error.span = error.span or context.span(stmt.site)
        raise


def _scheduled_runs(
    loop: Pipelined, context: ThreadContext
) -> Iterator[tuple[list[Stmt], tuple[int, int] | None]]:
    """The statements of a loop, each with its order and stage (None for what has none). Loads of
    the copy engine that follow one another in both ways are one run.
    """
    schedule = iter(zip(loop.order, loop.stage, strict=True))
    for run in engine_copies.runs(items(loop.body), context):
        places = [None if declares(stmt) else next(schedule) for stmt in run]
        first = places[0]
        together = first is not None and places == [
            (first[0] + at, first[1]) for at in range(len(run))
        ]
        if together:
            yield run, first
        else:
            yield from (([stmt], place) for stmt, place in zip(run, places, strict=True))


def _lower_pipeline(loop: Pipelined, context: ThreadContext) -> Stmt:
    """The loop with the statements of each operator at the operator's place in the schedule."""
    stmts: list[Stmt] = []
    places: list[tuple[int, int]] = []  # order and stage of each scheduled statement
    for run, place in _scheduled_runs(loop, context):
        ahead = place is not None and place[1] < max(loop.stage)
        ring = ahead and engine_copies.planned(run[0], context) is not None
        made = engine_copies.in_pipeline(run, context) if ring else _lower_run(run, context)
        lowered = items(made)
        stmts += lowered
        if place is not None:
            places += [place for stmt in lowered if not declares(stmt)]
    ranked = sorted(range(len(places)), key=lambda at: (places[at][0], at))
    order = [0] * len(places)
    for position, at in enumerate(ranked):
        order[at] = position
    stage = tuple(stage for _, stage in places)
    return replace(loop, body=seq(stmts), order=tuple(order), stage=stage)
