"""Element-wise nests: how copies, fills and the steps of reductions are written before they are
vectorised.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.build import add, const_int, int_const
from tileworkbench.compiler.ir.expr import Expr, Region, Var
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.ops.context import Context

_NAMES = "ijklmnpq"


def nest(
    context: Context, extents: tuple[Expr, ...], site: int, body: Callable[[tuple[Var, ...]], Stmt]
) -> Stmt:
    """`body` at every point of the box `extents`, in any order; once for an empty tuple."""
    if not extents:
        return body(())
    variables = tuple(
        context.names.var(_NAMES[d % len(_NAMES)], extent.dtype) for d, extent in enumerate(extents)
    )
    return Parallel(variables, extents, body(variables), site=site)


def wide_dims(region: Region) -> list[int]:
    """The dimensions of `region` that are not known to have extent 1."""
    return [d for d, extent in enumerate(region.extents) if const_int(extent) != 1]


def element(region: Region, values: dict[int, Expr]) -> tuple[Expr, ...]:
    """The index of the element at position `values[d]` along dimension d, 0 by default."""
    return tuple(add(low, values.get(d, int_const(0))) for d, low in enumerate(region.mins))
