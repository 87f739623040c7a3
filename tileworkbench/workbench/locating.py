"""Who wrote the wrong elements of a failed check: the call again, simulated with a write log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.diagnostics import CheckError, Note, Span
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Kernel as Launch
from tileworkbench.viz.model.error_map import ErrorMap
from tileworkbench.workbench.observed import observe, simulated_program
from tileworkbench.workbench.simulation import on_host

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.report import SimReport
    from tileworkbench.compiler.sim.writes import WriteLog, Writers
    from tileworkbench.workbench.kernel import Kernel

Array = np.ndarray[Any, Any]

STATEMENTS = 20_000
"""How many statements a failed check simulates to find the writers: a few seconds, and the same
blocks on every machine.
"""


def locate(
    kernel: Kernel,
    args: Sequence[Any],
    errors: ErrorMap,
    blocks: Iterable[int] | None = None,
    seconds: float | None = None,
    most_statements: int | None = None,
) -> ErrorMap:
    """`errors` with who wrote each element last, in a simulated call on `args`: the lowered program
    for a GPU, the program as written for a CPU.

    `blocks` are the numbers of the blocks to simulate, None for all; it ends after about `seconds`
    or `most_statements`, None for no limit. What was recorded by then, or before an interrupt, is
    kept.
    """
    from tileworkbench.compiler.sim.writes import MOST_ELEMENTS, WriteLog

    log, recorded = WriteLog(), ""
    report, why_not = observe(kernel, on_host(args), log, blocks, seconds, most_statements)
    if report is not None:
        recorded = f"{report.extent} simulated"
        if report.timed_out:
            why_not = _limited(report, seconds, most_statements)
        elif blocks is not None:
            why_not = f"only {report.extent} simulated, which were asked for"
    if errors.wrong.size > MOST_ELEMENTS:
        limit = f"writers are recorded of tensors of at most {MOST_ELEMENTS} elements"
        return replace(errors, recorded=recorded, why_not=limit)
    program = simulated_program(kernel)
    return _with_writers(errors, program, kernel.program, log, recorded, why_not)


def _limited(report: SimReport, seconds: float | None, most_statements: int | None) -> str:
    """How far a run came that ended at one of these limits."""
    if seconds is None:
        return f"only {report.extent} were simulated within {most_statements} statements"
    text = f"only {report.extent} were simulated in {seconds:g} s"
    if report.blocks and report.launched:
        text += f", all take about {seconds * report.launched / report.blocks:.0f} s"
    return text


def _with_writers(
    errors: ErrorMap, program: Program, origin: Program, log: WriteLog, recorded: str, why_not: str
) -> ErrorMap:
    writers: Writers | None = log.tensors.get(errors.output)
    if writers is None or writers.sites.size != errors.wrong.size:
        return replace(errors, recorded=recorded, why_not=why_not or "its memory has holes")
    lines = np.array([-1, *(_line(program.span(site)) for site in range(len(program.sites)))])
    shape = errors.shape
    sites = np.unique(writers.sites[errors.wrong.reshape(-1)])
    feeding = {_line(program.span(int(site))): _sources(origin, int(site)) for site in sites}
    return replace(
        errors,
        lines=lines[writers.sites + 1].astype(np.int32).reshape(shape),
        blocks=writers.blocks.reshape(shape),
        threads=writers.threads.reshape(shape),
        registers=writers.registers.reshape(shape),
        grid=log.grid,
        sources=tuple((line, tiles) for line, tiles in feeding.items() if tiles),
        recorded=recorded,
        why_not=why_not,
    )


def _line(span: Span | None) -> int:
    return -1 if span is None else span.line


def _sources(program: Program, site: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The tiles that the statement `site` reads, each with the lines that write it."""
    everything = list(statements(program.body))
    read: dict[Buffer, set[int]] = {}
    for stmt in everything:
        if stmt.site == site:
            for access in accesses(stmt):
                if access.reads and access.buffer.scope != "global":
                    read[access.buffer] = set()
    for stmt in everything:
        for access in accesses(stmt):
            if access.writes and access.buffer in read and stmt.site != site:
                read[access.buffer].add(_line(program.span(stmt.site)))
    return tuple(
        (buffer.name, tuple(sorted(line for line in lines if line > 0)))
        for buffer, lines in read.items()
        if lines
    )


def blank_map(kernel: str, output: str, got: Array, want: Array, wrong: Array) -> ErrorMap:
    """The wrong elements of an output of which no writer is known yet."""
    nobody = np.full(wrong.shape, -1, np.int32)
    return ErrorMap(kernel, output, got, want, wrong, nobody, nobody, nobody, nobody)


def explain(error: CheckError, errors: ErrorMap, kernel: Kernel) -> None:
    """Put the map on the error, and say in its notes what it shows."""
    error.map, error.kernel, program = errors, kernel, kernel.program
    written = list(errors.writing_lines)
    span = _span_of(program, written[0]) if written else None
    notes = [Note(f"the wrong elements: {errors.pattern}", span)]
    for line in written[:2]:
        for name, lines in errors.feeding(line):
            plural = "s" if len(lines) > 1 else ""
            said = f"line {line} stores '{name}', which is written at line{plural} "
            notes.append(Note(said + ", ".join(map(str, lines))))
    if not written and not errors.why_not:
        notes += _launch_notes(program, errors.grid)
    if errors.why_not:
        on = "kernel.locate(blocks=[0]) looks at one block, kernel.locate() at all"
        notes.append(Note(f"who wrote them last is not known of all: {errors.why_not}; {on}"))
    error.notes = (*error.notes, *notes)


def _launch_notes(program: Program, grid: tuple[int, ...]) -> list[Note]:
    """Where the blocks come from that write none of the wrong elements."""
    launches = [stmt for stmt in statements(program.body) if isinstance(stmt, Launch)]
    blocks = " x ".join(map(str, grid))
    plural = "" if prod(grid) == 1 else "s"
    return [
        Note(f"no block writes them; the grid has {blocks} block{plural}", program.span(each.site))
        for each in launches[:1]
    ]


def _span_of(program: Program, line: int) -> Span | None:
    """The last statement of that line: loops and blocks come before what they hold."""
    spans = [span for span in program.sites if span is not None and span.line == line]
    return spans[-1] if spans else None
