"""Kernels on a CUDA device: ctypes on the driver API, in the device's primary context, which
PyTorch uses too.

Nothing is loaded before it is asked for. Launches go to PyTorch's current stream where PyTorch is
loaded, else to the default one, and do not wait; they may be captured into a CUDA graph.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tileworkbench.compiler.device.launch import (
    Driver,
    Launch,
    check_residency,
    current_stream,
    pack_arguments,
)
from tileworkbench.compiler.device.nvidia.launch import configure
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceUnavailableError, RunError
from tileworkbench.compiler.fast_dataclass import dataclass

_HINT = "targets 'sim:<arch>' and 'ptx:<arch>' run the kernel without one"

# Numbers of `CUdevice_attribute`, `CUfunction_attribute` and `CUpointer_attribute` in cuda.h.
_ATTRIBUTES = {
    "max_shared_bytes": 97,  # with the function attribute below raised
    "multiprocessors": 16,
    "warp_size": 10,
    "l2_bytes": 38,
    "major": 75,
    "minor": 76,
}
_FUNCTION_MAX_DYNAMIC_SHARED = 8
_POINTER_DEVICE_ORDINAL = 9
_FLUSHED = 2  # times L2: of what is written just before, no line is left


def missing_device() -> str | None:
    """One sentence saying that there is no CUDA device, or None where there is one."""
    try:
        open_device()
    except DeviceUnavailableError as error:
        return error.message
    return None


class CudaDriver(Driver):
    """The driver library with its errors turned into exceptions."""

    example = "cuda:sm_90"

    def describe(self, status: int) -> str:
        """``CUDA_ERROR_INVALID_VALUE (invalid argument)``."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.library.cuGetErrorName(status, ctypes.byref(name))
        self.library.cuGetErrorString(status, ctypes.byref(text))
        if name.value is None:
            return f"error {status}"
        return f"{name.value.decode()} ({(text.value or b'').decode()})"


@functools.cache
def _driver() -> CudaDriver:
    """The machine's driver, initialised. Raises `DeviceUnavailableError` without one."""
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        library = ctypes.CDLL(name)
    except OSError:
        raise DeviceUnavailableError("this machine has no CUDA driver", _HINT) from None
    return open_driver(library)


def open_driver(library: Any) -> CudaDriver:
    """Initialise a driver library. Raises `DeviceUnavailableError` where it finds no device."""
    driver = CudaDriver(library)
    status = int(library.cuInit(0))
    if status:
        message = f"the CUDA driver cannot be used: {driver.describe(status)}"
        raise DeviceUnavailableError(message, _HINT)
    return driver


