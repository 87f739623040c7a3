"""The binding of the HIP runtime and of hiprtc, against libraries that record what they are asked.
No AMD GPU has run any of it.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.amd import clang, driver, hiprtc
from tileworkbench.compiler.device.amd import kernel as amd
from tileworkbench.compiler.device.amd.clang import HipBuild, HipCompileError
from tileworkbench.compiler.device.amd.driver import (
    HipDevice,
    HipDriver,
    LoadedKernels,
    open_device,
    open_driver,
)
from tileworkbench.compiler.diagnostics import DeviceUnavailableError, RunError
from tileworkbench.compiler.driver import clear_memory_cache
from tileworkbench.compiler.emit.c_like.program import Launch

HINT = "\nhint: targets 'emu:<arch>' and 'sim:<arch>' run the kernel without one"
ISA = b"gfx942:sramecc+:xnack-"


@dataclass
class FakeHip:
    """As much of the runtime as the binding uses; `calls` has names, `launched` launches."""

    devices: int = 1
    fails: dict[str, int] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    launched: list[dict[str, Any]] = field(default_factory=list)
    cleared: list[tuple[int, int, int]] = field(default_factory=list)
    loaded: list[tuple[int, bytes]] = field(default_factory=list)
    current: int = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("hip"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            if name in self.fails:
                return self.fails[name]
            handler = getattr(self, f"do_{name}", None)
            return (handler(*arguments) if handler is not None else None) or 0

        return call

    def do_hipGetErrorName(self, status: int) -> Any:
        return {1: b"hipErrorInvalidValue", 209: b"hipErrorNoBinaryForGpu"}.get(status)

    def do_hipGetErrorString(self, status: int) -> Any:
        return b"words"

    def do_hipGetDeviceCount(self, out: Any) -> None:
        out._obj.value = self.devices

    def do_hipGetDevicePropertiesR0600(self, out: Any, ordinal: int) -> None:
        assert ctypes.sizeof(out) == 1472
        raw = bytearray(b"\xff" * 1472)
        for at, value in ((0, b"AMD Fake %d\0" % ordinal), (1160, ISA + b"\0")):
            raw[at : at + len(value)] = value
        raw[388:392] = (304).to_bytes(4, "little")
        out.raw = bytes(raw)

    def do_hipGetDevice(self, out: Any) -> None:
        out._obj.value = self.current

    def do_hipSetDevice(self, ordinal: int) -> None:
        self.current = ordinal

    def do_hipModuleLoadData(self, out: Any, image: bytes) -> None:
        self.loaded.append((self.current, image))
        out._obj.value = 5

    def do_hipModuleGetFunction(self, out: Any, module: Any, name: bytes) -> None:
        assert module.value == 5
        out._obj.value = {b"first": 101, b"second": 102}.get(name, 103)

    def do_hipMallocAsync(self, out: Any, size: int, stream: Any) -> None:
        out._obj.value = 0x9000 + size

    def do_hipMemsetAsync(self, place: int, value: int, size: int, stream: Any) -> None:
        self.cleared.append((place, value, size))

    def do_hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: Any, function: Any, threads: int, shared: int
    ) -> None:
        out._obj.value = 2048 // threads

    def do_hipModuleLaunchKernel(self, function: Any, *rest: Any) -> None:
        *shape, shared, stream, values, extra = rest
        numbers = [ctypes.cast(pointer, ctypes.POINTER(ctypes.c_uint64))[0] for pointer in values]
        self.launched.append(
            {"function": function.value, "shape": tuple(shape), "shared": shared}
            | {"stream": stream.value, "values": numbers, "device": self.current}
        )
        assert extra is None

    def do_hipModuleLaunchCooperativeKernel(self, function: Any, *rest: Any) -> None:
        self.do_hipModuleLaunchKernel(function, *rest, None)


LAUNCHES = (Launch("first", (), 128, 65536), Launch("second", (), 64, 0))


def open_fake(**options: Any) -> tuple[FakeHip, HipDevice]:
    fake = FakeHip(**options)
    return fake, HipDevice.open(open_driver(fake))


def test_a_device() -> None:
    _, device = open_fake()
    assert (device.name, device.arch, device.isa) == ("AMD Fake 0", "gfx942", ISA.decode())
    assert device.multiprocessors == 304


def test_launches_go_to_the_stream_with_arguments_and_workspaces() -> None:
    fake, device = open_fake()
    fake.current = 7  # somebody else's
    kernels = LoadedKernels(device, b"elf", LAUNCHES)
    assert fake.loaded == [(0, b"elf")]
    kernels.run([(4, 2, 1), (1, 1, 1)], [0x1000, -1], [256], stream=42)
    given = {"stream": 42, "values": [0x1000, 2**64 - 1, 0x9100], "device": 0, "shared": 0}
    assert fake.launched == [
        {"function": 101, "shape": (4, 2, 1, 128, 1, 1), **given},
        {"function": 102, "shape": (1, 1, 1, 64, 1, 1), **given},
    ]
    assert fake.calls[-7:] == [
        *("hipGetDevice", "hipSetDevice", "hipMallocAsync", "hipModuleLaunchKernel"),
        *("hipModuleLaunchKernel", "hipFreeAsync", "hipSetDevice"),
    ]
    assert fake.current == 7  # again


def test_an_empty_grid_launches_nothing() -> None:
    fake, device = open_fake()
    LoadedKernels(device, b"elf", LAUNCHES).run([(0, 1, 1), (2, 1, 1)], [])
    assert [launch["function"] for launch in fake.launched] == [102]
    assert fake.launched[0]["stream"] is None  # the default stream


def test_blocks_that_wait_for_each_other_are_launched_together() -> None:
    fake, device = open_fake()
    kernels = LoadedKernels(device, b"elf", [Launch("first", (), 512, 16, cooperative=True)])
    kernels.run([(304, 4, 1)], [0x1000], [256, 4], stream=1)
    assert fake.cleared == [(0x9004, 0, 4)]  # the barrier alone
    assert "hipModuleLaunchCooperativeKernel" in fake.calls
    assert "hipModuleLaunchKernel" not in fake.calls
    assert fake.launched[0]["values"] == [0x1000, 0x9100, 0x9004]
    with pytest.raises(RunError) as caught:
        kernels.run([(305, 4, 1)], [0x1000], [256, 4])
    assert str(caught.value) == (
        "'first' has 1220 blocks that wait for each other (T.sync_grid); 'AMD Fake 0' runs 1216 of "
        "them at once\nhint: launch no more blocks than that and let each do more, as T.Persistent "
        "does"
    )
    assert len(fake.launched) == 1 and fake.calls.count("hipFreeAsync") == 4


def test_more_threads_than_hip_counts() -> None:
    _, device = open_fake()
    with pytest.raises(RunError) as caught:
        LoadedKernels(device, b"elf", LAUNCHES[:1]).run([(2**25, 1, 1)], [])
    assert str(caught.value) == (
        "'first' has 33554432 blocks of 128 threads along x, and HIP launches fewer than "
        "4294967296 threads\nhint: move some of the blocks to the second axis of T.Kernel"
    )


def test_errors_of_the_runtime() -> None:
    fake, device = open_fake()
    kernels = LoadedKernels(device, b"elf", LAUNCHES)
    fake.fails["hipModuleLaunchKernel"] = 1
    with pytest.raises(RunError) as caught:
        kernels.run([(1, 1, 1), (1, 1, 1)], [], [16])
    assert str(caught.value) == "'hipModuleLaunchKernel' failed: hipErrorInvalidValue (words)"
    assert fake.calls.count("hipFreeAsync") == 1
    fake.fails["hipModuleLoadData"] = 209
    with pytest.raises(RunError) as caught:
        LoadedKernels(device, b"elf", LAUNCHES)
    assert str(caught.value) == (
        "'hipModuleLoadData' failed: hipErrorNoBinaryForGpu (words)\n"
        "hint: compile for the device's own architecture, e.g. target 'hip:gfx942'"
    )
    assert HipDriver(fake).describe(998) == "error 998"


@pytest.fixture
def nothing_cached() -> Iterator[None]:
    caches = (driver._driver, open_device, hiprtc.find_hiprtc)
    for cache in caches:
        cache.cache_clear()
    clear_memory_cache()
    yield
    for cache in caches:
        cache.cache_clear()
    clear_memory_cache()


def test_machines_without_runtime_or_device(
    monkeypatch: pytest.MonkeyPatch, nothing_cached: None
) -> None:
    def said(make: Any) -> str:
        with pytest.raises(DeviceUnavailableError) as caught:
            make()
        return str(caught.value)

    assert said(lambda: open_fake(devices=0)) == "this machine has no AMD GPU" + HINT
    third = "this machine has no AMD GPU 3" + HINT
    assert said(lambda: HipDevice.open(open_driver(FakeHip()), 3)) == third
    assert said(lambda: open_driver(FakeHip(fails={"hipInit": 1}))) == (
        "the HIP runtime cannot be used: hipErrorInvalidValue (words)\n"
        "hint: targets 'emu:<arch>' and 'sim:<arch>' run the kernel without one"
    )
    old = SimpleNamespace(hipInit=None)
    assert said(lambda: open_driver(old)) == (
        "the HIP runtime of this machine is older than ROCm 6\n"
        "hint: targets 'emu:<arch>' and 'sim:<arch>' run the kernel without one"
    )

    def refuse(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(driver.ctypes, "CDLL", refuse)
    absent = "this machine has no HIP runtime (libamdhip64 of ROCm)"
    assert said(open_device) == absent + HINT
    assert driver.missing_device() == driver.missing_device("gfx942") == absent
    assert hiprtc.find_hiprtc() is None


def test_pytorchs_own_library_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in ("torch/lib", "rocm/lib"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "libamdhip64.so").touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path / "torch")])
    monkeypatch.setattr(driver.importlib.util, "find_spec", {"torch": found}.get)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    assert driver.library_paths("libamdhip64", (7,))[:3] == [
        *(str(tmp_path / place / "libamdhip64.so") for place in ("torch/lib", "rocm/lib")),
        "libamdhip64.so",
    ]


class FakeHiprtc:
    """As much of hiprtc as the binding uses."""

    def __init__(self, log: bytes = b"", status: int = 0) -> None:
        self.log, self.status = log, status
        self.options: list[bytes] = []
        self.source = self.name = b""
        self.open = 0
        for name in dir(self):
            if name.startswith("do_"):
                setattr(self, name[3:], self.function(getattr(self, name)))

    @staticmethod
    def function(call: Any) -> Any:
        """One that returns a status, and takes attributes as those of ctypes do."""
        return lambda *given: call(*given) or 0

    def do_hiprtcGetErrorString(self, status: int) -> bytes:
        return b"HIPRTC_ERROR_INVALID_OPTION"

    def do_hiprtcCreateProgram(self, out: Any, source: bytes, name: bytes, *rest: Any) -> None:
        assert rest == (0, None, None)
        self.source, self.name, self.open = source, name, self.open + 1

    def do_hiprtcDestroyProgram(self, program: Any) -> None:
        self.open -= 1

    def do_hiprtcCompileProgram(self, program: Any, count: int, options: Any) -> int:
        self.options = list(options)
        assert count == len(self.options)
        return self.status

    def do_hiprtcGetCodeSize(self, program: Any, out: Any) -> None:
        out._obj.value = 4

    def do_hiprtcGetCode(self, program: Any, out: Any) -> None:
        out.raw = b"code"

    def do_hiprtcGetProgramLogSize(self, program: Any, out: Any) -> None:
        out._obj.value = len(self.log)

    def do_hiprtcGetProgramLog(self, program: Any, out: Any) -> None:
        out.raw = self.log


def test_hiprtc() -> None:
    library = FakeHiprtc()
    made = hiprtc.compile_code_object(hiprtc.declared(library), "text", "gfx942", name="f.hip")
    assert made == b"code" and library.open == 0
    assert (library.source, library.name) == (b"text", b"f.hip")
    assert library.options == [b"--offload-arch=gfx942", b"-O3", b"-fno-strict-aliasing", b"-w"]
    more = ("-one", "-two")
    hiprtc.compile_code_object(library, "text", "gfx942", name="f.hip", options=more)
    assert library.options[4:] == [b"-one", b"-two"]


def test_what_hiprtc_refuses() -> None:
    library = FakeHiprtc(b"/tmp/x/input/f.hip:2:3: error: no such thing\n\0", status=6)
    with pytest.raises(HipCompileError) as caught:
        hiprtc.compile_code_object(library, "a\n  b\n", "gfx942", name="f.hip")
    assert caught.value.message == "'f.hip', line 2: no such thing in 'b'"
    assert library.open == 0
    with pytest.raises(HipCompileError) as caught:
        hiprtc.compile_code_object(FakeHiprtc(status=5), "a", "gfx942", name="f.hip")
    assert caught.value.message == "hiprtc failed: HIPRTC_ERROR_INVALID_OPTION"


@T.prim_func
def scaled(A: T.Tensor((64,), "float32"), factor: T.float32, B: T.Tensor((64,), "float32")):
    with T.Kernel(1, threads=64):
        for i in T.Parallel(64):
            B[i] = A[i] * factor


class OnDevice:
    """An array as if on a device: what DLPack says of memory that nobody here reads."""

    def __init__(self, array: np.ndarray[Any, Any], ordinal: int = 0) -> None:
        self.array, self.ordinal = array, ordinal

    def __dlpack_device__(self) -> tuple[int, int]:
        return 10, self.ordinal

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__()


def tensors(*ordinals: int) -> list[OnDevice]:
    memory = np.zeros((len(ordinals), 64), np.float32)
    if memory.ctypes.data % 16:
        pytest.skip("numpy did not align its memory")
    return [OnDevice(row, ordinal) for row, ordinal in zip(memory, ordinals, strict=True)]


@pytest.fixture
def two_devices(monkeypatch: pytest.MonkeyPatch, nothing_cached: None) -> FakeHip:
    fake = FakeHip(devices=2)
    monkeypatch.setattr(driver, "_driver", lambda: open_driver(fake))
    return fake


def test_a_call_runs_where_its_tensors_are(
    monkeypatch: pytest.MonkeyPatch, two_devices: FakeHip
) -> None:
    """Code is made by hiprtc for the device's own features, and loaded once on each."""
    library = FakeHiprtc()
    monkeypatch.setattr(amd, "find_hiprtc", lambda: library)
    cuda = SimpleNamespace(
        is_available=lambda: True,
        current_stream=lambda ordinal: SimpleNamespace(cuda_stream=1000 + ordinal),
    )
    kernel = tw.compile(scaled, target="hip:gfx942")
    given = {ordinal: tensors(ordinal, ordinal) for ordinal in (1, 0)}
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, Tensor=Device))
    for ordinal in (1, 0, 1):
        a, b = given[ordinal]
        kernel(a, 1.5, b)
    launched = two_devices.launched
    assert [(each["device"], each["stream"]) for each in launched] == [
        *((1, 1001), (0, 1000), (1, 1001))
    ]
    assert two_devices.loaded == [(1, b"code"), (0, b"code")]
    a, b = given[0]
    places = [each.array.ctypes.data for each in (a, b)]
    bits = int(np.float32(1.5).view(np.uint32))
    assert launched[1]["values"] == [places[0], bits, places[1]]
    assert library.options[0] == b"--offload-arch=" + ISA
    assert library.source.decode() == kernel.source and library.name == b"scaled.hip"


