"""`T.fill` and `T.clear` on threads: an element-wise nest that stores one value."""

from __future__ import annotations

from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.ir.tile import Fill, Parallel
from tileworkbench.compiler.lower.shared.regions import element, wide_dims
from tileworkbench.compiler.lower.threads.context import ThreadContext


def as_nest(op: Fill, context: ThreadContext) -> Parallel:
    """The nest over the region's dimensions that are not 1."""
    dims = wide_dims(op.dst) or [len(op.dst.extents) - 1]
    variables = tuple(context.loop_var("ijkl"[d % 4]) for d in range(len(dims)))
    extents = tuple(op.dst.extents[d] for d in dims)
    index = element(op.dst, dict(zip(dims, variables, strict=True)))
    store = Store(op.dst.buffer, index, op.value, site=op.site)
    for var, extent in zip(variables, extents, strict=True):
        context.ranges.enter(var, int_const(0), extent, 1)
    return Parallel(variables, extents, store, site=op.site)
