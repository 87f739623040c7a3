"""What a `Kernel` knows of its software pipelines: predicted, simulated, with other stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from functools import cached_property
from math import isnan
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError, CompileError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.rewrite import Rewriter, statements, with_body
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Pipelined

if TYPE_CHECKING:
    from tileworkbench.compiler.ir.program import Program
    from tileworkbench.compiler.record import CompileRecord
    from tileworkbench.compiler.sim.pipeline.model import Pipeline
    from tileworkbench.compiler.sim.pipeline.trace import Trace
    from tileworkbench.workbench.kernel import Kernel

STAGES = (1, 2, 3, 4, 5, 6)
EVENTS = 20_000
"""How many events a trace keeps, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class StageChoice:
    """The kernel lowered again with another number of stages.

    Attributes:
        num_stages: of all its pipelined loops.
        chosen: whether it is the kernel's own.
        shared_bytes: of a block, 0 where it was not lowered.
        blocks: how many of them one multiprocessor holds at once, 0 where that is not known.
        period: predicted time of an iteration of a launch's first pipelined loop, in `unit`; NaN
            without.
        problem: why there is no such kernel; empty where there is.
    """

    num_stages: int
    chosen: bool
    shared_bytes: int = 0
    blocks: int = 0
    period: float = float("nan")
    unit: str = "cycles"
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


class PipelineFacts:
    """The part of a `Kernel` that tells of its pipelines."""

    @cached_property
    def pipelines(self: Any) -> tuple[Pipeline, ...]:
        """The software pipelines of each launch that has any, as plain data: copies, waits and
        products of every iteration with predicted times, and what the prediction assumes.

        Without any there is a single one, whose `missing` says why. `pipelines[0].save("x.json")`
        writes a trace file for ui.perfetto.dev. Nothing is run.
        """
        return pipelines_of(self.record, _fresh_part(self))

    @property
    def pipeline(self: Any) -> Pipeline:
        """The first of `pipelines`: all of them where one launch is pipelined."""
        first: Pipeline = self.pipelines[0]
        return first

    def trace(
        self: Any,
        *args: Any,
        block: tuple[int, ...] | None = None,
        limit: int = EVENTS,
        launch: int | None = None,
    ) -> Trace:
        """What the threads of one block do when the simulator runs it on these arguments: copies
        issued and landed, waits, products, in logical time. Without arguments they are made up.

        `launch` is one that has a pipeline (from 1 on; default: the first), `block` are its indices
        (default: the block that the pipeline looks at). No more than `limit` events are kept.

        Raises `UnsupportedError` where there is no pipeline, and `ArgumentError` for a launch
        without one or a block that the grid does not have.
        """
        return trace_of(self, args, block, limit, launch)

    def what_if_stages(
        self: Any, stages: Iterable[int] = STAGES, launch: int | None = None
    ) -> tuple[StageChoice, ...]:
        """The kernel lowered again with other values of num_stages: shared memory, occupancy and
        the predicted time of an iteration of `launch` (default: the first that is pipelined). Empty
        where no loop is T.Pipelined, and on a CPU.
        """
        return tuple(_choices(self, stages, launch))


def pipelines_of(record: CompileRecord, fresh: float) -> tuple[Pipeline, ...]:
    """The pipelines of a compilation."""
    from tileworkbench.compiler.machine.rates import rates_of
    from tileworkbench.compiler.sim.pipeline.build import find_pipelines

    return find_pipelines(record, rates_of(record.target.partition(":")[2]), fresh)


def _fresh_part(kernel: Kernel) -> float:
    """The part of the traffic that no cache can have: what is touched over what is moved."""
    work = kernel._work
    touched, moved = work.bytes_.value, work.moved_bytes.value
    return 1.0 if isnan(touched + moved) or not moved > 0 else min(touched / moved, 1.0)


