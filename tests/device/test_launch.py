from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest

from tests.device.kernels import (
    ASSERTING,
    COUNT,
    EMPTY,
    SAXPY,
    SCRATCHING,
    WITNESS,
    Code,
    launcher,
)
from tileworkbench.compiler.device.host import launch, threads
from tileworkbench.compiler.device.host.dispatch import dispatch
from tileworkbench.compiler.device.host.dispatch_ir import CODE_WORD
from tileworkbench.compiler.device.host.launch import _Record
from tileworkbench.compiler.diagnostics import ArgumentError, DeviceAssertError
from tileworkbench.compiler.runtime.scalars import scalar_encoder

TINY_NS = 1.0


def saxpy_slots(x: numpy.ndarray, y: numpy.ndarray, a: float) -> tuple[int, int, int]:
    return x.ctypes.data, y.ctypes.data, scalar_encoder("", "float32")(a)


@pytest.mark.parametrize("chunk", [0, 1, 7, 1000])
@pytest.mark.parametrize("blocks", [1, 2, 25])
def test_every_block_runs_once(team: str, blocks: int, chunk: int) -> None:
    x = numpy.arange(4.0 * blocks, dtype=numpy.float32)
    y = numpy.ones_like(x)
    run = launcher(SAXPY, 3, chunk)
    run(saxpy_slots(x, y, 2.0), blocks)
    run(saxpy_slots(x, y, 1.0), blocks, TINY_NS)
    numpy.testing.assert_array_equal(y, 3 * x + 1)


def test_many_launches_in_a_row(team: str) -> None:
    count = ctypes.c_int64(0)
    run = launcher(COUNT)
    for _ in range(300):
        run((ctypes.addressof(count),), 10)
    assert count.value == 3000


def test_launches_from_several_threads_at_once(team: str) -> None:
    run = launcher(COUNT)
    counts = [ctypes.c_int64(0) for _ in range(6)]

    def work(count: ctypes.c_int64) -> None:
        for _ in range(50):
            run((ctypes.addressof(count),), 7)

    with ThreadPoolExecutor(len(counts)) as executor:
        list(executor.map(work, counts))
    assert [count.value for count in counts] == [350] * len(counts)


def test_scratch_memory_is_private_to_worker_and_launch(team: str) -> None:
    run = launcher(SCRATCHING, 1, 1, ("scratch memory is shared",))
    with ThreadPoolExecutor(4) as executor:
        list(executor.map(lambda _: run((0,), 12), range(8)))


def test_a_larger_team_gets_larger_scratch_memory(team: str) -> None:
    run = launcher(SCRATCHING, 1, 1, ("scratch memory is shared",))
    for count in (1, 2, 4, 8, 2):
        threads.set_num_threads(count)
        run((0,), 16)


def witnesses(run: launch.Launcher, blocks: int, wanted: int) -> numpy.ndarray:
    """For each block who ran it: call, thread, scratch memory; `wanted` calls wait for each
    other."""
    seen = numpy.zeros(1 + 3 * blocks, numpy.int64)
    run((seen.ctypes.data, wanted), blocks)
    return seen[1:].reshape(blocks, 3)


def test_each_worker_begins_with_its_own_row_of_blocks(team: str) -> None:
    run = launcher(WITNESS, 2, chunk=1)
    first = witnesses(run, 3, wanted=3)
    assert len(set(first[:, 1])) == 3
    memory = first[:, 2] - first[0, 2]
    numpy.testing.assert_array_equal(memory, run.stride * numpy.arange(3))
    if team != "python":  # whose threads take turns
        for _ in range(20):
            numpy.testing.assert_array_equal(witnesses(run, 3, wanted=3)[:, 1], first[:, 1])


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_worker_takes_in_order_what_others_have_left(number: int) -> None:
    run = launcher(WITNESS, 2)
    seen = numpy.zeros(1 + 3 * 20, numpy.int64)
    record = launched(run, 20, 3, (seen.ctypes.data, 0))
    dispatch().work(record.address, number)
    starts = (0, 6, 13, 20)  # of the three rows of blocks
    rows = [range(*starts[at : at + 2]) for at in range(3)]
    order = [block for at in range(3) for block in rows[(number + at) % 3]]
    calls = seen[1:].reshape(20, 3)[:, 0]
    assert list(numpy.argsort(calls, kind="stable")) == order


def test_a_worker_too_many_takes_nothing() -> None:
    run = launcher(WITNESS, 2)
    seen = numpy.zeros(1 + 3 * 20, numpy.int64)
    record = launched(run, 20, 3, (seen.ctypes.data, 0))
    dispatch().work(record.address, 3)
    assert not seen.any()


def test_workers_stop_where_one_has_failed() -> None:
    run = launcher(COUNT)
    count = ctypes.c_int64(0)
    record = launched(run, 90, 3, (ctypes.addressof(count),))
    ctypes.c_int32.from_address(record.address + 8 * CODE_WORD).value = 7
    for number in range(3):
        dispatch().work(record.address, number)
    assert count.value == 0


