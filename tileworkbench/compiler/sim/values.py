"""How the simulator represents values of the IR's types, and the conversions between them.

A value is uniform or one per lane. Uniform integers are `int`, conditions `bool`, floats numpy
scalars of the dtype's own storage type; values per lane are arrays of that type, whose shape
broadcasts to the lane grid. So every integer wraps and every float rounds as its dtype says, and a
uniform index costs no more than a Python integer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tileworkbench.compiler.ir.types import DType

Value = Any  # int, bool, numpy scalar or numpy array; see above
Mask = Any  # True: every lane, False: none, or a boolean array that broadcasts to the lane grid

_STORAGE = {
    "bool": np.bool_,
    "int4": np.int8,
    "uint4": np.uint8,
    "tfloat32": np.float32,
    "handle": np.int64,
    **{
        name: getattr(ml_dtypes, name)
        for name in (
            "bfloat16",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "float4_e2m1fn",
            "float6_e2m3fn",
            "float6_e3m2fn",
        )
    },
}


_LARGEST = {
    np.dtype(_STORAGE[name]): float(DType(name).max_value)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
}
_WITHOUT_NAN = {
    np.dtype(_STORAGE[name]): float(DType(name).max_value)
    for name in ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn")
}
_SCALE = np.dtype(_STORAGE["float8_e8m0fnu"])
_NARROW = {np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), _SCALE, *_LARGEST, *_WITHOUT_NAN}


@cache
def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type that holds one element of `dtype` (sub-byte types take a byte each)."""
    name = str(dtype.scalar)
    made: np.dtype[Any] = np.dtype(_STORAGE.get(name, name))
    return made


@cache
def working_dtype(dtype: DType) -> np.dtype[Any]:
    """The numpy type in which an operation of `dtype` is computed: float32 for narrower floats."""
    if dtype.is_float and dtype.bits < 32:
        return np.dtype(np.float32)
    return storage_dtype(dtype)


@cache
def poison(dtype: DType) -> Value:
    """What memory holds before the first write: NaN, or bytes 0xCD."""
    if dtype.is_bool:
        return np.bool_(True)
    storage = storage_dtype(dtype)
    if not dtype.is_float or dtype.bits < 8:
        return np.frombuffer(b"\xcd" * storage.itemsize, storage)[0]
    return np.float32("nan").astype(storage)


@cache
def wrapper(dtype: DType) -> Callable[[int], int]:
    """The function that reduces a Python integer to `dtype` (two's complement)."""
    bits = dtype.bits
    low, high, mask = int(dtype.min_value), int(dtype.max_value), (1 << bits) - 1
    signed = dtype.kind != "uint"

    def wrap(value: int) -> int:
        if low <= value <= high:
            return value
        value &= mask
        return value - (mask + 1) if signed and value > high else value

    return wrap


def from_storage(value: Any, dtype: DType) -> Value:
    """A numpy scalar or array of `dtype`'s storage type as a value."""
    if type(value) is np.ndarray and value.shape:
        return value
    if dtype.is_float:
        return value[()] if type(value) is np.ndarray else value
    return bool(value) if dtype.is_bool else int(value)


def python_value(number: bool | int | float, dtype: DType) -> Value:
    """A Python number, already in the range of `dtype`, as a value."""
    if dtype.is_float:
        return narrowed(np.float64(number), storage_dtype(dtype))
    return bool(number) if dtype.is_bool else int(number)


def to_array(value: Value, dtype: DType) -> np.ndarray[Any, Any]:
    """A value as an array (of no dimensions when uniform) of `dtype`'s storage type."""
    return np.asarray(value, storage_dtype(dtype))


def narrowed(array: Any, storage: np.dtype[Any]) -> Any:
    """`array` (or a numpy scalar) rounded to the numpy type `storage`; what is too large for a
    float of 8 bits or less becomes its largest value, as does NaN where there is none.
    """
    if array.dtype == np.float64 and storage in _NARROW:
        array = _to_odd(np.asarray(array))[()]
    limit = _LARGEST.get(storage)
    if limit is not None:
        array = np.clip(array.astype(np.float32), -limit, limit)
    elif storage in _WITHOUT_NAN:
        array = np.nan_to_num(array.astype(np.float32), nan=_WITHOUT_NAN[storage])
    elif storage == _SCALE and array.dtype != _SCALE:
        return _to_scale(array.astype(np.float32))
    return array.astype(storage)


