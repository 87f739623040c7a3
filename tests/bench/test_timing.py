"""Timing, on a clock that the tests turn themselves."""

from __future__ import annotations

import gc
import json
import math
from collections.abc import Callable

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.bench.timing import BenchInterrupted, BenchResult, do_bench, measure
from tileworkbench.compiler.device.host.threads import get_num_threads, set_num_threads
from tileworkbench.compiler.diagnostics import ArgumentError, Interrupted, UnsupportedError

MS = 1_000_000


class Time:
    """A clock in nanoseconds that moves only when a call says so, and the calls made so far."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[str] = []

    def __call__(self) -> int:
        return self.now

    def call(self, name: str, *costs: int) -> Callable[[], None]:
        """A function whose calls cost these nanoseconds in turn, the last one for ever."""
        pending = list(costs)

        def fn() -> None:
            self.calls.append(name)
            self.now += pending.pop(0) if len(pending) > 1 else pending[0]

        return fn


def test_quartiles_interpolate_between_times() -> None:
    result = BenchResult("k", (4.0, 1.0, 3.0, 2.0))
    assert (result.n, result.median, result.quartiles, result.iqr) == (4, 2.5, (1.75, 3.25), 1.5)


def test_rates_are_of_the_median() -> None:
    result = BenchResult("k", (2.0, 1.0, 4.0), flops=6e9, bytes_=2e6)
    assert result.gflops == 3000.0
    assert result.gbytes == 1.0
    assert math.isnan(BenchResult("k", (1.0,)).gflops)


def test_record_is_in_microseconds() -> None:
    record = BenchResult("k", (0.5, 2.0), 3, "clock 4.0 GHz", flops=8.0, bytes_=4.0).record
    assert record.times_us == (500.0, 2000.0)
    assert (record.name, record.threads, record.clock_note) == ("k", 3, "clock 4.0 GHz")
    assert (record.flops, record.bytes_) == (8.0, 4.0)


def test_a_result_is_a_row() -> None:
    result = BenchResult("k", (1.0, 2.0, 3.0), 2, "clock 4.0 GHz", flops=4e9, against=("ref", 4.0))
    row = result.to_dict()
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert (row["name"], row["median_ms"], row["n"], row["threads"]) == ("k", 2.0, 3, 2)
    assert (row["first_quartile_ms"], row["third_quartile_ms"]) == (1.5, 2.5)
    assert (row["gflops"], row["gbytes"]) == (2000.0, None)
    assert (row["against"], row["against_ms"], row["speedup"]) == ("ref", 4.0, 2.0)


def test_text_of_a_result() -> None:
    result = BenchResult("mm", (1.0, 2.0, 3.0), 2, "clock 4.0 GHz", flops=4e9, bytes_=1e6)
    assert str(result) == (
        "mm: 2 ms (quartiles 1.5 ms and 2.5 ms, n 3, 2 threads, warm caches), "
        "2 TFLOP/s, 500 MB/s, clock 4.0 GHz"
    )
    short = BenchResult("add", (0.002,), interrupted=True)
    assert (
        str(short) == "add: 2 µs (quartiles 2 µs and 2 µs, n 1, 1 thread, warm caches), interrupted"
    )


def test_rounds_are_interleaved_and_every_other_one_is_reversed() -> None:
    time = Time()
    fns = {name: time.call(name, MS) for name in "abc"}
    results = measure(fns, 3, warmup=0, timer=time, clock=lambda: 4.0)
    assert "".join(time.calls[-9:]) == "abccbaabc"
    assert [results[name].n for name in "abc"] == [3, 3, 3]
    assert list(results) == ["a", "b", "c"]


def test_times_belong_to_their_callable() -> None:
    time = Time()
    fns = {"a": time.call("a", MS), "b": time.call("b", 3 * MS)}
    results = measure(fns, 4, warmup=0, timer=time, clock=lambda: 4.0)
    assert results["a"].times == (1.0,) * 4
    assert results["b"].times == (3.0,) * 4


def test_the_first_call_is_not_measured() -> None:
    time = Time()
    results = measure({"a": time.call("a", 50 * MS, MS)}, 5, timer=time, clock=lambda: 4.0)
    assert results["a"].times == (1.0,) * 5


def test_short_calls_are_timed_several_at_once() -> None:
    time = Time()
    result = measure({"a": time.call("a", 3000)}, 2, warmup=0, timer=time, clock=lambda: 4.0)["a"]
    assert result.calls == 7  # 20 us
    assert result.times == (0.003, 0.003)


@pytest.mark.parametrize(("cost", "rounds"), [(1 * MS, 200), (10, 1000), (900 * MS, 5)])
def test_rounds_follow_from_the_time_they_may_take(cost: int, rounds: int) -> None:
    time = Time()
    results = measure({"a": time.call("a", cost)}, rep=200, timer=time, clock=lambda: 4.0)
    assert results["a"].n == rounds


def interrupt_after(time: Time, calls: int, error: type[BaseException]) -> Callable[[], None]:
    """A call of 1 ms that raises `error` once it has been made `calls` times."""

    def fn() -> None:
        if time.calls.count("x") == calls:
            raise error("stop")
        time.calls.append("x")
        time.now += MS

    return fn


def test_an_interrupt_keeps_the_complete_rounds() -> None:
    time = Time()
    # Two calls of each warm up; x is first in round 1, second in round 2, first in round 3.
    fns = {"x": interrupt_after(time, 2 + 2, Interrupted), "a": time.call("a", MS)}
    with pytest.raises(BenchInterrupted) as caught:
        measure(fns, 10, warmup=0, timer=time, clock=lambda: 4.0)
    results = caught.value.results
    assert {name: result.n for name, result in results.items()} == {"x": 2, "a": 2}
    assert all(result.interrupted for result in results.values())
    threads = f"{get_num_threads()} thread{'' if get_num_threads() == 1 else 's'}"
    times = (
        f"1 ms (quartiles 1 ms and 1 ms, n 2, {threads}, warm caches), clock 4.0 GHz, interrupted"
    )
    assert caught.value.render() == (
        f"BenchInterrupted: interrupted while measuring x: {times}; a: {times}\n"
        "hint: 'results' of this error has what was measured"
    )
    assert gc.isenabled()


def test_an_interrupt_before_any_result_goes_on() -> None:
    time = Time()
    for calls in (0, 2):
        time.calls.clear()
        with pytest.raises(KeyboardInterrupt):
            fn = interrupt_after(time, calls, KeyboardInterrupt)
            measure({"x": fn}, 10, warmup=0, timer=time, clock=lambda: 4.0)


def test_other_errors_go_on() -> None:
    time = Time()
    with pytest.raises(RuntimeError, match="stop"):
        fn = interrupt_after(time, 5, RuntimeError)
        measure({"x": fn}, 10, warmup=0, timer=time, clock=lambda: 4.0)
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("clocks", "note"),
    [
        ((4.0, 4.02), "clock 4.0 GHz"),
        ((4.1, 3.6), "clock 3.6 to 4.1 GHz"),
        ((math.nan, 4.0), "clock not known"),
    ],
)
def test_clock_note(clocks: tuple[float, float], note: str) -> None:
    time, pending = Time(), list(clocks)
    fns = {"a": time.call("a", MS)}
    result = measure(fns, 1, timer=time, clock=lambda: pending.pop(0))["a"]
    assert result.clock_note == note


def test_threads_are_those_of_a_launch() -> None:
    time = Time()
    set_num_threads(3)
    try:
        fns = {"a": time.call("a", MS)}
        assert measure(fns, 1, timer=time, clock=lambda: 4.0)["a"].threads == 3
    finally:
        set_num_threads(None)


def test_nothing_to_measure() -> None:
    with pytest.raises(ArgumentError) as caught:
        measure({})
    assert caught.value.message == "there is nothing to measure"


def test_negative_rounds() -> None:
    with pytest.raises(ArgumentError) as caught:
        measure({"a": lambda: None}, -1)
    assert caught.value.message == "the number of rounds must not be negative, not -1"


def test_do_bench_returns_the_median_in_milliseconds() -> None:
    time = Time()
    fn = time.call("a", MS, MS, 2 * MS, 2 * MS, 9 * MS, 2 * MS)
    assert do_bench(fn, warmup=0, rep=4, timer=time) == 2.0


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("median", 2.0), ("mean", 3.0), ("min", 1.0), ("max", 7.0), ("all", [7.0, 2.0, 1.0, 2.0])],
)
def test_do_bench_return_modes(mode: str, expected: object) -> None:
    time = Time()
    fn = time.call("a", MS, MS, 7 * MS, 2 * MS, MS, 2 * MS)
    assert do_bench(fn, warmup=0, rep=4, return_mode=mode, timer=time) == expected


def test_do_bench_refuses_what_is_simulated() -> None:
    """However the kernel is called; what is around it in the same function does not matter."""

    @T.prim_func
    def double(A: T.Tensor((32,), "float32"), B: T.Tensor((32,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(32):
                B[i] = A[i] * 2.0

    kernel, on_cpu = tw.compile(double, target="sim:sm_80"), tw.compile(double, target="cpu")
    a, b = np.ones(32, np.float32), np.zeros(32, np.float32)
    with pytest.raises(UnsupportedError) as caught:
        do_bench(lambda: kernel(a, b))
    assert caught.value.message == (
        "'double' is simulated on 'sim:sm_80': a time would be that of the simulator, not of a "
        "device"
    )
    assert do_bench(lambda: on_cpu(a, b), warmup=0, rep=1) > 0


def test_do_bench_quantiles() -> None:
    time = Time()
    fn = time.call("a", MS, MS, 5 * MS, MS, 3 * MS, 2 * MS, 4 * MS)
    found = do_bench(fn, warmup=0, rep=5, quantiles=[0.5, 0.2, 0.8], timer=time)
    assert found == pytest.approx([3.0, 1.8, 4.2])


def test_do_bench_warms_up_for_as_long_as_it_is_told() -> None:
    time = Time()
    do_bench(time.call("a", MS), warmup=25, rep=10, timer=time)
    assert time.now == (1 + 25 + 10) * MS


def test_do_bench_unknown_mode() -> None:
    with pytest.raises(ArgumentError) as caught:
        do_bench(lambda: None, return_mode="best")  # type: ignore[arg-type]
    assert caught.value.message == "'best' is not a return mode"
    assert caught.value.hint == "one of median, mean, min, max, all"


def test_do_bench_quantile_out_of_range() -> None:
    with pytest.raises(ArgumentError) as caught:
        do_bench(lambda: None, quantiles=[0.5, 20])
    assert caught.value.message == "quantiles lie between 0 and 1, not [0.5, 20]"


def test_do_bench_lets_an_interrupt_through() -> None:
    time = Time()
    with pytest.raises(KeyboardInterrupt):
        do_bench(interrupt_after(time, 4, KeyboardInterrupt), warmup=0, timer=time)
    assert gc.isenabled()
