"""A launch with one thread index as launches of one thread, in loops over what the threads do."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.stmt import Kernel, Stmt, seq
from tileworkbench.compiler.lower.thread_loops.barriers import Counters
from tileworkbench.compiler.lower.thread_loops.block import Block
from tileworkbench.compiler.lower.thread_loops.grid import split_at_grid_barriers
from tileworkbench.compiler.lower.thread_loops.local_tiles import expand_local_tiles
from tileworkbench.compiler.lower.thread_loops.machine import Machine, Meetings, take_turns
from tileworkbench.compiler.lower.thread_loops.privatise import privatise
from tileworkbench.compiler.lower.thread_loops.ranges import ThreadRanges
from tileworkbench.compiler.lower.thread_loops.split import Splitter
from tileworkbench.compiler.lower.thread_loops.units import groups_of, specialise
from tileworkbench.compiler.lower.vectors.context import Context
from tileworkbench.compiler.target import Target


def in_loops(
    kernel: Kernel, program: Program, target: Target, names: Names
) -> tuple[Stmt, list[Buffer]]:
    """The launches that do what `kernel` does, one after the other, and the workspaces in global
    memory that they need.
    """
    parts, workspaces = split_at_grid_barriers(kernel, names, program)
    return seq([_split(part, program, target, names) for part in parts]), workspaces


def _split(kernel: Kernel, program: Program, target: Target, names: Names) -> Kernel:
    (thread,), (count,) = kernel.thread_vars, kernel.threads
    body = expand_local_tiles(kernel.body, Context.of(program, target), names)
    kernel = replace(kernel, body=body)
    block = Block(thread, count, names, kernel.blocks)
    finished = privatise(_in_loops(kernel, block, program), block, program)
    body = seq([*block.allocs, finished])
    return replace(kernel, threads=(1,), thread_vars=(), blocks=1, body=body)


def _in_loops(kernel: Kernel, block: Block, program: Program) -> Stmt:
    """The code of `kernel` as loops over its threads, which take turns where groups of them wait
    for each other.
    """
    counters: dict[Buffer, Counters] = {}
    ranges = ThreadRanges(kernel, block.thread)
    groups = groups_of(kernel, ranges)
    if len(groups) == 1:
        return Splitter(kernel, block, program, counters).block(kernel.body, groups[0])
    parts = specialise(kernel, groups, ranges, block)
    common = Splitter(kernel, block, program, counters).block(seq(parts.common), groups[0])
    meetings, machines = Meetings(block), []
    for scope, body in zip(groups, parts.bodies, strict=True):
        splitter = Splitter(replace(kernel, body=body), block, program, counters)
        machines.append(Machine(body, scope, splitter, meetings, program))
    return seq([common, *take_turns(machines, block)])
