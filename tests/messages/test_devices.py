"""The whole text of errors about machines: drivers, compilers, times that cannot be told."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

import tileworkbench as tw
from tests.messages.test_calls import make, rendered
from tileworkbench.bench import ceilings
from tileworkbench.compiler.device.nvidia import driver, nvrtc
from tileworkbench.compiler.diagnostics import CompileError, DeviceUnavailableError

WAY_OUT = "hint: targets 'sim:<arch>' and 'ptx:<arch>' run the kernel without one"


def test_a_machine_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert rendered(driver._driver.__wrapped__, DeviceUnavailableError) == (
        f"DeviceUnavailableError: this machine has no CUDA driver\n{WAY_OUT}"
    )


class FakeDriver(driver.CudaDriver):
    """A driver that fails to start, or finds no device."""

    def __init__(self, library: Any = None) -> None:
        pass

    def describe(self, status: int) -> str:
        return "CUDA_ERROR_UNKNOWN (unknown error)"

    def call(self, name: str, *args: Any) -> None:
        assert name == "cuDeviceGetCount"


def test_a_driver_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "CudaDriver", FakeDriver)
    library = SimpleNamespace(cuInit=lambda flags: 999)
    assert rendered(lambda: driver.open_driver(library), DeviceUnavailableError) == (
        "DeviceUnavailableError: the CUDA driver cannot be used: "
        f"CUDA_ERROR_UNKNOWN (unknown error)\n{WAY_OUT}"
    )


def test_a_machine_without_a_device() -> None:
    device = driver.CudaDevice
    assert rendered(lambda: device.open(FakeDriver()), DeviceUnavailableError) == (
        f"DeviceUnavailableError: this machine has no CUDA device\n{WAY_OUT}"
    )


def test_a_compiler_that_fails() -> None:
    library: Any = SimpleNamespace(nvrtcGetErrorString=lambda status: b"NVRTC_ERROR_OUT_OF_MEMORY")
    assert rendered(lambda: nvrtc._check(library, 1), CompileError) == (
        "CompileError: NVRTC failed: NVRTC_ERROR_OUT_OF_MEMORY"
    )


def test_times_that_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "machine", None)  # nothing is measured for an error
    n = tw.language.dynamic("n")
    symbolic = tw.compile(make(n), out_idx=[1], target="cpu")
    assert rendered(lambda: symbolic.stats.predicted) == (
        "ArgumentError: the time of 'double' is not known before a call\n"
        "hint: predictions are for target 'cpu' and shapes without symbols"
    )
    simulated = tw.compile(make(), out_idx=[1], target="sim:sm_80")
    assert rendered(lambda: simulated.stats.predicted) == (
        "ArgumentError: a kernel that no pass of 'cpu' has lowered has no predicted time"
    )
