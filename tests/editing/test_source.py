"""Generated code that was edited: tried in a process of its own."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import RunError, TileSyntaxError, UnsupportedError
from tileworkbench.kernels import add
from tileworkbench.workbench.kernel import Kernel

PAGE = add(16, 32, "float32")
A, B = (np.random.default_rng(seed).standard_normal((16, 32), np.float32) for seed in (0, 1))


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return tw.compile(PAGE)


def with_instruction(kernel: Kernel, instruction: str) -> str:
    """The code with an instruction at the beginning of its entry."""
    head = re.search(r"define i32 @[^\n]*\{\nentry:\n", kernel.source)
    assert head is not None
    return kernel.source.replace(head.group(), head.group() + instruction)


def test_code_that_nobody_edited(kernel: Kernel) -> None:
    trial = kernel.edit_source(kernel.source, A, B)
    assert str(trial) == (
        "add with this code ran in a process of its own: its results are the same"
    )
    assert trial.kernel.source == kernel.source


def test_an_edit_runs_and_its_results_are_compared(kernel: Kernel) -> None:
    assert "fadd" in kernel.source
    trial = kernel.edit_source(kernel.source.replace("fadd", "fsub"), A, B)
    np.testing.assert_array_equal(trial.kernel(A, B), A - B)
    np.testing.assert_array_equal(kernel(A, B), A + B)
    assert re.fullmatch(
        r"add with this code ran in a process of its own: its results differ: 'C' in 512 of "
        r"512 elements, by at most [\d.]+",
        str(trial),
    )


def test_wrong_elements_are_counted_in_each_tensor() -> None:
    """An argument that the kernel writes to and what it returns, each by its name."""

    @tw.jit
    def both(A, B):
        A: T.Tensor((8, 4), "float32")
        B: T.Tensor((16,), "float32")
        C = T.empty((8, 4), "float32")
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(8, 4):
                C[i, j] = A[i, j] + 1.0
            for i in T.Parallel(16):
                B[i] = B[i] * 3.0
        return C

    made = both.compile()
    a, b = np.ones((8, 4), np.float32), np.ones(16, np.float32)
    start = "its results differ: "
    wrong = made.source.replace("0x4008000000000000", "0x4010000000000000")
    assert wrong != made.source
    assert str(made.edit_source(wrong, a, b)).endswith(
        f"{start}'B' in 16 of 16 elements, by at most 1"
    )
    both_wrong = wrong.replace("0x3FF0000000000000", "0x4000000000000000")
    assert str(made.edit_source(both_wrong, a, b)).endswith(
        f"{start}'C' in 32 of 32 elements, by at most 1; 'B' in 16 of 16 elements, by at most 1"
    )


def test_a_wrong_edit_ends_its_own_process(kernel: Kernel) -> None:
    with pytest.raises(RunError) as caught:
        kernel.edit_source(with_instruction(kernel, "  store i8 1, ptr null\n"), A, B)
    assert str(caught.value) == (
        "the edited code of 'add' ended its process: SIGSEGV (Segmentation fault)\n"
        "hint: the notebook and 'add' are as they were"
    )
    np.testing.assert_array_equal(kernel(A, B), A + B)


def test_a_run_without_end_is_stopped(kernel: Kernel) -> None:
    entry = re.search(r"define i32 @[^\n]*\{\n", kernel.source)
    assert entry is not None
    loop = "forever:\n  br label %again\nagain:\n  br label %again\n}\n"
    rest = kernel.source.replace(entry.group(), entry.group().replace("@add_0", "@unused"), 1)
    text = f"{rest}\n{entry.group()}{loop}"
    with pytest.raises(RunError) as caught:
        kernel.edit_source(text, A, B, seconds=0.5)
    assert str(caught.value) == (
        "the edited code of 'add' did not end within 0.5 s\n"
        "hint: its process was stopped; the notebook and 'add' are as they were"
    )


def test_code_that_does_not_compile_is_an_error_at_its_line(kernel: Kernel) -> None:
    lines = kernel.source.count("\n")
    with pytest.raises(TileSyntaxError) as caught:
        kernel.edit_source(f"{kernel.source}\noops\n", A, B)
    assert str(caught.value) == (
        "the edited code of 'add' does not compile: expected top-level entity\n"
        f"  --> <code>, line {lines + 2}"
    )


def test_code_that_llvm_verifies_not(kernel: Kernel) -> None:
    with pytest.raises(TileSyntaxError) as caught:
        kernel.edit_source(with_instruction(kernel, "  br label %x\nx:\n"), A, B)
    assert caught.value.message.startswith(
        "the edited code of 'add' does not compile: PHI node entries do not match predecessors!"
    )


def test_a_run_that_fails() -> None:
    from tileworkbench.language import Kernel as Launch
    from tileworkbench.language import Tensor, device_assert, prim_func

    @prim_func
    def careful(X: Tensor((4,), "float32")):  # type: ignore[no-untyped-def]
        with Launch(1, threads=1):
            device_assert(X[0] > 0.0, "positive")

    checked = tw.compile(careful)
    positive, negative = np.ones(4, np.float32), -np.ones(4, np.float32)
    assert str(checked.edit_source(checked.source, positive).kernel)
    with pytest.raises(RunError) as caught:
        checked.edit_source(checked.source, negative)
    assert str(caught.value) == (
        "the edited code of 'careful' failed: 'careful': device assertion failed: positive\n"
        "hint: the notebook and 'careful' are as they were"
    )


def test_the_simulator_runs_no_text() -> None:
    kernel = tw.compile(PAGE, target="sim:sm_80")
    with pytest.raises(UnsupportedError) as caught:
        kernel.edit_source(kernel.source, A, B)
    assert str(caught.value) == (
        "'sim:sm_80' runs the lowered program, not its CUDA text\n"
        "hint: edit its IR ('%%tile ir'), or compile it for 'ptx:sm_80'"
    )


@pytest.mark.nvrtc
def test_cuda_text_is_compiled_and_its_ptx_runs() -> None:
    kernel = tw.compile(PAGE, target="ptx:sm_80")
    trial = kernel.edit_source(kernel.source, A, B)
    assert str(trial).endswith("its results are the same")
    lines = kernel.source.splitlines()
    with pytest.raises(TileSyntaxError) as caught:
        kernel.edit_source("\n".join([*lines, "oops;"]), A, B)
    assert caught.value.span is not None and caught.value.span.line == len(lines) + 1
