"""Conditions that only the thread's index decides."""

from __future__ import annotations

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables


class ThreadRanges:
    """Knows for which threads such a condition holds."""

    def __init__(self, kernel: st.Kernel, thread: Var) -> None:
        self._thread = thread
        self._lets = {
            stmt.var: stmt.value
            for stmt in statements(kernel.body)
            if isinstance(stmt, st.Let) and not has_loads(stmt.value)
        }

    def split(self, cond: Expr, start: int, extent: int) -> list[tuple[int, int, bool]] | None:
        """The ranges `(start, extent, holds)` that the threads `start .. start + extent - 1` fall
        into; None where more than the thread's index decides.
        """
        expanded = self._expanded(cond)
        if expanded is None:
            return None
        ranges: list[tuple[int, int, bool]] = []
        for thread in range(start, start + extent):
            try:
                holds = bool(evaluate(expanded, {self._thread.name: thread}))
            except (ValueError, KeyError, ZeroDivisionError):
                return None
            if ranges and ranges[-1][2] == holds:
                first, count, _ = ranges[-1]
                ranges[-1] = (first, count + 1, holds)
            else:
                ranges.append((thread, 1, holds))
        return ranges

    def _expanded(self, cond: Expr) -> Expr | None:
        """`cond` in terms of the thread's index alone."""
        while True:
            others = [var for var in variables(cond) if var is not self._thread]
            if not others:
                return cond
            values = {var: self._lets[var] for var in others if var in self._lets}
            if len(values) < len(others):
                return None
            cond = substitute(cond, values)
