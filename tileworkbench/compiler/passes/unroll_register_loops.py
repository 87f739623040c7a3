"""Loops whose variable picks a register are unrolled: registers have no index, an array with one
that is not constant would be kept in memory.

Where the registers repeat after some iterations, only so many are written out; if so, the number of
iterations need not be known.

Before::

    for k in T.serial(64):
        s[0] = s[0] + F[k % 4]

After::

    for k_outer in T.serial(16):
        for k_inner in T.unroll(4):
            k = k_outer * 4 + k_inner
            s[0] = s[0] + F[k_inner]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.analysis.access import has_loads
from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.analysis.names import Names
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.build import (
    add,
    binary,
    cast,
    ceildiv,
    const_int,
    int_const,
    mul,
    sub,
)
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.loops import iterations
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    statements,
    substitute,
    variables,
    walk,
    with_body,
)
from tileworkbench.compiler.ir.rules import Rules
from tileworkbench.compiler.ir.types import INT32
from tileworkbench.compiler.passes.optional import optional

_REGISTER_BITS = 256 * 32  # no thread of NVIDIA's GPUs has more; a larger array stays in memory
_STATEMENTS = 4096  # that a loop may become
_WINDOW = 1024  # iterations in which registers are seen to repeat
_RING = 32  # after which they must repeat where the number of iterations is not known


@optional("constant indices: arrays that loops index are kept in memory")
def unroll_register_loops(program: Program) -> Program:
    """Unroll loops whose variables occur in indices of registers: of constant extents, or over
    registers that repeat.
    """
    unroll = Rules({st.For: (_Unrolling(program).unroll_registers,)})
    return with_body(program, Rewriter(rewrite_stmt=unroll)(program.body))


class _Unrolling:
    def __init__(self, program: Program) -> None:
        self.names = Names(program)
        self.ranges = Ranges(program)
        self.lets: dict[Var, Expr] = {}
        self.constant: set[Var] = set()  # variables that unrolling makes constant
        for stmt in statements(program.body):
            if isinstance(stmt, st.Let):
                self.lets[stmt.var] = substitute(stmt.value, self.lets)
            elif isinstance(stmt, st.For) and self.is_constant(stmt.start, stmt.stop):
                self.constant.add(stmt.var)
        for stmt in statements(program.body):
            if isinstance(stmt, st.For) and stmt.var not in self.constant:
                self.constant.add(stmt.var)
                if not self.ring(stmt):
                    self.constant.remove(stmt.var)

    def is_constant(self, *values: Expr) -> bool:
        """Whether nothing but variables of such loops decides what they are."""
        below = [node for value in values for node in walk(substitute(value, self.lets))]
        return all(
            node in self.constant if isinstance(node, Var) else not isinstance(node, Load)
            for node in below
        )

    def unroll_registers(self, stmt: st.For) -> st.Stmt:
        """A loop that indexes registers is unrolled, as often as the registers differ."""
        if stmt.kind is not st.LoopKind.SERIAL:
            return stmt
        indices = [i for i in self.indices(stmt.body) if stmt.var in variables(i)]
        if not indices or stmt.var not in self.constant:
            return stmt
        if not self.is_constant(stmt.start, stmt.stop):
            ring = self.ring(stmt)
            fits = ring > 0 and ring * _size(stmt.body, self) <= _STATEMENTS
            return self.split(stmt, None, ring) if fits else stmt
        trips = self.trips(stmt)
        period = self.period(stmt, trips, indices)
        if trips is None or period * _size(stmt.body, self) > _STATEMENTS:
            return stmt
        if period >= trips:
            return replace(stmt, kind=st.LoopKind.UNROLLED)
        return self.split(stmt, trips, period)

    def indices(self, body: st.Stmt) -> Iterator[Expr]:
        """What must be constant in `body`: indices of registers, bounds of unrolled loops."""
        for node in walk(body):
            indices: tuple[Expr, ...] = ()
            if isinstance(node, Load | Address | st.Store) and _is_register(node.buffer):
                indices = node.indices
            elif isinstance(node, st.For) and node.kind is st.LoopKind.UNROLLED:
                indices = (node.start, node.stop)
            for index in indices:
                if const_int(index) is None and self.is_constant(index):
                    yield substitute(index, self.lets)

    def trips(self, loop: st.For) -> int | None:
        """How often the loop runs at most."""
        step = const_int(loop.step)
        extent = self.ranges.bounds(sub(loop.stop, loop.start))
        length = extent.high if (step or 0) > 0 else extent.low
        return None if not step or length is None else max(0, -(-length // step))

    def ring(self, loop: st.For) -> int:
        """The iterations after which the registers of a loop of any extent repeat, 0 for none."""
        indices = [i for i in self.indices(loop.body) if loop.var in variables(i)]
        forwards = const_int(loop.start) is not None and (const_int(loop.step) or 0) > 0
        if not indices or not forwards or _leaves(loop) or has_loads(loop.stop):
            return 0
        rows = self.rows(loop, indices, 2 * _RING)
        return next((p for p in range(1, _RING + 1) if rows and rows[p:] == rows[:-p]), 0)

    def period(self, loop: st.For, trips: int | None, indices: list[Expr]) -> int:
        """The iterations after which the registers repeat: a divisor of `trips`."""
        whole = trips or 1
        constant = iterations(loop) is not None
        if constant and not _leaves(loop):
            rows = self.rows(loop, indices, min(whole, _WINDOW))
            for period in range(1, len(rows)):
                if whole % period == 0 and rows[period:] == rows[:-period]:
                    return period
        return whole

    def rows(self, loop: st.For, indices: list[Expr], count: int) -> list[list[list[int]]]:
        """The indices in the first iterations; nothing where they cannot be told."""
        start, step = const_int(loop.start) or 0, const_int(loop.step) or 1
        values = range(start, start + count * step, step)
        try:
            return [[self.sample(index, loop.var, value) for index in indices] for value in values]
        except ArithmeticError:  # a division by what was chosen for another variable
            return []

    @staticmethod
    def sample(index: Expr, var: Var, value: int) -> list[int]:
        """`index` where `var` is `value` and the variables of other loops are some numbers."""
        others = [other.name for other in variables(index)]
        return [
            int(evaluate(index, {**dict.fromkeys(others, number), var.name: value}))
            for number in (1, 2)
        ]

    def split(self, loop: st.For, trips: int | None, period: int) -> st.Stmt:
        """`period` iterations unrolled in a serial loop, as far as there are any."""
        outer, inner = (self.names.var(f"{loop.var.name}_{part}") for part in ("outer", "inner"))
        at = add(mul(outer, int_const(period)), inner)
        value = cast(add(loop.start, mul(at, loop.step)), loop.var.dtype)
        zero, one = int_const(0), int_const(1)
        kind, site, body = st.LoopKind.UNROLLED, loop.site, loop.body
        if trips is None:
            body = st.If(binary("lt", loop.var, loop.stop), body, site=site)
            steps = ceildiv(sub(loop.stop, loop.start), loop.step)
            count = ceildiv(steps, cast(int_const(period), steps.dtype))
        else:
            count = int_const(trips // period)
        body = st.seq([st.Let(loop.var, value, site=site), body])
        unrolled = st.For(inner, zero, int_const(period), one, kind, body, site=site)
        return st.For(outer, zero, cast(count, INT32), one, loop.kind, unrolled, site=site)


def _leaves(loop: st.For) -> bool:
    return any(isinstance(inner, st.Break) for inner in statements(loop.body))


def _size(body: st.Stmt, unrolling: _Unrolling) -> int:
    """Statements of `body` with its unrolled loops written out."""
    if isinstance(body, st.For) and body.kind is not st.LoopKind.SERIAL:
        return (unrolling.trips(body) or 1) * _size(body.body, unrolling)
    below = [child for child in body.children() if isinstance(child, st.Stmt)]
    return sum(_size(child, unrolling) for child in below) if below else 1


def _is_register(buffer: Buffer) -> bool:
    if buffer.scope != "local" or not buffer.shape:
        return False
    bits = buffer.dtype.bits
    for extent in buffer.shape:
        bits *= const_int(extent) or _REGISTER_BITS + 1
    return bits <= _REGISTER_BITS
