"""`Kernel.prints`: what a kernel prints in a simulated run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError, Interrupted, TileError
from tileworkbench.workbench.simulation import run_program

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.prints import Prints
    from tileworkbench.workbench.kernel import Kernel


def record_prints(
    kernel: Kernel,
    args: Sequence[Any],
    inputs: str,
    blocks: Iterable[int] | None,
    seconds: float | None,
) -> Prints:
    """What the kernel prints on `args`: the lowered program for a GPU, which has threads, the
    program as written for a CPU. `blocks` are numbers, x fastest; None for all.
    """
    from tileworkbench.compiler.sim.frame import SimOptions
    from tileworkbench.compiler.sim.prints import PrintLog, Prints

    on_cpu = kernel.target.startswith("cpu")
    program = kernel.program if on_cpu else kernel.passes[-1].program
    log, stopped = PrintLog(program), ""
    options = SimOptions(
        races=False,
        uninitialised=False,
        prints=False,
        stop_at_out_of_bounds=False,
        blocks=None if blocks is None else tuple(blocks),
        seconds=seconds,
        observers=(log,),
    )
    given = [arg.cpu() if hasattr(arg, "cpu") else arg for arg in args]
    try:
        if run_program(kernel.program, program, given, options).report.timed_out:
            stopped = f"the simulation was stopped after {seconds:g} s"
    except Interrupted:
        stopped = "the simulation was interrupted"
    except ArgumentError:
        raise
    except TileError as error:
        stopped = f"the simulation ended: {error.message}"
    return Prints(kernel.name, tuple(log.lines), log.dropped, inputs, stopped)
