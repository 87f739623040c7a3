"""Measuring with cold caches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench import cold
from tileworkbench.bench.cold import ColdCalls, evict
from tileworkbench.bench.kernel import bench_kernel
from tileworkbench.bench.timing import BenchResult, measure
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.diagnostics import UnsupportedError

MS = 1_000_000
can_evict = pytest.mark.skipif(
    processor.architecture() not in cold._INSTRUCTIONS,
    reason=f"caches cannot be made cold on '{processor.architecture()}'",
)


@tw.jit
def read(A: Any, block: int = 4096) -> Any:
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N // block,), T.float32)
    with T.Kernel(N // block, threads=128) as bx:
        part = T.alloc_fragment((block,), T.float32)
        total = T.alloc_fragment((1,), T.float32)
        T.copy(A[bx * block], part)
        T.reduce_sum(part, total, dim=0)
        B[bx] = total[0]
    return B


def test_what_comes_before_a_call_is_in_no_time() -> None:
    now, order = [0], []

    def chill() -> None:
        order.append("chill")
        now[0] += 7 * MS

    def call() -> None:
        order.append("call")
        now[0] += 3000

    result = measure(
        *({"a": call}, 4),
        warmup=0,
        timer=lambda: now[0],
        clock=lambda: 4.0,
        before_each=chill,
    )["a"]
    assert result.times == (0.003,) * 4
    assert result.calls == 1  # a second call in a row would be a warm one
    assert order[-8:] == ["chill", "call"] * 4


@can_evict
def test_every_call_of_kernel_and_reference_begins_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[Any] = []
    monkeypatch.setattr(cold, "evict", lambda values: log.append(list(map(id, values))))
    a, b = np.ones(4096, np.float32), np.ones(1, np.float32)
    made = read.compile(N=4096)

    def twice(_array: Any) -> Any:
        log.append("other")
        return b

    def kernel(array: Any) -> Any:
        log.append("own")
        return b

    facts = {"name": "read", "program": made.program, "target": "cpu", "compiled": None}
    fake = type("Fake", (SimpleNamespace,), {"__call__": lambda self, array: kernel(array)})
    result = bench_kernel(fake(**facts), (a,), 3, twice, cold=True)
    assert result.cold and result.record.cold and result.to_dict()["caches"] == "cold"
    rounds = log[-12:]
    assert rounds[1::2] == ["own", "other", "other", "own", "own", "other"]
    assert all(each == [id(a), id(b)] for each in rounds[::2])


def test_warm_calls_have_nothing_in_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "evict", lambda values: pytest.fail("evicted"))
    result = read.compile(N=4096).bench(np.ones(4096, np.float32), rounds=2)
    assert (result.cold, result.caches, result.to_dict()["caches"]) == (False, "warm", "warm")


@can_evict
def test_evicted_memory_keeps_what_it_holds() -> None:
    array = np.arange(300_001, dtype=np.int32)[1:]  # begins within a line, ends within another
    other = np.arange(16, dtype=np.int8)[::-2]
    evict([array, 3, other, np.empty(0)])
    assert (array == np.arange(1, 300_001)).all() and (other == np.arange(15, 0, -2)).all()


@can_evict
def test_exactly_the_lines_of_the_arrays_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    def launch(slots: tuple[int, int], blocks: int) -> None:
        asked.append((*slots, blocks))

    monkeypatch.setattr(cold, "_evictor", lambda: launch)
    monkeypatch.setattr(cold, "get_num_threads", lambda: 2)
    memory = np.zeros(1 << 18, np.uint8)
    line, start = processor.caches()[0].line_bytes, memory.ctypes.data
    evict([memory[line + 3 : (1 << 17) + 5], memory[:0]])
    first = (start + line + 3) // line * line
    assert asked == [(first, start + (1 << 17) + 5, 2 if first > start + 5 else 3)]


def test_where_programs_cannot_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "architecture", lambda: "riscv64")
    cold._evictor.cache_clear()
    try:
        with pytest.raises(UnsupportedError) as caught:
            ColdCalls((np.zeros(4),)).chill()
    finally:
        cold._evictor.cache_clear()
    assert str(caught.value) == (
        "caches cannot be made cold on 'riscv64': no instruction of programs gives up cache lines "
        "there\nhint: measure with warm caches"
    )


@pytest.mark.slow
@can_evict
def test_cold_calls_are_slower_where_data_fit_and_only_there() -> None:
    """The one test that measures: what is tested is a time, of which only a ratio counts.

    A half megabyte stays in the caches and must come from memory when these are cold. Of what is
    larger than any cache nothing is left there, so that cold and warm are the same. `evict` as an
    empty function, or one that is timed too, fails one of the two.
    """
    ratios = {}
    for name, kib in (("fits", 512), ("does not", 16 * (processor.cache_sizes().l3 >> 10))):
        array = np.ones(kib * 256, np.float32)
        kernel = read.compile(N=array.size)
        warm, chilled = (kernel.bench(array, rounds=20, cold=is_cold) for is_cold in (False, True))
        ratios[name] = min(chilled.times) / min(warm.times)
    assert ratios["fits"] > 1.25, ratios
    assert 0.6 < ratios["does not"] < 1.25, ratios


def test_text_says_which() -> None:
    assert ", warm caches)" in str(BenchResult("k", (1.0,)))
    assert ", cold caches)" in str(BenchResult("k", (1.0,), cold=True))
