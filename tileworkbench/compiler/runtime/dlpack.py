"""Reading a DLPack capsule without a library:
https://dmlc.github.io/dlpack/latest/c_api.html."""

from __future__ import annotations

import ctypes
from typing import Any

from tileworkbench.compiler.diagnostics import ArgumentError

_READ_ONLY = 1
_DEVICES = {
    1: "cpu",
    2: "cuda",
    3: "cpu",
    8: "metal",
    10: "cuda",  # ROCm: as torch calls it
    11: "cpu",
    13: "cuda",
    14: "oneapi",
}
# DLDataTypeCode -> the dtype's name, or its stem where the width completes the name
_STEMS = {0: "int", 1: "uint", 2: "float", 5: "complex"}
_NAMES = {
    4: "bfloat16",
    6: "bool",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _VersionedTensor(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


def device_name(value: Any) -> str:
    """The device that holds the data of a DLPack producer, e.g. ``cpu`` or ``cuda:0``."""
    code, index = value.__dlpack_device__()
    name = _DEVICES.get(int(code), f"device type {int(code)}")
    return name if name == "cpu" else f"{name}:{index}"


def read_tensor(
    value: Any,
) -> tuple[int, tuple[int, ...], tuple[int, ...], str, bool, Any]:
    """Pointer, shape, strides in elements, dtype name, whether read-only, and the capsule.

    `value` is a DLPack producer, whose data may be on a device. The pointer is good as long as the
    capsule lives. Raises `ArgumentError` for what the producer cannot export.
    """
    capsule = _export(value)
    name = _capsule_name(capsule)
    address = _capsule_pointer(capsule, name)
    read_only = False
    if name == b"dltensor_versioned":
        versioned = _VersionedTensor.from_address(address)
        read_only = bool(versioned.flags & _READ_ONLY)
        tensor = versioned.tensor
    else:
        tensor = _Tensor.from_address(address)
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = (
        tuple(tensor.strides[axis] for axis in range(tensor.ndim))
        if tensor.strides
        else contiguous_strides(shape)
    )
    pointer = (tensor.data or 0) + tensor.byte_offset
    return pointer, shape, strides, _dtype_name(tensor), read_only, capsule


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _export(value: Any) -> Any:
    try:
        try:
            return value.__dlpack__(max_version=(1, 0))
        except TypeError:  # a producer from before version 1.0
            return value.__dlpack__()
    except Exception as error:
        raise ArgumentError(f"cannot be exported by DLPack ({error})") from error


def _dtype_name(tensor: _Tensor) -> str:
    stem = _STEMS.get(tensor.code)
    name = f"{stem}{tensor.bits}" if stem else _NAMES.get(tensor.code, f"DLPack type {tensor.code}")
    return name if tensor.lanes == 1 else f"{name}x{tensor.lanes}"


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.argtypes = [ctypes.py_object]
_capsule_name.restype = ctypes.c_char_p
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p
