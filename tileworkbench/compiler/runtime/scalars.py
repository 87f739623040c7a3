"""Scalar arguments: Python and numpy numbers to the 8-byte slots of a launch."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.runtime.arrays import view_array

_FLOAT_FORMATS = {"float16": ("<e", "<H"), "float32": ("<f", "<I"), "float64": ("<d", "<q")}

Encoder = Callable[[Any], int]


def scalar_encoder(where: str, dtype: str) -> Encoder:
    """A function from a number to the 64-bit integer that goes into the slot of a `dtype` scalar.

    Integers are sign-extended; floats are the bits of their own dtype. The function raises
    `ArgumentError`, whose message begins with `where`, for a value of another kind and one that the
    dtype cannot hold.
    """
    element = DType(dtype)
    if element.is_float:
        return _float_encoder(where, element)
    if element.kind == "handle":
        return _address_encoder(where)
    low, high = (0, 1) if element.is_bool else (int(element.min_value), int(element.max_value))

    def encode(value: Any) -> int:
        integer = _as_integer(value)
        if integer is None:
            raise _wrong_kind(where, "an integer", element, value)
        if not low <= integer <= high:
            raise _out_of_range(where, element, value)
        return integer if integer < 1 << 63 else integer - (1 << 64)

    return encode


def _address_encoder(where: str) -> Encoder:
    """An address: an integer, or a tensor on the CPU, which stands for where it begins."""

    def encode(value: Any) -> int:
        integer = _as_integer(value)
        if integer is not None and 0 <= integer < 1 << 64:
            return integer if integer < 1 << 63 else integer - (1 << 64)
        view = view_array(value)
        if view is None or view.device != "cpu":
            raise ArgumentError(
                f"{where} must be a tensor on the CPU or an address, not {value!r}"
                if integer is not None or view is None
                else f"{where} is on device '{view.device}', expected 'cpu'"
            )
        return view.pointer

    return encode


def _float_encoder(where: str, element: DType) -> Encoder:
    name = "float32" if element == "tfloat32" else str(element)
    pack = _FLOAT_FORMATS.get(name)

    def encode(value: Any) -> int:
        try:
            number = _as_float(value)
            if number is None:
                raise _wrong_kind(where, "a number", element, value)
            if pack is None:
                return _small_float_bits(where, element, number)
            return int(struct.unpack(pack[1], struct.pack(pack[0], number))[0])
        except OverflowError:
            raise _out_of_range(where, element, value) from None

    return encode


def _small_float_bits(where: str, element: DType, number: float) -> int:
    """The bits of a bfloat16 or 8-bit float nearest to `number`."""
    import ml_dtypes
    import numpy

    if math.isfinite(number) and abs(number) > element.max_value:
        raise _out_of_range(where, element, number)
    bits = numpy.uint16 if element.bits == 16 else numpy.uint8
    value = numpy.asarray(number, getattr(ml_dtypes, str(element)))
    return int(value.view(bits))


def _as_integer(value: Any) -> int | None:
    """`value` as an integer if it is one (numpy's and bools included), else None."""
    if isinstance(value, int):
        return int(value)
    try:
        return operator.index(value)
    except TypeError:
        # numpy's bool has no __index__
        return int(value) if type(value).__name__ in ("bool", "bool_") else None


def _as_float(value: Any) -> float | None:
    """`value` as a float if it is one number, else None; `OverflowError` for an integer too
    large."""
    if isinstance(value, str | bytes) or not hasattr(value, "__float__"):
        return None
    if getattr(value, "ndim", 0) != 0:
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _wrong_kind(where: str, expected: str, element: DType, value: Any) -> ArgumentError:
    return ArgumentError(f"{where} must be {expected} ('{element}'), not '{type(value).__name__}'")


def _out_of_range(where: str, element: DType, value: Any) -> ArgumentError:
    return ArgumentError(f"{where} is {value}, which '{element}' cannot hold")
