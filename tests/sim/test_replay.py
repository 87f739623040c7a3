"""A recorded run: the memory after each step is what a direct copy was, back and forth."""
# Annotations are evaluated where the kernels are defined: no `from __future__ import annotations`.

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.sim.threads import threads
from tileworkbench.compiler.sim.frame import SimOptions
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.replay.model import UNDEFINED, Replay
from tileworkbench.compiler.sim.replay.places import Places
from tileworkbench.compiler.sim.replay.recorder import StepRecorder
from tileworkbench.compiler.sim.simulate import simulate


class Copies(Observer):
    """Copies all memory of the recorded block after each step, before the next one begins."""

    def __init__(self, recorder: StepRecorder) -> None:
        self.recorder = recorder
        self.states: dict[int, dict[str, bytes]] = {}

    def began(self, frame: Any, stmt: Any) -> None:
        self.copy(self.recorder.total - 2)

    def copy(self, step: int) -> None:
        self.states[step] = {
            contents.name: tracked.contents().tobytes()
            for tracked, contents in self.recorder._tracked
            if contents.scope != "global" and contents.born <= step
        }


@tw.jit
def product(A: T.Tensor((64, 96), "float16"), B: T.Tensor((96, 64), "float16")):
    C = T.empty((64, 64), "float32")
    with T.Kernel(2, 2, threads=64) as (bx, by):
        left = T.alloc_shared((32, 32), "float16")
        right = T.alloc_shared((32, 32), "float16")
        total = T.alloc_fragment((32, 32), "float32")
        T.clear(total)
        for k in T.Pipelined(3, num_stages=2):
            T.copy(A[by * 32, k * 32], left)
            T.copy(B[k * 32, bx * 32], right)
            T.gemm(left, right, total)
        T.copy(total, C[by * 32, bx * 32])
    return C


@tw.jit
def scratch(A: T.Tensor((8, 16), "float32")):
    """Memory of each iteration, views, a loop that makes its tile anew, atomics."""
    B = T.empty((8, 16), "float32")
    with T.Kernel(2, threads=32) as bx:
        own = T.alloc_local((2,), "float32")
        rows = T.alloc_shared((4, 16), "float32")
        flat = T.view(rows, (64,))
        T.clear(rows)
        for i, j in T.Parallel(4, 16):
            own[0] = A[bx * 4 + i, j]
            own[1] = own[0] * 2.0
            rows[i, j] = own[0] + own[1]
        for step in T.serial(2):
            tile = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                tile[i] = flat[i] + step
            T.copy(tile, flat)
        for i, j in T.Parallel(4, 16):
            T.atomic_add(rows[i, 0], 1.0)
        T.copy(rows, B[bx * 4, 0])
    return B


@tw.jit
def exchange(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64,), "float32")
        tx = T.get_thread_binding()
        if tx < 32:
            tile[tx] = A[tx]
        else:
            tile[tx] = A[tx] * 2.0
        T.sync_threads()
        B[tx] = tile[63 - tx]
    return B


@tw.jit
def pipelined(A: T.Tensor((4, 64), "float32")):
    B = T.empty((4, 64), "float32")
    with T.Kernel(1, threads=64):
        tiles = T.alloc_shared((2, 64), "float32")
        T.async_copy(A[0, :], tiles[0, :])
        T.ptx_commit_group()
        for k in T.serial(4):
            if k < 3:
                T.async_copy(A[k + 1, :], tiles[(k + 1) % 2, :])
            T.ptx_commit_group()
            T.ptx_wait_group(1)
            T.copy(tiles[k % 2, :], B[k, :])
    return B


def line_of(text: str) -> int:
    """The line of this file that is `text` first."""
    lines = Path(__file__).read_text().splitlines()
    return 1 + [line.strip() for line in lines].index(text)


KERNELS = {"product": product, "scratch": scratch, "exchange": exchange, "pipelined": pipelined}
STAGES = [("cpu", "tile"), ("cpu", "lowered"), ("sim:sm_80", "infer_thread_layouts"),
          ("sim:sm_80", "lowered")]  # fmt: skip


def compiled(name: str, target: str, stage: str) -> tuple[Any, Any, dict[str, Any]]:
    kernel = KERNELS[name].with_target(target).compile()
    named = stage if stage != "lowered" else -1
    program = kernel.program if stage == "tile" else kernel.passes[named].program
    random = np.random.default_rng(0)
    arguments = {
        param.name: random.standard_normal([int(e.value) for e in param.value.shape]).astype(
            str(param.value.dtype)
        )
        for param in kernel.program.params
        if not param.output
    }
    return kernel, program, arguments


