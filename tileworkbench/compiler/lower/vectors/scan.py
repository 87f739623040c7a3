"""`T.cumsum` and `T.cummax`: a serial walk along the scanned dimension.

Along the last dimension a row is done before the next, and what it has come to is in a register:
of rows that are walked side by side each store would have its own line of the cache, and a tile has
more rows than the cache has lines for addresses that are a power of two apart. Along any other
dimension the walk is vectorised along the rest.
"""

from __future__ import annotations

from tileworkbench.compiler.ir.build import add, cast, int_const, sub
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.stmt import Alloc, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Scan
from tileworkbench.compiler.lower.shared.combining import combine
from tileworkbench.compiler.lower.shared.regions import element
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.elementwise import nest


def infer_layout(op: Scan, context: Context) -> tuple[Vote, ...]:
    """Both sides are taken by elements."""
    return (Vote(op.src.buffer, "is read by a scan"), Vote(op.dst.buffer, "is written by a scan"))


def lower(op: Scan, context: Context) -> Stmt:
    """Copy the first element, then combine each with the one before it, in dst's dtype."""
    scan = _Scan(op, context)
    return scan.along_rows() if op.dim == len(op.dst.extents) - 1 else scan.across_rows()


class _Scan:
    """One scan: its places in both sides, and the variable that walks."""

    def __init__(self, op: Scan, context: Context) -> None:
        self.op, self.context = op, context
        self.others = [d for d in range(len(op.dst.extents)) if d != op.dim]
        self.extents = tuple(op.dst.extents[d] for d in self.others)
        self.last = sub(op.dst.extents[op.dim], int_const(1))
        self.step = context.names.var("k")

    def at(self, position: Expr, kept: tuple[Expr, ...]) -> dict[int, Expr]:
        """The place of an element, `position` from where the walk begins."""
        place = sub(self.last, position) if self.op.reverse else position
        return {self.op.dim: place, **dict(zip(self.others, kept, strict=True))}

    def value(self, position: Expr, kept: tuple[Expr, ...]) -> Expr:
        source = self.op.src
        loaded = Load(source.buffer, element(source, self.at(position, kept)))
        return cast(loaded, self.op.dst.buffer.dtype)

    def store(self, position: Expr, kept: tuple[Expr, ...], value: Expr) -> Stmt:
        place = element(self.op.dst, self.at(position, kept))
        return Store(self.op.dst.buffer, place, value, site=self.op.site)

    def combine(self, before: Expr, value: Expr) -> Expr:
        return combine(self.op.kind, before, value, False)

    def along_rows(self) -> Stmt:
        """Row after row; what a row has come to is not loaded again."""
        site, names = self.op.site, self.context.names
        kept = tuple(
            names.var("ijlm"[d % 4], extent.dtype) for d, extent in enumerate(self.extents)
        )
        dtype, zero = self.op.dst.buffer.dtype, (int_const(0),)
        total = Buffer(names.fresh("total"), dtype, (int_const(1),), "local")
        start, following = int_const(0), add(self.step, int_const(1))
        advance = self.combine(Load(total, zero), self.value(following, kept))
        row: list[Stmt] = [
            Alloc(total, site=site),
            Store(total, zero, self.value(start, kept), site=site),
            self.store(start, kept, Load(total, zero)),
        ]
        walk = [
            Store(total, zero, advance, site=site),
            self.store(following, kept, Load(total, zero)),
        ]
        body = seq([*row, counting(self.step, self.last, seq(walk), site)])
        for var, extent in zip(reversed(kept), reversed(self.extents), strict=True):
            body = counting(var, extent, body, site)
        return body

    def across_rows(self) -> Stmt:
        """All rows together, element after element."""
        start, following = int_const(0), add(self.step, int_const(1))

        def first(kept: tuple[Expr, ...]) -> Stmt:
            return self.store(start, kept, self.value(start, kept))

        def advance(kept: tuple[Expr, ...]) -> Stmt:
            before = Load(self.op.dst.buffer, element(self.op.dst, self.at(self.step, kept)))
            return self.store(following, kept, self.combine(before, self.value(following, kept)))

        walk = nest(self.context, self.extents, self.op.site, advance)
        steps = counting(self.step, self.last, walk, self.op.site)
        return seq([nest(self.context, self.extents, self.op.site, first), steps])
