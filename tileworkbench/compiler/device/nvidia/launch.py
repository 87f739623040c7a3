"""`CUlaunchConfig` and its attributes, laid out as in cuda.h of CUDA 12 (64-bit)."""

from __future__ import annotations

import ctypes
from typing import Any

from tileworkbench.compiler.device.launch import Launch
from tileworkbench.compiler.fast_dataclass import dataclass

_COOPERATIVE, _CLUSTER_DIMENSION, _EARLY = 2, 4, 6  # CUlaunchAttributeID


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_uint), ("padding", ctypes.c_uint), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


@dataclass(frozen=True, slots=True)
class Configuration:
    """A `CUlaunchConfig`; `kept` is the memory that it points to."""

    value: Any
    kept: Any


def configure(
    launch: Launch, grid: tuple[int, int, int], stream: ctypes.c_void_p
) -> Configuration | None:
    """The configuration of a launch with attributes; None for a launch without them."""
    values: list[tuple[int, tuple[int, ...]]] = []
    if launch.cooperative:
        values.append((_COOPERATIVE, (1,)))
    if launch.cluster:
        values.append((_CLUSTER_DIMENSION, (*launch.cluster, 1, 1)[:3]))
    if launch.early:  # programmatic stream serialization
        values.append((_EARLY, (1,)))
    if not values:
        return None
    attributes = (_Attribute * len(values))()
    for attribute, (number, words) in zip(attributes, values, strict=True):
        attribute.id = number
        attribute.value[: len(words)] = words
    block = (ctypes.c_uint * 3)(launch.threads, 1, 1)
    place = (ctypes.c_uint * 3)(*grid)
    config = _Config(place, block, launch.shared_bytes, stream, attributes, len(values))
    return Configuration(config, attributes)
