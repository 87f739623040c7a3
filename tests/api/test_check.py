"""`k.check`: outputs that are poisoned, what the simulator says first, tolerances by dtype."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tests.messages.test_calls import rendered
from tileworkbench.compat.kernels import JITKernel
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import SimulatorLimitError
from tileworkbench.viz.model.card import card_html, card_model
from tileworkbench.workbench.checking import tolerance_of
from tileworkbench.workbench.inputs import make_inputs

KINDS = ["float32", "float16", "int32", "uint8", "bool"]


@pytest.mark.parametrize(
    ("dtype", "as_numpy"), [("bfloat16", False), *product(KINDS, (False, True))]
)
def test_what_the_kernel_leaves_out_is_not_right_by_chance(dtype: str, as_numpy: bool) -> None:
    @tw.jit
    def half(A: T.Tensor((64,), dtype)):
        B = T.empty((64,), dtype)
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = A[i]
        return B

    a: Any = torch.zeros(64, dtype=getattr(torch, dtype))
    if as_numpy:
        a = a.numpy()
    kernel = half.compile()
    for _ in range(2):  # memory of the first call may come back
        with pytest.raises(tw.CheckError, match=r"in 32 of 64 elements .* lie in \[32:64\]"):
            kernel.check(lambda a: a, a)


def test_workspaces_are_poisoned_too() -> None:
    @tw.jit
    def through(A: T.Tensor((64,), "float32")):
        W = T.alloc_global((64,), "float32")
        B = T.empty((64,), "float32")
        with T.Kernel(8, threads=32) as bx:
            for i in T.Parallel(4):
                W[bx * 8 + i] = A[bx * 8 + i]
        with T.Kernel(8, threads=32) as bx:
            for i in T.Parallel(8):
                B[bx * 8 + i] = W[bx * 8 + i]
        return B

    with pytest.raises(tw.CheckError, match="in 32 of 64 elements"):
        through.compile().check(lambda a: a, torch.zeros(64))


@tw.jit
def racy(A: T.Tensor((64,), "float32")):
    total = T.empty((1,), "float32")
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(16):
            total[0] = total[0] + A[bx * 16 + i]
    return total


def test_a_race_is_found_in_every_run_before_results_are_compared() -> None:
    kernel = racy.compile()
    texts = {
        rendered(lambda: kernel.check(torch.sum, torch.ones(64)), tw.RaceError) for _ in range(4)
    }
    (text,) = texts
    line = racy.fn.__code__.co_firstlineno + 5
    assert text.startswith(
        "RaceError: 'total[0]' in block (0), iterations (0) and (14): one iteration of a parallel "
        "loop reads what another one writes\n"
        f"  --> {__file__}, line {line}\n"
    )
    assert (
        "note: blocks of different 'bx' write the same elements of 'total', with different values\n"
        f"  --> {__file__}, line {line}\n"
    ) in text


def test_on_simulated_threads_the_threads_are_named() -> None:
    kernel = racy.with_target("sim:sm_80").compile()
    text = rendered(lambda: kernel.check(torch.sum, torch.ones(64)), tw.RaceError)
    assert text.startswith("RaceError: 'total[0]' in block (0), threads ")
    assert "nothing wrong" not in text


def test_several_stores_of_one_value_are_no_error() -> None:
    @tw.jit
    def flags(X: T.Tensor((64,), "int32")):
        B = T.empty((1,), "float32")
        with T.Kernel(4, threads=32) as bx:
            for i in T.Parallel(16):
                B[0] = 1.0
        return B

    kernel = flags.compile()
    assert kernel.check(lambda i: torch.ones(1), torch.zeros(64, dtype=torch.int32)).ok
    assert kernel.simulate(torch.zeros(64, dtype=torch.int32)).report.races


@tw.jit
def matmul(M: int, N: int, K: int, dtype: str = "float16"):
    @T.prim_func
    def kernel(
        A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")
    ):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), dtype)
            b = T.alloc_shared((32, 32), dtype)
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32)):
                T.copy(A[by * 32, k * 32], a)
                T.copy(B[k * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    return kernel


def test_a_reference_in_half_has_the_tolerance_of_half() -> None:
    kernel = matmul(128, 96, 64)
    a, b = (torch.randn(shape).half() for shape in ((128, 64), (64, 96)))
    found = kernel.check(torch.matmul, a, b, torch.empty(128, 96))
    assert found.ok and found.simulated == "4 of 12 blocks simulated"
    text = rendered(
        lambda: kernel.check(lambda a, b: (a @ b) * 1.1, a, b, torch.empty(128, 96)), tw.CheckError
    )
    assert (
        "; they are everywhere; the relative tolerance is 0.005, that of float16, the dtype of the "
        "reference's result\nnote: the wrong elements: scattered, "
    ) in text
    assert "\nnote: the simulator found nothing wrong: 4 of 12 blocks simulated\n" in text


def test_sanitize_simulates_all_blocks() -> None:
    kernel = matmul(128, 96, 64)
    a, b = (torch.randn(shape).half() for shape in ((128, 64), (64, 96)))
    found = kernel.check(torch.matmul, a, b, torch.empty(128, 96), sanitize=True)
    assert found.simulated == "12 blocks simulated"


@pytest.mark.parametrize(
    ("output", "reference", "relative", "reason"),
    [
        ("float32", "float32", 1e-4, "float32"),
        ("float32", "float64", 1e-4, "float32"),
        ("float32", "bfloat16", 2e-2, "bfloat16, the dtype of the reference's result"),
        ("float16", "float32", 5e-3, "float16"),
        ("float32", "int64", 1e-4, "float32"),
        ("int32", "int32", 0.0, "int32"),
        ("float16", "float8_e4m3fn", 0.1, "float8_e4m3fn, the dtype of the reference's result"),
    ],
)
def test_tolerances(output: str, reference: str, relative: float, reason: str) -> None:
    found = tolerance_of(output, reference)
    assert (found.relative, found.reason) == (relative, reason)
    assert tolerance_of("float32", "float32", tf32=True).relative == 5e-3


def test_what_was_asked_for_is_the_tolerance() -> None:
    kernel = matmul(32, 32, 32)
    a, b = torch.randn(32, 32).half(), torch.randn(32, 32).half()
    with pytest.raises(tw.CheckError, match=r"tolerance is 0, that of what was asked for"):
        kernel.check(lambda a, b: a @ b + 1, a, b, torch.empty(32, 32), rtol=0.0, atol=0.5)


# Indices that come from data


@tw.jit
def gather(X: T.Tensor((64,), "int32"), A: T.Tensor((8,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[X[bx * 32 + i]]
    return B


def expected(index: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
    return torch.where(index < 8, a[index.long().clamp(0, 7)], 0.0)


def outside() -> tuple[torch.Tensor, torch.Tensor]:
    index = torch.arange(64, dtype=torch.int32) % 8
    index[40] = 300
    return index, torch.randn(8)


def told(call: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    assert all(each.category is tw.TileWarning for each in caught)
    return [str(each.message) for each in caught]


LINE = gather.fn.__code__.co_firstlineno + 5
WARNING = (
    "'A[300]' is outside 'A' of shape (8) in block (1), {}iteration (8): reads give the safe "
    "value; its index comes from data: ask in an 'if' whether it is inside, or give reads a value "
    f"with T.annotate_safe_value\n  --> {__file__}, line {LINE}\n"
    f"{LINE} | B[bx * 32 + i] = A[X[bx * 32 + i]]\n{' ' * len(str(LINE))} | {'^' * 34}"
)


def test_a_check_warns_of_an_index_outside() -> None:
    kernel, arguments = gather.compile(), outside()
    texts = told(lambda: kernel.check(expected, *arguments))
    assert texts == [WARNING.format("")]
    assert told(lambda: kernel.check(expected, *arguments)) == []  # once per line
    assert told(lambda: gather.compile()(*arguments)) == []  # native code says nothing


@pytest.mark.parametrize("target", ["sim:sm_80", "ptx:sm_80"])
def test_a_simulated_call_warns_once_per_line(target: str) -> None:
    if target.startswith("ptx"):
        require("nvrtc", missing_nvrtc())
    arguments = outside()
    kernel = gather.with_target(target).compile()
    assert told(lambda: kernel(*arguments)) == [WARNING.format("thread 8, ")]
    assert told(lambda: kernel(*arguments)) == []
    torch.testing.assert_close(kernel(*arguments), expected(*arguments))
    inside = gather.with_target(target).compile()
    assert told(lambda: inside(arguments[0] % 8, arguments[1])) == []


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_sanitize_is_an_error_of_the_call(target: str) -> None:
    kernel = gather.with_target(target, sanitize=True).compile()
    index, a = outside()
    kernel(index % 8, a)
    with pytest.raises(tw.OutOfBoundsError) as caught:
        kernel(index, a)
    assert caught.value.span is not None and caught.value.span.line == LINE
    message = {
        "cpu": "index 300 is out of range for dimension 0 of 'A', which has extent 8",
        "sim:sm_80": "'A[300]' is outside 'A' of shape (8) in block (1), thread 8, iteration (8): "
        "reads give the safe value",
    }
    assert caught.value.message == message[target]


def test_sanitize_is_an_error_of_checks_and_simulations() -> None:
    kernel, arguments = gather.compile(), outside()
    for call in (
        lambda: kernel.check(expected, *arguments, sanitize=True),
        lambda: kernel.simulate(*arguments, sanitize=True),
        lambda: gather.with_target("sim:sm_80").compile().simulate(*arguments, sanitize=True),
    ):
        with pytest.raises(tw.OutOfBoundsError, match=r"'A\[300\]' is outside 'A' of shape \(8\)"):
            call()
    assert told(lambda: kernel.simulate(*arguments)) == []  # its report says it
    assert kernel.simulate(*arguments).report.masked[0].from_data


def test_scripts_of_tilelang_find_it_in_the_report_only() -> None:
    arguments = outside()
    kernel = JITKernel.of(gather.with_target("sim:sm_80").compile().compiled)
    assert told(lambda: kernel(*arguments)) == []
    assert kernel.simulate(*arguments).report.masked[0].count == 1


def test_a_report_of_lowered_code_has_what_was_masked() -> None:
    found = gather.with_target("sim:sm_80").compile().simulate(*outside()).report
    assert [each.text for each in found.masked] == [
        f"A, line {LINE}, 1 of 64 elements, in the last block only"
    ]
    assert found.accesses  # those of the threads


def test_made_up_indices_are_inside() -> None:
    index, a = make_inputs(gather.compile().program)
    assert index.min() >= 0 and index.max() < 8 and len(index.unique()) > 4
    assert told(lambda: gather.compile().check(expected, index, a)) == []


def test_made_up_places_of_stores_are_distinct() -> None:
    @tw.jit
    def scatter(X: T.Tensor((64,), "int32"), A: T.Tensor((64,), "float32")):
        B = T.empty((64,), "float32")
        with T.Kernel(2, threads=32) as bx:
            for i in T.Parallel(32):
                B[X[bx * 32 + i]] = A[bx * 32 + i]
        return B

    kernel = scatter.compile()
    index, a = make_inputs(kernel.program)
    assert sorted(index.tolist()) == list(range(64))
    assert kernel.check(lambda i, a: torch.empty(64).index_copy_(0, i.long(), a), index, a).ok


def test_arguments_that_do_not_fit_are_said_first() -> None:
    with pytest.raises(tw.ArgumentError, match="'gather' takes 2 arguments"):
        gather.compile().check(expected, np.zeros(3))


# The card


def test_the_card_counts_what_was_masked() -> None:
    @tw.jit
    def shifted(A: T.Tensor((4096,), "float32"), factor: int):
        B = T.empty((4096,), "float32")
        with T.Kernel(32, threads=32) as bx:
            for i in T.Parallel(128):
                B[bx * 128 + i] = A[bx * 128 * factor + i + 1]
        return B

    line = shifted.fn.__code__.co_firstlineno + 5
    quiet, loud = shifted.compile(factor=1), shifted.compile(factor=2)
    for kernel in (quiet, loud):
        kernel.simulate(torch.zeros(4096))
    text = f"A, line {line}, 1 of 4096 elements, in the last block only"
    assert quiet.view().masked == ((text, False),)
    text = f"A, line {line}, 2048 of 4096 elements, in 16 of 32 blocks, away from the borders"
    assert loud.view().masked == ((text, True),)
    assert {"text": f"masked: {text}", "line": 0} in card_model(loud.view())["warnings"]
    assert f"⚠ masked: {text}" in card_html(loud.view())
    quiet_text = "masked: " + quiet.view().masked[0][0]
    assert quiet_text in card_model(quiet.view())["notes"]
    assert quiet_text in card_html(quiet.view()) and "⚠" not in card_html(quiet.view())


def test_the_card_says_how_much_was_simulated() -> None:
    kernel = matmul(128, 96, 64)
    a, b = (torch.randn(shape).half() for shape in ((128, 64), (64, 96)))
    kernel.check(torch.matmul, a, b, torch.empty(128, 96))
    assert card_model(kernel.view())["check"]["detail"].endswith("; 4 of 12 blocks simulated")


@tw.jit
def summed(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        total = T.alloc_fragment((32,), "float32")
        for i in T.Parallel(32):
            total[i] += A[bx * 32 + i]
        T.copy(total, B[bx * 32])
    return B


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_what_is_read_before_it_is_written_is_told_of_once(target: str) -> None:
    kernel = tw.jit(summed.fn, target=target).compile()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            try:
                kernel(torch.ones(64))
            except tw.RunError:
                assert target != "cpu"
    line = summed.fn.__code__.co_firstlineno + 6
    (warning,) = [found for found in told if found.category is tw.TileWarning]
    assert (warning.filename, warning.lineno) == (__file__, line)
    assert str(warning.message).startswith(
        "'total' is read before anything is written to it: fill it first, with T.clear, T.fill or "
        f"T.copy\n  --> {__file__}, line {line}\n{line} | total[i] += A[bx * 32 + i]"
    )


@pytest.mark.parametrize("dtype", ["float32", "int32", "float8_e4m3fn"])
def test_a_check_fills_what_is_read_before_it_is_written(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the simulator, which finds it, cannot look."""

    def limited(*_: Any) -> Any:
        raise SimulatorLimitError("too large")

    monkeypatch.setattr("tileworkbench.workbench.checking.look", limited)

    @tw.jit
    def kept(A: T.Tensor((64,), dtype)):
        B = T.empty((64,), dtype)
        with T.Kernel(1, threads=32):
            s, own = T.alloc_shared((64,), dtype), T.alloc_local((2,), dtype)
            for i in T.Parallel(64):
                if i < 32:
                    s[i] = s[i] + A[i]
            own[0] = own[1]
            T.copy(s, B)
        return B

    zeros = torch.zeros(64, dtype=getattr(torch, dtype))
    with pytest.raises(tw.CheckError, match=r"in (32|64) of 64 elements") as caught:
        kept.compile().check(lambda a: a, zeros)
    assert any("'s' is read before" in note.message for note in caught.value.notes)


@tw.jit
def impatient(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=32):
        S = T.alloc_shared((64,), "float32")
        T.async_copy(A, S)
        T.ptx_commit_group()
        T.copy(S, B)
    return B


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_a_copy_that_nobody_waited_for_is_found_on_every_target(target: str) -> None:
    kernel = impatient.with_target(target).compile()
    line = impatient.fn.__code__.co_firstlineno + 7
    said = "read before the wait for the asynchronous copy that writes it"
    text = rendered(lambda: kernel.check(lambda a: a, torch.ones(64)), tw.RunError)
    assert text.startswith(f"RunError: 'S[0]' in block (0): {said}\n")
    assert f"\n  --> {__file__}, line {line}\n" in text
    assert "\nhint: wait for the copy first, with T.ptx_wait_group(0) or at its memory" in text
    result = kernel.simulate(torch.ones(64))
    assert not result.report.ok and np.isnan(result.outputs[0]).all()
    if target == "cpu":  # done at once, as it may be
        assert torch.equal(kernel(torch.ones(64)), torch.ones(64))
    else:
        rendered(lambda: kernel(torch.ones(64)), tw.RunError)
