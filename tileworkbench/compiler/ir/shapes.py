"""How the shapes of a tile operator's operands must fit each other, where they are constants."""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Expr


def shape_fault(stmt: st.Stmt) -> str:
    """What does not fit in a product, copy, scan or reduction, empty where all does."""
    match stmt:
        case tile.Gemm():
            return _product(stmt)
        case tile.Copy(src=src, dst=dst):
            sides = [[each for each in side.extents if const_int(each) != 1] for side in (src, dst)]
        case tile.Scan(src=src, dst=dst):
            sides = [list(src.extents), list(dst.extents)]
        case tile.Reduce(src=src, dst=dst, dim=dim):
            rest = [*src.shape[:dim], *src.shape[dim + 1 :]]
            whole = len(dst.shape) == len(src.shape) and const_int(dst.shape[dim]) == 1
            sides = [rest, [*dst.shape[:dim], *dst.shape[dim + 1 :]] if whole else [*dst.shape]]
        case _:
            return ""
    if len(sides[0]) != len(sides[1]) and isinstance(stmt, tile.Copy):
        return ""  # the pass that lowers copies says which dimensions it cannot match
    if len(sides[0]) == len(sides[1]) and all(map(_may_equal, *sides)):
        return ""
    if isinstance(stmt, tile.Reduce):
        return f"{_shown(src.shape)} without dimension {dim} does not fit {_shown(dst.shape)}"
    return f"{_shown(src.extents)} does not fit {_shown(dst.extents)}"


def _product(stmt: tile.Gemm) -> str:
    turned = (stmt.a, stmt.transpose_a), (stmt.b, stmt.transpose_b), (stmt.c, False)
    (m, k), (k_b, n), (m_c, n_c) = (
        region.extents[-2:][:: -1 if flag else 1] for region, flag in turned
    )
    for name, left, right, sides in (
        *(("K", k, k_b, "A and B"), ("M", m, m_c, "A and C")),
        ("N", n, n_c, "B and C"),
    ):
        if not _may_equal(left, right):
            return f"{name} is {const_int(left)} and {const_int(right)} in {sides}"
    return ""


def _may_equal(left: Expr, right: Expr) -> bool:
    return None in (sizes := (const_int(left), const_int(right))) or sizes[0] == sizes[1]


def _shown(shape: Sequence[Expr]) -> str:
    sizes = (const_int(each) for each in shape)
    return f"({', '.join('?' if size is None else str(size) for size in sizes)})"
