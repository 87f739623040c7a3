"""Operators as users call them, for messages and views."""

from __future__ import annotations

from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.stmt import Stmt, Store

_NAMES: dict[type[Stmt], str] = {
    tile.Copy: "T.copy",
    tile.Gemm: "T.gemm",
    tile.Fill: "T.fill",
    tile.Scan: "T.cumsum",
    tile.Parallel: "T.Parallel",
    Store: "assignment",
}


def operator_name(stmt: Stmt) -> str:
    """An operator as the user calls it."""
    if isinstance(stmt, tile.Reduce):
        return f"T.reduce_{stmt.kind}"
    return _NAMES.get(type(stmt), type(stmt).__name__)
