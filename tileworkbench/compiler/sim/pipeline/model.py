"""The pipeline of a kernel as plain data."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.fast_dataclass import dataclass

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.pipeline.trace import Trace


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the kernel, a line of it as a rule.

    Attributes:
        kind: copy, store, product, compute, wait, signal (at a memory barrier).
        text, line: of the user's text; line 0 where it is not known.
        role: the threads that execute it.
        how: of a copy "cp.async", "TMA", "through registers" or "to registers", of a wait what for.
        buffers: the tiles in shared memory that it fills (a copy) or reads.
        bytes_: of global memory that it moves, once for the whole block.
        flops: of matrix instructions, likewise.
        loop: number of its loop, -1 outside of loops.
        ahead: how many iterations before the others of its loop it works, None where that is not
            planned.
    """

    kind: str
    text: str
    line: int
    role: str
    how: str
    buffers: tuple[str, ...]
    bytes_: int
    flops: int
    loop: int
    ahead: int | None = None


@dataclass(frozen=True, slots=True)
class Event:
    """An operation in one iteration, with predicted times in the pipeline's `unit`.

    Attributes:
        operation: its number.
        iteration: that it works on, 0 outside of loops.
        phase: "before", "prologue", "steady", "epilogue" or "after".
        slots: stages of its tiles, as (buffer, stage), or of a copy "to registers" those.
        start, end: while its threads are busy with it, or wait.
        landed: when the data of a copy, or the sums of a product that was started, are there; `end`
            for others.
        released: when the last operation that reads what a copy brought has ended.
        waits_for: the events that a wait waits for, by number.
        reason: what it waits for, in words.
    """

    operation: int
    iteration: int
    phase: str
    slots: tuple[tuple[str, int], ...]
    start: float
    end: float
    landed: float
    released: float
    waits_for: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Loop:
    """One pipelined loop, or the loops of roles that work together.

    Attributes:
        name, line: its variable and where it is.
        iterations: how many it has; `skipped` of them, in the middle, are in no event.
        num_stages: of `T.Pipelined`, or as many stages as its tiles have.
        first, steady, drain, last: when its first event begins, when its first product does, when
            its last copy has been issued, and when its last event ends.
        period: of one iteration in the steady state.
        busy: the part of that in which something is busy: "copies" (the way from global memory),
            "products" (the tensor cores).
        limit: what the steady state waits for, in words.
    """

    name: str
    line: int
    iterations: int
    skipped: int
    num_stages: int
    first: float
    steady: float
    drain: float
    last: float
    period: float
    busy: tuple[tuple[str, float], ...]
    limit: str


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The software pipelines of one block of a launch.

    Attributes:
        kernel, target: their names.
        missing: why there is no pipeline, in one line; everything else is empty then.
        unit: of all times: "cycles", or "steps" where the machine's rates are not known.
        launch, launches: its number from 1 on, and how many the kernel has.
        grid: blocks along each axis of the launch, 1 where only a call knows them.
        block: the indices of the block that is looked at.
        roles: the groups of threads.
        loops, operations, events: events in the order in which they begin.
        assumptions: what the predicted times rest on, a sentence each.
        guessed: some of its sizes or conditions are known only in a call.
    """

    kernel: str
    target: str
    missing: str = ""
    unit: str = "cycles"
    launch: int = 1
    launches: int = 1
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    loops: tuple[Loop, ...] = ()
    operations: tuple[Operation, ...] = ()
    events: tuple[Event, ...] = ()
    assumptions: tuple[str, ...] = ()
    guessed: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def rows(self) -> list[dict[str, Any]]:
        """A row per event with its operation, for a DataFrame:
        ``pandas.DataFrame(kernel.pipeline.rows())``.
        """
        rows = []
        for event in self.events:
            operation = asdict(self.operations[event.operation])
            rows.append({"launch": self.launch, **operation, **asdict(event)})
        return rows

    def save(self, path: str | Path, trace: Trace | None = None) -> Path:
        """Write a trace file (JSON in Chrome's trace-event format) that ui.perfetto.dev opens; with
        `trace` (of `kernel.trace`) what the simulator did stands beside the prediction.

        One microsecond of the file stands for one cycle of the prediction, and for one statement of
        the simulator's logical time.
        """
        from tileworkbench.compiler.sim.pipeline.chrome import save_events

        return save_events(Path(path), self, trace)

    def __str__(self) -> str:
        if self.missing:
            return f"{self.kernel} ({self.target}): no pipeline: {self.missing}"
        which = f", launch {self.launch} of {self.launches}" if self.launches > 1 else ""
        lines = [f"{self.kernel} ({self.target}){which}: predicted, in {self.unit}"]
        for loop in self.loops:
            lines.append(
                f"loop {loop.name}, line {loop.line}: {loop.iterations} iterations, "
                f"{loop.num_stages} stages, {loop.period:.0f} {self.unit} each: {loop.limit}"
            )
        return "\n".join(lines)
