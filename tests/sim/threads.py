"""Programs that run thread by thread, for the simulator's tests."""

from __future__ import annotations

from dataclasses import replace
from textwrap import dedent, indent
from typing import Any

from tests.sim.kernels import program
from tileworkbench.compiler.diagnostics import Span
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import Rewriter, with_body
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.sim import SimOptions, SimReport, SimResult, simulate


def threads(
    parameters: str,
    body: str,
    count: int = 32,
    grid: int = 1,
    stage: str = "simt",
    **header: object,
) -> Program:
    """A kernel of `grid` blocks (`bx`) of `count` threads (`tx`), each statement with a line of its
    own: 1, 2, ... in the order of the text.
    """
    head = f'with T.Kernel({grid}, threads={count}, thread_vars=["tx"]) as bx:\n'
    text = head + indent(dedent(body).strip("\n"), "    ")
    return numbered(program(parameters, text, stage=stage, **header))


def numbered(made: Program) -> Program:
    """`made` with line n of a file for its n-th statement below the kernel."""
    count = 0

    def number(stmt: Stmt) -> Stmt:
        nonlocal count
        if isinstance(stmt, Seq):
            return stmt
        count += 1
        return replace(stmt, site=count)

    body = Rewriter(rewrite_stmt=number)(made.body)
    spans = tuple(Span("k.py", line, 0, line, 0) for line in range(1, count + 1))
    return replace(with_body(made, body), sites=(None, *spans))


def run(
    parameters: str, body: str, count: int = 32, options: SimOptions | None = None, **rest: Any
) -> SimResult:
    """Simulate a kernel; `rest` holds the arguments (arrays), `grid` and `stage`."""
    kept = {name: rest.pop(name) for name in ("grid", "stage") if name in rest}
    return simulate(threads(parameters, body, count, **kept), rest, options=options)


def report(parameters: str, body: str, count: int = 32, **rest: Any) -> SimReport:
    """What a simulation found."""
    return run(parameters, body, count, **rest).report
