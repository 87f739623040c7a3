"""The reasons for the choices of layout inference: notes of a program, and the steps behind them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.ir.decisions import LayoutDecision, Verdict
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.tile import Gemm
from tileworkbench.compiler.lower.shared.names import operator_name
from tileworkbench.compiler.lower.threads.solver import Solver


def retried(failed: LayoutError, products: Mapping[int, Gemm], tried: str) -> LayoutDecision:
    """The note that other policies or instructions were needed than those that were `tried`."""
    first = next(iter(products.values()))
    reason = f"with {tried}: {failed.message}"
    return LayoutDecision(Verdict.REJECTED, operator_name(first), first.site, "", "", reason)


def decisions_of(solver: Solver) -> Iterator[LayoutDecision]:
    """The steps of inference, in order."""
    for step in solver.steps:
        stmt = solver.operators[step.operator].stmt if step.operator >= 0 else None
        yield LayoutDecision(
            step.verdict,
            operator_name(stmt) if stmt else "",
            stmt.site if stmt else 0,
            step.buffer.name if step.buffer else "",
            str(step.layout) if step.layout else "",
            step.reason,
        )


def notes_of(solver: Solver, program: Program) -> Iterator[str]:
    """A sentence about each tile: its layout, and who wanted it."""
    for buffer, layout in solver.known.items():
        origin = solver.origins[buffer]
        text = f"{buffer.name}: {layout}, it {origin.reason}"
        if origin.operator >= 0:
            stmt = solver.operators[origin.operator].stmt
            span = program.span(stmt.site)
            text += f" ({operator_name(stmt)}{f', line {span.line}' if span else ''})"
        yield text