def _to_odd(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float64 as float32 with the last bit set in what is not exact, so that a second rounding, to
    fewer bits, is as if it were the only one.
    """
    with np.errstate(over="ignore"):
        nearest = array.astype(np.float32)
    wide = nearest.astype(np.float64)
    bits = nearest.view(np.uint32)
    odd = bits - (np.abs(wide) > np.abs(array)) | 1
    return np.where((wide != array) & ~np.isnan(array), odd, bits).astype(np.uint32).view("f4")


def _to_scale(array: Any) -> Any:
    """The nearest powers of two to the magnitudes, ties upwards, zero as the least one."""
    bits = np.asarray(array).view(np.uint32) & 0x7FFFFFFF
    half = np.where(bits < 0x800000, 0x200000, 0x400000)  # a denormal has no leading one
    codes = np.minimum((bits + half) >> 23, 254)
    codes = np.where(bits > 0x7F800000, 255, codes).astype(np.uint8)
    return codes.view(_SCALE)[()]


def convert_array(
    array: np.ndarray[Any, Any], source: DType, target: DType
) -> np.ndarray[Any, Any]:
    """`array` of `source` elements converted to `target`: the meaning of `Cast`.

    Floats round to nearest even, integers wrap. Floats truncate toward zero on the way to integers
    and saturate, NaN gives zero. 8-bit floats saturate.
    """
    if source.scalar == target.scalar:
        return array
    if target.is_bool:
        if array.dtype == _SCALE:  # without a zero
            array = array.astype(np.float32)
        return np.asarray(array != np.zeros((), array.dtype))
    if source.is_float and target.is_int:
        return _truncated(array.astype(np.float32) if source.bits < 32 else array, target)
    made: np.ndarray[Any, Any] = narrowed(array, storage_dtype(target))
    if target.bits == 4 and target.is_int:
        made = (((made + 8) & 15) - 8 if target.kind == "int" else made & 15).astype(made.dtype)
    return made


def _truncated(array: np.ndarray[Any, Any], target: DType) -> np.ndarray[Any, Any]:
    """Floats as integers of type `target`."""
    low, high = int(target.min_value), int(target.max_value)
    inside = (array > low) & (array < high)
    made = np.where(inside, array, 0).astype(storage_dtype(target))
    made[array >= high], made[array <= low] = high, low
    return made


@cache
def converter(source: DType, target: DType) -> Callable[[Value], Value]:
    """The function from values of `source` to values of `target`."""
    if source.scalar == target.scalar:
        return lambda value: value
    wrap = wrapper(target) if target.is_int else None

    def convert(value: Value) -> Value:
        if wrap is not None and type(value) is int:
            return wrap(value)
        if type(value) is np.ndarray:
            return convert_array(value, source, target)
        return from_storage(convert_array(to_array(value, source), source, target), target)

    return convert


# Masks ----------------------------------------------------------


def as_mask(condition: Value) -> Mask:
    """A condition as a mask; an array without a true lane is False."""
    if type(condition) is np.ndarray:  # counting is several times as fast as `any`
        return condition if np.count_nonzero(condition) else False
    return bool(condition)


def mask_and(mask: Mask, condition: Value) -> Mask:
    """The lanes of `mask` in which `condition` holds."""
    if mask is False:
        return False
    if mask is True:
        return as_mask(condition)
    if type(condition) is np.ndarray:
        return as_mask(mask & condition)
    return mask if condition else False


def mask_without(mask: Mask, condition: Value) -> Mask:
    """The lanes of `mask` in which `condition` does not hold."""
    if type(condition) is np.ndarray:
        if np.count_nonzero(condition) == condition.size:  # as nearly always, and at once
            return False
        return mask_and(mask, ~condition)
    return False if condition else mask


def mask_or(a: Mask, b: Mask) -> Mask:
    """The lanes of either mask."""
    if a is True or b is True:
        return True
    if a is False:
        return b
    return a if b is False else a | b


def over_lanes(mask: Mask, lanes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """The mask as an array over the whole grid `lanes`; not to be changed."""
    return _every(lanes) if mask is True else spread(mask, lanes)


def spread(value: Value, lanes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """A value as an array over the whole grid `lanes`; not to be changed."""
    array = np.asarray(value)  # numpy's function takes long even where there is nothing to do
    return array if array.shape == lanes else np.broadcast_to(array, lanes)


@lru_cache(maxsize=256)
def _every(lanes: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.True_, lanes)


def count_lanes(mask: Mask, lanes: tuple[int, ...]) -> int:
    """How many lanes of the grid `lanes` the mask holds."""
    total = 1
    for extent in lanes:
        total *= extent
    if mask is True:
        return total
    return 0 if mask is False else int(np.count_nonzero(mask)) * (total // max(mask.size, 1))
