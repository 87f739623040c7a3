"""`Kernel.prints`: what a kernel prints in a simulated run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tileworkbench.workbench.observed import observe, simulated_program
from tileworkbench.workbench.simulation import on_host

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
    from tileworkbench.compiler.sim.prints import PrintLog, Prints

    log = PrintLog(simulated_program(kernel))
    report, stopped = observe(kernel, on_host(args), log, blocks, seconds)
    if report is not None and report.timed_out:
        stopped = f"the simulation was stopped after {seconds:g} s"
    return Prints(kernel.name, tuple(log.lines), log.dropped, inputs, stopped)
