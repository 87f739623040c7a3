"""Measuring a kernel: the counts of the very call, and the type that bounds it."""

from __future__ import annotations

import math
import re
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from tileworkbench.bench import kernel as bench
from tileworkbench.bench.kernel import arithmetic_dtype, bench_kernel, specialize
from tileworkbench.bench.timing import BenchInterrupted, measure
from tileworkbench.compiler.diagnostics import UnsupportedError
from tileworkbench.compiler.ir.parser import parse
from tileworkbench.compiler.ir.printer import print_program
from tileworkbench.compiler.ir.program import Program
from tileworkbench.workbench.kernel import Kernel

DYNAMIC = """
@T.program(stage="tile", symbols={"m": "int32"}, outputs=["B"], returns=["B"])
def scale(
    A: T.Tensor((2 * m, 96), "float32"),
    B: T.Tensor((2 * m, 96), "float32"),
):
    with T.Kernel((2 * m + 31) // 32, threads=128) as bx:
        X = T.alloc_fragment((32, 96), "float32")
        T.copy(A[bx * 32:bx * 32 + 32, 0:96], X)
        for i, j in T.Parallel(32, 96):
            X[i, j] = X[i, j] * 2.0
        T.copy(X, B[bx * 32:bx * 32 + 32, 0:96])
"""

STATIC = DYNAMIC.replace(', symbols={"m": "int32"}', "").replace("2 * m", "64")

MATMUL = """
@T.program(stage="tile")
def matmul(
    A: T.Tensor((64, 32), "{dtype}"),
    B: T.Tensor((32, 64), "{dtype}"),
    C: T.Tensor((64, 64), "{total}"),
):
    with T.Kernel(1, threads=128) as bx:
        A_shared = T.alloc_shared((64, 32), "{dtype}")
        B_shared = T.alloc_shared((32, 64), "{dtype}")
        C_local = T.alloc_fragment((64, 64), "{total}")
        T.fill(C_local, {zero})
        T.copy(A[0:64, 0:32], A_shared)
        T.copy(B[0:32, 0:64], B_shared)
        T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[0:64, 0:64])
"""


class FakeKernel:
    """A program, and a call that is counted."""

    def __init__(self, program: Program, target: str = "cpu") -> None:
        self.name, self.program, self.target = program.name, program, target
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)


@pytest.mark.parametrize(
    ("target", "device"), [("sim:sm_80", "cuda:sm_80"), ("ptx:sm_90", "cuda:sm_90")]
)
def test_what_is_simulated_is_not_measured(target: str, device: str) -> None:
    kernel = FakeKernel(parse(DYNAMIC), target)
    with pytest.raises(UnsupportedError) as caught:
        bench_kernel(kernel, (np.zeros((128, 96), np.float32),), rounds=3)
    assert str(caught.value) == (
        f"'{kernel.name}' is simulated on '{target}': a time would be that of the simulator, not "
        f"of a device\nhint: measure it with target '{device}' or 'cpu'; 'k.accesses' and "
        "'k.simulate(...).report' count what it does"
    )
    assert kernel.calls == []


def test_counts_are_those_of_the_call() -> None:
    kernel = FakeKernel(parse(DYNAMIC))
    a = np.zeros((128, 96), np.float32)
    result = bench_kernel(kernel, (a,), rounds=3)
    assert (result.name, result.n) == ("scale", 3)
    assert result.flops == 128 * 96
    assert result.bytes_ == 2 * 4 * 128 * 96
    assert result.dtype == "float32"
    assert all(args[0] is a for args in kernel.calls)


def test_symbols_are_replaced_by_what_the_arguments_say() -> None:
    found = specialize(parse(DYNAMIC), (np.zeros((64, 96), np.float32),))
    assert found.symbols == ()
    assert "m" not in print_program(found).replace("program", "").split()
    assert bench_kernel(FakeKernel(found), (np.zeros((64, 96)),), 1).flops == 64 * 96


def test_a_program_without_symbols_stays_as_it_is() -> None:
    program = parse(STATIC)
    assert specialize(program, (np.zeros((64, 96), np.float32),)) is program


@pytest.mark.parametrize(
    ("dtype", "total", "zero", "expected"),
    [
        ("float32", "float32", "0.0", "float32"),
        ("bfloat16", "float32", "0.0", "bfloat16"),
        ("tfloat32", "float32", "0.0", "tfloat32"),
        ("int8", "int32", "0", "int8"),
    ],
)
def test_a_gemm_is_bound_by_its_operands(dtype: str, total: str, zero: str, expected: str) -> None:
    assert arithmetic_dtype(parse(MATMUL.format(dtype=dtype, total=total, zero=zero))) == expected


