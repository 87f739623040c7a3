"""Vector values, for accesses of several elements at once."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.frontend import vectors
from tileworkbench.compiler.frontend.vectors import VectorValue


def Ramp(base: Any, stride: Any, lanes: int) -> VectorValue:
    """The integers `base, base + stride, ...`: an index of `lanes` elements, or their values.

    `A[T.Ramp(0, 2, 4)]` is a vector of four elements. Vectors of equal lanes and scalars are added,
    subtracted, multiplied and divided lane by lane. Raises `TileTypeError` or `TileValueError` for
    arguments of a wrong kind.
    """
    return vectors.ramp(base, stride, lanes)


def Broadcast(value: Any, lanes: int) -> VectorValue:
    """`value` in each of `lanes` lanes: `B[0:32] = T.Broadcast(x, 32)`.

    Raises `TileValueError` for a number of lanes that is none.
    """
    return vectors.broadcast(value, lanes)
