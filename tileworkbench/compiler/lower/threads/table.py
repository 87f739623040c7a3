"""The operators by statement class, written out: which layouts they want, and how threads execute
them.
"""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.lower.threads import gemm, parallel, reduce, reducer, scan, views
from tileworkbench.compiler.lower.threads.binding import infer_nest
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import NOTHING, LayoutMap, LayoutUpdate, Level
from tileworkbench.compiler.lower.threads.loaded_layouts import staged_results
from tileworkbench.compiler.lower.threads.nests import nest_of
from tileworkbench.compiler.lower.threads.traffic import global_traffic, register_traffic


def infer_layout(
    op: st.Stmt, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """What `op` itself (not the statements inside it) says about layouts at `level`.

    Raises `LayoutConflict` when it cannot work with what is known.
    """
    match op:
        case tile.Parallel() | tile.Copy() | tile.Fill():
            update = infer_nest(nest_of(op, context), layouts, level, context)
            if isinstance(op, tile.Copy) and level is not Level.STRICT:
                staged = staged_results(op, layouts, context)
                return replace(update, proposals=(*update.proposals, *staged))
            return update
        case tile.Gemm():
            return gemm.infer_layout(op, layouts, level, context)
        case tile.Reduce():
            return reduce.infer_layout(op, layouts, level, context)
        case tile.Scan():
            return scan.infer_layout(op, layouts, level, context)
    return NOTHING


def traffic(op: st.Stmt, loop: Fragment, layouts: LayoutMap, context: ThreadContext) -> int:
    """Bytes that an operator costs in memory when its iterations run as `loop` says."""
    match op:
        case tile.Parallel() | tile.Copy() | tile.Fill():
            nest, threads = nest_of(op, context), context.threads
            return global_traffic(nest, loop, threads, context.lanes) + register_traffic(
                nest, loop, layouts, threads
            )
    return 0


def lower(op: st.Stmt, context: ThreadContext) -> st.Stmt:
    """`op` as code of one thread; a statement that is no tile operator is returned as it is."""
    match op:
        case tile.Copy() if op.src.buffer in context.reducers:
            return reducer.finish(op, context)
        case tile.Fill() if op.dst.buffer in context.reducers:
            return reducer.start(op, context)
        case tile.Parallel() | tile.Copy() | tile.Fill():
            return parallel.lower(op, context)
        case tile.Gemm():
            return gemm.lower(op, context)
        case tile.Reduce():
            return reduce.lower(op, context)
        case tile.Scan():
            return scan.lower(op, context)
        case st.Alias():
            return views.lower(op, context)
    return op