def test_without_a_gemm_the_largest_float_tensor_counts() -> None:
    text = STATIC.replace('A: T.Tensor((64, 96), "float32")', 'A: T.Tensor((64, 96), "int32")')
    assert arithmetic_dtype(parse(text)) == "float32"


def test_counts_with_a_symbol_are_unknown_until_a_call() -> None:
    from tileworkbench.compiler.analysis.cost import count_work

    assert math.isnan(count_work(parse(DYNAMIC)).flops.value)


def test_scalar_arguments_are_replaced_too() -> None:
    program = parse("""
@T.program(stage="tile")
def steps(
    n: T.int32,
    A: T.Tensor((8,), "float32"),
):
    with T.Kernel(1, threads=128) as bx:
        X = T.alloc_fragment((8,), "float32")
        for k in T.serial(n):
            for i in T.Parallel(8):
                X[i] = X[i] + 1.0
        T.copy(X, A[0:8])
""")
    found = bench_kernel(FakeKernel(program), (5, np.zeros(8, np.float32)), rounds=1)
    assert found.flops == 40


def test_an_interrupt_is_raised_and_what_was_measured_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = parse(DYNAMIC)

    def call(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 5:  # two warm up
            raise KeyboardInterrupt

    calls: list[tuple[Any, ...]] = []
    quiet = partial(measure, warmup=0, timer=lambda: 20_000 * len(calls), clock=lambda: 4.0)
    monkeypatch.setattr("tileworkbench.bench.kernel.measure", quiet)
    compiled = Mock(
        side_effect=call,
        record=SimpleNamespace(name="scale", program=program, target="cpu", warnings=()),
    )
    kernel = Kernel(compiled)
    with pytest.raises(BenchInterrupted) as caught:
        kernel.bench(np.zeros((128, 96), np.float32), rounds=100)
    result = caught.value.results["scale"]
    assert (result.n, result.interrupted, result.flops) == (2, True, 128 * 96)
    assert kernel._bench is result


def test_a_reference_is_timed_beside_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Mock(spec=Kernel, program=parse(STATIC), target="cpu")
    kernel.name = "scale"

    def twice(_tensor: object) -> None:
        pass

    result = bench_kernel(kernel, (np.zeros((64, 96), np.float32),), 3, twice)
    assert (result.name, result.n, result.against[0]) == ("scale", 3, "twice")
    assert result.speedup == pytest.approx(result.against[1] / result.median)
    assert re.fullmatch(r"[\d.e-]+ times as fast as twice \(.* [nµm]s\)", result.comparison)
    assert result.record.comparison == result.comparison and result.comparison in str(result)
    alone = bench_kernel(kernel, (np.zeros((64, 96), np.float32),), 3)
    assert (alone.comparison, alone.record.comparison) == ("", "")
    monkeypatch.setattr(bench, "_LONG_MS", -1.0)  # now every reference is a long one
    calls = Mock(__name__="slow")
    assert bench_kernel(kernel, (np.zeros((64, 96), np.float32),), 3, calls).against[0] == "slow"
    assert calls.call_count == 1


@pytest.mark.parametrize("cold", [False, True])
def test_a_call_on_a_gpu_ends_when_the_device_is_done(cold: bool) -> None:
    done: list[str] = []
    device = SimpleNamespace(wait=lambda: done.append("wait"), flush=lambda: done.append("flush"))
    kernel = Mock(spec=Kernel, program=parse(STATIC), target="cuda:sm_80")
    kernel.name, kernel.compiled = "scale", SimpleNamespace(device=device)
    kernel.side_effect = lambda *args: done.append("call")
    result = bench_kernel(kernel, (np.zeros((64, 96), np.float32),), 3, cold=cold)
    once = ["flush", "call", "wait"] if cold else ["call", "wait"]
    assert result.cold == cold and done[-3 * len(once) :] == 3 * once


def test_caches_that_nobody_can_flush_are_refused() -> None:
    from tileworkbench.compiler.device.amd.kernel import AmdDevice

    kernel = Mock(spec=Kernel, program=parse(STATIC), target="hip:gfx942")
    kernel.name, kernel.compiled = "scale", SimpleNamespace(device=AmdDevice())
    with pytest.raises(UnsupportedError) as caught:
        bench_kernel(kernel, (np.zeros((64, 96), np.float32),), 3, cold=True)
    assert str(caught.value) == (
        "the caches of this device cannot be made cold: only those of NVIDIA's GPUs and of "
        "processors can\nhint: measure with warm caches"
    )
