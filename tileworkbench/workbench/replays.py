"""`Kernel.replay`: what one block of a simulated call did, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Interrupted,
    RunError,
    SimulatorLimitError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Kernel as Launch
from tileworkbench.compiler.layout import Fragment
from tileworkbench.workbench.simulation import on_host

if TYPE_CHECKING:
    import numpy as np

    from tileworkbench.compiler.sim.replay.model import Replay
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.workbench.kernel import Kernel

Block = int | tuple[int, ...]
Blocks = Block | Sequence[tuple[int, ...]] | str | None

SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """A call that went wrong: its arguments, and the blocks in which it did; none where that is
    not known, as of a deadlock.
    """

    args: tuple[Any, ...]
    blocks: tuple[Block, ...] = ()


class ReplayFacts:
    """The part of a `Kernel` that replays what its blocks do: `_trouble` is the last call that went
    wrong, `_replayed` what was recorded last.
    """

    _trouble: Trouble | None = None
    _replayed: Replay | None = None

    @property
    def last_replay(self) -> Replay | None:
        """The result of the last `replay`; None where there was none since a check failed."""
        return self._replayed

    @property
    def replay_missing(self: Any) -> str:
        """Why nothing can be replayed without further arguments; empty where it can."""
        from tileworkbench.workbench.inputs import unknown_input

        if self._replayed or self._trouble or self._inputs is not None:
            return ""
        unknown = unknown_input(self.program)
        if not unknown:
            return ""
        way = "kernel.with_inputs(...) before, or %tile show KERNEL replay A B"
        return f"no input can be made up for '{unknown}': {way}"

    def replay(
        self: Any,
        *args: Any,
        block: Blocks = None,
        stage: str | None = None,
        memory_bytes: int | None = None,
        seconds: float | None = SECONDS,
        most_statements: int | None = None,
    ) -> Replay:
        """Record what one block does when the simulator runs it on these arguments, so that one
        can look at all memory after each of its statements: ``replay.at(step)``.

        Without arguments those of the last check that failed are taken, those of `with_inputs`,
        or some are made up.
        `block` are its indices, or its number (x fastest); several, or "all". By default it is
        the one in which the last check found something wrong, or the first. `stage` is as in
        `simulate`, by default "tile", the kernel as written. At most about `memory_bytes` (64 MiB)
        are kept, of the last steps, and the run ends after about `seconds`, or after
        `most_statements`: the replay's `notes` say so. What the simulator finds wrong does not
        raise: it is in `moments`, also where it ends the run, as an interrupt does.

        Raises `ArgumentError` for a block that the grid does not have, in the run where it comes
        from data, and
        `SimulatorLimitError` where the tensors that it writes are too large to be recorded.
        """
        made = record(self, args, block, stage, memory_bytes, seconds, most_statements)
        self._replayed = made
        return made


def record(
    kernel: Kernel,
    args: tuple[Any, ...],
    block: Blocks,
    stage: str | None,
    memory_bytes: int | None,
    seconds: float | None,
    most_statements: int | None,
) -> Replay:
    """See `ReplayFacts.replay`."""
    from tileworkbench.compiler.sim.frame import SimOptions
    from tileworkbench.compiler.sim.replay.recorder import MEMORY_BYTES, StepRecorder
    from tileworkbench.workbench.simulation import run_program

    call = _Call(kernel, args)
    limit = MEMORY_BYTES if memory_bytes is None else memory_bytes
    numbers = call.numbers(block)
    call.check_size(limit)
    stage = "tile" if stage is None else stage
    program: Program = kernel.program
    if stage != "tile":
        program = kernel.passes[-1 if stage == "lowered" else stage].program
    every = prod(call.grid) if block == "all" else len(numbers or (0,))
    recorder = StepRecorder(limit, call.shapes, every)
    options = SimOptions(
        prints=False,
        stop_at_out_of_bounds=False,
        blocks=numbers,
        seconds=seconds,
        most_statements=most_statements,
        observers=(recorder,),
    )
    notes: tuple[str, ...] = ()
    try:
        report = run_program(kernel.program, program, call.args, options).report
        if report.timed_out and seconds is None:
            notes = (f"the run was ended after {most_statements} statements",)
        elif report.timed_out:
            notes = (f"the run was ended after {seconds:g} s; 'seconds=' allows more",)
    except Interrupted:
        notes = ("the run was interrupted: the steps until then are kept",)
    except RunError as error:
        if not recorder.total:
            raise
        recorder.stopped(error)
    made = recorder.replay(kernel.name, stage, call.grid, notes, _owners(kernel))
    if not (made.blocks or notes or call.grid or block is None):
        raise ArgumentError(f"'{kernel.name}' has no block {block} in this call")
    return made


class _Call:
    """The arguments of a recorded call, and what follows from them."""

    def __init__(self, kernel: Kernel, args: tuple[Any, ...]) -> None:
        from tileworkbench.workbench.debugging import inputs_of

        trouble, given = kernel._trouble, args or kernel._inputs
        if given is not None and trouble is not None:  # is it another call?
            same = len(given) == len(trouble.args)
            same &= all(a is b for a, b in zip(given, trouble.args, strict=False))
            trouble = trouble if same else None
        self.kernel, self.trouble = kernel, trouble
        if not args:
            args = trouble.args if trouble is not None else tuple(inputs_of(kernel)[0])
        self.args = tuple(on_host(args))

    @cached_property
    def symbols(self) -> dict[str, int]:
        """What is known of extents."""
        from tileworkbench.compiler.sim.arguments import solve_symbols

        program = self.kernel.program
        passed = [param.name for param in program.params if not param.output]
        if len(passed) != len(self.args):
            return {}  # which the run says
        return solve_symbols(program, dict(zip(passed, self.args, strict=True)))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the user's tensors."""
        from tileworkbench.compiler.sim.arguments import known_shape

        params = [param.value for param in self.kernel.program.params]
        if any(var.name not in self.symbols for var in self.kernel.program.symbols):
            return {}
        tensors = [each for each in params if isinstance(each, Buffer)]
        return {each.name: known_shape(each, self.symbols) for each in tensors}

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """Of the first launch; empty where it comes from data."""
        from tileworkbench.compiler.sim.arguments import known_grid

        every = statements(self.kernel.program.body)
        launch = next((stmt for stmt in every if isinstance(stmt, Launch)), None)
        return () if launch is None else known_grid(launch, self.symbols) or ()

    def numbers(self, block: Blocks) -> tuple[int, ...] | None:
        """The numbers of the blocks to run, None for all."""
        if block == "all":
            return None
        if block is None:
            blocks: Sequence[Block] = (0,) if self.trouble is None else self.trouble.blocks
            if not blocks:
                return None  # the last steps are kept, which are those of the block that fails
        elif isinstance(block, int) or (block and isinstance(block[0], int)):
            blocks = (block,)  # type: ignore[assignment]
        else:
            blocks = tuple(block)  # type: ignore[arg-type]
        return tuple(dict.fromkeys(map(self._number, blocks)))

    def _number(self, block: Block) -> int:
        name, grid = self.kernel.name, self.grid
        if isinstance(block, int):
            inside = 0 <= block < prod(grid) if grid else block >= 0
        elif not grid:
            raise ArgumentError(
                f"the grid of '{name}' comes from data",
                "name the block by its number, x fastest: block=0",
            )
        else:
            fits = len(block) == len(grid)
            inside = fits and all(0 <= at < end for at, end in zip(block, grid, strict=True))
        if not inside:
            extents = "x".join(map(str, grid)) or "not known"
            raise ArgumentError(f"'{name}' has no block {block}: its grid is {extents}")
        if isinstance(block, int):
            return block
        return sum(at * prod(grid[:axis]) for axis, at in enumerate(block))

    def check_size(self, limit: int) -> None:
        """Raise `SimulatorLimitError` where a copy of the tensors that are written takes far more
        than what may be kept.
        """
        from tileworkbench.compiler.sim.replay.recorder import mebibytes
        from tileworkbench.workbench.inputs import written_parameters

        written = written_parameters(self.kernel.program)
        bytes_ = sum(prod(self.shapes.get(each.name, ())) * each.dtype.bytes for each in written)
        most = 8 * limit
        if bytes_ > most:
            raise SimulatorLimitError(
                f"a replay of '{self.kernel.name}' keeps a copy of the tensors it writes, which "
                f"takes {mebibytes(bytes_)}: more than {mebibytes(most)}",
                f"pass smaller tensors, or allow more: memory_bytes={-(-bytes_ // 8)}",
            )


def _owners(kernel: Kernel) -> dict[str, np.ndarray[Any, Any]]:
    """The first thread that has each element of a fragment, by its layout."""
    if kernel.target.startswith("cpu"):
        return {}
    threads: dict[str, np.ndarray[Any, Any]] = {}
    for name, layout in kernel.layouts.items():
        if isinstance(layout, Fragment):
            threads[name] = layout.table()[0][..., 0]
    return threads


def trouble_in(kernel: Kernel, args: Sequence[Any], blocks: Sequence[Block]) -> None:
    """Remember the call that went wrong, for a replay."""
    kernel._trouble, kernel._replayed = Trouble(tuple(args), tuple(blocks)), None


def trouble_of(kernel: Kernel, args: Sequence[Any], report: SimReport) -> None:
    """The same of what a simulated run found wrong, if it did."""
    if report.worst:
        first = report.worst[0]
        trouble_in(kernel, args, [each for each in (first.block, first.other_block) if each])
