"""Element types and the rule that combines them.

A `DType` is a `str`, so `dtype == "float16"` and `dtype.startswith("float")` hold. The names are
those of the language: `bool`, `int8` ... `int64`, `uint8` ..., `float16/32/64`, `bfloat16`,
`tfloat32`, the 8- and 6-bit floats, packed `int4`, `uint4`, `float4_e2m1fn`, `handle` (an address),
and vectors of them with an `x<lanes>` suffix.
"""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any

_SCALARS: dict[str, tuple[str, int]] = {
    "bool": ("bool", 8),
    "int4": ("int", 4),
    "uint4": ("uint", 4),
    "float4_e2m1fn": ("float", 4),
    "float6_e2m3fn": ("float", 6),
    "float6_e3m2fn": ("float", 6),
    "float16": ("float", 16),
    "bfloat16": ("float", 16),
    "float32": ("float", 32),
    "tfloat32": ("float", 32),
    "float64": ("float", 64),
    "float8_e4m3fn": ("float", 8),
    "float8_e5m2": ("float", 8),
    "float8_e4m3fnuz": ("float", 8),
    "float8_e5m2fnuz": ("float", 8),
    "float8_e8m0fnu": ("float", 8),
    "handle": ("handle", 64),
    **{f"int{bits}": ("int", bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": ("uint", bits) for bits in (8, 16, 32, 64)},
}
_ALIASES = {
    "short": "int16",
    "int": "int32",
    "uint": "uint32",
    "long": "int64",
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "float8_e4m3": "float8_e4m3fn",
    "float4_e2m1": "float4_e2m1fn",
    "float6_e2m3": "float6_e2m3fn",
    "float6_e3m2": "float6_e3m2fn",
    "float8_e8m0": "float8_e8m0fnu",
    "boolean": "bool",
}
_VECTOR = re.compile(r"^(.*?)x(\d+)$")


def _element_and_lanes(name: str) -> tuple[str, int]:
    match = _VECTOR.match(name)
    if match and (match.group(1) in _SCALARS or match.group(1) in _ALIASES):
        return _ALIASES.get(match.group(1), match.group(1)), int(match.group(2))
    return _ALIASES.get(name, name), 1


@functools.cache
def _with_lanes(cls: type[DType], base: str, lanes: int) -> DType:
    return cls(base if lanes == 1 else f"{base}x{lanes}")


def is_dtype_name(name: str) -> bool:
    """Whether `DType` takes a name."""
    base, lanes = _element_and_lanes(name)
    return base in _SCALARS and lanes >= 1


class DType(str):
    """One element type. Raises `TypeError` for a name that is none."""

    __slots__ = ("bits", "kind", "lanes")
    kind: str
    bits: int
    lanes: int

    def __new__(cls, name: str) -> DType:
        if isinstance(name, DType) and type(name) is cls:
            return name
        base, lanes = _element_and_lanes(str(name))
        if base not in _SCALARS or lanes < 1:
            near = difflib.get_close_matches(base, (*_SCALARS, *_ALIASES), 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise TypeError(f"'{name}' is not a dtype{hint}")
        made = super().__new__(cls, base if lanes == 1 else f"{base}x{lanes}")
        made.kind, made.bits = _SCALARS[base]
        made.lanes = lanes
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self),))

    @property
    def scalar(self) -> DType:
        """The element type of a vector type, else the type itself."""
        return self if self.lanes == 1 else _with_lanes(DType, str(self).rsplit("x", 1)[0], 1)

    def with_lanes(self, lanes: int) -> DType:
        """The vector type with `lanes` elements of this type."""
        return self if lanes == self.lanes else _with_lanes(type(self), str(self.scalar), lanes)

    @property
    def bytes(self) -> int:
        """Storage of one value in bytes (sub-byte types count one byte alone)."""
        return max(1, self.bits * self.lanes // 8)

    @property
    def itemsize(self) -> int:
        """The same as `bytes`, under numpy's name."""
        return self.bytes

    @property
    def is_packed(self) -> bool:
        """Whether global memory holds two elements per byte, the even one in the low half."""
        return self.bits == 4

    @property
    def is_float(self) -> bool:
        """Any floating type, 16-bit and smaller ones included."""
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """A signed or unsigned integer; not bool."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        """A signed integer or a float."""
        return self.kind in ("int", "float")

    @property
    def is_bool(self) -> bool:
        """The type of conditions."""
        return self.kind == "bool"

    @property
    def min_value(self) -> int | float:
        """The least finite value."""
        if self.is_float:
            return -self.max_value
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def largest_extent(self) -> int:
        """The largest value of a symbol of this type. The last tile may reach beyond the extent,
        and its indices must fit too, so it is less than `max_value`.
        """
        return int(self.max_value) - (1 << 20)

    @property
    def max_value(self) -> int | float:
        """The largest finite value."""
        if self.is_float:
            return _FLOAT_MAX[str(self.scalar)]
        if self.is_bool:
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1


_FLOAT_MAX = {
    "float64": 1.7976931348623157e308,
    "float32": 3.4028234663852886e38,
    "tfloat32": 3.4028234663852886e38,
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
    "float8_e4m3fnuz": 240.0,
    "float8_e5m2fnuz": 57344.0,
    "float8_e8m0fnu": 2.0**127,
    "float4_e2m1fn": 6.0,
    "float6_e2m3fn": 7.5,
    "float6_e3m2fn": 28.0,
}

BOOL = DType("bool")
INT32 = DType("int32")
INT64 = DType("int64")
UINT32 = DType("uint32")
UINT64 = DType("uint64")
FLOAT32 = DType("float32")
FLOAT64 = DType("float64")
HANDLE = DType("handle")


def promote(a: DType, b: DType) -> DType:
    """The type in which an operation on an `a` and a `b` is computed.

    Equal types stay; a float beats integers and bool; of two floats the wider wins, and bfloat16
    with float16 gives float16; integers take the wider, unsigned on a tie of widths. Lanes must
    agree or be 1. Raises `TypeError` for two different 8-bit floats and for addresses.
    """
    if a == b:
        return a
    lanes = max(a.lanes, b.lanes)
    if a.lanes != b.lanes and 1 not in (a.lanes, b.lanes):
        raise TypeError(f"cannot combine '{a}' with '{b}': the lanes differ")
    return _promote_scalar(a.scalar, b.scalar).with_lanes(lanes)


def _promote_scalar(a: DType, b: DType) -> DType:
    if a == b:
        return a
    if "handle" in (a.kind, b.kind):
        raise TypeError(f"cannot combine '{a}' with '{b}'")
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        if a.bits != b.bits:
            return a if a.bits > b.bits else b
        if {str(a), str(b)} == {"float16", "bfloat16"}:
            return DType("float16")
        if {str(a), str(b)} == {"float32", "tfloat32"}:
            return FLOAT32
        raise TypeError(f"cannot combine '{a}' with '{b}': cast one of them")
    if a.is_bool or b.is_bool:
        return b if a.is_bool else a
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    return a if a.kind == "uint" else b
