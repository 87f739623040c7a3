"""The operators by statement class, written out."""

from __future__ import annotations

from dataclasses import replace

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.effects import accesses, exposed
from tileworkbench.compiler.lower.vectors import copy, fill, gemm, parallel, reduce, scan
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.panels import panel_form, panel_storage


def infer_layout(stmt: st.Stmt, context: Context) -> tuple[Vote, ...]:
    """What `stmt` itself (not the statements inside it) says about layouts."""
    match stmt:
        case tile.Copy():
            return copy.infer_layout(stmt, context)
        case tile.Gemm():
            return gemm.infer_layout(stmt, context)
        case tile.Fill():
            return fill.infer_layout(stmt, context)
        case tile.Reduce():
            return reduce.infer_layout(stmt, context)
        case tile.Scan():
            return scan.infer_layout(stmt, context)
        case tile.Parallel():
            return parallel.infer_layout(stmt, context)
        case st.Alias(buffer, source):
            return (
                Vote(buffer, f"shares its memory with '{source.name}'"),
                Vote(source, f"shares its memory with '{buffer.name}'"),
            )
        case st.Seq() | st.Kernel():
            return ()
    votes = {}
    for access in accesses(stmt):
        votes[access.buffer] = Vote(access.buffer, "is used element by element")
    for buffer in exposed(stmt):
        votes[buffer] = Vote(buffer, "is given to an external function")
    return tuple(votes.values())


def lower(stmt: st.Stmt, context: Context) -> st.Stmt:
    """`stmt` without its tile operator; element-wise nests stay `Parallel`, panels become flat."""
    match stmt:
        case tile.Copy():
            return copy.lower(stmt, context)
        case tile.Gemm():
            return gemm.lower(stmt, context)
        case tile.Fill():
            return fill.lower(stmt, context)
        case tile.Reduce():
            return reduce.lower(stmt, context)
        case tile.Scan():
            return scan.lower(stmt, context)
        case tile.Parallel():
            return parallel.from_panels(stmt)
        case st.Alloc(buffer):
            form = panel_form(buffer)
            return stmt if form is None else replace(stmt, buffer=panel_storage(buffer, form))
    return stmt
