"""Elements of a tensor that a nest reads down its columns come from a tile, which a copy fills.

A vector of them would take a line of memory for each lane. The copy reads along rows, and turns
what it reads on the way into the tile, in registers.

Before::

    for j, i in T.Parallel(32, 32):
        Y[by * 32 + j, bx * 32 + i] = X[bx * 32 + i, by * 32 + j]

After::

    X_turned = T.alloc_fragment((32, 32), "float32")
    T.copy(X[bx * 32:bx * 32 + 32, by * 32:by * 32 + 32], X_turned[0:32, 0:32])
    for j, i in T.Parallel(32, 32):
        Y[by * 32 + j, bx * 32 + i] = X_turned[i, j]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tileworkbench.compiler.analysis.access import depends_on, element_accesses, loads
from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import add, const, const_int, int_const, mul
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import (
    Rewriter,
    bound_by,
    statements,
    substitute,
    with_body,
)
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, seq
from tileworkbench.compiler.ir.tile import Copy, Parallel
from tileworkbench.compiler.lower.shared.nest_fusion import is_plain, without_unit_dims
from tileworkbench.compiler.lower.shared.regions import whole_region
from tileworkbench.compiler.lower.vectors.context import Context
from tileworkbench.compiler.lower.vectors.panels import can_turn
from tileworkbench.compiler.lower.vectors.parallel import choose
from tileworkbench.compiler.passes.optional import optional
from tileworkbench.compiler.target import Target

_SIDE = 64  # of a tile at most: what it is read from and what becomes of it are near


@dataclass(frozen=True, slots=True)
class _Read:
    """A load of `buffer` at `mins`, but for variables of the nest: `row` is added to the index of
    dimension `dim`, `column` to the last one.
    """

    load: Load
    mins: tuple[Expr, ...]
    dim: int
    row: Var
    column: Var

    def region(self, starts: Mapping[Var, Expr], sizes: Mapping[Var, int]) -> Region:
        """What is read where the variables have so many values from `starts` on."""
        last = len(self.mins) - 1
        by_dim = {self.dim: self.row, last: self.column}
        mins = [
            add(low, starts[by_dim[dim]]) if dim in by_dim else low
            for dim, low in enumerate(self.mins)
        ]
        extents = [sizes[by_dim[dim]] if dim in by_dim else 1 for dim in range(last + 1)]
        return Region(self.load.buffer, tuple(mins), tuple(map(int_const, extents)))


@optional("vectors at once: what is read down columns is read element by element")
@dataclass(frozen=True, slots=True)
class TurnReads:
    """Copy what nests read down the columns of tensors into tiles."""

    target: Target

    def __call__(self, program: Program) -> Program:
        turner = _Turner(Context.of(program, self.target))
        return with_body(program, Rewriter(rewrite_stmt=turner.visit)(program.body))


class _Turner:
    def __init__(self, context: Context) -> None:
        self.context = context

    def visit(self, stmt: Stmt) -> Stmt:
        """A nest behind the copies that it needs."""
        if not isinstance(stmt, Parallel) or not is_plain(stmt):
            return stmt
        nest = without_unit_dims(stmt)
        if len(nest.vars) != 2 or any(const_int(extent) is None for extent in nest.extents):
            return stmt
        reads = list(dict.fromkeys(self.reads(nest)))
        if not reads:
            return stmt
        plan = choose(nest, self.context, but={read.load.buffer for read in reads})
        reads = [read for read in reads if plan and read.row is nest.vars[plan.at]]
        sizes = self.part(nest, reads) if reads else None
        return stmt if sizes is None else self.in_parts(nest, reads, sizes)

    def reads(self, nest: Parallel) -> Iterator[_Read]:
        """The loads of tensors that one variable moves along a row, the other along a column."""
        written = {access.buffer for access in element_accesses(nest.body) if access.writes}
        for load in loads(nest.body):
            if load.buffer.scope == "global" and load.buffer not in written:
                read = self.read(load, nest)
                if read is not None:
                    yield read

    def read(self, load: Load, nest: Parallel) -> _Read | None:
        """The parts of a load; None where a box does not hold what it reads."""
        inside = {var for stmt in statements(nest.body) for var in bound_by(stmt)}
        inside.update(nest.vars)
        moved: dict[Var, int] = {}
        mins: list[Expr] = []
        for dim, index in enumerate(load.indices):
            terms = self.context.ranges.linear(index)
            rest = []
            for atom, factor in terms.terms:
                if atom in nest.vars and factor == 1 and atom not in moved:
                    moved[atom] = dim
                elif depends_on(atom, frozenset(inside)):
                    return None
                else:
                    rest.append((atom, factor))
            mins.append(to_expr(Linear(tuple(rest), terms.constant), index.dtype))
        last = len(mins) - 1
        column = next((var for var, dim in moved.items() if dim == last), None)
        row = next((var for var, dim in moved.items() if dim != last), None)
        if load.predicate is not None or column is None or row is None:
            return None
        return _Read(load, tuple(mins), moved[row], row, column)

    def part(self, nest: Parallel, reads: Sequence[_Read]) -> dict[Var, int] | None:
        """How much of each variable a tile holds; None where no tile can be turned."""
        dtypes = {read.load.buffer.dtype for read in reads}
        sides = {
            var: [side for side in range(_SIDE, 0, -1) if (const_int(extent) or 1) % side == 0]
            for var, extent in zip(nest.vars, nest.extents, strict=True)
        }
        for rows in sides[reads[0].row]:
            columns = sides[reads[0].column][0]
            if all(can_turn(dtype, rows, columns, self.context.target) for dtype in dtypes):
                return {reads[0].row: rows, reads[0].column: columns}
        return None

    def in_parts(self, nest: Parallel, reads: Sequence[_Read], sizes: Mapping[Var, int]) -> Stmt:
        """Part after part of a nest, each behind the copies of what it reads."""
        names, site = self.context.names, nest.site
        counts = [
            (names.var(var.name, var.dtype), (const_int(extent) or 1) // sizes[var])
            for var, extent in zip(nest.vars, nest.extents, strict=True)
        ]
        starts = {
            var: mul(block, const(sizes[var], var.dtype)) if count > 1 else const(0, var.dtype)
            for var, (block, count) in zip(nest.vars, counts, strict=True)
        }
        points = {var: names.var(var.name, var.dtype) for var in nest.vars}
        stmts: list[Stmt] = []
        loads: dict[object, Load] = {}
        for read in reads:
            shape = (int_const(sizes[read.row]), int_const(sizes[read.column]))
            name = names.fresh(f"{read.load.buffer.name}_turned")
            tile = Buffer(name, read.load.buffer.dtype, shape, "local.fragment")
            source = read.region(starts, sizes)
            stmts += [Alloc(tile, site=site), Copy(source, whole_region(tile), site=site)]
            loads[read.load] = Load(tile, (points[read.row], points[read.column]))
        at = {var: add(starts[var], points[var]) for var in nest.vars}
        body = substitute(Rewriter(lambda node: loads.get(node, node))(nest.body), at)
        extents = tuple(int_const(sizes[var]) for var in nest.vars)
        stmts.append(replace(nest, vars=tuple(points.values()), extents=extents, body=body))
        made: Stmt = seq(stmts)
        for block, count in reversed(counts):
            if count > 1:
                made = counting(block, count, made, site)
        return made
