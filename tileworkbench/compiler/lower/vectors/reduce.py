"""`T.reduce_*`: vectors of partial results, of each row or of strips of columns.

Combination happens in the destination's dtype; 16-bit floats are combined in float32 and rounded
once. NaN is ignored by maxima and minima unless `nan_propagate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
from tileworkbench.compiler.lower.shared.strips import strip_width
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
    """Loops over the kept dimensions around the reduction of a row, or of a strip of columns."""
    lowering = _Lowering(op, context)
    return lowering.along_rows() if op.dim == len(op.src.shape) - 1 else lowering.along_columns()


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
        kept, around = self.outer_loops([const_int(op.src.shape[d]) or 0 for d in self.kept])
        return around(self.row(kept, extent, max(lanes, 1)))

    def row(self, kept: tuple[Expr, ...], extent: int, lanes: int) -> Stmt:
        """Whole vectors lane by lane, what is left over (`rest`), then across lanes."""
        chunks = extent // lanes
        partial = self.partial(lanes)
        stmts: list[Stmt] = [Alloc(partial, site=self.op.site)]

        def more(width: int, start: Expr) -> Stmt:
            """So many elements of the source, from one on, to the first lanes."""
            return self.update(partial, width, lambda lane: self.source(kept, add(start, lane)))

        if chunks == 1:
            stmts.append(self.fill(partial, lanes, lambda lane: self.source(kept, lane)))
        else:
            stmts.append(self.start(partial, lanes))
            step = self.context.names.var("k")
            update = more(lanes, mul(step, int_const(lanes)))
            stmts.append(self.serial(step, int_const(chunks), update))
        total = self.across(Load(partial, (self.lanes(lanes),)))
        return seq([*stmts, *self.rest(extent, lanes, more), self.finish(kept, total)])

    def rest(self, extent: int, lanes: int, more: Callable[[int, Expr], Stmt]) -> Iterator[Stmt]:
        """What whole vectors leave over: `more` of a power of two of elements, from one on."""
        width = lanes
        while width := width // 2:
            if extent & width:
                yield more(width, int_const(extent - extent % (2 * width)))

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

    def along_columns(self) -> Stmt:
        """Strips of columns, one after the other: their results stay in registers while the rows
        go by.
        """
        *outer, extent = (const_int(self.op.src.shape[d]) or 0 for d in self.kept)
        width = strip_width(extent, self.context.target.vector_bits // max(self.dtype.bits, 8))
        kept, around = self.outer_loops(outer)
        whole, rest = divmod(extent, width)
        stmts: list[Stmt] = []
        for count, first, size in ((whole, 0, width), (1, extent - rest, rest)):
            if count and size:
                strip = self.context.names.var("strip")
                at = int_const(0) if count == 1 else mul(strip, int_const(size))
                body = self.strip(kept, add(int_const(first), at), size)
                stmts.append(self.serial(strip, int_const(count), body))
        return around(seq(stmts))

    def strip(self, kept: tuple[Expr, ...], first: Expr, width: int) -> Stmt:
        """The columns from `first` on."""
        op = self.op
        partial = self.partial(width)
        step = self.context.names.var("k")

        def columns(lane: Expr) -> tuple[Expr, ...]:
            return (*kept, add(first, lane))

        start = self.start(partial, width)
        update = self.update(partial, width, lambda lane: self.source(columns(lane), step))
        return seq(
            [
                Alloc(partial, site=op.site),
                start,
                self.serial(step, op.src.shape[op.dim], update),
                self.lanewise(
                    width, lambda lane: self.finish(columns(lane), Load(partial, (lane,)))
                ),
            ]
        )

    # Partial results

    def start(self, partial: Buffer, width: int) -> Stmt:
        """Nothing yet in each of the first lanes."""
        return self.fill(partial, width, lambda lane: identity(self.op.kind, self.dtype))

    def update(self, partial: Buffer, width: int, value: Callable[[Expr], Expr]) -> Stmt:
        """One more value for each of the first lanes."""
        return self.fill(
            partial, width, lambda lane: self.combine(Load(partial, (lane,)), value(lane))
        )

    def fill(self, partial: Buffer, width: int, value: Callable[[Expr], Expr]) -> Stmt:
        """A value for each of the first lanes."""
        return self.lanewise(
            width, lambda lane: Store(partial, (lane,), value(lane), site=self.op.site)
        )

    def lanewise(self, width: int, body: Callable[[Expr], Stmt]) -> Stmt:
        return nest(self.context, (int_const(width),), self.op.site, lambda lane: body(lane[0]))

    def partial(self, width: int) -> Buffer:
        return Buffer(self.context.names.fresh("partial"), self.dtype, (int_const(width),), "local")

    def outer_loops(self, extents: list[int]) -> tuple[tuple[Expr, ...], Callable[[Stmt], Stmt]]:
        """Indices of the kept dimensions, and what puts loops over them around a body."""
        pairs = [(self.context.names.var("ijkl"[d % 4]), n) for d, n in enumerate(extents)]
        # Of one row the number is 0, as wherever else it is written and read.
        kept = tuple(int_const(0) if count == 1 else var for var, count in pairs)

        def around(body: Stmt) -> Stmt:
            for var, count in reversed(pairs):
                body = self.serial(var, int_const(count), body)
            return body

        return kept, around
