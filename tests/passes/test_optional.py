"""Passes that can be switched off: the kernels of the library stay right without each of them."""
# Annotations are evaluated where the kernel is defined: no `from __future__ import annotations`.

from typing import Any

import pytest
import torch

import tileworkbench as tw
import tileworkbench.language as T
from tests.kernels.checks import compare
from tests.kernels.test_gpu import CASES, HALF, QUICK_PTX
from tileworkbench.bench.probes import host_isa
from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.driver import resolve_target
from tileworkbench.compiler.lowering import optional_passes
from tileworkbench.kernels import matmul, softmax

TARGETS = ("cpu", "sim:sm_80")
SWITCHED = [
    (target, name) for target in TARGETS for name in optional_passes(resolve_target(target))
]
QUICK = (
    *(*QUICK_PTX, "gelu", "gemv"),
    *("float32_matmul", "tall_softmax", "window_sums", "turned", "many_rows"),
)
PROGRAM = matmul(64, 64, 64, "float16", block_M=64, block_N=64)


def float32_matmul() -> Any:
    """A product whose operands are read as they are."""
    a, b = torch.randn(2, 64, 64).unbind()
    program = matmul(64, 64, 64, "float32", block_M=32, block_N=32)
    return program, [a, b], a.double() @ b.double(), a.abs() @ b.abs()


def tall_softmax() -> Any:
    """Tiles of more rows than a block of a processor has."""
    x = torch.randn(64, 128)
    expected = torch.softmax(x.double(), 1)
    return softmax(64, 128, block_M=16), [x], expected, expected


def window_sums() -> Any:
    """A loop over a tile that does not fit the registers."""

    @T.prim_func
    def sums(X: T.Tensor((8, 514), "float32")):
        Y = T.empty((8, 512), "float32")
        with T.Kernel(8) as bx:
            total = T.alloc_fragment((512,), "float32")
            T.clear(total)
            for t in T.serial(3):
                for j in T.Parallel(512):
                    total[j] = total[j] + X[bx, j + t]
            T.copy(total, Y[bx, 0])
        return Y

    x = torch.randn(8, 514)
    windows = x.double().unfold(1, 3, 1)
    return sums, [x], windows.sum(2), windows.abs().sum(2)


def turned() -> Any:
    """A tensor that is read down its columns."""

    @T.prim_func
    def turn(X: T.Tensor((64, 64), "float32")):
        Y = T.empty((64, 64), "float32")
        with T.Kernel(2) as bx:
            for i, j in T.Parallel(32, 64):
                Y[j, bx * 32 + i] = X[bx * 32 + i, j]
        return Y

    x = torch.randn(64, 64)
    return turn, [x], x.double().T, x.double().abs().T


def many_rows() -> Any:
    """A product of many blocks of rows."""
    a, b = torch.randn(4096, 64), torch.randn(64, 128)
    program = matmul(4096, 128, 64, "float32", block_M=16, block_N=128)
    return program, [a, b], a.double() @ b.double(), a.abs() @ b.abs()


OWN = (float32_matmul, tall_softmax, window_sums, turned, many_rows)
MADE = {**CASES, **{case.__name__: case for case in OWN}}


def check_without(target: str, disabled: str, case: str) -> bool:
    """The kernel gives its reference's results without the pass; whether its code is another."""
    program, arguments, expected, scale = MADE[case]()
    usual = tw.compile(program, target=target)
    kernel = tw.compile(program, target=target, disable=(disabled,))
    compare(kernel(*arguments), expected, scale, 4.0, HALF)
    return bool(kernel.source != usual.source)


def test_the_optional_passes() -> None:
    assert [name for target, name in SWITCHED if target == "cpu"] == [
        "simplify_expressions",
        "widen_blocks",
        "split_rows",
        "merge_k_steps",
        "read_in_place",
        "turn_reads",
        "share_panels",
        "fuse_loops",
        "interchange_loops",
        "vectorize_loops",
        "tabulate_codes",
    ]
    assert [name for target, name in SWITCHED if target != "cpu"] == [
        "simplify_expressions",
        "plan_pipelines",
        "stage_results",
        "unroll_register_loops",
        "drop_unused_lets",
    ]


@pytest.mark.parametrize(("target", "disabled"), SWITCHED)
def test_results_stay(target: str, disabled: str) -> None:
    differ = [check_without(target, disabled, case) for case in QUICK]
    # With AVX2 a table is worth six operations, more than any of these has.
    needless = (target, disabled) == ("cpu", "tabulate_codes") and host_isa().level != "avx512"
    assert any(differ) != needless


@pytest.mark.nvrtc
@pytest.mark.parametrize("disabled", optional_passes(resolve_target("ptx:sm_80")))
def test_ptx_of_a_matmul_stays_right(disabled: str) -> None:
    check_without("ptx:sm_80", disabled, "matmul")


@pytest.mark.slow
@pytest.mark.parametrize(("target", "disabled"), SWITCHED)
def test_results_of_the_rest_stay(target: str, disabled: str) -> None:
    for case in sorted(set(CASES) - set(QUICK)):
        check_without(target, disabled, case)


def test_snapshots_say_what_is_off_and_what_could_be() -> None:
    kernel = tw.compile(PROGRAM, disable=("fuse_loops",))
    found = kernel.passes["fuse_loops"]
    assert found.disabled and not found.changed
    assert repr(found) == "<pass fuse_loops: switched off>"
    assert found.lost == (
        "values at hand: each nest writes its tile and the next one reads it again"
    )
    assert kernel.passes["flatten_buffers"].lost == ""
    assert kernel.record.disabled == ("fuse_loops",)


def test_a_function_is_compiled_without_a_pass() -> None:
    function = tw.jit(matmul, disable=("vectorize_loops",))
    assert function(64, 64, 64).passes["vectorize_loops"].disabled
    usual = function.with_target("cpu", disable=())
    assert not usual(64, 64, 64).passes["vectorize_loops"].disabled


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "flatten_buffers",
            "pass 'flatten_buffers' cannot be switched off: kernels for 'cpu:generic' need it\n"
            "hint: optional are simplify_expressions, widen_blocks, split_rows, merge_k_steps, "
            "read_in_place, turn_reads, share_panels, fuse_loops, interchange_loops, "
            "vectorize_loops, tabulate_codes",
        ),
        (
            "fuse_loop",
            "'fuse_loop' is not a pass of 'cpu:generic'\nhint: did you mean 'fuse_loops'?",
        ),
        (
            "x",
            "'x' is not a pass of 'cpu:generic'\n"
            "hint: optional are simplify_expressions, widen_blocks, split_rows, merge_k_steps, "
            "read_in_place, turn_reads, share_panels, fuse_loops, interchange_loops, "
            "vectorize_loops, tabulate_codes",
        ),
    ],
)
def test_what_cannot_be_switched_off(name: str, expected: str) -> None:
    with pytest.raises(TileValueError) as caught:
        tw.compile(PROGRAM, target="cpu:generic", disable=(name,))
    assert str(caught.value) == expected
