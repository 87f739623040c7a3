"""The operators by statement class, written out: which layouts they want, how threads execute them.
"""

from __future__ import annotations

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ops.simt.context import ThreadContext
from tileworkbench.compiler.ops.simt.inference import NOTHING, LayoutMap, LayoutUpdate, Level


def infer_layout(
    op: st.Stmt, layouts: LayoutMap, level: Level, context: ThreadContext
) -> LayoutUpdate:
    """What `op` itself (not the statements inside it) says about layouts at `level`.

    Raises `LayoutConflict` when it cannot work with what is known.
    """
    match op:
        case tile.Gemm() | tile.Reduce() | tile.Scan():
            return NOTHING
    return NOTHING


def lower(op: st.Stmt, context: ThreadContext) -> st.Stmt:
    """`op` as code of one thread; a statement that is no tile operator is returned as it is."""
    return op
