"""Questions about all elements of a tile."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.regions import to_region
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.stmt import Alloc, For, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.types import BOOL


def any_of(buffer: Any) -> Value:
    """Whether some element of a tensor, or of a slice along its last dimension, is not zero.

    Raises `TileValueError` for a slice with an extent along another dimension.

    >>> if T.any_of(row):
    ...     T.clear(acc)
    """
    return _fold("T.any_of", buffer, "logical_or", False)


def all_of(buffer: Any) -> Value:
    """Whether no element of a tensor, or of a slice along its last dimension, is zero.

    Raises `TileValueError` for a slice with an extent along another dimension.

    >>> if T.all_of(row):
    ...     T.clear(acc)
    """
    return _fold("T.all_of", buffer, "logical_and", True)


def _fold(construct: str, value: Any, op: str, start: bool) -> Value:
    """A scalar that a serial loop over the elements updates."""
    builder = in_kernel(construct)
    region = to_region(value, construct, "operand")
    whole = region.extents == region.buffer.shape
    if not whole and any(build.const_int(extent) != 1 for extent in region.extents[:-1]):
        raise TileValueError(
            f"{construct} takes a whole tensor or a slice along its last dimension, not "
            f"{show_shape(region.extents)} of '{region.buffer.name}'"
        )
    wide = [d for d, extent in enumerate(region.extents) if build.const_int(extent) != 1]
    places: list[Expr] = list(region.mins)
    names = {d: builder.fresh_var("k", region.extents[d].dtype) for d in wide}
    for d, var in names.items():
        places[d] = build.add(region.mins[d], var)
    load = Load(region.buffer, tuple(places))
    element: Expr = load
    if not load.dtype.is_bool:
        element = build.binary("ne", load, build.const(0, load.dtype))
    name = builder.fresh(builder.hint(0, construct.removeprefix("T.")))
    flag = Buffer(name, BOOL, (), "local.var")
    builder.emit(Alloc(flag, build.const(start, BOOL)))
    body: Stmt = Store(flag, (), build.logical(op, Load(flag, ()), element), site=builder.site)
    for d in reversed(wide):
        extent = region.extents[d]
        zero, one = build.const(0, extent.dtype), build.const(1, extent.dtype)
        body = For(names[d], zero, extent, one, LoopKind.SERIAL, body, site=builder.site)
    builder.emit(body)
    return Value(Load(flag, ()), builder.bind(name))
