"""`T.reduce_*`: vector accumulators along the last dimension, element-wise steps along the others.

Combination happens in the destination's dtype; 16-bit floats are combined in float32 and rounded
once. NaN is ignored by maxima and minima unless `nan_propagate`.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.build import (
    add,
    cast,
    const_int,
    int_const,
    mul,
    unary,
)
from tileworkbench.compiler.ir.expr import Buffer, Call, Expr, Load, Ramp, Var
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Reduce, ReduceKind
from tileworkbench.compiler.lower.shared.combining import (
    COMBINERS,
    accumulation_dtype,
    combine,
    identity,
)
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.elementwise import nest

_MAX_LANES = 64
_CHAINS = 4  # independent accumulators hide the latency of an addition (4 cycles on current cores)


def infer_layout(op: Reduce, context: Context) -> tuple[Vote, ...]:
    """Both sides are taken by elements."""
    return (Vote(op.src, "is read by a reduction"), Vote(op.dst, "is written by a reduction"))


def _horizontal(kind: ReduceKind, vector: Expr, nan_propagate: bool) -> Expr:
    name = COMBINERS[kind]
    nan = "_nan" if name in ("max", "min") and nan_propagate and vector.dtype.is_float else ""
    return Call(f"lanes_{name}{nan}", (vector,), vector.dtype.scalar)


def lower(op: Reduce, context: Context) -> Stmt:
    """Loops over the kept dimensions around one reduction each, or around one element-wise step per
    reduced index.
    """
    if op.dim == len(op.src.shape) - 1 and const_int(op.src.shape[-1]) is not None:
        return _Lowering(op, context).along_rows()
    return _Lowering(op, context).across_rows()


class _Lowering:
    def __init__(self, op: Reduce, context: Context) -> None:
        self.op = op
        self.context = context
        self.dtype = accumulation_dtype(op.dst.dtype)
        self.kept = [d for d in range(len(op.src.shape)) if d != op.dim]

    def source(self, kept: tuple[Expr, ...], at: Expr) -> Expr:
        """The source's value at a reduced index, ready to combine."""
        index: list[Expr] = list(kept)
        index.insert(self.op.dim, at)
        value = cast(cast(Load(self.op.src, tuple(index)), self.op.dst.dtype), self.dtype)
        signed = value.dtype.scalar.is_signed
        return (
            unary("abs", value)
            if self.op.kind in (ReduceKind.ABSMAX, ReduceKind.ABSSUM) and signed
            else value
        )

    def target(self, kept: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """The destination's index for the kept indices: without the reduced dimension, or with 0
        there.
        """
        if len(self.op.dst.shape) == len(kept):
            return kept
        index: list[Expr] = list(kept)
        index.insert(self.op.dim, int_const(0))
        return tuple(index[: len(self.op.dst.shape)])

    def combine(self, a: Expr, b: Expr) -> Expr:
        return combine(self.op.kind, a, b, self.op.nan_propagate)

    def finish(self, kept: tuple[Expr, ...], value: Expr) -> Stmt:
        """Store the result of one row."""
        index = self.target(kept)
        if not self.op.clear:
            value = self.combine(cast(Load(self.op.dst, index), self.dtype), value)
        return Store(self.op.dst, index, cast(value, self.op.dst.dtype), site=self.op.site)

    def serial(self, var: Var, stop: Expr, body: Stmt) -> Stmt:
        return counting(var, stop, body, self.op.site)

    # Along the last dimension

    def along_rows(self) -> Stmt:
        """One vector of partial results per row, combined across its lanes at the end."""
        op = self.op
        extent = const_int(op.src.shape[-1]) or 0
        lanes = self.context.target.vector_bits // max(self.dtype.bits, 8) * _CHAINS
        lanes = min(lanes, _MAX_LANES)
        while lanes > extent:
            lanes //= 2
        rows = tuple(op.src.shape[d] for d in self.kept)
        variables = tuple(self.context.names.var("ijkl"[d % 4]) for d in range(len(rows)))
        # Of one row the number is 0, as wherever else it is written and read.
        kept = tuple(
            int_const(0) if const_int(count) == 1 else var
            for var, count in zip(variables, rows, strict=True)
        )
        body = self.row(kept, extent, max(lanes, 1))
        for var, count in zip(reversed(variables), reversed(rows), strict=True):
            body = self.serial(var, count, body)
        return body

    def row(self, kept: tuple[Expr, ...], extent: int, lanes: int) -> Stmt:
        """Whole vectors lane by lane, what is left over element by element, then across lanes."""
        chunks, rest = divmod(extent, lanes)
        name = self.context.names.fresh("partial")
        partial = Buffer(name, self.dtype, (int_const(lanes),), "local")
        whole, zero = self.lanes(lanes), int_const(0)
        stmts: list[Stmt] = [Alloc(partial, site=self.op.site)]

        def each(value: Callable[[Expr], Expr]) -> Stmt:
            """A value for every lane."""
            return self.each(
                partial.shape,
                lambda lane: Store(partial, lane, value(lane[0]), site=self.op.site),
            )

        def more(at: Expr, lane: Expr) -> Expr:
            """A lane's value with one more of the source."""
            return self.combine(Load(partial, (lane,)), self.source(kept, at))

        if chunks == 1:
            stmts.append(each(lambda lane: self.source(kept, lane)))
        else:
            stmts.append(each(lambda lane: identity(self.op.kind, self.dtype)))
            step = self.context.names.var("k")
            start = mul(step, int_const(lanes))
            update = each(lambda lane: more(add(start, lane), lane))
            stmts.append(self.serial(step, int_const(chunks), update))
        if rest:
            step = self.context.names.var("k")
            left = more(add(step, int_const(extent - rest)), zero)
            update = Store(partial, (zero,), left, site=self.op.site)
            stmts.append(self.serial(step, int_const(rest), update))
        stmts.append(self.finish(kept, self.across(Load(partial, (whole,)))))
        return seq(stmts)

    def across(self, value: Expr) -> Expr:
        """The lanes of a vector combined. The identity takes the place of nothing but NaN."""
        if value.dtype.lanes > 1:
            value = _horizontal(self.op.kind, value, self.op.nan_propagate)
        if self.dtype.is_float and COMBINERS[self.op.kind] != "sum" and not self.op.nan_propagate:
            return self.combine(identity(self.op.kind, self.dtype), value)
        return value

    @staticmethod
    def lanes(count: int) -> Expr:
        return Ramp(int_const(0), int_const(1), count) if count > 1 else int_const(0)

    # Along another dimension

    def across_rows(self) -> Stmt:
        """Initialise, combine row after row, and store, each step vectorised along the kept
        dimensions.
        """
        op = self.op
        rows = tuple(op.src.shape[d] for d in self.kept)
        total = op.dst if op.clear and self.dtype == op.dst.dtype else self.temporary(rows)
        stmts: list[Stmt] = [] if total is op.dst else [Alloc(total, site=op.site)]
        place: Callable[[tuple[Expr, ...]], tuple[Expr, ...]] = (
            self.target if total is op.dst else lambda kept: kept
        )
        start = identity(op.kind, self.dtype)
        stmts.append(self.each(rows, lambda kept: Store(total, place(kept), start, site=op.site)))
        step = self.context.names.var("k")

        def update(kept: tuple[Expr, ...]) -> Stmt:
            value = self.combine(Load(total, place(kept)), self.source(kept, step))
            return Store(total, place(kept), value, site=op.site)

        stmts.append(self.serial(step, op.src.shape[op.dim], self.each(rows, update)))
        if total is not op.dst:
            stmts.append(self.each(rows, lambda kept: self.finish(kept, Load(total, kept))))
        return seq(stmts)

    def temporary(self, shape: tuple[Expr, ...]) -> Buffer:
        return Buffer(
            self.context.names.fresh(f"{self.op.dst.name}_total"),
            self.dtype,
            shape,
            "local.fragment",
        )

    def each(self, extents: tuple[Expr, ...], body: Callable[[tuple[Expr, ...]], Stmt]) -> Stmt:
        return nest(self.context, extents, self.op.site, body)
