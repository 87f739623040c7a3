"""T.pdl_sync and T.pdl_trigger: launches that begin before the one in front of them has ended."""

import ctypes
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.differential.harness import check_everywhere, check_on_threads
from tileworkbench.compiler.device.nvidia import nvrtc
from tileworkbench.compiler.device.nvidia.launch import configure
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.emit.cuda.dialect import generate_cuda
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.target import parse_target


@T.prim_func
def twice(
    A: T.Tensor((256,), "float32"), B: T.Tensor((256,), "float32"), C: T.Tensor((256,), "float32")
):
    with T.Kernel(2, threads=64) as bx:
        tile = T.alloc_shared((128,), "float32")
        T.copy(A[bx * 128 : bx * 128 + 128], tile)
        T.pdl_trigger()
        T.copy(tile, B[bx * 128 : bx * 128 + 128])
    with T.Kernel(2, threads=64) as bx:
        tile = T.alloc_shared((128,), "float32")
        T.pdl_sync()
        T.copy(B[bx * 128 : bx * 128 + 128], tile)
        for i in T.Parallel(128):
            C[bx * 128 + i] = tile[i] + 1


def arguments() -> dict[str, Any]:
    a = np.arange(256, dtype=np.float32)
    return {"A": a, "B": np.zeros_like(a), "C": np.zeros_like(a)}


def check(found: dict[str, Any]) -> None:
    np.testing.assert_array_equal(found["C"], np.arange(256) + 1)


def waits(text: str) -> tuple[int, int]:
    return text.count("griddepcontrol.wait;"), text.count("griddepcontrol.launch_dependents;")


def test_the_values_are_the_same_everywhere() -> None:
    check_everywhere(twice, arguments(), check)
    for target in ("sim:sm_80", "sim:sm_90", "sim:sm_90a", "sim:gfx942"):
        check_on_threads(twice, arguments(), check, target)


@pytest.mark.parametrize("arch", ["sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_second_launch_begins_early_from_hopper_on(arch: str) -> None:
    module = tw.compile(twice, target=f"sim:{arch}").compiled.module
    assert waits(module.text) == (1, 1)
    assert [launch.early for launch in module.launches] == [False, True]


@pytest.mark.parametrize("arch", ["sm_80", "sm_89"])
def test_before_hopper_launches_follow_one_another(arch: str) -> None:
    module = tw.compile(twice, target=f"sim:{arch}").compiled.module
    assert waits(module.text) == (0, 0)
    assert not any(launch.early for launch in module.launches)


def test_the_driver_is_told() -> None:
    first, second = tw.compile(twice, target="sim:sm_90").compiled.module.launches
    assert configure(first, (2, 1, 1), ctypes.c_void_p(0)) is None
    made = configure(second, (2, 1, 1), ctypes.c_void_p(0))
    assert made is not None
    # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION is 6.
    assert [(each.id, each.value[0]) for each in made.kept] == [(6, 1)]


@pytest.mark.nvrtc
def test_from_ptx() -> None:
    if reason := nvrtc.missing_nvrtc():
        pytest.skip(reason)
    compiled = tw.compile(twice, target="ptx:sm_90")
    passed = arguments()
    compiled(*passed.values())
    check(passed)
    assert waits(compiled.asm) == (1, 1)


def test_text_for_a_machine_that_cannot() -> None:
    program = parse(
        '@T.program(stage="simt")\ndef kernel(A: T.Tensor((4,), "float32")):\n'
        '    with T.Kernel(1, threads=32, thread_vars=["tx"]) as bx:\n'
        "        T.grid_dependency(wait=True)\n"
    )
    with pytest.raises(UnsupportedError) as caught:
        generate_cuda(program, parse_target("cuda:sm_80"))
    assert caught.value.render() == (
        "UnsupportedError: a launch that begins before the one in front of it has ended needs "
        "sm_90, the target is sm_80\nhint: compile for 'cuda:sm_90' or later"
    )
