"""A call in the simulator that an observer records, up to a limit or an interrupt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError, Interrupted, TileError
from tileworkbench.compiler.ir.program import Program
from tileworkbench.workbench.simulation import run_program

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.observers import Observer
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.workbench.kernel import Kernel


def simulated_program(kernel: Kernel) -> Program:
    """The lowered program for a GPU, the one as written for a CPU."""
    program: Program = kernel.program
    return program if kernel.target.startswith("cpu") else kernel.passes[-1].program


def observe(
    kernel: Kernel,
    args: Sequence[Any],
    observer: Observer,
    blocks: Iterable[int] | None,
    seconds: float | None,
    most_statements: int | None = None,
) -> tuple[SimReport | None, str]:
    """Run `simulated_program` on arguments of the host, without looking for mistakes.

    `blocks` are the numbers of the blocks to simulate, None for all; the run ends after about
    `seconds` or `most_statements`, None for no limit. Returns its report, or None and why it did
    not come to its end. Raises `ArgumentError`.
    """
    from tileworkbench.compiler.sim.frame import SimOptions

    options = SimOptions(
        races=False,
        uninitialised=False,
        misaligned=False,
        prints=False,
        stop_at_out_of_bounds=False,
        blocks=None if blocks is None else tuple(blocks),
        seconds=seconds,
        most_statements=most_statements,
        observers=(observer,),
    )
    try:
        return run_program(kernel.program, simulated_program(kernel), args, options).report, ""
    except Interrupted:
        return None, "the simulation was interrupted"
    except ArgumentError:
        raise
    except TileError as error:
        return None, f"the simulation ended: {error.message}"