class Device:
    """No tensor of this test is one of torch's."""


def test_clang_makes_the_code_where_hiprtc_is_not(
    monkeypatch: pytest.MonkeyPatch, two_devices: FakeHip
) -> None:
    monkeypatch.setattr(amd, "find_hiprtc", lambda: None)
    kernel = tw.compile(scaled, target="hip:gfx942")
    kernel._compiled.build = HipBuild("gfx942", "", b"by clang", ())
    a, b = tensors(0, 0)
    kernel(a, 2.0, b)
    assert two_devices.loaded == [(0, b"by clang")]


def test_a_kernel_for_another_machine(two_devices: FakeHip) -> None:
    kernel = tw.compile(scaled, target="hip:gfx950")
    with pytest.raises(RunError) as caught:
        kernel(*(lambda a, b: (a, 2.0, b))(*tensors(0, 0)))
    assert str(caught.value) == (
        "'scaled' is compiled for 'gfx950', and 'AMD Fake 0' is a 'gfx942'\n"
        "hint: compile it with target='hip:gfx942'"
    )
    found = {each.name: each for each in tw.targets()}
    assert found["hip:gfx942"].usable
    assert found["hip:gfx950"].reason == "'AMD Fake 0' of this machine is a gfx942"


# The same functions in C, as the loader finds them: what ctypes makes of each argument. Handles
# and addresses need all of their 64 bits.
RECORDER = Path(__file__).with_name("recorder.c")


@pytest.mark.slow
@pytest.mark.hip
def test_a_library_in_c(
    monkeypatch: pytest.MonkeyPatch, nothing_cached: None, tmp_path: Path
) -> None:
    require("hip", clang.missing_compiler())
    (tmp_path / "lib").mkdir()
    for name in ("libamdhip64.so", "libhiprtc.so"):
        compiler, *words = clang.host_compiler()
        made = [compiler, *words, "-shared", "-fPIC", "-O1", str(RECORDER)]
        subprocess.run([*made, "-o", str(tmp_path / "lib" / name)], check=True)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    kernel = tw.compile(scaled, target="hip:gfx942")
    a, b = tensors(0, 0)
    kernel(a, 1.5, b)
    library = ctypes.CDLL(str(tmp_path / "lib" / "libamdhip64.so"))
    library.recorded.restype = ctypes.c_char_p
    places = tuple(each.array.ctypes.data for each in (a, b))
    assert library.recorded().decode().splitlines() == [
        *("init 0", "set 0", "load code of gfx942:sramecc+:xnack-", "function scaled", "set 0"),
        *("set 0", f"launch 1 1 1 of 64 1 1 with 0: {places[0]:x} 3fc00000 {places[1]:x}"),
        "set 0",
    ]
