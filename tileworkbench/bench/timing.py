"""Times of calls: warm-up, interleaved rounds, medians with quartiles.

Caches stay warm: each callable runs again and again on the same data; unless something is done in
front of each call, which no time holds (`cold.py` has the caches forget). What a call costs beyond
its work (argument checks, the launch) is part of its time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np

from tileworkbench.bench.points import BANDWIDTH, format_rate
from tileworkbench.bench.units import format_time, rate_unit
from tileworkbench.compiler.device.gpu import SimulatedCall
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.diagnostics import ArgumentError, Interrupted, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.record import RunRecord
from tileworkbench.compiler.runtime.collection import uncollected
from tileworkbench.compiler.target import parse_target

Timer = Callable[[], int]
Statistic = Literal["median", "mean", "min", "max", "all"]

# A sample of short calls is this long, so that reading the timer does not count.
_SAMPLE_NS = 20_000
_FEWEST_ROUNDS, _MOST_ROUNDS = 5, 1000


@dataclass(frozen=True, slots=True)
class BenchResult:
    """What was measured of one callable; times are milliseconds per call.

    Attributes:
        name: what was called.
        times: one time per round; each is the mean over `calls` calls in a row.
        threads: how many threads a launch was allowed.
        clock_note: the processor's clock while measuring, as text.
        calls: calls per round.
        interrupted: Ctrl-C ended the measurement; `times` has the rounds completed before.
        flops, bytes_, dtype: operations of a call, compulsory bytes of a call, and the element
            type whose peak bounds it; NaN and "" where unknown.
        against: what was timed in the same rounds to compare with, and its median; "" for nothing.
        cold: no cache held anything of the arguments when a call began; else each call found what
            the one before it had left there.
    """

    name: str
    times: tuple[float, ...] = field(repr=False)
    threads: int = 1
    clock_note: str = ""
    calls: int = 1
    interrupted: bool = False
    flops: float = math.nan
    bytes_: float = math.nan
    dtype: str = ""
    against: tuple[str, float] = ("", math.nan)
    cold: bool = False

    @property
    def caches(self) -> str:
        """``cold`` or ``warm``."""
        return "cold" if self.cold else "warm"

    @property
    def n(self) -> int:
        """The number of rounds."""
        return len(self.times)

    @property
    def median(self) -> float:
        """Milliseconds."""
        return self._quantile(0.5)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The first and third quartile in milliseconds."""
        return self._quantile(0.25), self._quantile(0.75)

    @property
    def iqr(self) -> float:
        """The interquartile range in milliseconds."""
        first, third = self.quartiles
        return third - first

    @property
    def gflops(self) -> float:
        """GFLOP/s at the median; NaN where the operations are not known."""
        return self.flops / self.median / 1e6

    @property
    def gbytes(self) -> float:
        """GB/s of compulsory traffic at the median; NaN where the bytes are not known."""
        return self.bytes_ / self.median / 1e6

    @property
    def speedup(self) -> float:
        """How many times as fast as what it is held `against`; NaN without that."""
        return self.against[1] / self.median

    @property
    def comparison(self) -> str:
        """``1.2 times as fast as torch.matmul (0.41 ms)``, empty without `against`."""
        name, time_ms = self.against
        if not name:
            return ""
        return f"{self.speedup:.3g} times as fast as {name} ({format_time(1e3 * time_ms)})"

    @property
    def fraction(self) -> float:
        """The part of what this machine could attain that was reached; NaN where not known.

        The first use on a machine measures its ceilings, which takes seconds.
        """
        from tileworkbench.bench.ceilings import machine
        from tileworkbench.bench.roofline import judge_result

        return judge_result(self, machine()).fraction

    @property
    def record(self) -> RunRecord:
        """The same as plain data for views."""
        times_us = tuple(1e3 * value for value in self.times)
        return RunRecord(
            *(self.name, times_us, self.threads, self.clock_note, self.flops, self.bytes_),
            comparison=self.comparison,
            dtype=self.dtype,
            cold=self.cold,
        )

    def to_dict(self) -> dict[str, Any]:
        """One flat row that JSON can hold, None where a number is not known; of several results
        ``pandas.DataFrame([result.to_dict() for result in results])`` makes a table.
        """
        numbers: dict[str, float] = {
            "median_ms": self.median,
            "first_quartile_ms": self.quartiles[0],
            "third_quartile_ms": self.quartiles[1],
            "gflops": self.gflops,
            "gbytes": self.gbytes,
            "against_ms": self.against[1],
            "speedup": self.speedup,
        }
        known = {name: None if math.isnan(value) else value for name, value in numbers.items()}
        texts = {"dtype": self.dtype, "against": self.against[0], "clock": self.clock_note}
        texts["caches"] = self.caches
        counts = {"n": self.n, "threads": self.threads, "interrupted": self.interrupted}
        return {"name": self.name, **known, **texts, **counts}

    def _quantile(self, part: float) -> float:
        return float(np.quantile(self.times, part))

    def __str__(self) -> str:
        first, third = self.quartiles
        spread = f"quartiles {format_time(1e3 * first)} and {format_time(1e3 * third)}"
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        how = f"{spread}, n {self.n}, {threads}, {self.caches} caches"
        parts = [f"{self.name}: {format_time(1e3 * self.median)} ({how})"]
        if self.flops > 0:
            parts.append(format_rate(self.gflops, rate_unit([self.dtype])))
        if self.bytes_ > 0:
            parts.append(format_rate(self.gbytes, BANDWIDTH))
        if self.against[0]:
            parts.append(self.comparison)
        if self.clock_note:
            parts.append(self.clock_note)
        if self.interrupted:
            parts.append("interrupted")
        return ", ".join(parts)

    __repr__ = __str__


