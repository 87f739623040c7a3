"""Sizes of buffers: exact numbers, and 64-bit expressions where an extent is a symbol.

An extent fits its own dtype, the product of several need not. A buffer has at most `MOST_BYTES`,
which the front end checks where it makes one and the verifier for every program; so whatever is
computed from constant extents in 64 bits is exact.
"""

from __future__ import annotations

from math import prod

from tileworkbench.compiler.ir.build import (
    add,
    cast,
    const,
    const_int,
    int_const,
    mul,
    product,
    sub,
)
from tileworkbench.compiler.ir.expr import Buffer, Expr
from tileworkbench.compiler.ir.types import INT32, INT64

MOST_BYTES = (1 << 60) - 1


def is_wide(extent: Expr) -> bool:
    """Whether 32 bits may not hold an index below `extent`."""
    number = const_int(extent)
    return extent.dtype.bits > 32 if number is None else number > INT32.max_value


def const_shape(buffer: Buffer) -> tuple[int, ...] | None:
    """The shape as Python ints, or None when an extent is symbolic."""
    shape = [const_int(extent) for extent in buffer.shape]
    return None if None in shape else tuple(extent for extent in shape if extent is not None)


def strides_of(buffer: Buffer) -> tuple[Expr, ...]:
    """Elements from one index to the next along each dimension: row-major unless it has its own."""
    if buffer.strides:
        return buffer.strides
    strides: list[Expr] = [int_const(1)]
    for extent in reversed(buffer.shape[1:]):
        strides.append(product((strides[-1], extent)))
    return tuple(reversed(strides)) if buffer.shape else ()


def elements_of(buffer: Buffer) -> Expr:
    """The number of elements up to the last one that can be addressed."""
    if buffer.strides:
        total: Expr = const(1, INT64)
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
            last = sub(extent, int_const(1))
            total = add(total, mul(cast(last, INT64), cast(stride, INT64)))
    else:
        total = cast(product(buffer.shape), INT64)
    count = const_int(total)
    return total if count is None else int_const(count)


def least_bytes(buffer: Buffer) -> int:
    """Bytes from the first to the last element, each symbol taken as 1."""
    shape = [const_int(extent) or 1 for extent in buffer.shape]
    if buffer.strides:
        steps = [const_int(stride) or 1 for stride in buffer.strides]
        elements = 1 + sum((e - 1) * step for e, step in zip(shape, steps, strict=True))
    else:
        elements = prod(shape)
    return -(-elements * buffer.dtype.bits * buffer.dtype.lanes // 8)
