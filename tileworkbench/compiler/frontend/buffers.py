"""Where the front end makes buffers with extents, so that their size is checked once."""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import ResourceError
from tileworkbench.compiler.frontend.builder import active_builder
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.sizes import MOST_BYTES, const_shape, is_wide, least_bytes
from tileworkbench.compiler.ir.types import DType


def new_buffer(
    name: str, dtype: DType, shape: tuple[Expr, ...], scope: str, strides: tuple[Expr, ...] = ()
) -> Buffer:
    """A buffer of that name. Raises `ResourceError` for one of more than `MOST_BYTES`."""
    buffer, builder = Buffer(name, dtype, shape, scope, strides), active_builder()
    if builder is not None and any(map(is_wide, shape)):
        builder.has_wide_buffers = True
    bytes_ = least_bytes(buffer)
    if bytes_ > MOST_BYTES:
        extents = " x ".join(str(const_int(e) or print_expr(e)) for e in shape)
        least = "at least " if const_shape(buffer) is None else ""
        raise ResourceError(
            f"'{name}' has {least}{bytes_} bytes ({extents} of '{dtype}'), and the largest tensor "
            f"or tile has {MOST_BYTES}"
        )
    return buffer
