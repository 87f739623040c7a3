"""`T.cumsum` and `T.cummax`: a serial walk along the scanned dimension, vectorised along the
others.
"""

from __future__ import annotations

from tileworkbench.compiler.ir.build import add, cast, int_const, sub
from tileworkbench.compiler.ir.expr import Expr, Load
from tileworkbench.compiler.ir.loops import counting
from tileworkbench.compiler.ir.stmt import Stmt, Store, seq
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
    extent = op.dst.extents[op.dim]
    others = [d for d in range(len(op.dst.extents)) if d != op.dim]
    extents = tuple(op.dst.extents[d] for d in others)
    last = sub(extent, int_const(1))

    def at(position: Expr, kept: tuple[Expr, ...]) -> dict[int, Expr]:
        place = sub(last, position) if op.reverse else position
        return {op.dim: place, **dict(zip(others, kept, strict=True))}

    def value(values: dict[int, Expr]) -> Expr:
        return cast(Load(op.src.buffer, element(op.src, values)), op.dst.buffer.dtype)

    def first(kept: tuple[Expr, ...]) -> Stmt:
        values = at(int_const(0), kept)
        return Store(op.dst.buffer, element(op.dst, values), value(values), site=op.site)

    step = context.names.var("k")

    def advance(kept: tuple[Expr, ...]) -> Stmt:
        values = at(add(step, int_const(1)), kept)
        before = Load(op.dst.buffer, element(op.dst, at(step, kept)))
        total = combine(op.kind, before, value(values), False)
        return Store(op.dst.buffer, element(op.dst, values), total, site=op.site)

    start = nest(context, extents, op.site, first)
    walk = nest(context, extents, op.site, advance)
    return seq([start, counting(step, last, walk, op.site)])
