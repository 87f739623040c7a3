"""What the driver is given to launch a function: arguments in memory, `CUlaunchConfig` and its
attributes, laid out as in cuda.h of CUDA 12 (64-bit).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_COOPERATIVE, _CLUSTER_DIMENSION = 2, 4  # CUlaunchAttributeID
_WORD, _LINE = 8, 64  # bytes; a `CUtensorMap` is as aligned as a cache line


class Launch(Protocol):
    """What is needed to launch one function of a module: threads of a block along x, its dynamic
    shared memory, whether all blocks wait for each other, and how many along x, y, z form a cluster
    (empty: none do).
    """

    @property
    def entry(self) -> str: ...

    @property
    def threads(self) -> int: ...

    @property
    def shared_bytes(self) -> int: ...

    @property
    def cooperative(self) -> bool: ...

    @property
    def cluster(self) -> tuple[int, ...]: ...


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


def pack_arguments(slots: Sequence[int | bytes]) -> tuple[Any, Any]:
    """Arguments in memory, and the array of pointers to them that launches take: 64-bit numbers,
    and structures such as tensor maps as `bytes`. The first must live as long as the second is
    used.
    """
    # Numbers come first, all at once: this is the path of every launch. Structures follow.
    structures = [(place, slot) for place, slot in enumerate(slots) if isinstance(slot, bytes)]
    room = sum(len(slot) + _LINE for _, slot in structures) // _WORD + 1 if structures else 0
    numbers = [0 if isinstance(slot, bytes) else slot & (2**64 - 1) for slot in slots]
    memory = (ctypes.c_uint64 * (len(slots) + room))(*numbers)
    start = ctypes.addressof(memory)
    places = [start + _WORD * place for place in range(len(slots))]
    end = start + _WORD * len(slots)
    for place, slot in structures:
        places[place] = end + -end % _LINE
        ctypes.memmove(places[place], slot, len(slot))
        end = places[place] + len(slot)
    return memory, (ctypes.c_void_p * len(slots))(*places)
