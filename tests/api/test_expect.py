"""`Kernel.expect`: facts and instructions, found and not found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError, CheckError, UnsupportedError
from tileworkbench.kernels import matmul
from tileworkbench.workbench.expectations import FACTS
from tileworkbench.workbench.kernel import Kernel


@pytest.fixture(scope="module")
def gpu() -> Kernel:
    return tw.compile(matmul(256, 256, 256, "float16", num_stages=3), target="sim:sm_80")


@pytest.fixture(scope="module")
def cpu() -> Kernel:
    return tw.compile(matmul(256, 256, 256), target="cpu")


def test_what_holds_is_returned_with_its_values(gpu: Kernel) -> None:
    conditions = ("conflicts==0", "smem <= 48K", "threads==128", "mma.m16n8k16", "not wgmma")
    found = gpu.expect(*conditions)
    assert [outcome.condition for outcome in found] == [*conditions]
    assert [outcome.value for outcome in found[:3]] == [0, 49152, 128]
    assert found[3].value > 0 and found[4].value == 0
    assert str(found[1]) == "ok  smem <= 48K  (is 49152)"


def test_what_does_not_hold_is_listed_with_all_others(gpu: Kernel) -> None:
    with pytest.raises(AssertionError) as caught:
        gpu.expect("conflicts==0", "smem<48K", "wgmma")
    assert isinstance(caught.value, CheckError)
    assert str(caught.value) == (
        "'matmul' is not what was expected\n"
        "  ok  conflicts==0  (is 0)\n"
        "  FAILED  smem<48K  (is 49152)\n"
        "  FAILED  wgmma  (is 0)"
    )


def test_conflicts_are_counted() -> None:
    @T.prim_func
    def transpose(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=32):
            tile = T.alloc_shared((32, 32), "float32")
            tx = T.get_thread_binding()
            for i in T.serial(32):
                tile[tx, i] = A[tx, i]
            for i in T.serial(32):
                B[i, tx] = tile[tx, i]

    kernel = tw.compile(transpose, target="sim:sm_80")
    with pytest.raises(CheckError):
        kernel.expect("conflicts==0")
    assert kernel.expect("wavefronts==32")[0].holds  # a column of a row-major tile: one bank


@pytest.mark.parametrize("name", sorted(set(FACTS) - {"registers", "spills"}))
def test_every_fact_has_a_value(gpu: Kernel, name: str) -> None:
    assert gpu.expect(f"{name}>=0")[0].value >= 0


@pytest.mark.nvrtc
def test_registers_come_from_nvrtc(gpu: Kernel) -> None:
    outcome = gpu.expect("registers<=255", "spills==0")[0]
    assert outcome.value == max(found.registers for found in gpu.resources) > 100


@pytest.mark.parametrize(
    ("ask", "kind", "message"),
    [
        (
            lambda gpu, cpu: gpu.expect("conflict==0"),
            ArgumentError,
            "'conflict' is no fact of a kernel\nhint: did you mean 'conflicts'?",
        ),
        (
            lambda gpu, cpu: gpu.expect("xyz==0"),
            ArgumentError,
            f"'xyz' is no fact of a kernel\nhint: one of {', '.join(FACTS)}",
        ),
        (
            lambda gpu, cpu: gpu.expect(),
            ArgumentError,
            f"nothing is expected\nhint: such as 'conflicts==0'; facts: {', '.join(FACTS)}",
        ),
        (
            lambda gpu, cpu: gpu.expect("smem <= "),
            ArgumentError,
            "'smem <= ' is not a condition\n"
            "hint: such as 'conflicts==0', 'smem<=48K' or the instruction 'mma.m16n8k16'",
        ),
        (
            lambda gpu, cpu: gpu.expect("smem <= 1-2"),
            ArgumentError,
            "'smem <= 1-2': '1-2' is not a number",
        ),
        (
            lambda gpu, cpu: cpu.expect("conflicts==0"),
            UnsupportedError,
            "'conflicts' is a fact of GPU kernels, 'matmul' is for 'cpu'\n"
            "hint: compile it for 'sim:sm_80', say",
        ),
        (
            lambda gpu, cpu: cpu.expect("occupancy>0"),
            UnsupportedError,
            "the occupancy of target 'cpu' is not known",
        ),
        (
            lambda gpu, cpu: tw.compile(matmul(T.dynamic("m"), 64, 64)).expect("flops>0"),
            ArgumentError,
            "'flops' of 'matmul' depends on symbolic shapes",
        ),
    ],
)
def test_what_is_no_condition(
    gpu: Kernel,
    cpu: Kernel,
    ask: Callable[[Kernel, Kernel], object],
    kind: type[Exception],
    message: str,
) -> None:
    with pytest.raises(kind) as caught:
        ask(gpu, cpu)
    assert str(caught.value) == message
