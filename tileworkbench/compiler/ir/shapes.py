"""How the shapes of a tile operator's operands must fit each other, where they are constants.

Those of a copy need not: it goes over the region that is nearer the threads, and masks the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Expr


def shape_fault(stmt: st.Stmt) -> str:
    """What does not fit in a product, scan or reduction, empty where all does."""
    match stmt:
        case tile.Gemm():
            return _product(stmt)
        case tile.Scan(src=src, dst=dst) if not _may_be(src.extents, dst.extents):
            return f"{_shown(src.extents)} does not fit {_shown(dst.extents)}"
        case tile.Reduce(src=source, dst=into, dim=dim):
            rest = [*source.shape[:dim], *source.shape[dim + 1 :]]
            kept = [*into.shape]
            if len(kept) == len(source.shape) and const_int(kept[dim]) == 1:
                del kept[dim]
            if not _may_be(rest, kept):
                shapes = f"{_shown(source.shape)} without dimension {dim}"
                return f"{shapes} does not fit {_shown(into.shape)}"
    return ""


def _product(stmt: tile.Gemm) -> str:
    turned = (stmt.a, stmt.transpose_a), (stmt.b, stmt.transpose_b), (stmt.c, False)
    for region, _ in turned:
        if len(region.extents) < 2:
            return f"'{region.buffer.name}' is no matrix: it has {len(region.extents)} dimension"
    (m, k), (k_b, n), (m_c, n_c) = (
        region.extents[-2:][:: -1 if flag else 1] for region, flag in turned
    )
    for name, left, right, sides in (
        *(("K", k, k_b, "A and B"), ("M", m, m_c, "A and C")),
        ("N", n, n_c, "B and C"),
    ):
        if not _may_be([left], [right]):
            return f"{name} is {const_int(left)} and {const_int(right)} in {sides}"
    return ""


def _may_be(shape: Sequence[Expr], other: Sequence[Expr]) -> bool:
    """Whether two shapes are the same as far as their extents are known."""
    pairs = [(const_int(one), const_int(two)) for one, two in zip(shape, other, strict=False)]
    return len(shape) == len(other) and all(None in pair or pair[0] == pair[1] for pair in pairs)


def _shown(shape: Sequence[Expr]) -> str:
    sizes = (const_int(each) for each in shape)
    return f"({', '.join('?' if size is None else str(size) for size in sizes)})"
