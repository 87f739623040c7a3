"""`T.copy` on threads: an element-wise nest over the side that is nearer the threads (paper,
Figure 8).
"""

from __future__ import annotations

from tileworkbench.compiler.ir.build import cast, int_const
from tileworkbench.compiler.ir.expr import Expr, Load
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.ir.tile import Copy, Parallel
from tileworkbench.compiler.lower.shared.regions import element, match_dims
from tileworkbench.compiler.lower.threads.context import ThreadContext

_LEVEL = {"global": 0, "shared": 1}


def as_nest(op: Copy, context: ThreadContext) -> Parallel:
    """One store of one load for each element.

    Raises `ShapeError` when the non-unit dimensions of the two sides cannot be matched.
    """
    src, dst = op.src, op.dst
    pairs = match_dims(op, context)
    if not pairs:  # one element
        pairs = [(len(src.extents) - 1, len(dst.extents) - 1)]
    src_nearer = _LEVEL.get(src.buffer.scope, 2) >= _LEVEL.get(dst.buffer.scope, 2)
    base = src if src_nearer else dst
    extents = tuple(base.extents[pair[0 if src_nearer else 1]] for pair in pairs)
    variables = tuple(context.loop_var("ijklmn"[d % 6]) for d in range(len(pairs)))
    for var, extent in zip(variables, extents, strict=True):
        context.ranges.enter(var, int_const(0), extent, 1)
    reads: dict[int, Expr] = {s: var for (s, _), var in zip(pairs, variables, strict=True)}
    writes: dict[int, Expr] = {d: var for (_, d), var in zip(pairs, variables, strict=True)}
    value = cast(Load(src.buffer, element(src, reads)), dst.buffer.dtype)
    store = Store(dst.buffer, element(dst, writes), value, site=op.site)
    return Parallel(variables, extents, store, op.coalesced_width, op.loop_layout, site=op.site)
