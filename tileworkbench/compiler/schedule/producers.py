"""What a producer executes of a kernel: the pipelined loops that it fills tiles for, and around
them the loops and branches that say when.

A producer has no part in what other threads compute. So bounds, conditions and places come from
indices, parameters, and tensors that the kernel only reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from tileworkbench.compiler.analysis.dataflow import leaves_early
from tileworkbench.compiler.analysis.effects import written_below
from tileworkbench.compiler.ir.expr import Buffer, Load
from tileworkbench.compiler.ir.rewrite import bound_by, statements, variables, walk
from tileworkbench.compiler.ir.stmt import For, If, Kernel, Let, Seq, Stmt, seq
from tileworkbench.compiler.schedule.handovers import Unsuitable


def producer_of(kernel: Kernel, loops: Mapping[int, Stmt], counters: Set[Buffer]) -> Stmt:
    """The producer of a kernel. `loops` are what it does of pipelined loops, by `id` of these;
    `counters` are its own.

    Raises `Unsuitable` where it cannot know when they are executed.
    """
    made = _slice(kernel.body, loops) or seq([])
    written = written_below(kernel.body)
    read = {node.buffer for node in walk(made) if isinstance(node, Load)} - counters
    bound = {var for stmt in statements(made) for var in bound_by(stmt)}
    computed = {var for stmt in statements(kernel.body) for var in bound_by(stmt)} - bound
    foreign = [buffer.name for buffer in read if buffer.scope != "global" or buffer in written]
    foreign += [var.name for var in variables(made) if var in computed]
    if foreign:
        raise Unsuitable(f"what it copies depends on '{min(foreign)}', which threads write")
    return made


def _slice(stmt: Stmt, loops: Mapping[int, Stmt]) -> Stmt | None:
    """What the producer does of `stmt`, None for nothing."""
    if id(stmt) in loops:
        return loops[id(stmt)]
    if isinstance(stmt, Seq):
        return with_lets(stmt.stmts, [_slice(child, loops) for child in stmt.stmts])
    if isinstance(stmt, For) and not leaves_early(stmt.body):
        body = _slice(stmt.body, loops)
        return None if body is None else replace(stmt, body=body)
    if isinstance(stmt, If):
        then = _slice(stmt.then, loops)
        orelse = None if stmt.orelse is None else _slice(stmt.orelse, loops)
        if then is None and orelse is None:
            return None
        return replace(stmt, then=then or seq([]), orelse=orelse)
    if any(id(inner) in loops for inner in statements(stmt)):
        raise Unsuitable("it stands in a loop that threads end by what they compute")
    return None


def with_lets(stmts: Sequence[Stmt], made: Sequence[Stmt | None]) -> Stmt | None:
    """What was `made` of `stmts`, with the scalars among these that it needs."""
    kept: list[Stmt] = []
    for stmt, mine in zip(reversed(stmts), reversed(made), strict=True):
        if mine is not None:
            kept.insert(0, mine)
        elif isinstance(stmt, Let) and any(stmt.var in variables(each) for each in kept):
            kept.insert(0, stmt)
    return seq(kept) if kept else None
