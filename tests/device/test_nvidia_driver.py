"""The driver binding, against a library object that records what it is asked."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.device.launch import current_ordinal, current_stream, pack_arguments
from tileworkbench.compiler.device.nvidia import driver
from tileworkbench.compiler.device.nvidia import kernel as nvidia
from tileworkbench.compiler.device.nvidia.driver import (
    CudaDevice,
    CudaDriver,
    DeviceLimits,
    LoadedKernels,
    open_device,
    open_driver,
)
from tileworkbench.compiler.device.nvidia.nvrtc import CudaBuild
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceUnavailableError, RunError
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.emit.c_like.program import Launch
from tileworkbench.compiler.runtime import checks


@dataclass
class FakeCuda:
    """As much of libcuda as the binding uses; `calls` has the names, `launched` the launches."""

    devices: int = 1
    fails: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    launched: list[dict[str, Any]] = field(default_factory=list)
    attributes: list[tuple[Any, ...]] = field(default_factory=list)
    contexts: list[int] = field(default_factory=list)
    cleared: list[tuple[int, int, int]] = field(default_factory=list)

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
        out.value = b"Fake H1" if device.value == 10 else b"Fake H2"

    def do_cuDeviceGetAttribute(self, out: Any, number: int, device: Any) -> None:
        out._obj.value = {75: 9, 76: 0, 97: 232448, 16: 132, 10: 32, 38: 5}[
            number
        ]

    def do_cuDevicePrimaryCtxRetain(self, out: Any, device: Any) -> None:
        out._obj.value = 67 + device.value

    def do_cuCtxPushCurrent_v2(self, context: Any) -> None:
        self.contexts.append(context.value)

    def do_cuCtxPopCurrent_v2(self, out: Any) -> None:
        out._obj.value = self.contexts.pop()

    def do_cuPointerGetAttribute(self, out: Any, attribute: int, pointer: Any) -> None:
        assert attribute == 9
        out._obj.value = 1

    def do_cuStreamSynchronize(self, stream: Any) -> None:
        assert (stream.value, self.contexts) == (7, [78])

    def do_cuModuleLoadData(self, out: Any, image: bytes) -> None:
        assert image == b"elf" and self.contexts
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
                "context": self.contexts[-1],
            }
        )
        assert extra is None

    def do_cuLaunchKernelEx(self, config: Any, function: Any, values: Any, extra: Any) -> None:
        given = config._obj
        shape = (*given.grid, *given.block, given.shared_bytes)
        stream = ctypes.c_void_p(given.stream)
        self.do_cuLaunchKernel(function, *shape, stream, values, extra)
        attributes = [given.attributes[place] for place in range(given.attribute_count)]
        self.launched[-1]["attributes"] = [(each.id, *each.value[:3]) for each in attributes]

    def do_cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: Any, function: Any, threads: int, shared: Any
    ) -> None:
        out._obj.value = 2048 // threads

    def do_cuMemsetD8Async(self, place: Any, value: int, size: Any, stream: Any) -> None:
        self.cleared.append((place.value, value, size.value))


BUILD = CudaBuild("sm_90", "", b"elf", "", (), ())
LAUNCHES = (
    Launch("first", (), 128, 100_000),
    Launch("second", (), 64, 0),
)


def open_fake(**options: Any) -> tuple[FakeCuda, CudaDevice]:
    fake = FakeCuda(**options)
    return fake, CudaDevice.open(driver=open_driver(fake))


def test_a_device_and_its_limits() -> None:
    _, device = open_fake()
    assert (device.name, device.arch) == ("Fake H1", "sm_90")
    assert device.limits == DeviceLimits(232448, 132, 32, 5)


def test_launches_go_to_the_stream_with_arguments_and_workspaces() -> None:
    fake, device = open_fake()
    kernels = LoadedKernels(device, b"elf", LAUNCHES)
    assert fake.attributes == [(101, 8, 100_000)]
    kernels.run([(4, 2, 1), (1, 1, 1)], [0x1000, -1], [256], stream=42)
    assert fake.launched == [
        {"function": 101, "shape": (4, 2, 1, 128, 1, 1), "shared": 100_000, "stream": 42,
         "values": [0x1000, 2**64 - 1, 0x9100], "context": 77},
        {"function": 102, "shape": (1, 1, 1, 64, 1, 1), "shared": 0, "stream": 42,
         "values": [0x1000, 2**64 - 1, 0x9100], "context": 77},
    ]  # fmt: skip
    assert fake.calls[-6:] == [
        *("cuCtxPushCurrent_v2", "cuMemAllocAsync", "cuLaunchKernel", "cuLaunchKernel"),
        *("cuMemFreeAsync", "cuCtxPopCurrent_v2"),
    ]
    assert fake.contexts == []  # the caller's own is current again


def test_of_l2_nothing_is_left() -> None:
    fake, device = open_fake()
    fake.do_cuStreamSynchronize = lambda stream: None  # type: ignore[method-assign]
    fake.calls.clear()
    device.flush_l2()
    assert fake.cleared == [(0x9000 + 10, 0, 10)]  # twice the five bytes of its L2
    assert fake.calls == [
        *("cuCtxPushCurrent_v2", "cuMemAllocAsync", "cuMemsetD8Async", "cuMemFreeAsync"),
        *("cuStreamSynchronize", "cuCtxPopCurrent_v2"),
    ]


def test_blocks_that_wait_for_each_other_are_launched_together() -> None:
    fake, device = open_fake()
    waiting = Launch("first", (), 512, 16, cooperative=True)
    kernels = LoadedKernels(device, b"elf", [waiting])
    kernels.run([(132, 4, 1)], [0x1000], [256, 4])
    assert fake.cleared == [(0x9004, 0, 4)]  # the barrier alone
    assert fake.calls[-3:] == ["cuMemFreeAsync", "cuMemFreeAsync", "cuCtxPopCurrent_v2"]
    assert "cuLaunchKernelEx" in fake.calls and "cuLaunchKernel" not in fake.calls
    assert fake.launched[0]["attributes"] == [(2, 1, 0, 0)]  # CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    assert fake.launched[0]["values"] == [0x1000, 0x9100, 0x9004]
    assert fake.launched[0]["shape"] == (132, 4, 1, 512, 1, 1)
    with pytest.raises(RunError) as caught:
        kernels.run([(133, 4, 1)], [0x1000], [256, 4])
    assert str(caught.value) == (
        "'first' has 532 blocks that wait for each other (T.sync_grid); 'Fake H1' runs 528 of them "
        "at once\nhint: launch no more blocks than that and let each do more, as T.Persistent does"
    )
    assert len(fake.launched) == 1 and fake.calls.count("cuMemFreeAsync") == 4


def test_clusters_are_attributes_of_the_launch() -> None:
    fake, device = open_fake()
    pairs = Launch("first", (), 128, 0, cluster=(2, 1))
    LoadedKernels(device, b"elf", [pairs]).run([(8, 4, 1)], [0x1000], stream=42)
    (launched,) = fake.launched
    assert launched["attributes"] == [(4, 2, 1, 1)]  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    assert (launched["shape"], launched["stream"]) == ((8, 4, 1, 128, 1, 1), 42)


def test_a_launch_asks_for_nothing_that_a_graph_cannot_capture() -> None:
    """All calls are of one stream, or none: memory in its order, and no wait for the device. Tensor
    maps are arguments, so a graph keeps them. (No GPU has captured one here.)
    """
    fake, device = open_fake()
    kernels = LoadedKernels(device, b"elf", LAUNCHES)
    before = len(fake.calls)
    kernels.run([(4, 2, 1), (1, 1, 1)], [0x1000, bytes(128)], [256], stream=42)
    in_order = {"cuMemAllocAsync", "cuMemFreeAsync", "cuLaunchKernel"}
    contexts = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"}
    assert set(fake.calls[before:]) == in_order | contexts
    assert {launch["stream"] for launch in fake.launched} == {42}


def test_structures_are_arguments_too() -> None:
    """A `CUtensorMap` has 128 bytes, which begin where a cache line does."""
    first, second = bytes(range(128)), b"x" * 200
    kept, pointers = pack_arguments([7, first, -1, second])
    assert [ctypes.string_at(pointers[1], 128), ctypes.string_at(pointers[3], 200)] == [
        *(first, second)
    ]
    assert pointers[1] % 64 == pointers[3] % 64 == 0
    numbers = [ctypes.c_uint64.from_address(pointers[place]).value for place in (0, 2)]
    assert numbers == [7, 2**64 - 1]
    start = ctypes.addressof(kept)
    assert start <= pointers[0] and pointers[3] + 200 <= start + ctypes.sizeof(kept)


def test_an_empty_grid_launches_nothing() -> None:
    fake, device = open_fake()
    LoadedKernels(device, b"elf", LAUNCHES).run([(0, 1, 1), (2, 1, 1)], [])
    assert [launch["function"] for launch in fake.launched] == [102]
    assert fake.launched[0]["stream"] is None  # the default stream


def test_the_current_stream_is_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SimpleNamespace(cuda_stream=1234)
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_stream=lambda ordinal: {2: stream}[ordinal],
        current_device=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert (current_stream(2), current_ordinal()) == (1234, 2)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert (current_stream(2), current_ordinal()) == (0, 0)


class OnDevice:
    """An array as if on a device: what DLPack says of memory that nobody here reads."""

    def __init__(self, array: np.ndarray[Any, Any], ordinal: int) -> None:
        self.array, self.ordinal = array, ordinal

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()


@T.prim_func
def copied(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=32):
        T.copy(A, B)


def tensors(*ordinals: int) -> list[OnDevice]:
    memory = np.zeros((len(ordinals), 64), np.float32)
    if memory.ctypes.data % 16:
        pytest.skip("numpy did not align its memory")
    return [OnDevice(row, ordinal) for row, ordinal in zip(memory, ordinals, strict=True)]


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda(devices=2)
    monkeypatch.setattr(driver, "_driver", lambda: open_driver(fake))
    monkeypatch.setattr(FakeCuda, "do_cuModuleGetFunction", lambda *rest: None)
    open_device.cache_clear()
    clear_memory_cache()
    yield fake
    open_device.cache_clear()
    clear_memory_cache()


def test_a_call_runs_where_its_tensors_are(
    monkeypatch: pytest.MonkeyPatch, two_devices: FakeCuda
) -> None:
    """Code is loaded once on each device."""
    monkeypatch.setattr(nvidia, "missing_nvrtc", lambda: "none")
    monkeypatch.setattr(nvidia, "compile_cuda", lambda *rest, **options: BUILD)
    kernel = tw.compile(copied, target="cuda:sm_90")
    for ordinal in (1, 0, 1):
        kernel(*tensors(ordinal, ordinal))
    assert [launch["context"] for launch in two_devices.launched] == [78, 77, 78]
    assert two_devices.calls.count("cuModuleLoadData") == 2


@dataclass(frozen=True)
class Device:
    """torch.device of a build with CUDA."""

    index: int
    type: str = "cuda"

    def __str__(self) -> str:
        return f"cuda:{self.index}"


class Tensor:
    """As much of a torch tensor on a device as a call asks for."""

    is_cpu, is_cuda, layout, dtype, shape = False, True, "strided", "torch.float32", (64,)
    is_nested = requires_grad = False
    _base = None

    def __init__(self, ordinal: int) -> None:
        self.device = Device(ordinal)
        self.memory = ctypes.create_string_buffer(512)

    def data_ptr(self) -> int:
        return -(-ctypes.addressof(self.memory) // 128) * 128

    def stride(self) -> tuple[int, ...]:
        return (1,)

    def element_size(self) -> int:
        return 4

    def is_neg(self) -> bool:
        return False

    is_conj = is_inference = is_neg


def test_torch_tensors_are_looked_at_once_for_each_device(
    monkeypatch: pytest.MonkeyPatch, two_devices: FakeCuda
) -> None:
    """Later calls of the same form read addresses alone, and go to the device's own stream."""
    kernel = tw.compile(copied, target="cuda:sm_90")
    kernel._compiled.build = BUILD
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_stream=lambda ordinal: SimpleNamespace(cuda_stream=1000 + ordinal),
    )
    written: list[Any] = []
    torch = SimpleNamespace(
        **{"Tensor": Tensor, "strided": "strided", "cuda": cuda, "autograd": None},
        compiler=None,
        is_grad_enabled=lambda: True,
        _C=SimpleNamespace(_increment_version=written.extend),
        _ops=None,
        _is_functional_tensor=lambda value: False,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    looked: list[Any] = []
    view = checks.view_array
    monkeypatch.setattr(checks, "view_array", lambda *rest: looked.append(rest) or view(*rest))
    for ordinal in (1, 0, 1, 0):
        kernel(Tensor(ordinal), Tensor(ordinal))
    assert [launch["stream"] for launch in two_devices.launched] == [1001, 1000, 1001, 1000]
    assert len(looked) == 4
    assert [tensor.device.index for tensor in written] == [1, 0, 1, 0]
    with pytest.raises(ArgumentError):
        kernel(Tensor(0), Tensor(1))


def interface(array: np.ndarray[Any, Any], **more: Any) -> Any:
    """An object with the CUDA array interface."""
    place = array.ctypes.data
    found = {"data": (place, False), "shape": array.shape, "typestr": array.dtype.str, **more}
    return SimpleNamespace(__cuda_array_interface__={"version": 3, **found}, owner=array)


def test_arrays_with_the_cuda_array_interface(two_devices: FakeCuda) -> None:
    """The driver knows the device of an address; what fills an array is waited for."""
    kernel = tw.compile(copied, target="cuda:sm_90")
    kernel._compiled.build = BUILD
    a, b = (tensor.array for tensor in tensors(1, 1))
    kernel(interface(a, strides=(4,), stream=7), interface(b, strides=None))
    (launch,) = two_devices.launched
    assert launch["values"] == [a.ctypes.data, b.ctypes.data] and launch["context"] == 78
    assert "cuStreamSynchronize" in two_devices.calls
    refused = {
        "is masked, and a kernel would read what the mask hides": interface(a, mask=b),
        "has strides (2,), expected (1,)": interface(a, strides=(8,)),
    }
    for said, array in refused.items():
        with pytest.raises(ArgumentError) as caught:
            kernel(array, interface(b))
        assert caught.value.message == f"'copied': 'A' {said}"
    two_devices.fails["cuPointerGetAttribute"] = 1
    with pytest.raises(ArgumentError) as caught:
        kernel(interface(a), interface(b))
    assert str(caught.value) == "'copied': 'A' points to no memory of a CUDA device"


def test_tensors_on_different_devices_are_refused(two_devices: FakeCuda) -> None:
    kernel = tw.compile(copied, target="cuda:sm_90")
    with pytest.raises(ArgumentError) as caught:
        kernel(*tensors(0, 1))
    assert str(caught.value) == (
        "'copied': 'B' is on device 'cuda:1', and 'A' on 'cuda:0'\n"
        "hint: move all tensors of a call to one device"
    )


def test_workspaces_are_freed_when_a_launch_fails() -> None:
    fake, device = open_fake()
    kernels = LoadedKernels(device, b"elf", LAUNCHES)
    fake.fails["cuLaunchKernel"] = 1
    with pytest.raises(RunError) as caught:
        kernels.run([(1, 1, 1), (1, 1, 1)], [], [16])
    assert str(caught.value) == "'cuLaunchKernel' failed: CUDA_ERROR_INVALID_VALUE (words)"
    assert fake.calls.count("cuMemFreeAsync") == 1


def test_too_much_shared_memory_is_named() -> None:
    _, device = open_fake()
    greedy = SimpleNamespace(entry="first", threads=1, shared_bytes=300_000, cooperative=False)
    with pytest.raises(RunError) as caught:
        LoadedKernels(device, b"elf", [greedy])
    assert str(caught.value) == (
        "'first' needs 300000 bytes of shared memory a block; 'Fake H1' has 232448"
    )


def test_an_image_for_another_architecture() -> None:
    fake, device = open_fake()
    fake.fails["cuModuleLoadData"] = 209
    with pytest.raises(RunError) as caught:
        LoadedKernels(device, b"elf", LAUNCHES)
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
        CudaDevice.open(open_driver(FakeCuda()), 3)
    assert str(caught.value) == "this machine has no CUDA device 3" + hint
    with pytest.raises(DeviceUnavailableError) as caught:
        open_driver(FakeCuda(fails={"cuInit": 100}))
    assert str(caught.value) == (
        "the CUDA driver cannot be used: CUDA_ERROR_NO_DEVICE (words)" + hint
    )

    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", refuse)
    driver._driver.cache_clear()
    open_device.cache_clear()
    with pytest.raises(DeviceUnavailableError) as caught:
        open_device()
    assert str(caught.value) == "this machine has no CUDA driver" + hint
    assert driver.missing_device() == "this machine has no CUDA driver"
