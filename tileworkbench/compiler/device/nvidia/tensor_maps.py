"""Tensor maps as the driver encodes them: `CUtensorMap`, 128 bytes that only the hardware reads.

Numbers of the enumerations: cuda.h of CUDA 12, "CUtensorMapDataType" and its neighbours.
"""

from __future__ import annotations

import ctypes
from dataclasses import field
from typing import Any, Protocol

from tileworkbench.compiler.device.nvidia.driver import CudaDevice
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass

_BYTES, _ALIGNMENT = 128, 64
_MOST_KEPT = 256  # maps of one kernel on one device
_DTYPES = {
    **{"uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5},
    **{"float16": 6, "float32": 7, "float64": 8, "bfloat16": 9},
}
_BY_SIZE = {1: 0, 2: 1, 4: 2, 8: 4}  # what is only moved
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_NO_INTERLEAVE, _PROMOTE_256, _FILL_ZEROS = 0, 3, 0


class Map(Protocol):
    """What a map says: the address of a tensor, the name and the bytes of its elements, extents and
    strides (in bytes), the box in elements, outermost dimension first, and the width of the
    swizzle in bytes (0: none). Equal ones are one.
    """

    @property
    def address(self) -> int: ...

    @property
    def element(self) -> str: ...

    @property
    def itemsize(self) -> int: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def strides(self) -> tuple[int, ...]: ...

    @property
    def box(self) -> tuple[int, ...]: ...

    @property
    def swizzle(self) -> int: ...


@dataclass(slots=True)
class MapEncoder:
    """Encodes tensor maps for one device, each once for an address and a shape."""

    device: CudaDevice
    known: dict[Map, bytes] = field(default_factory=dict)

    def encode(self, values: Map) -> bytes:
        """The map as a kernel gets it. Raises `ArgumentError` for an empty tensor, and `RunError`
        where the driver refuses.
        """
        made = self.known.get(values)
        if made is None:
            if len(self.known) >= _MOST_KEPT:
                self.known.clear()
            made = self.known[values] = self._encoded(values)
        return made

    def _encoded(self, values: Map) -> bytes:
        if 0 in values.shape:
            raise ArgumentError(
                f"a tensor of shape {values.shape} has no elements, and the copy engine takes none "
                "that is empty"
            )
        rank = len(values.shape)
        room = ctypes.create_string_buffer(_BYTES + _ALIGNMENT)
        start = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
        shape, strides = values.shape[::-1], values.strides[::-1]
        self.device.driver.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(start),
            ctypes.c_int(_DTYPES.get(values.element, _BY_SIZE[values.itemsize])),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(values.address),
            _numbers(ctypes.c_uint64, shape),
            _numbers(ctypes.c_uint64, strides[1:] or (0,)),
            _numbers(ctypes.c_uint32, values.box[::-1]),
            _numbers(ctypes.c_uint32, (1,) * rank),
            ctypes.c_int(_NO_INTERLEAVE),
            ctypes.c_int(_SWIZZLES[values.swizzle]),
            ctypes.c_int(_PROMOTE_256),
            ctypes.c_int(_FILL_ZEROS),
        )
        return ctypes.string_at(start, _BYTES)


def _numbers(kind: Any, values: tuple[int, ...]) -> Any:
    return (kind * len(values))(*values)
