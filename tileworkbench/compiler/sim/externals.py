"""Calls of external functions: each lane of a parallel loop makes its own, in row-major order.

Outside a parallel loop each thread of the block makes a call that may change memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.analysis.effects import exposes
from tileworkbench.compiler.emit.c_sources import python_function
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.values import from_storage, over_lanes, storage_dtype


def translate(
    stmt: st.ExternCall, expr: ExpressionTranslator, sources: tuple[str, ...]
) -> Callable[[Frame], None]:
    """The closure of an external call. Raises as `find_function` when it is made."""
    args = expr.all(stmt.args)
    dtypes = [arg.dtype for arg in stmt.args]
    var = stmt.var
    result = None if var is None else var.dtype
    slot = None if var is None else expr.slots.variable(var)
    function = python_function(stmt.name, sources, dtypes, result)
    repeats = exposes(stmt)

    def call(frame: Frame) -> None:
        values = [np.broadcast_to(np.asarray(arg(frame)), frame.lanes) for arg in args]
        active = over_lanes(frame.mask, frame.lanes)
        results = None if result is None else np.zeros(frame.lanes, storage_dtype(result))
        times = frame.threads if repeats and not frame.lanes else 1
        for lane in np.ndindex(*frame.lanes):
            for _ in range(times if active[lane] else 0):
                made = function(*[value[lane].item() for value in values])
                if results is not None:
                    results[lane] = made
        if slot is not None and results is not None and result is not None:
            frame.values[slot] = from_storage(results if frame.lanes else results[()], result)

    return call
