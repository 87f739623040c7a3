"""Running a kernel in the simulator for what it finds: on request, beside a check, and before a
call of targets `sim:` and `ptx:` whose indices come from data.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.analysis.effects import starts_operations
from tileworkbench.compiler.analysis.hazards import find_fresh_reads
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    Interrupted,
    Note,
    TileError,
    TileWarning,
    display_name,
)
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.runtime.arrays import view_array

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.frame import SimOptions
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.compiler.sim.simulate import SimResult
    from tileworkbench.workbench.kernel import Kernel

SOME_BLOCKS = 4
SOME_STATEMENTS = 5000


def simulate_stage(
    kernel: Kernel,
    args: Sequence[Any],
    stage: str | None,
    blocks: Iterable[int] | None = None,
    sanitize: bool = False,
    fences: bool = False,
) -> SimResult:
    """Run one stage of `kernel` in the simulator: "tile", "lowered", a pass name, or None for the
    front end's program on a CPU and the lowered one elsewhere, where accesses outside tensors are
    counted in a run of their own, which is all where it finds that the kernel waits too late.
    `blocks` are the numbers of the blocks to run, None for all.
    """
    from tileworkbench.compiler.sim.frame import SimOptions

    chosen = None if blocks is None else tuple(blocks)
    options = SimOptions(sanitize=sanitize, fences=fences, blocks=chosen)
    if stage is None and kernel.target.startswith("cpu"):
        stage = "tile"
    if stage is not None:
        program = kernel.program if stage == "tile" else _after(kernel, stage)
        return run_program(kernel.program, program, args, options)
    masks = run_program(
        kernel.program,
        _masking_program(kernel),
        args,
        replace(options, prints=False, stop_at_out_of_bounds=False),
    )
    if starts_operations(kernel.program.body) and not masks.report.ok:
        return masks
    result = run_program(kernel.program, _after(kernel, "lowered"), args, options)
    return replace(result, report=replace(result.report, masked=masks.report.masked))


def _after(kernel: Kernel, stage: str) -> Program:
    program: Program = kernel.passes[-1 if stage == "lowered" else stage].program
    return program


def _masking_program(kernel: Kernel) -> Program:
    """The latest program in which accesses outside tensors are masked by the language, not by
    predicates: for a GPU the threads of parallel loops are known there. A kernel that starts
    operations shows only as it was written whether it waits for them.
    """
    if starts_operations(kernel.program.body):
        return kernel.program
    names = [snapshot.name for snapshot in kernel.passes]
    planned = "infer_thread_layouts"
    return _after(kernel, planned) if planned in names else kernel.program


def run_program(
    origin: Program, program: Program, args: Sequence[Any], options: SimOptions | None = None
) -> SimResult:
    """Simulate `program`, which was made of the kernel's own `origin`, on the arguments of a call.

    Raises `ArgumentError` for too many or too few.
    """
    from tileworkbench.compiler.sim.simulate import simulate

    named = named_arguments(origin, args)
    return simulate(program, named, options=options, signature=origin)


def named_arguments(program: Program, args: Sequence[Any]) -> dict[str, Any]:
    """The arguments of a call by parameter name.

    Raises `ArgumentError` for too many or too few, and for tensors without readable elements.
    """
    passed = [param for param in program.params if not param.output]
    if len(args) != len(passed):
        arguments = "1 argument" if len(passed) == 1 else f"{len(passed)} arguments"
        raise ArgumentError(f"'{program.name}' takes {arguments}, got {len(args)}")
    named = {param.name: value for param, value in zip(passed, args, strict=True)}
    for param in passed:
        if isinstance(param.value, Buffer):
            _check_contents(program.name, param.name, named[param.name])
    return named


def _check_contents(kernel: str, name: str, value: Any) -> None:
    """Raise `ArgumentError` for a tensor whose elements the simulator cannot read."""
    try:
        view = view_array(value)
    except ArgumentError as error:
        raise ArgumentError(f"'{kernel}': '{name}' {error.message}", error.hint) from None
    if view is not None and view.is_fake:
        raise ArgumentError(f"'{kernel}': '{name}' is a fake tensor, which has no contents")


def on_host(args: Iterable[Any]) -> list[Any]:
    """Arguments with tensors of devices copied to the host's memory."""
    return [arg.cpu() if hasattr(arg, "cpu") else arg for arg in args]


def look(kernel: Kernel, args: Sequence[Any], everything: bool, sanitize: bool) -> SimReport:
    """What the simulator finds in some blocks of a call, or in all of them; nothing is printed and
    no argument changes.
    """
    from tileworkbench.compiler.sim.frame import SimOptions

    options = SimOptions(sanitize=sanitize, prints=False)
    if not everything:
        options = replace(options, most_blocks=SOME_BLOCKS, most_statements=SOME_STATEMENTS)
    given = on_host(args)
    return run_program(kernel.program, _masking_program(kernel), given, options).report


def find_masked(kernel: Kernel, args: Sequence[Any], sanitize: bool) -> SimReport | None:
    """What a call would access outside its tensors; None where the call itself cannot be made.

    Raises `OutOfBoundsError` for an unguarded index that comes from data, where `sanitize`.
    """
    from tileworkbench.compiler.sim.frame import SimOptions

    options = SimOptions(
        races=False,
        uninitialised=False,
        stop_at_out_of_bounds=False,
        sanitize=sanitize,
        prints=False,
    )
    try:
        return run_program(kernel.program, _masking_program(kernel), args, options).report
    except Interrupted:
        raise
    except TileError as error:
        if sanitize and error.span is not None:
            raise
        return None


def warn_of_fresh_reads(program: Program) -> None:
    """Warn of tiles that a kernel certainly reads before it writes them."""
    for note in find_fresh_reads(program):
        _warn(note)


def warn_of_indices(report: SimReport, warned: set[tuple[str, int]]) -> None:
    """Warn of unguarded indices that come from data and were outside, once per line: `warned` are
    the tensors and statements that have been told of.
    """
    for masked in report.masked:
        key = (masked.buffer, masked.site)
        if masked.from_data and key not in warned:
            warned.add(key)
            _warn(masked.note())


def _warn(note: Note) -> None:
    file, line = "<kernel>", 1
    if note.span is not None:
        file, line = display_name(note.span.file), note.span.line
    text = note.render("warning").removeprefix("warning: ")
    warnings.warn_explicit(text, TileWarning, file, line, registry={})
