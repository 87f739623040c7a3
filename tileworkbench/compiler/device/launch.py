"""What a vendor's driver is given to launch a function: its facts, and arguments in memory."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

from tileworkbench.compiler.diagnostics import RunError

_WORD, _LINE = 8, 64  # bytes; a `CUtensorMap` is as aligned as a cache line
_NO_BINARY_FOR_GPU = 209  # of `CUresult` and of `hipError_t`


class Launch(Protocol):
    """What is needed to launch one function of a module: threads of a block along x, its dynamic
    shared memory, whether all blocks wait for each other, how many along x, y, z form a cluster
    (empty: none do), and whether it may begin before the launch in front of it has ended.
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

    @property
    def early(self) -> bool: ...


class Driver:
    """A vendor's library with its errors turned into exceptions.

    `library` is what ctypes loaded, or an object that acts like it. `example` is a target of the
    vendor.
    """

    example = ""

    def __init__(self, library: Any) -> None:
        self.library = library

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the API. Raises `RunError` with the library's own words."""
        status = int(getattr(self.library, name)(*arguments))
        if status:
            hint = f"compile for the device's own architecture, e.g. target '{self.example}'"
            raise RunError(
                f"'{name}' failed: {self.describe(status)}",
                hint if status == _NO_BINARY_FOR_GPU else None,
            )

    def describe(self, status: int) -> str:
        """The library's name and text of an error."""
        raise NotImplementedError


def check_residency(launch: Launch, grid: Sequence[int], at_once: int, device: str) -> None:
    """Blocks that wait for each other must all run at once. Raises `RunError` where `device` runs
    only `at_once` of them.
    """
    if prod(grid) > at_once:
        raise RunError(
            f"'{launch.entry}' has {prod(grid)} blocks that wait for each other (T.sync_grid); "
            f"'{device}' runs {at_once} of them at once",
            hint="launch no more blocks than that and let each do more, as T.Persistent does",
        )


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


def current_stream(ordinal: int = 0) -> int:
    """PyTorch's current stream of a device where PyTorch uses GPUs in this process, else the
    default one. PyTorch calls the GPUs of every vendor "cuda".
    """
    torch = _torch_with_gpu()
    return 0 if torch is None else int(torch.cuda.current_stream(ordinal).cuda_stream)


def ordinal_of(device: str) -> int:
    """The number of the device "cuda:1", of the current one for "cuda"."""
    index = device.partition(":")[2]
    return int(index) if index else current_ordinal()


def current_ordinal() -> int:
    """PyTorch's current device where PyTorch uses GPUs in this process, else the first one."""
    torch = _torch_with_gpu()
    return 0 if torch is None else int(torch.cuda.current_device())


def _torch_with_gpu() -> Any:
    torch: Any = sys.modules.get("torch")
    return torch if torch is not None and torch.cuda.is_available() else None
