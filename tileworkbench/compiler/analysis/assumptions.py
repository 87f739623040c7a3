"""What `T.assume` says of the arguments of a call: generated code relies on it, so it is checked
before a launch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileworkbench.compiler.analysis.evaluate import evaluate, is_on_host
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, variables
from tileworkbench.compiler.ir.stmt import Assume


def host_assumptions(program: Program) -> tuple[Expr, ...]:
    """The assumptions about nothing but scalar arguments and symbols, in order."""
    conditions = (stmt.cond for stmt in statements(program.body) if isinstance(stmt, Assume))
    return tuple(dict.fromkeys(cond for cond in conditions if is_on_host(cond, program)))


def check_assumptions(name: str, conditions: Sequence[Expr], values: Mapping[str, int]) -> None:
    """Raise `ArgumentError` where one does not hold; `values` are scalars and symbols by name."""
    for cond in conditions:
        if not evaluate(cond, values):
            given = ", ".join(f"{var.name} = {values[var.name]}" for var in variables(cond))
            raise ArgumentError(f"'{name}': the kernel assumes '{print_expr(cond)}', and {given}")