def launched(run: launch.Launcher, blocks: int, threads: int, slots: tuple[int, ...]) -> _Record:
    """A record with full queues, as a team gets it, that nobody has worked on."""
    record = run._new_record(False, threads)
    chunk = run.chunk_of(blocks, threads)
    run._pack(record.buffer, run._offset, 0, run.stride, blocks, chunk, threads, *slots)
    dispatch().reset(record.address)
    return record


@pytest.fixture
def asked(team: str, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of threads that launches ask a team for; serial ones ask for none."""
    numbers: list[int] = []
    real = launch.team_for
    monkeypatch.setattr(launch, "team_for", lambda count: numbers.append(count) or real(count))
    return numbers


def test_small_launches_stay_on_the_callers_thread(asked: list[int]) -> None:
    run = launcher(EMPTY)
    run((0,), 64, launch.SERIAL_BELOW_NS - 1)
    run((0,), 1)
    run((0,), 1, 1e9)
    assert asked == []
    run((0,), 64, launch.WAKE_FROM_NS)
    run((0,), 64)
    run((0,), 2)
    assert asked == [3, 3, 2]


def test_short_launches_use_a_team_that_is_awake(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10**12
    monkeypatch.setattr(launch, "monotonic_ns", lambda: now)
    monkeypatch.setattr(launch, "_last_use_ns", 0)
    run = launcher(EMPTY)
    run((0,), 64, launch.SERIAL_BELOW_NS)  # asleep: not worth waking
    assert asked == []
    now += launch._AWAKE_NS
    run((0,), 64, launch.SERIAL_BELOW_NS)
    assert asked == [3]
    now += launch._AWAKE_NS + 1
    run((0,), 64, launch.WAKE_FROM_NS - 1)
    assert asked == [3]
    now += launch._AWAKE_NS + 1
    run((0,), 64, launch.WAKE_FROM_NS)
    assert asked == [3, 3]


def test_device_assertion_has_its_message(team: str) -> None:
    run = launcher(ASSERTING, 1, 1, ("zero", "i < n"))
    with pytest.raises(DeviceAssertError) as raised:
        run((0,), 6)
    assert str(raised.value) == "'test': device assertion failed: i < n"
    run((0,), 5)


def test_device_assertion_without_message_has_a_number(team: str) -> None:
    run = launcher(ASSERTING, 1, 1)
    with pytest.raises(DeviceAssertError) as raised:
        run((0,), 6)
    assert str(raised.value) == "'test': device assertion failed: number 1"


def test_first_failed_assertion_is_reported_and_ends_the_launch(team: str) -> None:
    code = Code(
        """
define i32 @kernel(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {
  %counter = load ptr, ptr %args
  %old = atomicrmw add ptr %counter, i64 1 seq_cst
  ret i32 2
}
"""
    )
    count = ctypes.c_int64(0)
    run = launcher(code, 1, 1, ("always",))
    with pytest.raises(DeviceAssertError, match="always"):
        run((ctypes.addressof(count),), 1000)
    assert 1 <= count.value <= 3  # one block for each of the three workers at most


@pytest.mark.parametrize("blocks", [0, -3])
def test_empty_grid(blocks: int) -> None:
    with pytest.raises(ArgumentError) as raised:
        launcher(EMPTY)((0,), blocks)
    assert str(raised.value) == "'test': the grid is empty, there is no block to run"


def test_scratch_memory_that_does_not_fit(default_threads: None) -> None:
    threads.set_num_threads(2)
    run = launcher(Code(EMPTY.ir_text, scratch_bytes=1 << 60))
    for blocks, needs in (
        (1, f"{1 << 60} bytes of scratch memory for 1 thread"),
        (2, f"{2 << 60} bytes of scratch memory for 2 threads"),
    ):
        with pytest.raises(MemoryError) as raised:
            run((0,), blocks)
        assert str(raised.value) == f"'test' needs {needs}"


def test_scratch_memory_is_kept_for_the_next_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_free_arenas", [])
    run = launcher(SCRATCHING)
    run((0,), 1)
    [arena] = launch._free_arenas
    run((0,), 1)
    assert launch._free_arenas == [arena]


def test_a_kernel_runs_while_python_does() -> None:
    """The native call releases Python's lock: a block that waits for a Python thread gets what it
    waits for."""
    code = Code(
        """
define i32 @kernel(ptr %args, i64 %begin, i64 %end, ptr %flag, ptr %scratch) {
entry:
  %word = load ptr, ptr %args
  store atomic i64 1, ptr %word seq_cst, align 8
  br label %wait
wait:
  %value = load atomic i64, ptr %word seq_cst, align 8
  %done = icmp eq i64 %value, 2
  br i1 %done, label %leave, label %wait
leave:
  ret i32 0
}
"""
    )
    word = ctypes.c_int64(0)

    def answer() -> None:
        while word.value != 1:
            pass
        word.value = 2

    helper = threading.Thread(target=answer)
    helper.start()
    launcher(code)((ctypes.addressof(word),), 1)
    helper.join()
    assert word.value == 2