@functools.cache
def open_device(ordinal: int = 0) -> CudaDevice:
    """A device of this machine, opened once. Raises `DeviceUnavailableError` without one."""
    return CudaDevice.open(_driver(), ordinal)


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """What a device has: sizes in bytes, shared memory per block."""

    max_shared_bytes: int
    multiprocessors: int
    warp_size: int
    l2_bytes: int


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """One device: its name, its architecture such as ``sm_90`` and its limits."""

    driver: CudaDriver
    ordinal: int
    name: str
    arch: str
    limits: DeviceLimits
    context: int

    @classmethod
    def open(cls, driver: CudaDriver, ordinal: int = 0) -> CudaDevice:
        """Open a device and retain its primary context. Raises `DeviceUnavailableError`."""
        count = ctypes.c_int()
        driver.call("cuDeviceGetCount", ctypes.byref(count))
        if ordinal >= count.value:
            absent = "no CUDA device" if not count.value else f"no CUDA device {ordinal}"
            raise DeviceUnavailableError(f"this machine has {absent}", _HINT)
        device = ctypes.c_int()
        driver.call("cuDeviceGet", ctypes.byref(device), ordinal)
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), device)
        facts: dict[str, int] = {}
        for key, number in _ATTRIBUTES.items():
            value = ctypes.c_int()
            driver.call("cuDeviceGetAttribute", ctypes.byref(value), number, device)
            facts[key] = value.value
        arch = f"sm_{facts.pop('major')}{facts.pop('minor')}"
        context = ctypes.c_void_p()
        driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        text = name.value.decode(errors="replace")
        return cls(driver, ordinal, text, arch, DeviceLimits(**facts), context.value or 0)

    def flush_l2(self) -> None:
        """Write twice as much as its L2 holds, on the current stream, and wait for it."""
        size = ctypes.c_size_t(_FLUSHED * self.limits.l2_bytes)
        queue = ctypes.c_void_p(current_stream(self.ordinal))
        memory, call = ctypes.c_uint64(), self.driver.call
        with self.active():
            call("cuMemAllocAsync", ctypes.byref(memory), size, queue)
            try:
                call("cuMemsetD8Async", memory, 0, size, queue)
            finally:
                call("cuMemFreeAsync", memory, queue)
            call("cuStreamSynchronize", queue)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Have the primary context current in this thread; afterwards whatever was, for PyTorch's
        current device is that of the current context."""
        self.driver.call("cuCtxPushCurrent_v2", ctypes.c_void_p(self.context))
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class LoadedKernels:
    """A module on a device. It stays loaded as long as the process: unloading would wait for
    every launch."""

    def __init__(self, device: CudaDevice, cubin: bytes, launches: Sequence[Launch]) -> None:
        self.device = device
        self.launches = tuple(launches)
        module = ctypes.c_void_p()
        with device.active():
            device.driver.call("cuModuleLoadData", ctypes.byref(module), cubin)
            self._functions = [self._function(module, launch) for launch in self.launches]

    def _function(self, module: ctypes.c_void_p, launch: Launch) -> ctypes.c_void_p:
        """The function of a launch, allowed as much shared memory as it asks for."""
        call = self.device.driver.call
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), module, launch.entry.encode())
        if launch.shared_bytes > self.device.limits.max_shared_bytes:
            raise RunError(
                f"'{launch.entry}' needs {launch.shared_bytes} bytes of shared memory a block; "
                f"'{self.device.name}' has {self.device.limits.max_shared_bytes}"
            )
        if launch.shared_bytes:  # above 48 KB less the static part this must be said
            size = launch.shared_bytes
            call("cuFuncSetAttribute", function, _FUNCTION_MAX_DYNAMIC_SHARED, size)
        return function

    def run(
        self,
        grids: Sequence[tuple[int, int, int]],
        slots: Sequence[int | bytes],
        workspace_bytes: Sequence[int] = (),
        stream: int | None = None,
    ) -> None:
        """Launch every function on its grid, in order; a grid with an empty extent is left out.

        `slots` are the arguments: 64-bit numbers for addresses on the device and the bits of
        scalars, of which the kernel reads as many as its parameter has, and bytes. Workspaces of
        the given sizes follow them; they live until the launches are done. The last is the barrier
        of cooperative launches, set to zero. `stream` is a `CUstream`, by default PyTorch's current
        one. Raises `RunError` for more blocks that wait for each other than run at once.
        """
        ordinal, call = self.device.ordinal, self.device.driver.call
        queue = ctypes.c_void_p(current_stream(ordinal) if stream is None else stream)
        with self.device.active(), self._workspaces(workspace_bytes, queue) as spaces:
            numbers, pointers = pack_arguments([*slots, *spaces])
            for launch, function, grid in zip(self.launches, self._functions, grids, strict=True):
                if not all(grid):
                    continue
                if launch.cooperative:
                    self._check_residency(launch, function, grid)
                    size = ctypes.c_size_t(workspace_bytes[-1])
                    call("cuMemsetD8Async", ctypes.c_uint64(spaces[-1]), 0, size, queue)
                configuration = configure(launch, grid, queue)
                if configuration is None:
                    shape = (*grid, launch.threads, 1, 1, launch.shared_bytes)
                    call("cuLaunchKernel", function, *shape, queue, pointers, None)
                else:
                    config = ctypes.byref(configuration.value)
                    call("cuLaunchKernelEx", config, function, pointers, None)
            del numbers  # copied by the launches

    @contextmanager
    def _workspaces(self, sizes: Sequence[int], queue: ctypes.c_void_p) -> Iterator[list[int]]:
        """Memory in the order of a stream; it is freed there too."""
        call = self.device.driver.call
        spaces: list[ctypes.c_uint64] = []
        try:
            for size in sizes:
                space = ctypes.c_uint64()
                call("cuMemAllocAsync", ctypes.byref(space), ctypes.c_size_t(max(size, 1)), queue)
                spaces.append(space)
            yield [space.value for space in spaces]
        finally:
            for space in spaces:
                call("cuMemFreeAsync", space, queue)

    def _check_residency(
        self, launch: Launch, function: ctypes.c_void_p, grid: tuple[int, int, int]
    ) -> None:
        """Blocks that wait for each other must all run at once."""
        each = ctypes.c_int()
        name = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        size = ctypes.c_size_t(launch.shared_bytes)
        self.device.driver.call(name, ctypes.byref(each), function, launch.threads, size)
        most = each.value * self.device.limits.multiprocessors
        check_residency(launch, grid, most, self.device.name)


def wait_for_stream(stream: int, ordinal: int) -> None:
    """Return when all that was put into a `CUstream` of a device is done."""
    device = open_device(ordinal)
    with device.active():
        device.driver.call("cuStreamSynchronize", ctypes.c_void_p(stream))


def pointer_ordinal(pointer: int) -> int:
    """The device whose memory is there. Raises `ArgumentError` for memory of none."""
    ordinal = ctypes.c_int()
    driver = open_device().driver
    where = ctypes.c_uint64(pointer)
    if driver.library.cuPointerGetAttribute(ctypes.byref(ordinal), _POINTER_DEVICE_ORDINAL, where):
        raise ArgumentError("points to no memory of a CUDA device")
    return ordinal.value
