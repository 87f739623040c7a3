"""Whether a set of conditions holds in some iteration, decided by trying all iterations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import AddressOf, Expr, Load, Var
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables, walk

_MOST_POINTS = 4096


class Iterations:
    """The values of a program's loop, block and thread variables, where they are constants."""

    def __init__(self, program: Program) -> None:
        self._values: dict[Var, range] = {}
        self._lets: dict[Var, Expr] = {}
        for stmt in statements(program.body):
            match stmt:
                case st.For(var, start, stop, step):
                    self._enter(var, const_int(start), const_int(stop), const_int(step))
                case tile.Pipelined(var, start, stop):
                    self._enter(var, const_int(start), const_int(stop), 1)
                case tile.Parallel(names, extents):
                    self._enter_box(names, extents)
                case st.Kernel(names, grid):
                    self._enter_box(names, grid)
                    for var, count in zip(stmt.thread_vars, stmt.threads, strict=False):
                        self._values[var] = range(count)
                case st.Let(var, value):
                    self._lets[var] = substitute(value, self._lets)

    def _enter_box(self, names: Sequence[Var], extents: Sequence[Expr]) -> None:
        for var, extent in zip(names, extents, strict=True):
            self._enter(var, 0, const_int(extent), 1)

    def _enter(self, var: Var, start: int | None, stop: int | None, step: int | None) -> None:
        if start is not None and stop is not None and step:
            self._values[var] = range(start, stop, step)

    def satisfy(self, conditions: Sequence[Expr]) -> bool:
        """Whether all of `conditions` hold in some iteration. False also where that is not known:
        they depend on something else, or there are too many iterations to try.
        """
        inlined = [substitute(condition, self._lets) for condition in conditions]
        if any(isinstance(node, Load | AddressOf) for cond in inlined for node in walk(cond)):
            return False
        names = list(dict.fromkeys(var for cond in inlined for var in variables(cond)))
        if any(var not in self._values for var in names):
            return False
        points = product(*(self._values[var] for var in names))
        tried = list(islice(points, _MOST_POINTS + 1))
        if len(tried) > _MOST_POINTS:
            return False
        try:
            return any(
                all(evaluate(cond, dict(zip((v.name for v in names), point, strict=True)))
                    for cond in inlined)
                for point in tried
            )  # fmt: skip
        except (ValueError, ZeroDivisionError):
            return False
