"""The driver binding, against a library object that records what it is asked."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tileworkbench.compiler.diagnostics import DeviceUnavailableError, RunError
from tileworkbench.compiler.runtime import cuda_driver
from tileworkbench.compiler.runtime.cuda_driver import (
    CudaDevice,
    CudaDriver,
    DeviceLimits,
    open_driver,
)


@dataclass
class FakeCuda:
    """As much of libcuda as the binding uses; `calls` has the names, `launched` the launches."""

    devices: int = 1
    fails: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    launched: list[dict[str, Any]] = field(default_factory=list)
    attributes: list[tuple[Any, ...]] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            handler = getattr(self, f"do_{name}", None)
            if handler is not None:
                handler(*arguments)
            return 0

        return call

    def do_cuGetErrorName(self, status: int, out: Any) -> None:
        if status != 999:
            out._obj.value = {100: b"CUDA_ERROR_NO_DEVICE", 209: b"CUDA_ERROR_NO_BINARY"}.get(
                status, b"CUDA_ERROR_INVALID_VALUE"
            )

    def do_cuGetErrorString(self, status: int, out: Any) -> None:
        out._obj.value = b"words"

    def do_cuDeviceGetCount(self, out: Any) -> None:
        out._obj.value = self.devices

    def do_cuDeviceGet(self, out: Any, ordinal: int) -> None:
        out._obj.value = ordinal + 10

    def do_cuDeviceGetName(self, out: Any, size: int, device: Any) -> None:
        assert device.value == 10
        out.value = b"Fake H1"

    def do_cuDeviceGetAttribute(self, out: Any, number: int, device: Any) -> None:
        out._obj.value = {75: 9, 76: 0, 97: 232448, 1: 1024, 12: 65536, 16: 132, 10: 32, 38: 5}[
            number
        ]

    def do_cuDevicePrimaryCtxRetain(self, out: Any, device: Any) -> None:
        out._obj.value = 77

    def do_cuCtxSetCurrent(self, context: Any) -> None:
        assert context.value == 77

    def do_cuModuleLoadData(self, out: Any, image: bytes) -> None:
        assert image == b"elf"
        out._obj.value = 5

    def do_cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:
        out._obj.value = {b"first": 101, b"second": 102}[name]

    def do_cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> None:
        self.attributes.append((function.value, attribute, value))

    def do_cuMemAllocAsync(self, out: Any, size: Any, stream: Any) -> None:
        out._obj.value = 0x9000 + size.value

    def do_cuLaunchKernel(self, function: Any, *rest: Any) -> None:
        *shape, shared, stream, values, extra = rest
        numbers = [ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint64))[0] for pointer in values]
        self.launched.append(
            {
                "function": function.value,
                "shape": tuple(shape),
                "shared": shared,
                "stream": stream.value,
                "values": numbers,
            }
        )
        assert extra is None


LAUNCHES = (
    SimpleNamespace(entry="first", threads=128, shared_bytes=100_000),
    SimpleNamespace(entry="second", threads=64, shared_bytes=0),
)


def open_fake(**options: Any) -> tuple[FakeCuda, CudaDevice]:
    fake = FakeCuda(**options)
    return fake, CudaDevice.open(driver=open_driver(fake))


def test_a_device_and_its_limits() -> None:
    _, device = open_fake()
    assert (device.name, device.arch) == ("Fake H1", "sm_90")
    assert device.limits == DeviceLimits(1024, 232448, 65536, 132, 32, 5)


def test_launches_go_to_the_stream_with_arguments_and_workspaces() -> None:
    fake, device = open_fake()
    kernels = CudaDevice.load(b"elf", LAUNCHES, device)
    assert fake.attributes == [(101, 8, 100_000)]
    kernels.run([(4, 2, 1), (1, 1, 1)], [0x1000, -1], [256], stream=42)
    assert fake.launched == [
        {"function": 101, "shape": (4, 2, 1, 128, 1, 1), "shared": 100_000, "stream": 42,
         "values": [0x1000, 2**64 - 1, 0x9100]},
        {"function": 102, "shape": (1, 1, 1, 64, 1, 1), "shared": 0, "stream": 42,
         "values": [0x1000, 2**64 - 1, 0x9100]},
    ]  # fmt: skip
    assert fake.calls[-4:] == [
        *("cuMemAllocAsync", "cuLaunchKernel", "cuLaunchKernel", "cuMemFreeAsync")
    ]


def test_an_empty_grid_launches_nothing() -> None:
    fake, device = open_fake()
    CudaDevice.load(b"elf", LAUNCHES, device).run([(0, 1, 1), (2, 1, 1)], [])
    assert [launch["function"] for launch in fake.launched] == [102]
    assert fake.launched[0]["stream"] is None  # the default stream


def test_the_current_stream_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=1234)
    cuda = SimpleNamespace(is_available=lambda: True, current_stream=lambda: stream)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert cuda_driver.current_stream() == 1234
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cuda_driver.current_stream() == 0


def test_workspaces_are_freed_when_a_launch_fails() -> None:
    fake, device = open_fake()
    kernels = CudaDevice.load(b"elf", LAUNCHES, device)
    fake.fails["cuLaunchKernel"] = 1
    with pytest.raises(RunError) as caught:
        kernels.run([(1, 1, 1), (1, 1, 1)], [], [16])
    assert str(caught.value) == "'cuLaunchKernel' failed: CUDA_ERROR_INVALID_VALUE (words)"
    assert fake.calls.count("cuMemFreeAsync") == 1


def test_too_much_shared_memory_is_named() -> None:
    _, device = open_fake()
    greedy = SimpleNamespace(entry="first", threads=1, shared_bytes=300_000)
    with pytest.raises(RunError) as caught:
        CudaDevice.load(b"elf", [greedy], device)
    assert str(caught.value) == (
        "'first' needs 300000 bytes of shared memory a block; 'Fake H1' has 232448"
    )


def test_an_image_for_another_architecture() -> None:
    fake, device = open_fake()
    fake.fails["cuModuleLoadData"] = 209
    with pytest.raises(RunError) as caught:
        CudaDevice.load(b"elf", LAUNCHES, device)
    assert str(caught.value) == (
        "'cuModuleLoadData' failed: CUDA_ERROR_NO_BINARY (words)\n"
        "hint: compile for the device's own architecture, e.g. target 'cuda:sm_90'"
    )


def test_errors_that_the_driver_does_not_know() -> None:
    assert CudaDriver(FakeCuda()).describe(999) == "error 999"


def test_machines_without_driver_or_device(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = "\nhint: targets 'sim:<arch>' and 'ptx:<arch>' run the kernel without one"
    with pytest.raises(DeviceUnavailableError) as caught:
        open_fake(devices=0)
    assert str(caught.value) == "this machine has no CUDA device" + hint
    with pytest.raises(DeviceUnavailableError) as caught:
        CudaDevice.open(3, open_driver(FakeCuda()))
    assert str(caught.value) == "this machine has no CUDA device 3" + hint
    with pytest.raises(DeviceUnavailableError) as caught:
        open_driver(FakeCuda(fails={"cuInit": 100}))
    assert str(caught.value) == (
        "the CUDA driver cannot be used: CUDA_ERROR_NO_DEVICE (words)" + hint
    )

    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(cuda_driver.ctypes, "CDLL", refuse)
    cuda_driver._driver.cache_clear()
    with pytest.raises(DeviceUnavailableError) as caught:
        CudaDevice.load(b"elf", LAUNCHES)
    assert str(caught.value) == "this machine has no CUDA driver" + hint
    assert cuda_driver.missing_device() == "this machine has no CUDA driver"
