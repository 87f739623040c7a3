"""`Kernel.footprint`: which elements of each tensor the blocks of a simulated call touch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import GridBarrier
from tileworkbench.compiler.sim.footprint.result import (
    Footprint,
    LineLanes,
    TensorFootprint,
    TileUse,
)
from tileworkbench.workbench.observed import observe, simulated_program
from tileworkbench.workbench.simulation import on_host

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.footprint.recorder import FootprintRecorder
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.workbench.kernel import Kernel

SECONDS = 5.0
"""How long a footprint is recorded unless told otherwise."""


def record_footprint(
    kernel: Kernel,
    args: Sequence[Any],
    inputs: str = "the inputs that were given",
    blocks: Iterable[int] | None = None,
    seconds: float | None = SECONDS,
) -> Footprint:
    """What a call on `args` touches: the lowered program for a GPU, the one as written for a CPU.

    `inputs` says which arguments these are. `blocks` are the numbers of the blocks to simulate,
    None for all; of one block threads are recorded too. It ends after about `seconds`, None for no
    limit. What was recorded by then, or before an interrupt or an error of the run, is kept.
    """
    from tileworkbench.compiler.sim.footprint.recorder import FootprintRecorder

    program = simulated_program(kernel)
    chosen = None if blocks is None else tuple(sorted(set(blocks)))
    only = chosen[0] if chosen is not None and len(chosen) == 1 else None
    together = any(isinstance(stmt, GridBarrier) for stmt in statements(program.body))
    recorder = FootprintRecorder(only, side_by_side=together)
    given = on_host(args)
    report, why_not = observe(kernel, given, recorder, chosen, seconds)
    if report is not None and chosen is not None:
        why_not = "only these were asked for"
    recorder.finish()
    if report is not None and report.timed_out and seconds is not None:
        where = "in the last of them" if report.blocks else "before the first"
        why_not = f"{seconds:g} s were over {where}"
        if report.blocks and report.launched:
            why_not += f"; all take about {seconds * report.launched / report.blocks:.0f} s"
    if only is not None and report is not None and not recorder.seen:
        raise ArgumentError(
            f"block {only} of '{kernel.name}' does not exist, or touches no tensor",
            "blocks are numbered from 0, x fastest",
        )
    return Footprint(
        kernel.name,
        "as written" if program is kernel.program else "lowered",
        inputs,
        _tensors(kernel.program, given, recorder),
        _lines(program, recorder),
        tuple(TileUse(name, *counts) for name, counts in recorder.tiles.items()),
        tuple(recorder.launches),
        *_extent(recorder, report, only, why_not),
        min(recorder.seen) if only is not None and recorder.seen else -1,
        why_not,
    )


def _extent(
    recorder: FootprintRecorder, report: SimReport | None, only: int | None, why_not: str
) -> tuple[int, int]:
    """How many blocks were recorded, and of how many."""
    total = sum(map(prod, recorder.launches))
    if report is None or only is not None:
        return len(recorder.seen), total
    if not why_not:
        return report.blocks, report.blocks
    return report.blocks, max(total, report.launched)


def _lines(program: Program, recorder: FootprintRecorder) -> tuple[LineLanes, ...]:
    lines: dict[tuple[int, str, str], list[int]] = {}
    for (site, name, access), (active, lanes) in recorder.lanes.items():
        span = program.span(site)
        tally = lines.setdefault((span.line if span else 0, name, access), [0, 0])
        tally[0] += active
        tally[1] += lanes
    return tuple(LineLanes(*key, *counts) for key, counts in sorted(lines.items()))


def _tensors(
    origin: Program, given: Sequence[Any], recorder: FootprintRecorder
) -> tuple[TensorFootprint, ...]:
    from tileworkbench.compiler.sim.arguments import known_shape, solve_symbols

    passed = [param.name for param in origin.params if not param.output]
    symbols = solve_symbols(origin, dict(zip(passed, given, strict=True)))
    made = []
    for param in origin.params:
        counts = recorder.tensors.get(param.name)
        if counts is None or not isinstance(param.value, Buffer):
            continue
        shape = known_shape(param.value, symbols)
        if prod(shape) != counts.elements:
            shape = (counts.elements,)
        sides = counts.loads, counts.stores
        made.append(TensorFootprint(param.name, shape, counts.elements, counts.cell, *sides))
    return tuple(made)
