"""What a tensor map says at a call: the numbers that a driver or a simulator encodes.

Limits: CUDA driver API, "cuTensorMapEncodeTiled".
"""

from __future__ import annotations

from collections.abc import Mapping

from tileworkbench.compiler.analysis.evaluate import evaluate
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.simt import TensorMap

_MOST_EXTENT, _MOST_STRIDE, _ALIGNMENT = 1 << 32, 1 << 40, 16


@dataclass(frozen=True, slots=True)
class MapValues:
    """One tensor map: the address of the tensor, the dtype of its elements and their bytes, extents
    and strides (in bytes), the box in elements, outermost dimension first, and the width of the
    swizzle in bytes (0: none).
    """

    address: int
    element: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


def map_values(stmt: TensorMap, numbers: Mapping[str, int], address: int) -> MapValues:
    """The values of a map for these scalars and symbols, of a tensor at `address`.

    Raises `ArgumentError` for a tensor that the copy engine cannot take.
    """
    buffer, name = stmt.buffer, stmt.source.name
    size = buffer.dtype.bits // 8
    shape = tuple(int(evaluate(extent, numbers)) for extent in buffer.shape)
    strides = tuple(int(evaluate(stride, numbers)) * size for stride in buffer.strides)
    if max(shape) > _MOST_EXTENT:
        raise ArgumentError(
            f"'{name}' has {max(shape)} elements along a dimension, and the copy engine takes at "
            f"most {_MOST_EXTENT}"
        )
    for stride in strides[:-1]:
        if stride % _ALIGNMENT or stride >= _MOST_STRIDE:
            raise ArgumentError(
                f"rows of '{name}' are {stride} bytes apart, and the copy engine takes multiples "
                f"of {_ALIGNMENT} below {_MOST_STRIDE}"
            )
    return MapValues(address, str(buffer.dtype), size, shape, strides, stmt.box, stmt.swizzle)
