"""Random loops over a thread's registers: unrolling keeps what they compute, and no loop that is
left picks a register.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from tileworkbench.compiler.ir import stmt as ir
from tileworkbench.compiler.ir.expr import Load
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import statements, substitute, variables, walk
from tileworkbench.compiler.ir.verify import verify
from tileworkbench.compiler.passes.simplify_expressions import simplify_expressions
from tileworkbench.compiler.passes.unroll_register_loops import unroll_register_loops
from tileworkbench.compiler.sim import simulate

REGISTERS = 8


@dataclass(frozen=True)
class Loop:
    """`for var in range(start, stop, step)`; the stop may be the scalar n."""

    start: int
    stop: str
    step: int

    def head(self, var: str) -> str:
        return f"for {var} in T.serial({self.start}, {self.stop}, {self.step}):"


constant = st.builds(
    Loop, st.integers(-3, 5), st.integers(-2, 24).map(str), st.sampled_from([-2, -1, 1, 2, 3])
)
dynamic = st.builds(Loop, st.integers(0, 3), st.just("n"), st.sampled_from([1, 2]))


@st.composite
def indices(draw: st.DrawFn, names: list[str]) -> str:
    """An index of a register in terms of the loops and a name for a sum of them."""
    terms = [f"{name} * {draw(st.integers(0, 5))}" for name in names]
    offset, ring = draw(st.integers(0, 9)), draw(st.sampled_from([2, 3, 4, 8]))
    return f"({' + '.join([*terms, str(offset)])}) % {ring}"


@st.composite
def programs(draw: st.DrawFn) -> str:
    outer = draw(st.one_of(constant, dynamic))
    inner = draw(st.none() | constant)
    lines, pad, names = [outer.head("k")], "    ", ["k"]
    if inner is not None:
        lines.append(pad + inner.head("i"))
        pad, names = pad + "    ", ["k", "i"]
    if draw(st.booleans()):
        lines.append(f"{pad}m = k + {draw(st.integers(0, 3))}")
        names.append("m")
    if draw(st.booleans()):
        lines += [f"{pad}if k == 4:", f"{pad}    continue"]
    into, first, second = (draw(indices(names)) for _ in range(3))
    lines.append(f"{pad}x[{into}] = x[{first}] * 0.5 + x[{second}] + A[tx]")
    body = "\n".join(" " * 8 + line for line in lines)
    return f"""
@T.program(stage="simt")
def kernel(A: T.Tensor((32,), "float32"), B: T.Tensor(({32 * REGISTERS},), "float32"), n: T.int32):
    with T.Kernel(1, threads=32, thread_vars=["tx"]) as bx:
        x = T.alloc_local(({REGISTERS},), "float32")
        for c in T.unroll({REGISTERS}):
            x[c] = A[tx] + T.float32(c)
{body}
        for r in T.unroll({REGISTERS}):
            B[tx * {REGISTERS} + r] = x[r]
"""


def picked_by_loops(program: Program) -> set[str]:
    """The serial loops whose variables indices of registers have."""
    serial, lets, found = set(), {}, set()
    for stmt in statements(program.body):
        if isinstance(stmt, ir.For) and stmt.kind is ir.LoopKind.SERIAL:
            serial.add(stmt.var)
        elif isinstance(stmt, ir.Let):
            lets[stmt.var] = substitute(stmt.value, lets)
    for node in walk(program.body):
        if isinstance(node, Load | ir.Store) and node.buffer.scope == "local":
            used = {var for index in node.indices for var in variables(index)}
            found |= {var.name for var in used & serial}
    return found


@settings(max_examples=examples(80))
@given(text=programs(), n=st.integers(0, 30))
def test_unrolling_keeps_results(text: str, n: int) -> None:
    program = parse(text)
    made = unroll_register_loops(program)
    verify(made)
    assert parse(print_program(made)) == made
    assert not picked_by_loops(simplify_expressions(made))
    a = np.random.default_rng(n).standard_normal(32).astype(np.float32)
    results = []
    for each in (program, made, simplify_expressions(made)):
        arguments = {"A": a, "B": np.zeros(32 * REGISTERS, np.float32), "n": n}
        results.append(simulate(each, arguments, signature=program).arrays["B"])
    for found in results[1:]:
        np.testing.assert_array_equal(found, results[0])
