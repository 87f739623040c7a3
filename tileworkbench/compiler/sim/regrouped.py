"""Memory of 4-bit elements that is also seen as other elements.

The simulator keeps each 4-bit element in a byte of its own. Where a view has the same bits as
elements of another kind, each access takes them apart and puts them together.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.values import storage_dtype

Array = np.ndarray[Any, Any]


class Regrouped:
    """An array of `target` elements with the bits of `cells`, a flat array of `source` elements, of
    which one or both have 4 bits.

    It is read and written by index as a numpy array is.
    """

    __slots__ = ("cells", "dtype", "numbers", "source", "target")

    def __init__(self, cells: Array, source: DType, target: DType, shape: tuple[int, ...]) -> None:
        self.cells, self.source, self.target = cells, source, target
        self.dtype = storage_dtype(target)
        self.numbers = np.arange(prod(shape)).reshape(shape)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.numbers.shape

    @property
    def ndim(self) -> int:
        return self.numbers.ndim

    @property
    def size(self) -> int:
        return self.numbers.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        return tuple(step // self.numbers.itemsize * self.itemsize for step in self.numbers.strides)

    @property
    def ctypes(self) -> Any:
        return self.cells.ctypes

    def __len__(self) -> int:
        return len(self.numbers)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self[...], dtype)

    def __getitem__(self, place: Any) -> Any:
        numbers, bytes_ = np.asarray(self.numbers[place]), self.cells.view(np.uint8)
        if self.target.bits == 4:
            if self.source.bits == 4:
                return four_bits(bytes_[numbers], self.target)[()]
            shifts = (numbers % 2 * 4).astype(np.uint8)
            return four_bits(bytes_[numbers // 2] >> shifts, self.target)[()]
        halves = bytes_[self._halves(numbers)] & 15
        return (halves[..., ::2] | halves[..., 1::2] << 4).view(self.dtype)[..., 0][()]

    def __setitem__(self, place: Any, value: Any) -> None:
        numbers = np.asarray(self.numbers[place])
        values = np.ascontiguousarray(np.broadcast_to(np.asarray(value, self.dtype), numbers.shape))
        bytes_ = values.view(np.uint8)
        if self.source.bits == 4:
            if self.target.bits != 4:
                bytes_ = bytes_.reshape(*numbers.shape, -1)
                bytes_ = np.stack([bytes_ & 15, bytes_ >> 4], -1).reshape(*numbers.shape, -1)
                numbers = self._halves(numbers)
            self.cells[numbers] = four_bits(bytes_, self.source)
            return
        held = self.cells.view(np.uint8)
        for parity in (0, 1):
            chosen = numbers % 2 == parity
            kept = held[numbers[chosen] // 2] & (0xF0 >> 4 * parity)
            held[numbers[chosen] // 2] = kept | (bytes_[chosen] & 15) << 4 * parity

    def _halves(self, numbers: Array) -> Array:
        """The 4-bit elements that each of the larger ones is made of."""
        count = self.target.bits // 4
        return np.asarray(numbers[..., None] * count + np.arange(count))


def regroup(data: Any, dtype: DType, target: DType, shape: tuple[int, ...]) -> Any:
    """The memory of `data`, an array of `dtype` elements, as an array of `target` elements."""
    if isinstance(data, Regrouped):
        data, dtype = data.cells, data.source
    if dtype == target or not (dtype.is_packed or target.is_packed):
        return data.reshape(-1).view(storage_dtype(target)).reshape(shape)
    return Regrouped(data.reshape(-1), dtype, target, shape)


def four_bits(codes: Array, dtype: DType) -> Array:
    """The low four bits of each byte as an element of `dtype`, which has four bits."""
    codes = codes & 15
    if dtype.kind == "int":
        return ((codes ^ 8).astype(np.int8) - 8).astype(np.int8)
    return codes.astype(np.uint8).view(storage_dtype(dtype))
