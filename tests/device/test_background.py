"""LLVM in a thread of its own."""

from __future__ import annotations

import sys

import pytest

from tests.device.kernels import EMPTY
from tileworkbench.compiler.device.host import background
from tileworkbench.compiler.device.host.background import PendingFunction, native_in_background
from tileworkbench.compiler.device.host.cache import DisabledCache
from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.llvm import NativeError
from tileworkbench.compiler.device.host.native import NativeBuild, build_native


def build(text: str) -> NativeBuild:
    return build_native(text, ["kernel"], cache=DisabledCache())


def test_what_is_built_inside_runs() -> None:
    with native_in_background():
        builds = [build(EMPTY.ir_text) for _ in range(3)]
        inside = Launcher(builds[0].functions["kernel"], "kernel", 1)
        inside([0], 1)  # which waits for it
    assert all(isinstance(each.functions["kernel"], PendingFunction) for each in builds)
    assert len({each.functions["kernel"].address for each in builds}) == 3
    Launcher(builds[2].functions["kernel"], "kernel", 1)([0], 1)


def test_the_end_raises_what_llvm_says() -> None:
    said = pytest.raises(NativeError, match="LLVM rejected the generated code")
    with said, native_in_background():
        broken = build("define i32 @kernel() { ret i64 }")
        fine = build(EMPTY.ir_text)
    assert fine.functions["kernel"].address
    with pytest.raises(NativeError):
        _ = broken.functions["kernel"].address


def test_an_error_inside_is_the_one_that_is_raised() -> None:
    with pytest.raises(ZeroDivisionError), native_in_background():
        build("define i32 @kernel() { ret i64 }")
        raise ZeroDivisionError


def test_nothing_stays_behind() -> None:
    interval = sys.getswitchinterval()
    with native_in_background():
        with native_in_background():
            assert sys.getswitchinterval() < interval
        assert sys.getswitchinterval() < interval
    assert sys.getswitchinterval() == interval
    assert background.current() is None
    assert not isinstance(build(EMPTY.ir_text).functions["kernel"], PendingFunction)
