"""Replay, footprint and numerics of calls that are bad: each of them, item by item."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.compiler.diagnostics import ArgumentError, CheckError, SimulatorLimitError
from tileworkbench.compiler.sim.footprint.recorder import FootprintRecorder
from tileworkbench.compiler.sim.numerics import watching
from tileworkbench.compiler.sim.replay.recorder import StepRecorder
from tileworkbench.workbench.kernel import Kernel

Recorded = Callable[..., tuple[bool, str]]


def replayed(kernel: Kernel, *args: Any, **options: Any) -> tuple[bool, str]:
    made = kernel.replay(*args, **options)
    moments = [moment.message for moment in made.moments]
    return len(made) > 0, " ".join([*made.notes, *moments])


def footprint_of(kernel: Kernel, *args: Any, **options: Any) -> tuple[bool, str]:
    made = kernel.footprint(*args, **options)
    return any(each.loads.times.any() for each in made.tensors), made.why_not


def numerics_of(kernel: Kernel, *args: Any, **options: Any) -> tuple[bool, str]:
    made = kernel.numerics(*args, **options)
    return len(made.steps) > 0, made.stopped


EVERY = pytest.mark.parametrize("recorded", [replayed, footprint_of, numerics_of])
"""Each says whether something was recorded, and why not all was."""
TARGETS = pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])


@tw.jit
def double(A: T.Tensor((256,), "float32")):
    B = T.empty((256,), "float32")
    with T.Kernel(8, threads=32) as bx:
        tile = T.alloc_fragment((32,), "float32")
        T.copy(A[bx * 32], tile)
        for i in T.Parallel(32):
            tile[i] = tile[i] * 2.0
        T.copy(tile, B[bx * 32])
    return B


@tw.jit
def endless(A: T.Tensor((32,), "float32")):
    B = T.empty((32,), "float32")
    with T.Kernel(1, threads=32):
        x = T.alloc_local((1,), "float32")
        x[0] = A[0]
        while x[0] > -1.0:
            x[0] = T.fmod(x[0], 7.0) + 1.0
            B[0] = x[0]
    return B


@tw.jit
def stuck(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        tile[tx] = A[tx]
        if tx < 32:
            T.sync_threads()
        B[tx] = tile[63 - tx]
    return B


@tw.jit
def from_data(A: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32")):
    B = T.empty((64,), "float32")
    with T.Kernel(N[0], threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i]
    return B


ONES = np.ones(256, np.float32)


@TARGETS
@EVERY
def test_a_deadlock_leaves_what_was_before_it(recorded: Recorded, target: str) -> None:
    something, why = recorded(stuck.with_target(target).compile(), ONES[:64])
    assert something
    assert "block (0) waits for ever: threads 0-31 wait at barrier 0" in why


@TARGETS
@EVERY
def test_a_kernel_that_never_ends_is_ended(recorded: Recorded, target: str) -> None:
    kernel = endless.with_target(target).compile()
    something, why = recorded(kernel, ONES[:32], seconds=0.1)
    assert something and "0.1 s" in why


@TARGETS
@EVERY
def test_a_grid_that_comes_from_data(recorded: Recorded, target: str) -> None:
    kernel = from_data.with_target(target).compile()
    assert recorded(kernel, ONES[:64], np.array([2], np.int32)) == (True, "")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (lambda kernel, *args: kernel.replay(*args, block=7),
         "'from_data' has no block 7 in this call"),
        (lambda kernel, *args: kernel.numerics(*args, block=(7,)),
         "'from_data' has no block (7,) in this call"),
        (lambda kernel, *args: kernel.footprint(*args, blocks=[7]),
         "block 7 of 'from_data' does not exist, or touches no tensor\n"
         "hint: blocks are numbered from 0, x fastest"),
    ],
)  # fmt: skip
def test_a_block_that_a_grid_from_data_does_not_have(record: Any, message: str) -> None:
    with pytest.raises(ArgumentError) as error:
        record(from_data.compile(), ONES[:64], np.array([2], np.int32))
    assert str(error.value) == message


def raising(a: Any) -> Any:
    raise KeyError("weights")


@TARGETS
@EVERY
@pytest.mark.parametrize(
    ("reference", "error", "message"),
    [
        (raising, KeyError, "weights"),
        (lambda a: a[:128] * 2, CheckError, r"has shape \(256,\), the reference \(128,\)"),
        (lambda a: (a, a), ArgumentError, "'double' has 1 output, the reference 2"),
        (lambda a: np.where(np.arange(256) == 40, np.nan, 2 * a), CheckError,
         r"first at \[40\], where it is 2 instead of nan"),
    ],
    ids=["raises", "other shape", "other number", "NaN"],
)  # fmt: skip
def test_after_a_check_that_its_reference_fails_all_can_be_recorded(
    recorded: Recorded, target: str, reference: Any, error: type[Exception], message: str
) -> None:
    kernel = double.with_target(target).compile()
    with pytest.raises(CheckError):  # whose map must not stay
        kernel.check(lambda a: a, ONES)
    with pytest.raises(error, match=message):
        kernel.check(reference, ONES)
    assert (kernel.error_map is not None) == ("instead of nan" in message)
    assert recorded(kernel) == (True, "")
    if recorded is replayed:
        assert kernel.last_replay.blocks == (((1,),) if kernel.error_map else ((0,),))


def test_elements_whose_reference_is_nan_are_counted_apart() -> None:
    kernel = double.compile()
    with pytest.raises(CheckError) as error:
        kernel.check(lambda a: np.where(np.arange(256) == 40, np.nan, 2 * a), ONES)
    assert "only at [40]; the reference is NaN in 1 of them" in str(error.value)
    assert kernel.check(lambda a: 2 * a, np.where(np.arange(256) == 40, np.nan, ONES)).ok


@pytest.mark.parametrize(
    ("record", "watcher", "why"),
    [
        (replayed, StepRecorder, "the run was interrupted: the steps until then are kept"),
        (footprint_of, FootprintRecorder, "the simulation was interrupted"),
        (numerics_of, watching.Comparing, "the simulation was interrupted"),
    ],
)
def test_an_interrupt_in_the_middle_keeps_what_was_recorded(
    record: Recorded, watcher: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, calls = watcher.ended, []

    def interrupting(self: Any, frame: Any, stmt: Any) -> None:
        ended(self, frame, stmt)
        calls.append(stmt)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watcher, "ended", interrupting)
    something, said = record(double.compile(), ONES)
    assert something and why in said and len(calls) == 3


@tw.jit
def large(A: T.Tensor((1 << 20,), "float32")):
    B = T.empty((1 << 20,), "float32")
    with T.Kernel(256, threads=128) as bx:
        for i in T.Parallel(4096):
            B[bx * 4096 + i] = A[bx * 4096 + i] + 1.0
    return B


def test_a_kernel_too_large_to_record() -> None:
    """A replay says what it would take and has one block; the other two are bounded."""
    kernel, ones = large.compile(), np.ones(1 << 20, np.float32)
    replay = kernel.replay(ones, block="all", memory_bytes=1 << 20)
    assert replay.blocks == ((0,),) and replay.bytes_ <= 1 << 20
    (note,) = replay.notes
    assert note.startswith("all 256 blocks would take about ")
    assert note.endswith(
        "of which 1 MiB are allowed: only block (0) was recorded; 'block=' chooses another one, "
        "'memory_bytes=' allows more"
    )
    with pytest.raises(SimulatorLimitError, match="memory_bytes=524288"):
        kernel.replay(ones, memory_bytes=1 << 10)
    _, why = footprint_of(kernel, ones, seconds=0)
    assert why.startswith("0 s were over")


def test_numerics_of_more_than_it_keeps_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_BYTES", 600)
    something, why = numerics_of(double.compile(), ONES)
    assert something and why == "the replay keeps 0 MiB, which the first 2 steps fill"
