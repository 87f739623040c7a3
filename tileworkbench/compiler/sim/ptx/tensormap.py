"""Tensor maps: what the driver's ``cuTensorMapEncodeTiled`` describes, for tensor copies.

The 128 bytes of a map are opaque to a kernel; here they hold a number under which the launch keeps
the description.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.sim.ptx.numeric import Array

MAP_BYTES = 128
_MAGIC = b"PTX tensor map\0\0"

# Bits of a shared-memory address that a swizzle changes and the bits they are combined with: the
# 16-byte chunk within 32, 64 or 128 bytes, by the row of 128 bytes within eight.
SWIZZLE_MASKS = {"none": 0, "32B": 0x10, "64B": 0x30, "128B": 0x70}


def swizzle(offsets: Array, name: str) -> Array:
    """Shared-memory byte addresses after the swizzle of this name."""
    mask = SWIZZLE_MASKS[name]
    return offsets ^ ((offsets >> 3) & mask) if mask else offsets


@dataclass(frozen=True, eq=False)
class TensorMap:
    """A tensor in global memory and the box that one copy moves.

    `array` is the tensor; `box` the extents of a box, innermost dimension first, as the driver
    wants them. With a `shape`, `array` is the memory from the first element on, and `strides` (in
    bytes) and `itemsize` say where elements are in it; both outermost first, as numpy has them.
    `element` names the dtype of the elements, for copies that add. Elements outside the tensor read
    as zeros and are not written.
    """

    array: Array
    box: tuple[int, ...]
    swizzle: str = "none"
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    itemsize: int = 0
    element: str = ""

    def __post_init__(self) -> None:
        if not self.shape:
            object.__setattr__(self, "shape", self.array.shape)
            object.__setattr__(self, "strides", self.array.strides)
            object.__setattr__(self, "itemsize", self.array.dtype.itemsize)
        width = self.box[0] * self.itemsize
        limit = {"32B": 32, "64B": 64, "128B": 128}.get(self.swizzle)
        if self.swizzle not in SWIZZLE_MASKS:
            raise ArgumentError(f"'{self.swizzle}' is none of {sorted(SWIZZLE_MASKS)}")
        if len(self.box) != len(self.shape) or not 1 <= len(self.shape) <= 5:
            raise ArgumentError("a tensor map's box has as many extents as its tensor, 1 to 5")
        if not all(1 <= extent <= 256 for extent in self.box):
            raise ArgumentError("an extent of a tensor map's box is between 1 and 256")
        if width % 16 or (limit is not None and width > limit):
            raise ArgumentError(
                f"the inner extent of a box is {width} bytes; it must be a multiple of 16"
                + (f" and at most {limit}" if limit is not None else "")
            )
        if self.strides[-1] != self.itemsize or any(step % 16 for step in self.strides[:-1]):
            raise ArgumentError(
                f"the strides of a tensor map are multiples of 16 bytes, and those of neighbours "
                f"in a row the size of an element, not {self.strides}"
            )

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves, those outside the tensor included."""
        return int(np.prod(self.box)) * self.itemsize

    def encode(self, number: int) -> bytes:
        """The 128 bytes that a kernel gets for map `number` of a launch."""
        return (_MAGIC + number.to_bytes(8, "little")).ljust(MAP_BYTES, b"\0")

    def elements(self, start: Array) -> tuple[Array, Array]:
        """The byte offset in the tensor of each element of the box at `start` (innermost first), in
        the order in which the box lies in shared memory, and whether it is in the tensor."""
        shape, strides = self.shape[::-1], self.strides[::-1]
        offsets = np.zeros((1,), dtype=np.int64)
        inside = np.ones((1,), dtype=bool)
        for first, extent, size, stride in zip(start, self.box, shape, strides, strict=True):
            place = int(first) + np.arange(extent, dtype=np.int64)
            offsets = (place[:, None] * stride + offsets).reshape(-1)
            inside = (((place >= 0) & (place < size))[:, None] & inside).reshape(-1)
        return offsets, inside


def decode_number(data: bytes) -> int | None:
    """The number of the map that these bytes are, None if they are no map."""
    if len(data) < MAP_BYTES or not data.startswith(_MAGIC):
        return None
    return int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 8], "little")