class BenchInterrupted(Interrupted):
    """Ctrl-C during a measurement; `results` has the rounds completed before, by name."""

    results: Mapping[str, BenchResult]


def interrupted_after(results: Mapping[str, BenchResult]) -> BenchInterrupted:
    """The error of a measurement that had these results when Ctrl-C came."""
    error = BenchInterrupted(
        f"interrupted while measuring {'; '.join(map(str, results.values()))}",
        hint="'results' of this error has what was measured",
    )
    error.results = results
    return error


def refuse_simulated(name: str, target: str) -> None:
    """Raise `UnsupportedError` where a simulator runs the kernel: its time is no measurement."""
    resolved = parse_target(target)
    if resolved.is_simulated:
        raise UnsupportedError(
            f"'{name}' is simulated on '{target}': a time would be that of the simulator, not of "
            "a device",
            hint=f"measure it with target '{replace(resolved, execution='native')}' or 'cpu'; "
            "'k.accesses' and 'k.simulate(...).report' count what it does",
        )


def do_bench(
    fn: Callable[[], object],
    warmup: float = 25,
    rep: float = 100,
    *,
    quantiles: Sequence[float] | None = None,
    return_mode: Statistic = "median",
    timer: Timer = time.perf_counter_ns,
) -> Any:
    """Milliseconds that a call of `fn` takes, after `warmup` ms of calls, from `rep` ms of calls.

    Returns one number chosen by `return_mode` (median, mean, min, max; all: the list of times), or
    a list with one number for each of `quantiles`. Raises `ArgumentError` for another mode or a
    quantile outside 0 to 1, `UnsupportedError` where `fn` calls a kernel that is simulated. Ctrl-C
    ends it as usual.
    """

    def first_call() -> None:
        before = SimulatedCall.last
        fn()
        if (call := SimulatedCall.last) is not before and call is not None:
            refuse_simulated(call.name, call.target)

    return time_calls(
        fn,
        warmup,
        rep,
        quantiles=quantiles,
        return_mode=return_mode,
        timer=timer,
        begin=first_call,
    )


def time_calls(
    fn: Callable[[], object],
    warmup: float,
    rep: float,
    *,
    quantiles: Sequence[float] | None = None,
    return_mode: Statistic = "median",
    timer: Timer = time.perf_counter_ns,
    begin: Callable[[], object] | None = None,
) -> Any:
    """`do_bench` of whatever `fn` calls; `begin` is called in place of its first call."""
    statistics: dict[str, Callable[[list[float]], Any]] = {
        **{"median": np.median, "mean": np.mean, "min": min, "max": max, "all": list}
    }
    if return_mode not in statistics:
        raise ArgumentError(
            f"'{return_mode}' is not a return mode", hint="one of " + ", ".join(statistics)
        )
    if any(not 0 <= part <= 1 for part in quantiles or ()):
        raise ArgumentError(f"quantiles lie between 0 and 1, not {list(quantiles or ())}")
    plan = _warm_up(fn, warmup, timer, begin)
    rounds = max(1, math.ceil(rep * 1e6 / plan.sample_ns))
    with uncollected():
        times = [plan.sample(timer) for _ in range(rounds)]
    if quantiles is not None:
        return [float(np.quantile(times, part)) for part in quantiles]
    value = statistics[return_mode](times)
    return value if return_mode == "all" else float(value)


