"""Kernels on an AMD GPU: ctypes on the HIP runtime (libamdhip64), whose current device and stream
are PyTorch's too.

Written by the HIP runtime API reference of ROCm 6; tests call it with libraries that record what
they are asked. Not run on hardware. Nothing is loaded before it is asked for, and PyTorch's own
library comes first: a process must not have two.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tileworkbench.compiler.device.launch import (
    Driver,
    Launch,
    check_residency,
    current_stream,
    pack_arguments,
)
from tileworkbench.compiler.diagnostics import DeviceUnavailableError, RunError
from tileworkbench.compiler.fast_dataclass import dataclass

_HINT = "targets 'emu:<arch>' and 'sim:<arch>' run the kernel without one"

# `hipDeviceProp_t` of ROCm 6 and 7 ("R0600"): its bytes, and where fields begin.
_PROPERTIES_BYTES = 1472
_MULTIPROCESSORS, _ARCH_NAME, _NAME_BYTES = 388, 1160, 256
_MOST_ITEMS = 2**32  # threads of a launch along one axis are fewer
_ANY = ctypes.c_void_p
# Argument types of what is called with numbers, which ctypes would else cut to 32 bits.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipModuleLoadData": (_ANY, ctypes.c_char_p),
    "hipModuleGetFunction": (_ANY, _ANY, ctypes.c_char_p),
    "hipMallocAsync": (_ANY, ctypes.c_size_t, _ANY),
    "hipFreeAsync": (_ANY, _ANY),
    "hipMemsetAsync": (_ANY, ctypes.c_int, ctypes.c_size_t, _ANY),
    "hipModuleLaunchKernel": (_ANY, *(ctypes.c_uint,) * 7, _ANY, _ANY, _ANY),
    "hipModuleLaunchCooperativeKernel": (_ANY, *(ctypes.c_uint,) * 7, _ANY, _ANY),
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": (
        *(_ANY, _ANY, ctypes.c_int, ctypes.c_size_t),
    ),
}


def missing_device(arch: str | None = None) -> str | None:
    """One sentence saying that there is no AMD GPU (of this architecture), or None."""
    try:
        device = open_device()
    except DeviceUnavailableError as error:
        return error.message
    except RunError as error:
        return f"the HIP runtime cannot be used: {error.message}"
    return None if arch in (None, device.arch) else _other_machine(device)


def _other_machine(device: HipDevice) -> str:
    return f"'{device.name}' of this machine is a {device.arch}"


class HipDriver(Driver):
    """The runtime library with its errors turned into exceptions."""

    example = "hip:gfx942"

    def describe(self, status: int) -> str:
        """``hipErrorInvalidValue (invalid argument)``."""
        name, text = self.library.hipGetErrorName(status), self.library.hipGetErrorString(status)
        return f"{name.decode()} ({text.decode()})" if name and text else f"error {status}"


def library_paths(name: str, versions: Sequence[int]) -> list[str]:
    """Where a library of ROCm may be: beside PyTorch, in ROCm's folder, on the loader's path."""
    files = [f"{name}.so", *(f"{name}.so.{version}" for version in versions)]
    spec = importlib.util.find_spec("torch")
    places = [Path(each) / "lib" for each in (spec and spec.submodule_search_locations) or ()]
    places += [Path(root) / "lib" for root in (os.environ.get("ROCM_PATH"), "/opt/rocm") if root]
    paths = [str(place / file) for place in places for file in files if (place / file).is_file()]
    return [*paths, *files]


def load_library(name: str, versions: Sequence[int]) -> Any:
    """The first of `library_paths` that the loader takes. Raises `OSError`."""
    for path in library_paths(name, versions):
        try:
            return ctypes.CDLL(path)
        except OSError:
            continue
    raise OSError(name)


@functools.cache
def _driver() -> HipDriver:
    """The machine's runtime, initialised. Raises `DeviceUnavailableError` without one."""
    try:
        library = load_library("libamdhip64", (7, 6))
    except OSError:
        message = "this machine has no HIP runtime (libamdhip64 of ROCm)"
        raise DeviceUnavailableError(message, _HINT) from None
    return open_driver(library)


def open_driver(library: Any) -> HipDriver:
    """Initialise a runtime library. Raises `DeviceUnavailableError` where it finds no device, and
    for a library older than ROCm 6.
    """
    if not hasattr(library, "hipGetDevicePropertiesR0600"):
        old = "the HIP runtime of this machine is older than ROCm 6"
        raise DeviceUnavailableError(old, _HINT)
    for name in ("hipGetErrorName", "hipGetErrorString"):
        getattr(library, name).restype = ctypes.c_char_p
    for name, types in _SIGNATURES.items():
        getattr(library, name).argtypes = types
    driver = HipDriver(library)
    status = int(library.hipInit(0))
    if status:
        message = f"the HIP runtime cannot be used: {driver.describe(status)}"
        raise DeviceUnavailableError(message, _HINT)
    return driver


@functools.cache
def open_device(ordinal: int = 0) -> HipDevice:
    """A device of this machine, opened once. Raises `DeviceUnavailableError` without one."""
    return HipDevice.open(_driver(), ordinal)


