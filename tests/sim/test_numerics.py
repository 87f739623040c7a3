"""The replay in float64: how far each statement is from it, and where NaN and infinities begin."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc
from tileworkbench.compiler.diagnostics import ArgumentError, UnsupportedError, interrupted
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.numerics import replay, watching
from tileworkbench.compiler.sim.numerics.result import Numerics, apart
from tileworkbench.compiler.sim.numerics.rounding import errors_of, unit

LOOP = 2200


def line_of(kernel: Any, text: str) -> int:
    """The line of the cell that holds `text`."""
    record = kernel.record
    rows = record.source.splitlines()
    return record.first_line + next(at for at, row in enumerate(rows) if text in row)


def counting(accumulator: str):
    @tw.jit
    def counted(A: T.Tensor((LOOP, 8), "float16")):
        B = T.empty((8,), accumulator)
        with T.Kernel(1, threads=32):
            total = T.alloc_fragment((8,), accumulator)
            T.clear(total)
            for k in T.serial(LOOP):
                for i in T.Parallel(8):
                    total[i] += A[k, i]
            T.copy(total, B)
        return B

    return counted.with_target("cpu").compile()


def test_a_sum_in_float16_stops_growing_where_its_digits_end() -> None:
    """Ones are counted: 2048 + 1 is 2048 in float16."""
    kernel = counting("float16")
    found = kernel.numerics(np.ones((LOOP, 8), np.float16))
    steps = [step for step in found.steps if step.loops and step.buffer == "total"]
    assert [step.loops for step in steps] == [(("k", k),) for k in range(LOOP)]
    assert all(step.ulp == 0 for step in steps[:2048])
    assert [step.absolute for step in steps[2048:]] == [float(k) for k in range(1, LOOP - 2047)]
    last = steps[-1]
    assert (last.line, last.value, last.exact) == (line_of(kernel, "+="), 2048.0, float(LOOP))
    assert last.ulp == (LOOP - 2048) / 2 and last.relative == (LOOP - 2048) / LOOP
    assert str(found) == (
        f"line {last.line} has the largest error at k=2199: total[0] is 2048, float64 has 2200; "
        "apart by 76 ulp (float16) of the largest element"
    )


def test_the_same_sum_in_float32_is_exact() -> None:
    found = counting("float32").numerics(np.ones((LOOP, 8), np.float16))
    assert len(found.steps) == LOOP + 2
    assert found.worst is not None and found.worst.ulp == 0 and found.stopped == ""


@tw.jit
def doubling(A: T.Tensor((4,), "float16")):
    B = T.empty((4,), "float16")
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((4,), "float16")
        T.copy(A, tile)
        for k in T.serial(20):
            for i in T.Parallel(4):
                tile[i] = tile[i] * 2.0  # doubled
        T.copy(tile, B)
    return B


def test_an_overflow_of_float16_is_found_at_its_line_and_iteration() -> None:
    kernel = doubling.with_target("sim:sm_80").compile()
    found = kernel.numerics(np.array([0, 0, 1, 0], np.float16))
    (origin,) = found.origins
    assert (origin.kind, origin.made, origin.line) == ("infinity", True, line_of(kernel, "# doub"))
    assert (origin.loops, origin.buffer, origin.element) == ((("k", 15),), "tile", (2,))
    assert str(origin) == (
        f"line {origin.line} makes the first infinity: tile[2] = inf at k=15, where float64 has "
        "65536; it reads tile[2] = 32768"
    )


@tw.jit
def softmax(A: T.Tensor((4, 64), "float16")):
    B = T.empty((4, 64), "float16")
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((4, 64), "float16")
        total = T.alloc_fragment((4,), "float32")
        T.copy(A, tile)
        for i, j in T.Parallel(4, 64):
            tile[i, j] = T.exp(tile[i, j])  # too large
        T.reduce_sum(tile, total, dim=1)
        for i, j in T.Parallel(4, 64):
            B[i, j] = tile[i, j] / total[i]  # quotient
    return B


def test_a_softmax_that_does_not_subtract_the_maximum() -> None:
    kernel = softmax.with_target("cpu").compile()
    logits = np.zeros((4, 64), np.float16)
    logits[2, 5] = 12
    infinity, nan = kernel.numerics(logits).origins
    assert (infinity.line, infinity.element) == (line_of(kernel, "# too large"), (2, 5))
    assert infinity.exact == pytest.approx(np.exp(12.0))
    assert [str(each) for each in infinity.operands] == ["tile[2, 5] = 12"]
    assert (nan.kind, nan.line, nan.buffer) == ("NaN", line_of(kernel, "# quotient"), "B")
    assert [str(each) for each in nan.operands] == ["tile[2, 5] = inf", "total[2] = inf"]
    fine = kernel.numerics(logits - 12)
    assert fine.origins == ()


@tw.jit
def quotient(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
    C = T.empty((4,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(4):
            C[i] = A[i] / B[i]
    return C


@tw.jit
def difference(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
    C = T.empty((4,), "float32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(4):
            C[i] = T.exp(A[i]) - T.exp(B[i])
    return C


@pytest.mark.parametrize(
    ("kernel", "left", "right", "kind", "value"),
    [
        (quotient, 0, 0, "NaN", "nan"),
        (quotient, 1, 0, "infinity", "inf"),
        (quotient, -1, 0, "infinity", "-inf"),
        (difference, 100, 0, "infinity", "inf"),
        (difference, 100, 100, "NaN", "nan"),
    ],
)
def test_what_makes_the_first_one(kernel, left, right, kind, value) -> None:
    made = kernel.with_target("cpu").compile()
    operands = np.ones((2, 4), np.float32)
    operands[:, 3] = left, right
    (origin,) = made.numerics(operands[0], operands[1]).origins
    assert (origin.kind, origin.made, origin.element) == (kind, True, (3,))
    assert origin.to_dict()["value"] == value
    assert [str(each) for each in origin.operands] == [f"A[3] = {left}", f"B[3] = {right}"]


def test_a_nan_of_the_inputs_is_said_to_come_from_there() -> None:
    kernel = quotient.with_target("cpu").compile()
    operands = np.ones((2, 4), np.float32)
    operands[0, 2] = np.nan
    found = kernel.numerics(operands[0], operands[1])
    assert [str(each) for each in found.origins] == [
        f"line {line_of(kernel, 'A[i] /')} reads A[2] = nan, which the block has not written"
    ]
    assert found.worst is not None and found.worst.ulp == 0  # it is NaN in float64 too


@tw.jit
def masked(A: T.Tensor((4, 8), "float32")):
    B = T.empty((4,), "float32")
    with T.Kernel(1, threads=32):
        tile = T.alloc_fragment((4, 8), "float32")
        largest = T.alloc_fragment((4,), "float32")
        T.fill(largest, -T.infinity("float32"))
        for i, j in T.Parallel(4, 8):
            tile[i, j] = T.if_then_else(j < 6, A[i, j], -T.infinity("float32"))
        T.reduce_max(tile, largest, dim=1, clear=False)
        T.copy(largest, B)
    return B


def test_infinities_that_the_kernel_sets_are_not_made() -> None:
    found = masked.with_target("cpu").compile().numerics(np.ones((4, 8), np.float32))
    assert found.origins == () and found.worst is not None and found.worst.ulp == 0


@tw.jit
def product(A: T.Tensor((32, 64), "float16"), B: T.Tensor((64, 32), "float16")):
    C = T.empty((32, 32), "float16")
    with T.Kernel(2, threads=32) as bx:
        left = T.alloc_shared((16, 16), "float16")
        right = T.alloc_shared((16, 32), "float16")
        total = T.alloc_fragment((16, 32), "float16")
        T.clear(total)
        for k in T.Pipelined(4, num_stages=2):
            T.copy(A[bx * 16, k * 16], left)
            T.copy(B[k * 16, 0], right)
            T.gemm(left, right, total)
        T.copy(total, C[bx * 16, 0])
    return C


def test_operands_of_a_product_are_a_row_and_a_column() -> None:
    kernel = product.with_target("sim:sm_80").compile()
    a, b = np.ones((32, 64), np.float16), np.ones((64, 32), np.float16)
    a[20, 40] = b[40, 3] = 300
    found = kernel.numerics(a, b, block=(1,))
    (origin,) = found.origins
    assert found.block == (1,) and origin.loops == (("k", 2),) and origin.element == (4, 3)
    assert (origin.line, origin.exact) == (line_of(kernel, "T.gemm"), 32.0 + 15 + 90000)
    names = [str(each) for each in origin.operands]
    assert names == ["left[4, :] from 1 to 300", "right[:, 3] from 1 to 300", "total[4, 3] = 32"]
    assert kernel.numerics(a, b).origins == ()  # the first block has none


def test_lines_have_their_first_and_worst_error() -> None:
    kernel = product.with_target("cpu").compile()
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(1, 2, shape).astype(np.float16) for shape in ((32, 64), (64, 32)))
    found = kernel.numerics(a, b)
    rows = {(row["line"], row["buffer"]): row for row in found.to_dict()["lines"]}
    row = rows[line_of(kernel, "T.gemm"), "total"]
    assert (row["executions"], row["dtype"]) == (4, "float16")
    assert row["scaled"] == max(step.scaled for step in found.steps if step.buffer == "total")
    assert 0 < row["first_scaled"] <= 0.5 < row["scaled"] < 4  # one rounding, then four
    assert rows[line_of(kernel, "T.copy(A"), "left"]["ulp"] == 0
    assert kernel.last_numerics is found and len(found.rows()) == len(found.steps) == 4 * 3 + 2


@tw.jit
def by_threads(A: T.Tensor((64,), "float16")):
    B = T.empty((64,), "float16")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((8, 8), "float16")
        tx = T.get_thread_binding()
        tile[tx // 8, tx % 8] = A[tx] * A[tx]  # square
        T.sync_threads()
        B[tx] = tile[7 - tx // 8, 7 - tx % 8]
    return B


def test_threads_of_a_block_write_elements_of_tiles() -> None:
    kernel = by_threads.with_target("cpu").compile()
    values = np.ones(64, np.float16)
    values[29] = 300
    found = kernel.numerics(values)
    (origin,) = found.origins
    assert (origin.line, origin.buffer) == (line_of(kernel, "# square"), "tile")
    assert (origin.element, origin.exact) == ((3, 5), 90000.0)
    assert found.worst is not None and found.worst.ulp == np.inf


@tw.jit
def iterated(A: T.Tensor((1,), "float16")):
    B = T.empty((1,), "float16")
    with T.Kernel(1, threads=1):
        x = T.alloc_var("float16")
        x = A[0]
        while x < 3000.0:
            x = x + 1.0  # step
        B[0] = x
    return B


def test_where_the_replay_goes_another_way_comparing_stops() -> None:
    """2048 + 1 is 2048 in float16, and the loop never ends; in float64 it does."""
    kernel = iterated.with_target("cpu").compile()
    found = kernel.numerics(np.full(1, 2040, np.float16))
    assert found.stopped == (
        f"the replay went another way: where this run writes 'x' at line "
        f"{line_of(kernel, '# step')}, float64 writes 'B' at line {line_of(kernel, 'B[0] = x')}; "
        "what follows is not compared"
    )
    assert found.worst is not None and found.worst.value == 2048.0


@tw.jit
def chosen(A: T.Tensor((8,), "float16")):
    B = T.empty((8,), "float16")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            if T.cast(A[i] + 1.0, "float16") != A[i]:
                B[i] = A[i]
    return B


def test_other_elements_are_not_compared() -> None:
    found = chosen.with_target("cpu").compile().numerics(np.array([1, 4096] * 4, np.float16))
    (step,) = found.steps
    assert not step.comparable and found.worst is None
    assert str(found) == "no statement wrote a floating-point number that float64 writes too"


@tw.jit
def integers(A: T.Tensor((8,), "int32")):
    B = T.empty((8,), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = A[i] + 1
    return B


@tw.jit
def bits(A: T.Tensor((8,), "float32")):
    B = T.empty((8,), "int32")
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            B[i] = T.reinterpret("int32", A[i])
    return B


@tw.jit
def viewed(A: T.Tensor((8,), "float32")):
    B = T.empty((16,), "float16")
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((8,), "float32")
        T.copy(A, tile)
        halves = T.view(tile, (16,), "float16")
        T.copy(halves, B)
    return B


def test_programs_that_float64_would_change() -> None:
    said = {
        integers: "'integers' cannot be replayed: it has no floating-point tile or tensor, so "
        "nothing is rounded",
        bits: "'bits' cannot be replayed in float64: it reads the bits of 'float32' as 'int32'",
        viewed: "'viewed' cannot be replayed in float64: 'halves' is the memory of 'tile', "
        "'float32' read as 'float16'",
    }
    for function, message in said.items():
        kernel = function.with_target("cpu").compile()
        assert kernel.numerics_missing == message
        with pytest.raises(UnsupportedError) as raised:
            kernel.numerics()
        assert raised.value.message == message


def test_a_block_that_the_grid_does_not_have() -> None:
    kernel = product.with_target("cpu").compile()
    with pytest.raises(ArgumentError) as raised:
        kernel.numerics(block=(2,))
    assert str(raised.value) == "'product' has no block (2,): its grid is 2"


def test_limits_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = doubling.with_target("cpu").compile()
    values = np.ones(4, np.float16)
    monkeypatch.setattr(watching, "MOST_STEPS", 5)
    found = kernel.numerics(values)
    assert (len(found.steps), found.stopped) == (5, "the first 5 steps are kept")
    monkeypatch.setattr(watching, "MOST_BYTES", 64)
    found = kernel.numerics(values)
    assert len(found.steps) == 2
    assert found.stopped == "the replay keeps 0 MiB, which the first 2 steps fill"
    assert kernel.numerics(values, seconds=-1).stopped == "the simulation was stopped after -1 s"


@tw.jit
def waiting(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        ready = T.alloc_barrier(64)
        B[tx] = A[tx] * 0.1
        T.mbarrier_wait_parity(ready, 0)
    return B


def test_what_was_compared_before_a_deadlock_stays() -> None:
    found = waiting.with_target("cpu").compile().numerics()
    (step,) = found.steps
    assert step.buffer == "B" and 0 < step.ulp < 1
    assert found.stopped.startswith("the simulation ended: block (0) waits for ever: threads 0-63")


def test_what_was_compared_before_an_interrupt_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = doubling.with_target("cpu").compile()
    step = watching.Comparing._step

    def stops(self: Any, *args: Any) -> Any:
        if len(self.steps) == 3:
            raise KeyboardInterrupt
        return step(self, *args)

    monkeypatch.setattr(watching.Comparing, "_step", stops)
    found = kernel.numerics(np.ones(4, np.float16))
    assert (len(found.steps), found.stopped) == (3, "the simulation was interrupted")

    def never(*_: Any) -> Any:
        raise interrupted("doubling")

    monkeypatch.setattr(replay, "simulate", never)
    found = kernel.numerics(np.ones(4, np.float16))
    assert (found.steps, found.stopped) == ((), "the simulation was interrupted")


@tw.jit
def symbolic(A: T.Tensor((T.dynamic("n"), 8), "float16"), s: T.float16):
    n = T.dynamic("n")
    B = T.empty((n, 8), "float16")
    with T.Kernel(n, threads=32) as bx:
        for j in T.Parallel(8):
            B[bx, j] = A[bx, j] * s
    return B


def test_scalars_are_what_they_were_rounded_to() -> None:
    kernel = symbolic.with_target("cpu").compile()
    found = kernel.numerics(np.ones((3, 8), np.float16), 0.1, block=(2,))
    assert found.worst is not None and found.worst.ulp == 0
    assert found.worst.exact == float(np.float16(0.1)) != 0.1
    with pytest.raises(ArgumentError, match="no block"):
        kernel.numerics(np.ones((3, 8), np.float16), 0.1, block=(3,))


@tw.jit
def two_launches(A: T.Tensor((8,), "bfloat16")):
    B = T.empty((8,), "bfloat16")
    C = T.empty((8,), "bfloat16")
    with T.Kernel(4, threads=32) as bx:
        for i in T.Parallel(2):
            B[bx * 2 + i] = A[bx * 2 + i] * 1.5
    with T.Kernel(1, threads=32):
        for i in T.Parallel(8):
            C[i] = B[i] + B[7 - i]  # sum
    return C, B


def test_launches_before_run_whole() -> None:
    import torch

    kernel = two_launches.with_target("cpu").compile()
    found = kernel.numerics(torch.arange(8, dtype=torch.bfloat16))
    assert [(step.buffer, step.elements) for step in found.steps] == [("B", 2), ("C", 8)]
    assert found.steps[1].line == line_of(kernel, "# sum") and found.steps[1].ulp == 0


@pytest.mark.parametrize("name", ["float64", "float16", "bfloat16", "float8_e4m3fn"])
def test_units_in_the_last_place(name: str) -> None:
    import ml_dtypes

    dtype = DType(name)
    storage = np.dtype(getattr(ml_dtypes, name, name))
    values = np.array([0.0, 1.0, 1.5, -3.0, 100.0, 0.011], storage)
    after = np.nextafter(values, storage.type(200))
    distance = np.abs(after.astype(np.float64) - values.astype(np.float64))
    assert unit(values.astype(np.float64), dtype).tolist() == distance.tolist()


def test_errors_of_infinities_and_nan() -> None:
    values = np.array([np.inf, np.nan, np.inf, 1.0], np.float32)
    with np.errstate(all="ignore"):
        same = errors_of(values[:2], values[:2].astype(np.float64), DType("float32"))
        other = errors_of(values, np.array([np.inf, np.nan, 1.0, 1.0]), DType("float32"))
    assert (same.absolute, same.relative, same.ulp) == (0.0, 0.0, 0.0)
    assert (other.absolute, other.ulp, other.worst) == (np.inf, np.inf, 2)


def test_a_result_is_plain_data() -> None:
    import json

    kernel = softmax.with_target("cpu").compile()
    found = kernel.numerics(np.full((4, 64), 12, np.float16))
    json.dumps(found.to_dict(), allow_nan=False)
    assert isinstance(found, Numerics) and found.inputs == "the inputs that were given"
    assert kernel.with_inputs(np.zeros((4, 64), np.float16)).numerics().origins == ()


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_after_a_failed_check_the_block_of_the_worst_element_runs(target: str) -> None:
    kernel = product.with_target(target).compile()
    a, b = np.ones((32, 64), np.float16), np.ones((64, 32), np.float16)
    a[20, 40] = b[40, 3] = 300
    with pytest.raises(tw.CheckError):
        kernel.check(lambda x, y: x.astype(np.float32) @ y.astype(np.float32), a, b)
    found = kernel.numerics()
    assert (found.block, found.inputs) == ((1,), "the inputs of the check that failed")
    assert [origin.element for origin in found.origins] == [(4, 3)]
    assert kernel.numerics(block=(0,)).origins == ()
    assert kernel.with_inputs(a, b).numerics().block == (0,)


def test_what_runs_elsewhere_is_replayed_as_written() -> None:
    require("nvrtc", missing_nvrtc())
    kernel = doubling.with_target("ptx:sm_80").compile()
    (origin,) = kernel.numerics(np.ones(4, np.float16)).origins
    assert (origin.line, origin.loops) == (line_of(kernel, "# doub"), (("k", 15),))


@pytest.mark.parametrize(
    ("value", "exact", "texts"),
    [
        (2048.0, 2200.0, ("2048", "2200")),
        (1.5, 1.5, ("1.5", "1.5")),
        (-16.88090705871582, -16.88091195, ("-16.8809071", "-16.880912")),
        (float("nan"), 1.0, ("nan", "1")),
        (float("inf"), float("inf"), ("inf", "inf")),
    ],
)
def test_texts_of_two_numbers_tell_them_apart(value, exact, texts):
    assert apart(value, exact) == texts