def measure(
    fns: Mapping[str, Callable[[], object]],
    rounds: int = 0,
    *,
    warmup: float = 25,
    rep: float = 200,
    timer: Timer = time.perf_counter_ns,
    clock: Callable[[], float] | None = None,
    before_each: Callable[[], object] | None = None,
) -> dict[str, BenchResult]:
    """Time several callables against each other: every round calls each of them once.

    The order is reversed in every other round, so that none always follows the same neighbour.
    `rounds` 0 means as many as take about `rep` milliseconds per callable (5 to 1000). `clock`
    returns the processor's clock in GHz (default: measured, see `probes.sample_clock`).
    `before_each` is called in front of every call, outside of its time; then a time is of one call.

    Ctrl-C raises `BenchInterrupted` with the rounds completed so far, marked `interrupted`; with
    none completed the interrupt goes on as it is. Raises `ArgumentError` without callables or for a
    negative number of rounds.
    """
    if not fns:
        raise ArgumentError("there is nothing to measure")
    if rounds < 0:
        raise ArgumentError(f"the number of rounds must not be negative, not {rounds}")
    plans = {name: _warm_up(fn, warmup, timer, before_each=before_each) for name, fn in fns.items()}
    if not rounds:
        slowest = max(plan.sample_ns for plan in plans.values())
        rounds = min(_MOST_ROUNDS, max(_FEWEST_ROUNDS, math.ceil(rep * 1e6 / slowest)))
    clock = clock or _clock_or_nan
    before = clock()
    times, interrupted = _run_rounds(plans, rounds, timer)
    note = _clock_note(before, clock())
    threads = get_num_threads()
    results = {
        name: BenchResult(name, tuple(times[name]), threads, note, plan.calls, interrupted)
        for name, plan in plans.items()
    }
    if interrupted:
        raise interrupted_after(results)
    return results


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one callable is sampled: `calls` calls in a row, about `sample_ns` in all."""

    fn: Callable[[], object]
    calls: int
    sample_ns: float
    before_each: Callable[[], object] | None = None

    def sample(self, timer: Timer) -> float:
        """Milliseconds per call."""
        if self.before_each is not None:
            self.before_each()
        fn, start = self.fn, timer()
        for _ in range(self.calls):
            fn()
        return (timer() - start) / self.calls / 1e6


def _warm_up(
    fn: Callable[[], object],
    warmup: float,
    timer: Timer,
    begin: Callable[[], object] | None = None,
    before_each: Callable[[], object] | None = None,
) -> _Plan:
    """Call `fn` for `warmup` ms, twice at least: the first call may compile; the fastest counts."""
    (begin or fn)()
    fastest = math.inf
    end = timer() + warmup * 1e6
    while True:
        start = timer()
        if before_each is not None:
            before_each()
        fn()
        now = timer()
        fastest = min(fastest, now - start)
        if now >= end:
            break
    if before_each is not None:
        return _Plan(fn, 1, max(fastest, 1), before_each)
    calls = max(1, math.ceil(_SAMPLE_NS / max(fastest, 1)))
    return _Plan(fn, calls, calls * max(fastest, 1))


def _run_rounds(
    plans: Mapping[str, _Plan], rounds: int, timer: Timer
) -> tuple[dict[str, list[float]], bool]:
    """The times of the complete rounds by name, and whether Ctrl-C came before the last."""
    done: list[dict[str, float]] = []
    order = list(plans.items())
    interrupted = False
    try:
        with uncollected():
            for _ in range(rounds):
                # One append, so that no interrupt leaves a round half recorded.
                done.append({name: plan.sample(timer) for name, plan in order})
                order.reverse()
    except KeyboardInterrupt:
        if not done:
            raise
        interrupted = True
    return {name: [times[name] for times in done] for name in plans}, interrupted


def _clock_or_nan() -> float:
    """The processor's clock in GHz; NaN where no probe can be compiled."""
    from tileworkbench.bench.probes import sample_clock

    try:
        return sample_clock()
    except UnsupportedError:
        return math.nan


def _clock_note(before: float, after: float) -> str:
    low, high = sorted((before, after))
    if math.isnan(before) or math.isnan(after):
        return "clock not known"
    if high - low < 0.05:
        return f"clock {(low + high) / 2:.1f} GHz"
    return f"clock {low:.1f} to {high:.1f} GHz"