@dataclass(frozen=True, slots=True)
class HipDevice:
    """One device: its name, its architecture such as ``gfx942``, that with the features that code
    must agree with (``gfx942:sramecc+:xnack-``), and how many multiprocessors (compute units) it
    has.
    """

    driver: HipDriver
    ordinal: int
    name: str
    isa: str
    multiprocessors: int

    @property
    def arch(self) -> str:
        return self.isa.partition(":")[0]

    @classmethod
    def open(cls, driver: HipDriver, ordinal: int = 0) -> HipDevice:
        """Read the properties of a device. Raises `DeviceUnavailableError`."""
        count = ctypes.c_int()
        status = int(driver.library.hipGetDeviceCount(ctypes.byref(count)))
        if status or ordinal >= count.value:  # without a device HIP reports that as an error
            absent = f"no AMD GPU {ordinal}" if count.value else "no AMD GPU"
            raise DeviceUnavailableError(f"this machine has {absent}", _HINT)
        memory = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        driver.call("hipGetDevicePropertiesR0600", memory, ordinal)
        many = int.from_bytes(memory.raw[_MULTIPROCESSORS : _MULTIPROCESSORS + 4], "little")
        name, isa = (_text(memory.raw[at : at + _NAME_BYTES]) for at in (0, _ARCH_NAME))
        return cls(driver, ordinal, name, isa, many)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have the device current in this thread; afterwards whatever was."""
        before = ctypes.c_int()
        self.driver.call("hipGetDevice", ctypes.byref(before))
        self.driver.call("hipSetDevice", self.ordinal)
        try:
            yield
        finally:
            self.driver.call("hipSetDevice", before.value)


def _text(memory: bytes) -> str:
    return memory.partition(b"\0")[0].decode(errors="replace")


class LoadedKernels:
    """A module on a device. It stays loaded as long as the process: unloading would wait for
    every launch."""

    def __init__(self, device: HipDevice, code_object: bytes, launches: Sequence[Launch]) -> None:
        self.device = device
        self.launches = tuple(launches)
        module, call = ctypes.c_void_p(), device.driver.call
        self._functions: list[ctypes.c_void_p] = []
        with device.active():
            call("hipModuleLoadData", ctypes.byref(module), code_object)
            for launch in self.launches:
                function, name = ctypes.c_void_p(), launch.entry.encode()
                call("hipModuleGetFunction", ctypes.byref(function), module, name)
                self._functions.append(function)

    def run(
        self,
        grids: Sequence[tuple[int, int, int]],
        slots: Sequence[int | bytes],
        workspace_bytes: Sequence[int] = (),
        stream: int | None = None,
    ) -> None:
        """Launch every function on its grid, in order; a grid with an empty extent is left out.

        `slots` are the arguments: 64-bit numbers for addresses on the device and the bits of
        scalars, of which the kernel reads as many as its parameter has. Workspaces of the given
        sizes follow them; they live until the launches are done. The last is the barrier of
        cooperative launches, set to zero. `stream` is a `hipStream_t`, by default PyTorch's current
        one. Raises `RunError` for more blocks that wait for each other than run at once, and for a
        grid with more threads along an axis than HIP counts.
        """
        call = self.device.driver.call
        queue = ctypes.c_void_p(current_stream(self.device.ordinal) if stream is None else stream)
        with self.device.active(), self._workspaces(workspace_bytes, queue) as spaces:
            numbers, pointers = pack_arguments([*slots, *spaces])
            for launch, function, grid in zip(self.launches, self._functions, grids, strict=True):
                if not all(grid):
                    continue
                _check_items(launch, grid)
                # Shared memory is part of the function: a launch adds none.
                shape = (*grid, launch.threads, 1, 1, 0)
                if launch.cooperative:
                    self._check_residency(launch, function, grid)
                    call("hipMemsetAsync", spaces[-1], 0, workspace_bytes[-1], queue)
                    name = "hipModuleLaunchCooperativeKernel"
                    call(name, function, *shape, queue, pointers)
                else:
                    call("hipModuleLaunchKernel", function, *shape, queue, pointers, None)
            del numbers  # copied by the launches

    @contextmanager
    def _workspaces(self, sizes: Sequence[int], queue: ctypes.c_void_p) -> Iterator[list[int]]:
        """Memory in the order of a stream; it is freed there too."""
        call = self.device.driver.call
        spaces: list[int] = []
        try:
            for size in sizes:
                space = ctypes.c_void_p()
                call("hipMallocAsync", ctypes.byref(space), max(size, 1), queue)
                spaces.append(space.value or 0)
            yield spaces
        finally:
            for each in spaces:
                call("hipFreeAsync", each, queue)

    def _check_residency(
        self, launch: Launch, function: ctypes.c_void_p, grid: tuple[int, int, int]
    ) -> None:
        """Blocks that wait for each other must all run at once."""
        each = ctypes.c_int()
        name = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        self.device.driver.call(name, ctypes.byref(each), function, launch.threads, 0)
        most = each.value * self.device.multiprocessors
        check_residency(launch, grid, most, self.device.name)


def _check_items(launch: Launch, grid: tuple[int, int, int]) -> None:
    """HIP counts the threads of a launch along x with 32 bits."""
    if grid[0] * launch.threads >= _MOST_ITEMS:
        raise RunError(
            f"'{launch.entry}' has {grid[0]} blocks of {launch.threads} threads along x, and HIP "
            f"launches fewer than {_MOST_ITEMS} threads",
            hint="move some of the blocks to the second axis of T.Kernel",
        )
