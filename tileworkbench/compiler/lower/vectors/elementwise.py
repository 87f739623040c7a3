"""Element-wise nests: how copies, fills and the steps of reductions are written before they are
vectorised.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.tile import Parallel
from tileworkbench.compiler.lower.vectors.context import Context

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
