"""Boxes of buffers: their dimensions, their elements, and which dimensions of two boxes correspond.
"""

from __future__ import annotations

from typing import Protocol

from tileworkbench.compiler.diagnostics import ShapeError, Span
from tileworkbench.compiler.ir.build import add, const_int, int_const
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region
from tileworkbench.compiler.ir.printer import print_expr
from tileworkbench.compiler.ir.tile import Copy


class Places(Protocol):
    """Who knows where in the source a statement comes from."""

    def span(self, site: int) -> Span | None: ...


def whole_region(buffer: Buffer) -> Region:
    """All of a buffer."""
    return Region(buffer, tuple(int_const(0) for _ in buffer.shape), buffer.shape)


def is_whole(region: Region) -> bool:
    """Whether a box is all of its buffer."""
    return region.extents == region.buffer.shape and all(const_int(m) == 0 for m in region.mins)


def wide_dims(region: Region) -> list[int]:
    """The dimensions of `region` that are not known to have extent 1."""
    return [d for d, extent in enumerate(region.extents) if const_int(extent) != 1]


def element(region: Region, values: dict[int, Expr]) -> tuple[Expr, ...]:
    """The index of the element at position `values[d]` along dimension d, 0 by default."""
    return tuple(add(low, values.get(d, int_const(0))) for d, low in enumerate(region.mins))


def match_dims(op: Copy, context: Places) -> list[tuple[int, int]]:
    """Pairs (source dimension, destination dimension) of the non-unit dimensions, in order.

    Raises `ShapeError` where they cannot be matched.
    """
    from_dims, to_dims = wide_dims(op.src), wide_dims(op.dst)
    if len(from_dims) != len(to_dims):
        # An extent that is only 1 at run time still has its place: match from the right then.
        from_dims, to_dims = (
            _padded(op.src, from_dims, len(to_dims)),
            _padded(op.dst, to_dims, len(from_dims)),
        )
    if len(from_dims) != len(to_dims):
        raise ShapeError(
            f"cannot match the extents of the copy's source, {_shown(op.src)}, with those of its "
            f"destination, {_shown(op.dst)}",
            context.span(op.site),
            hint="both sides need the same number of dimensions that are not 1",
        )
    return list(zip(from_dims, to_dims, strict=True))


def _padded(region: Region, dims: list[int], wanted: int) -> list[int]:
    """`dims` with unit dimensions added from the right until there are `wanted` of them."""
    chosen = set(dims)
    for d in reversed(range(len(region.extents))):
        if len(chosen) >= wanted:
            break
        chosen.add(d)
    return sorted(chosen)


def _shown(region: Region) -> str:
    return f"({', '.join(print_expr(extent) for extent in region.extents)})"
