"""Compares a program with itself in float64: two runs of one block in the simulator, on the same
inputs.

The replay runs first and keeps what its statements write, the run itself is compared with that.
Both are the program as the front end made it (stage TILE): what a device does in another order,
or with fewer digits in its matrix instructions, is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError, Interrupted, TileError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import GridBarrier
from tileworkbench.compiler.ir.stmt import Kernel
from tileworkbench.compiler.sim.arguments import known_grid, solve_symbols
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.numerics.result import Numerics
from tileworkbench.compiler.sim.numerics.watching import Comparing, Recording
from tileworkbench.compiler.sim.numerics.widening import wide_arguments, widened
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.simulate import simulate

Block = tuple[int, ...]


def compare(
    program: Program,
    arguments: Mapping[str, Any],
    block: Block | None = None,
    inputs: str = "",
    seconds: float | None = None,
) -> Numerics:
    """The errors of what the block with these indices (None: the first) writes in a call of
    `program` (stage TILE) on `arguments`, by parameter name, which are described by `inputs`.

    Only that block runs, unless there are several launches, or blocks that wait for each other.
    Each of the two runs ends after about so many `seconds`. What was compared before an error, an
    interrupt or a limit is kept; `Numerics.stopped` says which.

    Raises `UnsupportedError` for a program without floating types and for one that float64 would
    change the meaning of, and `ArgumentError` for other arguments and for a block that the grid
    does not have.
    """
    wide = widened(program)
    symbols = solve_symbols(program, arguments)
    block, numbers = _chosen(program, symbols, block)
    exact = Recording(block)
    made = Comparing(block, program, exact.steps)
    stopped = _run(
        wide, wide_arguments(program, arguments, symbols), symbols, exact, numbers, seconds
    )
    if stopped == _INTERRUPTED:
        exact.steps.clear()
    else:
        why = _run(program, arguments, symbols, made, numbers, seconds)
        stopped = why or made.why or exact.full or (stopped and f"in float64 {stopped}")
        if not made.seen and not stopped:
            raise ArgumentError(f"'{program.name}' has no block {block} in this call")
    return Numerics(
        program.name, block, tuple(made.steps), tuple(made.origins.found), inputs, stopped
    )


_INTERRUPTED = "the simulation was interrupted"


def _run(
    program: Program,
    arguments: Mapping[str, Any],
    symbols: Mapping[str, int],
    observer: Observer,
    numbers: tuple[int, ...] | None,
    seconds: float | None,
) -> str:
    """Run it with the observer; returns why it did not come to its end, or an empty text."""
    options = SimOptions(
        races=False,
        uninitialised=False,
        prints=False,
        stop_at_out_of_bounds=False,
        blocks=numbers,
        seconds=seconds,
        observers=(observer,),
    )
    try:
        report = simulate(program, arguments, symbols, options).report
    except Interrupted:
        return _INTERRUPTED
    except ArgumentError:
        raise
    except TileError as error:
        return f"the simulation ended: {error.message}"
    return f"the simulation was stopped after {seconds:g} s" if report.timed_out else ""


def _chosen(
    program: Program, symbols: Mapping[str, int], block: Block | None
) -> tuple[Block, tuple[int, ...] | None]:
    """The indices of the block, and the numbers (x fastest) of the blocks that must run for it,
    None for all.
    """
    launches = [stmt for stmt in statements(program.body) if isinstance(stmt, Kernel)]
    axes = len(launches[0].grid) if launches else 0
    grids = [known_grid(launch, symbols) for launch in launches]
    if block is None:
        block = (0,) * axes
    grid = grids[0] if grids else None
    if grid is not None and not _fits(block, grid):
        extents = "x".join(map(str, grid))
        raise ArgumentError(f"'{program.name}' has no block {block}: its grid is {extents}")
    waits = any(isinstance(stmt, GridBarrier) for stmt in statements(program.body))
    if len(launches) != 1 or grid is None or waits:
        return block, None
    return block, (sum(at * prod(grid[:axis]) for axis, at in enumerate(block)),)


def _fits(block: Block, grid: tuple[int, ...]) -> bool:
    return len(block) == len(grid) and all(
        0 <= at < extent for at, extent in zip(block, grid, strict=True)
    )