def recorded(
    name: str, target: str, stage: str, **options: Any
) -> tuple[Replay, Copies, dict[str, Any]]:
    kernel, program, arguments = compiled(name, target, stage)
    shapes = {p.name: tuple(int(e.value) for e in p.value.shape) for p in kernel.program.params}
    recorder = StepRecorder(shapes=shapes, **options)
    copies = Copies(recorder)
    told = SimOptions(observers=(recorder, copies), blocks=(0,))
    result = simulate(program, arguments, options=told, signature=kernel.program)
    copies.copy(recorder.total - 1)
    plain = simulate(program, arguments, options=SimOptions(blocks=(0,)), signature=kernel.program)
    for tensor, values in plain.arrays.items():
        np.testing.assert_array_equal(result.arrays[tensor], values)
    return recorder.replay(name, stage), copies, plain.arrays


@pytest.mark.parametrize(("target", "stage"), STAGES)
@pytest.mark.parametrize("name", KERNELS)
def test_memory_after_a_step_is_what_it_was_then(name: str, target: str, stage: str) -> None:
    replay, copies, arrays = recorded(name, target, stage)
    steps = list(copies.states)
    # Once from the end to the start, once forth, once across.
    for step in [*reversed(steps), *steps, *np.random.default_rng(1).permutation(steps)[:20]]:
        data, _ = replay.memory(int(step))
        for number, buffer in enumerate(replay.buffers):
            if buffer.scope != "global" and buffer.name in copies.states[step]:
                assert data[number].tobytes() == copies.states[step][buffer.name], buffer.name
    for name, values in replay.at(replay.last).buffers.items():
        buffer = next(each for each in replay.buffers if each.name == name)
        if buffer.scope == "global":
            box = tuple(slice(o, o + e) for o, e in zip(buffer.origin, buffer.shape, strict=True))
            np.testing.assert_array_equal(values, arrays[name][box])


@pytest.mark.parametrize(("target", "stage"), STAGES)
def test_back_to_the_start_and_forth_again_is_the_end(target: str, stage: str) -> None:
    replay, *_ = recorded("scratch", target, stage)
    end = [each.copy() for each in replay.memory(replay.last)[0]]
    owners = [each.copy() for each in replay.memory(replay.last)[1]]
    replay.memory(replay.first - 1)
    for held, kept in zip(replay.memory(replay.last), (end, owners), strict=True):
        for now, then in zip(held, kept, strict=True):
            assert now.tobytes() == then.tobytes()


def test_a_step_tells_its_line_loops_reads_and_writes() -> None:
    replay, *_ = recorded("product", "cpu", "tile")
    products = [row for row in replay.to_dict() if row["kind"] == "gemm"]
    assert [row["loops"] for row in products] == [{"k": 0}, {"k": 1}, {"k": 2}]
    assert products[0]["writes"] == {"total": 1024}
    assert products[0]["reads"] == {"left": 1024, "right": 1024, "total": 1024}
    assert products[0]["line"] == products[2]["line"] == line_of("T.gemm(left, right, total)")
    assert len(replay.to_dict()) == len(replay)


def test_a_tensor_is_the_box_that_the_block_touches() -> None:
    kernel, program, arguments = compiled("product", "sim:sm_80", "lowered")
    recorder = StepRecorder(shapes={"A": (64, 96), "B": (96, 64), "C": (64, 64)})
    options = SimOptions(observers=(recorder,), blocks=(3,))
    result = simulate(program, arguments, options=options, signature=kernel.program)
    replay = recorder.replay("product", "lowered")
    found = {each.name: each for each in replay.buffers}
    assert (found["C"].origin, found["C"].shape) == ((32, 32), (32, 32))
    assert (found["A"].origin, found["A"].shape) == ((32, 0), (32, 96))
    np.testing.assert_array_equal(replay.at(replay.last).buffers["C"], result.outputs[0][32:, 32:])
    assert replay.blocks == ((1, 1),)


def test_who_wrote_an_element_last_is_known_with_line_and_thread() -> None:
    replay, *_ = recorded("exchange", "sim:sm_80", "lowered")
    state = replay.at(replay.last)
    low, high = state.writer("tile", (3,)), state.writer("tile", (40,))
    assert low is not None and high is not None
    assert (low.thread, low.span.line) == (3, line_of("tile[tx] = A[tx]"))
    assert (high.thread, high.span.line) == (40, line_of("tile[tx] = A[tx] * 2.0"))
    assert state.dirty.keys() == {"B"}
    first = replay.at(next(s.number for s in replay.steps if s.kind == "alloc"))
    assert first.undefined["tile"].all() and first.writer("tile", (3,)) is None
    assert (replay.memory(first.step)[1][0] != UNDEFINED).all()  # an argument


def test_copies_are_under_way_from_their_start_to_their_wait() -> None:
    replay, *_ = recorded("pipelined", "sim:sm_80", "tile")
    kinds = {step.number: step.kind for step in replay.steps}
    assert len(replay.flights) == 4
    for flight in replay.flights[:3]:
        assert kinds[flight.began] == "asynccopy" or kinds[flight.began] == "copy"
        assert kinds[flight.ended] == "waitgroup" and flight.ended > flight.began
    assert kinds[replay.flights[3].ended] == "waitgroup"
    landing = replay.flights[0].ended
    change = next(c for c in replay.step(landing).changes if c.lands)
    assert replay.line(change.site) == replay.line(replay.flights[0].site)