def trace_of(
    kernel: Kernel,
    args: tuple[Any, ...],
    block: tuple[int, ...] | None,
    limit: int,
    launch: int | None = None,
) -> Trace:
    """Simulate one block of a launch with a recorder."""
    from tileworkbench.compiler.sim.frame import SimOptions
    from tileworkbench.compiler.sim.pipeline.build import (
        read_trace,
        recorder_for,
        threads_program,
    )
    from tileworkbench.workbench.debugging import inputs_of
    from tileworkbench.workbench.simulation import run_program

    pipeline = _of_launch(kernel, launch)
    if pipeline.missing:
        raise UnsupportedError(f"'{kernel.name}' has no pipeline to trace: {pipeline.missing}")
    block = pipeline.block if block is None else block
    number = _number(kernel.name, pipeline.grid, block)
    recorder = recorder_for(kernel.record, pipeline.launch, block, limit)
    options = SimOptions(blocks=(number,), prints=False, trace=recorder)
    given = args or tuple(inputs_of(kernel)[0])
    lowered = threads_program(kernel.record)
    assert lowered is not None, "a kernel with a pipeline has threads"
    run_program(kernel.program, lowered, given, options)
    return read_trace(kernel.record, pipeline.launch, recorder)


def _of_launch(kernel: Kernel, launch: int | None) -> Pipeline:
    """The pipeline of a launch, None for the first that has one."""
    by_launch = {each.launch: each for each in kernel.pipelines}
    if launch is None or kernel.pipeline.missing:
        return kernel.pipeline
    if launch not in by_launch:
        numbers = ", ".join(map(str, by_launch))
        raise ArgumentError(
            f"launch {launch} of '{kernel.name}' has no pipeline", hint=f"one of {numbers}"
        )
    return by_launch[launch]


def _number(name: str, extents: tuple[int, ...], block: tuple[int, ...]) -> int:
    """The number of a block, x fastest."""
    fits = len(block) == len(extents) and all(
        0 <= at < extent for at, extent in zip(block, extents, strict=True)
    )
    if not fits:
        grid = "x".join(map(str, extents))
        raise ArgumentError(f"'{name}' has no block {block}: its grid is {grid}")
    number = 0
    for at, extent in zip(reversed(block), reversed(extents), strict=True):
        number = number * extent + at
    return number


# Other numbers of stages


def _choices(kernel: Kernel, stages: Iterable[int], launch: int | None) -> Iterable[StageChoice]:
    at = kernel.pipeline.launch if launch is None else launch
    launches = [s for s in statements(kernel.program.body) if isinstance(s, st.Kernel)]
    if not 1 <= at <= len(launches):
        raise ArgumentError(f"'{kernel.name}' has no launch {at}", f"1 to {len(launches)}")
    loops = [s for s in statements(launches[at - 1].body) if isinstance(s, Pipelined)]
    if not loops or kernel.target.partition(":")[0] == "cpu":
        return
    own = loops[0].num_stages
    for number in sorted({*stages, own}):
        made = StageChoice(number, number == own)
        try:
            yield _with_stages(kernel, made, at)
        except CompileError as error:
            yield replace(made, problem=error.message)


def _with_stages(kernel: Kernel, choice: StageChoice, launch: int) -> StageChoice:
    from tileworkbench.compiler.analysis.occupancy import occupancy
    from tileworkbench.compiler.lowering import lower_program
    from tileworkbench.compiler.schedule.shared_memory import shared_memories
    from tileworkbench.compiler.target import parse_target

    target = parse_target(kernel.target)
    program = _staged(kernel.program, choice.num_stages)
    options = kernel.compiled.options
    snapshots = lower_program(program, target, options.sanitize, disabled=options.disabled)
    record = replace(kernel.record, program=program, snapshots=snapshots)
    placed = next(each.program for each in snapshots if each.name == "plan_shared_memory")
    memory = next((m for m in shared_memories(placed) if m.launch == launch), None)
    now = kernel.occupancy  # stages change shared memory, not registers
    registers = now.registers if now is not None else None
    held = memory and occupancy(target.arch, memory.threads, memory.bytes_, registers)
    pipelines = pipelines_of(record, _fresh_part(kernel))
    loops = next((each.loops for each in pipelines if each.launch == launch), ())
    return replace(
        choice,
        shared_bytes=memory.bytes_ if memory else 0,
        blocks=held.blocks if held else 0,
        period=loops[0].period if loops else float("nan"),
        unit=pipelines[0].unit,
    )


def _staged(program: Program, number: int) -> Program:
    """`program` with so many stages in all pipelined loops whose schedule is not the user's."""

    def change(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Pipelined) and not stmt.order and not stmt.stage:
            return replace(stmt, num_stages=number)
        return stmt

    return with_body(program, Rewriter(rewrite_stmt=change)(program.body))
