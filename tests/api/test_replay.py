"""`Kernel.replay`: which block, what is wrong at which step, what is too large or never ends."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

import math
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.api import wrong_kernels, wrong_synchronisation
from tileworkbench.compiler.diagnostics import (
    ArgumentError,
    RunError,
    SimulatorLimitError,
    UnsupportedError,
)
from tileworkbench.compiler.sim.replay import recorder as recorders
from tileworkbench.viz.magics import extension
from tileworkbench.workbench.kernel import Kernel

CASES = wrong_kernels.cases() | wrong_synchronisation.cases()


def checked(name: str, target: str = "cpu") -> Kernel:
    """A kernel with a planted bug whose check has failed."""
    kernel, reference, inputs = CASES[name]
    compiled = kernel.with_target(target).compile()
    with pytest.raises(RunError):
        compiled.check(reference, *inputs)
    return compiled


def source_line(kernel: Any, line: int) -> str:
    """A line of the kernel's file."""
    with open(kernel.record.source_file) as file:
        return file.read().splitlines()[line - 1].strip()


@tw.jit
def barriers_in_both_arms(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        tile[tx] = A[tx]
        if tx % 2 == 0:
            T.sync_threads()  # BUG
        else:
            T.sync_threads()
        B[tx] = tile[63 - tx]
    return B


@tw.jit
def exchange_in_one_arm(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tx = T.get_thread_binding()
        x = T.alloc_local((1,), "float32")
        x[0] = A[tx]
        if tx % 2 == 0:
            x[0] = T.shfl_xor(x[0], 1)  # BUG
        B[tx] = x[0]
    return B


@pytest.mark.parametrize(
    ("wrong", "target", "step", "message", "hint"),
    [
        (barriers_in_both_arms, "cpu", 2,
         "'barrier 0' in block (0), thread 0: only some threads of a warp reach this barrier",
         "move the barrier out of the branch, so that whole warps reach it"),
        (exchange_in_one_arm, "cpu", 2,
         "'shfl_xor' is executed by 16 of the 32 threads of warp 0 that must take part in block "
         "(0)",
         "let all threads of the warp take part, or exchange within the active ones only"),
        (exchange_in_one_arm, "sim:sm_80", 2,
         "'shfl_xor' is executed by 16 of the 32 threads of warp 0 that must take part in block "
         "(0)",
         "let all threads of the warp take part, or exchange within the active ones only"),
    ],
)  # fmt: skip
def test_divergence_without_a_deadlock_is_found_at_its_step(
    wrong: Any, target: str, step: int, message: str, hint: str
) -> None:
    kernel = wrong.with_target(target).compile()
    with pytest.raises(RunError) as error:
        kernel.check(lambda a: a, np.ones(64, np.float32))
    assert error.value.message == message and error.value.hint == hint
    replay = error.value.kernel.replay()
    found = replay.moments[0]
    assert (found.kind, found.message, found.hint) == ("divergent", message, hint)
    assert found.step == step and "^^^" in found.text
    assert source_line(kernel, found.span.line).endswith("# BUG")
    assert replay.step(step).threads == "threads 0, 2, 4, ..., 62"


def test_lowering_refuses_barriers_that_part_of_a_warp_reaches() -> None:
    with pytest.raises(UnsupportedError, match="only some threads of a warp reach this barrier"):
        barriers_in_both_arms.with_target("sim:sm_80").compile()


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
@pytest.mark.parametrize(
    ("name", "kind", "line", "other", "hint"),
    [
        ("missing_barrier", "race", "T.copy(tile, B)  # BUG", "T.copy(A, tile)",
         "put T.sync_threads() between the two accesses, or add to it with T.atomic_add"),
        ("split_k_without_atomic", "race", "C[i, j] += tile[i, j]  # BUG",
         "C[i, j] += tile[i, j]  # BUG",
         "read it in a second T.Kernel, or behind T.sync_grid()"),
        ("missing_clear", "uninitialised", "tile[i, j] += A[i, j]  # BUG", None,
         "write it first, with T.clear, T.fill or T.copy"),
        ("divergent_barrier", "deadlock", "T.sync_threads()  # BUG", None,
         "let all threads that a barrier waits for reach it, whatever branch they take"),
        ("use_before_wait", "uninitialised", "T.copy(tiles, B)  # BUG",
         "T.async_copy(A[k, :], tiles[k, :])",
         "wait for the copy first, with T.ptx_wait_group(0) or at its memory barrier"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_found_at_its_step(
    name: str, kind: str, line: str, other: str | None, hint: str, target: str
) -> None:
    kernel = checked(name, target)
    replay = kernel.replay()
    found = replay.moments[0]
    assert (found.kind, found.hint) == (kind, hint)
    assert found.span is not None and f"\nhint: {hint}" in found.text and "^^^" in found.text
    assert source_line(kernel, found.span.line) == line
    assert replay.span(replay.step(found.step).site).line == found.span.line
    if other is None:
        assert found.other == -1
    else:
        assert 0 <= found.other < found.step
        assert source_line(kernel, replay.line(replay.step(found.other).site)) == other


def test_both_threads_of_a_race_are_named() -> None:
    found = checked("missing_barrier", "sim:sm_80").replay().moments[0]
    assert (found.thread, found.other_thread) == (128, 0)
    assert (found.buffer, found.index) == ("tile", (0, 0))


def test_two_blocks_that_write_one_element_are_both_recorded() -> None:
    replay = checked("overlapping_blocks").replay()
    (found,) = replay.moments
    assert replay.blocks == ((0,), (1,))
    assert replay.step(found.step).block == (1,) and replay.step(found.other).block == (0,)


@tw.jit
def outside(A: T.Tensor((64,), "float32"), N: T.int32):
    B = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_shared((16,), "float32")
        T.clear(tile)
        tx = T.get_thread_binding()
        tile[tx] = A[bx * 32 + tx]
        B[bx * 32 + tx] = tile[tx]
    return B


def test_an_access_outside_is_found_at_its_step_and_the_block_goes_on() -> None:
    replay = outside.with_target("sim:sm_80").compile().replay(np.ones(64, np.float32), 1, block=1)
    first, second = replay.moments
    assert (first.kind, first.thread, first.index) == ("out of bounds", 16, (16,))
    assert first.message == (
        "'tile[16]' in block (1), thread 16: this store is outside its shape (16)"
    )
    assert second.message == (
        "'tile[16]' in block (1), thread 16: this load is outside its shape (16)"
    )
    assert second.step == replay.last > first.step


def test_a_failed_check_opens_the_block_of_its_first_wrong_element() -> None:
    assert checked("ragged_edge").replay().blocks == ((3,),)


def test_a_call_that_raises_is_the_one_that_is_replayed() -> None:
    kernel, _, inputs = CASES["divergent_barrier"]
    simulated = kernel.with_target("sim:sm_80").compile()
    with pytest.raises(RunError):
        simulated(*inputs)
    replay = simulated.replay()
    (wait,) = replay.waits
    assert replay.moments[0].kind == "deadlock"
    assert (wait.threads, wait.ended) == ("threads 0-31", -1)
    assert wait.what == "at barrier 0, where 32 of 64 threads have arrived"


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


def test_inputs_are_made_up_and_the_first_block_is_taken() -> None:
    replay = double.compile().replay()
    assert (replay.blocks, replay.grid, replay.stage) == (((0,),), (8,), "tile")
    state = replay.at(replay.last).buffers
    np.testing.assert_array_equal(state["B"], 2 * state["A"])
    assert str(replay) == "double, block (0), stage 'tile': 4 steps"


def test_nothing_is_recorded_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders.StepRecorder, "began", None)
    kernel = double.compile()
    ones = np.ones(256, np.float32)
    kernel.check(lambda a: 2 * a, ones)
    kernel.simulate(ones)
    with pytest.raises(TypeError, match="not callable"):
        kernel.replay(ones)


@pytest.mark.parametrize("block", [8, -1, (8,), (0, 0)])
def test_a_block_that_is_not_there(block: Any) -> None:
    with pytest.raises(ArgumentError) as error:
        double.compile().replay(block=block)
    assert str(error.value) == f"'double' has no block {block}: its grid is 8"


def test_all_blocks_or_one_where_all_are_too_large() -> None:
    kernel = double.compile()
    replay = kernel.replay(block="all")
    assert replay.blocks == tuple((x,) for x in range(8)) and not replay.notes
    part = kernel.replay(block="all", memory_bytes=8000)
    assert part.blocks == ((0,),)
    (note,) = part.notes
    assert note == (
        "all 8 blocks would take about 20 KiB, of which 8 KiB are allowed: only block (0) was "
        "recorded; 'block=' chooses another one, 'memory_bytes=' allows more"
    )


def test_tensors_that_are_too_large_to_copy() -> None:
    with pytest.raises(SimulatorLimitError) as error:
        double.compile().replay(memory_bytes=100)
    assert str(error.value) == (
        "a replay of 'double' keeps a copy of the tensors it writes, which takes 1 KiB: more than "
        "1 KiB\nhint: pass smaller tensors, or allow more: memory_bytes=128"
    )


@tw.jit
def endless(A: T.Tensor((32,), "int32")):
    B = T.empty((32,), "int32")
    with T.Kernel(1, threads=32):
        count = T.alloc_local((1,), "int32")
        count[0] = 1
        while count[0] > 0:
            count[0] = count[0] % 7 + 1
        T.copy(A, B)
    return B


def test_of_a_kernel_that_never_ends_the_last_steps_are_kept() -> None:
    replay = endless.compile().replay(np.zeros(32, np.int32), seconds=0.5, memory_bytes=20_000)
    kept, ended = replay.notes
    assert kept.startswith(f"the last {len(replay)} of {replay.total} steps are kept: all take")
    assert ended == "the run was ended after 0.5 s; 'seconds=' allows more"
    assert replay.first > 0 and replay.bytes_ <= 20_000
    assert 1 <= replay.at(replay.last).buffers["count"][0] <= 7


def test_a_limit_of_statements_is_the_same_on_every_machine() -> None:
    kernel = endless.compile()
    for most, steps in ((50, 48), (51, 49)):  # launch and loop are statements, and no steps
        replay = kernel.replay(np.zeros(32, np.int32), seconds=None, most_statements=most)
        assert replay.notes == (f"the run was ended after {most} statements",)
        assert len(replay) == steps


def test_what_is_replayed_unasked_does_not_depend_on_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @tw.jit(target="sim:sm_80")
    def histogram(X: T.Tensor((512,), "int32")):
        C = T.empty((64,), "int32")
        with T.Kernel(1, threads=128):
            count = T.alloc_shared((64,), "int32")
            T.clear(count)
            for i in T.Parallel(512):
                count[X[i] % 64] = count[X[i] % 64] + 1
            T.copy(count, C)
        return C

    with pytest.raises(RunError) as found:
        histogram(np.arange(512, dtype=np.int32))
    monkeypatch.setattr("tileworkbench.compiler.sim.recorder.perf_counter", lambda: math.inf)
    assert extension._replays(found.value)


def test_an_interrupt_keeps_what_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = recorders.StepRecorder.ended

    def interrupting(self: Any, frame: Any, stmt: Any) -> None:
        ended(self, frame, stmt)
        if self.total == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(recorders.StepRecorder, "ended", interrupting)
    replay = double.compile().replay()
    assert len(replay) == 3
    assert replay.notes == ("the run was interrupted: the steps until then are kept",)


@tw.jit
def from_data(A: T.Tensor((64,), "float32"), N: T.Tensor((1,), "int32")):
    B = T.empty((64,), "float32")
    with T.Kernel(N[0], threads=32) as bx:
        for i in T.Parallel(32):
            B[bx * 32 + i] = A[bx * 32 + i]
    return B


def test_a_grid_that_comes_from_data() -> None:
    kernel = from_data.compile()
    args = np.ones(64, np.float32), np.array([2], np.int32)
    assert kernel.replay(*args, block=1).blocks == ((1,),)
    with pytest.raises(ArgumentError) as error:
        kernel.replay(*args, block=(1,))
    assert str(error.value) == (
        "the grid of 'from_data' comes from data\n"
        "hint: name the block by its number, x fastest: block=0"
    )


@tw.jit
def stopping(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        for k in T.serial(3):
            tile[tx] = A[tx] + k
            if tx == 5:
                T.breakpoint()
        T.sync_threads()
        B[tx] = tile[63 - tx]
    return B


@pytest.mark.parametrize("stage", ["tile", "lowered"])
@pytest.mark.parametrize("target", ["cpu", "sim:sm_80", "ptx:sm_80"])
def test_a_replay_stops_at_breakpoints_at_every_stage(target: str, stage: str) -> None:
    kernel = stopping.with_target(target).compile()
    ones = np.ones(64, np.float32)
    replay = kernel.replay(ones, stage=stage)
    assert [found.kind for found in replay.moments] == ["breakpoint"] * 3
    for k, found in enumerate(replay.moments):
        assert source_line(kernel, found.span.line) == "T.breakpoint()"
        assert replay.step(found.step).kind == "breakpoint"
        assert replay.at(found.step).buffers["tile"][5] == 1 + k
    if target != "cpu" or stage == "tile":
        assert replay.step(replay.moments[0].step).threads == "thread 5"


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_calls_pass_over_breakpoints_and_the_warnings_say_so(target: str) -> None:
    kernel = stopping.with_target(target).compile()
    np.testing.assert_array_equal(kernel(np.ones(64, np.float32)), np.full(64, 3, np.float32))
    (note,) = kernel.warnings
    assert note.message == "calls pass over T.breakpoint(); kernel.show('replay') opens there"
    assert source_line(kernel, note.span.line) == "T.breakpoint()"


def test_the_code_of_a_gpu_has_no_trace_of_a_breakpoint() -> None:
    source = stopping.with_target("cuda:sm_80").compile().source
    assert "breakpoint" not in source.replace("T.breakpoint()", "")  # the user's lines stand in it


def test_an_error_names_its_kernel() -> None:
    kernel, reference, inputs = CASES["missing_barrier"]
    compiled = kernel.with_target("cpu").compile()
    with pytest.raises(RunError) as error:
        compiled.check(reference, *inputs)
    assert error.value.kernel is compiled


def test_the_rows_of_the_last_replay_are_plain_data() -> None:
    kernel = double.compile()
    replay = kernel.replay(block=(2,))
    rows = replay.to_dict()
    assert [row["kind"] for row in rows] == ["alloc", "copy", "store", "copy"]
    assert rows[1] == {
        "step": 1,
        "block": [2],
        "line": replay.line(replay.step(1).site),
        "kind": "copy",
        "text": "T.copy(A[bx * 32:bx * 32 + 32], tile)",
        "threads": "",
        "loops": {},
        "reads": {"A": 32},
        "writes": {"tile": 32},
    }


@tw.jit(target="sim:sm_90a")
def with_producer(A: T.Tensor((128, 64), "float16"), B: T.Tensor((64, 64), "float16")):
    C = T.empty((128, 64), "float32")
    with T.Kernel(1, threads=256):
        a = T.alloc_shared((128, 32), "float16")
        b = T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((128, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(2, num_stages=2):
            T.copy(A[0, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, C)
    return C


def test_steps_flights_and_waits_name_roles() -> None:
    replay = with_producer.compile().replay(stage="lowered")
    by_kind = {step.kind: step.threads for step in replay.steps}
    assert by_kind["tensorload"] == "producer (thread 256)"
    assert by_kind["wgmma"] == "consumers 0 and 1 (threads 0-255)"
    assert by_kind["barrierinit"] == "consumer 0 (thread 0)"
    assert by_kind["barrier"] == "threads 0-383"
    assert {flight.engine: flight.threads for flight in replay.flights} == {
        "tma": "producer (thread 256)",
        "wgmma": "consumers 0 and 1 (threads 0-255)",
    }


def test_who_waits_for_bytes_only_waits_until_they_land() -> None:
    replay = with_producer.compile().replay(stage="lowered")
    waits = [wait for wait in replay.waits if "bytes" in wait.what]
    assert [(wait.threads, wait.what) for wait in waits] == [
        ("consumers 0 and 1 (threads 0-255)",
         f"for parity 0 of 'filled[{at}]', which lacks 12288 bytes")
        for at in range(2)
    ]  # fmt: skip
    for wait in waits:
        kinds = [replay.step(at).kind for at in range(wait.began, wait.ended + 1)]
        assert kinds == ["barrier wait", "land", "go on"]
        assert any(flight.began < wait.began < flight.ended for flight in replay.flights)


@tw.jit(target="sim:sm_90a")
def with_written_roles(A: T.Tensor((128,), "float32")):
    B = T.empty((128,), "float32")
    with T.Kernel(1, threads=256):
        tile = T.alloc_shared((128,), "float32")
        full = T.alloc_barrier(128)
        tx = T.get_thread_binding()
        with T.ws(0):
            T.barrier_wait(full, 0)
            B[tx] = tile[127 - tx]
        with T.ws(1):
            tile[tx - 128] = A[tx - 128]
            T.barrier_arrive(full)
    return B


@pytest.mark.parametrize("stage", ["tile", "lowered"])
def test_roles_that_the_kernel_writes_have_the_same_names(stage: str) -> None:
    replay = with_written_roles.compile().replay(np.ones(128, np.float32), stage=stage)
    stores = [step for step in replay.steps if step.kind == "store"]
    assert [step.threads for step in stores] == [
        "producer (threads 128-255)",
        "consumer 0 (threads 0-127)",
    ]
    (wait,) = replay.waits
    assert wait.threads == "consumer 0 (threads 0-127)"
    assert wait.what == "for parity 0 of 'full[0]', which lacks 128 of 128 arrivals"