def test_threads_wait_at_a_barrier_until_the_others_come() -> None:
    replay, *_ = recorded("exchange", "sim:sm_80", "tile")
    assert not replay.waits  # all come at once

    @tw.jit(target="sim:sm_80")
    def apart(A: T.Tensor((64,), "float32")):
        B = T.empty((64,), "float32")
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((64,), "float32")
            tx = T.get_thread_binding()
            if tx < 32:
                tile[tx] = A[tx]
                T.sync_threads(1, 64)
            else:
                tile[tx] = A[tx] * 2.0
                T.sync_threads(1, 64)
            B[tx] = tile[63 - tx]
        return B

    replay = apart.compile().replay(np.ones(64, np.float32))
    (wait,) = replay.waits
    assert wait.threads == "threads 0-31"
    assert wait.what == "at barrier 1, where 32 of 64 threads have arrived"
    assert replay.step(wait.ended).kind == "go on"
    assert replay.step(wait.ended).threads == "threads 0-31"
    assert not replay.moments


def test_of_a_long_run_the_last_steps_are_kept() -> None:
    whole, *_ = recorded("product", "sim:sm_80", "lowered")
    part, *_ = recorded("product", "sim:sm_80", "lowered", memory_bytes=60_000)
    assert part.first > 0 and part.last == whole.last and part.total == whole.total
    assert part.bytes_ <= 60_000 < whole.bytes_
    for step in (part.first - 1, part.first, part.last):
        for now, then in zip(part.memory(step)[0], whole.memory(step)[0], strict=True):
            assert now.tobytes() == then.tobytes()
    assert part.notes[0].startswith(
        f"the last {len(part)} of {part.total} steps are kept: all take"
    )
    with pytest.raises(
        IndexError, match=f"there is no step 0: {part.first} to {part.last} are kept"
    ):
        part.at(0)


@pytest.mark.parametrize(
    ("places", "positions", "rising"),
    [
        (Places((4, 5), box=(slice(1, 3), slice(2, 4))), [7, 8, 12, 13], True),
        (Places((4, 5), np.array([13, 7, 8])), [13, 7, 8], False),
        (Places((4, 5), np.array([7, 7])), [7, 7], False),
        (Places((), box=()), [0], True),
        (Places((4, 5), box=(slice(2, 2), slice(0, 5))), [], True),
    ],
)
def test_a_box_and_its_positions_are_the_same_places(
    places: Places, positions: list[int], rising: bool
) -> None:
    values = np.arange(100, 100 + int(np.prod(places.shape)))
    assert places.positions.tolist() == positions and places.size == len(positions)
    assert places.is_rising is rising
    assert places.take(values).tolist() == [100 + at for at in positions]
    places.put(values, np.arange(places.size))
    assert places.take(values).tolist()[-1:] == [places.size - 1][: places.size]
    assert set(np.flatnonzero(values < 100)) == set(positions)
    places.put(values, -1)
    assert set(np.flatnonzero(values < 0)) == set(positions)
    assert all(at in places for at in positions) and 19 not in places


@pytest.mark.parametrize("given", ["box", "positions"])
def test_places_in_a_part_of_their_buffer(given: str) -> None:
    box = Places((4, 5), box=(slice(1, 3), slice(2, 4)))
    places = box if given == "box" else Places((4, 5), box.positions)
    inside = places.cut((1, 1), (3, 4))
    assert inside.shape == (3, 4) and inside.positions.tolist() == [1, 2, 5, 6]


def test_a_misaligned_vector_is_found_at_its_step() -> None:
    tensors = "A: (64,) float32; B: (64,) float32"
    body = """
S = T.alloc_shared((64,), "float32", offset=0)
S[tx] = A[tx]
T.sync_threads()
if tx < 15:
    S[T.Ramp(tx * 4 + 2, 1, 4)] = A[T.Ramp(tx * 4, 1, 4)]
T.sync_threads()
B[tx] = S[tx]
"""
    recorder = StepRecorder()
    given = {"A": np.ones(64, np.float32), "B": np.zeros(64, np.float32)}
    simulate(threads(tensors, body, 64), given, options=SimOptions(observers=(recorder,)))
    replay = recorder.replay("kernel", "SIMT")
    (found,) = replay.moments
    assert (found.kind, found.buffer, found.thread) == ("misaligned", "S", 0)
    assert found.message == (
        "'S[2]' in block (0), thread 0: the address of this access is not a multiple of its size"
    )
    assert found.hint == (
        "begin the vector at a multiple of its length, or access the elements one by one"
    )
    step = replay.step(found.step)
    assert (step.kind, step.threads) == ("store", "threads 0-14")
    assert found.span is not None and found.span.line == 4 == replay.line(step.site)
    written = replay.at(found.step).dirty["S"]
    assert np.flatnonzero(written).tolist() == list(range(2, 62))
