"""How the samples of a ceiling are taken, and what they say of it."""

from __future__ import annotations

from collections.abc import Iterator

from tileworkbench.bench.ceiling_samples import (
    Rate,
    best_of_runs,
    cases_of,
    enough_repeats,
    sample,
    working_sets,
)
from tileworkbench.compiler.device.host.processor import CacheSizes

MS = 1_000_000


class Runs:
    """A run whose repetitions take these nanoseconds each in turn, the last one for ever."""

    def __init__(self, *costs: int, used: float = 1.0) -> None:
        self.costs, self.used, self.repeats = list(costs), used, list[int]()

    def __call__(self, repeats: int) -> tuple[int, int]:
        self.repeats.append(repeats)
        cost = self.costs.pop(0) if len(self.costs) > 1 else self.costs[0]
        return repeats * cost, int(repeats * cost * self.used)


def test_rate_is_work_over_the_fastest_run() -> None:
    assert best_of_runs(Runs(20, 20, 10, 20), 5, 7, 1) == (0.5, 4)


def test_runs_without_all_cores_are_told_apart() -> None:
    assert best_of_runs(Runs(10 * MS, used=1.0), 1, 1, 2)[1] == 0
    assert best_of_runs(Runs(10 * MS, used=1.9), 1, 1, 2)[1] == 4


def test_runs_are_made_long_enough() -> None:
    runs = Runs(1000)
    assert enough_repeats(runs) == 2000
    assert runs.repeats[:4] == [1, 10, 100, 1000]


def test_an_interrupted_short_run_is_not_taken_for_a_long_one() -> None:
    runs = Runs(5 * MS, 1000, 6 * MS, 1000)
    assert enough_repeats(runs) * 1000 >= 2 * MS
    assert runs.repeats[:6] == [1, 1, 1, 1, 10, 100]


class Sweeps:
    """Sweeps in which one case finds `rates` in turn, the last one for ever, another one 1.0."""

    def __init__(self, *rates: float) -> None:
        self.rates, self.done, self.time = list(rates), 0, 0

    def __call__(self) -> Iterator[tuple[float, int]]:
        self.done += 1
        yield (self.rates.pop(0) if len(self.rates) > 1 else self.rates[0]), 2
        yield 1.0, 4

    def rates_of(self, *names: tuple[str, int]) -> list[Rate]:
        return list(sample(names, self, lambda: self.done * 1_000 * MS).values())


def test_the_best_sweep_counts_and_the_median_tells_how_sure_it_is() -> None:
    first, second = Sweeps(8.0, 10.0, 8.0).rates_of(("a", 1), ("b", 1))
    assert first == Rate(10.0, True, 0.25)
    assert second == Rate(1.0, True, 0.0)


def test_a_ceiling_with_several_loops_takes_the_best_of_a_sweep() -> None:
    assert Sweeps(0.5, 0.9).rates_of(("a", 1), ("a", 1)) == [Rate(1.0, True, 0.0)]


def test_sweeps_go_on_while_they_find_more() -> None:
    steady, rising, restless = Sweeps(1.0), Sweeps(1, 2, 3, 3), Sweeps(*range(1, 100))
    for sweeps in (steady, rising, restless):
        sweeps.rates_of(("a", 1), ("b", 1))
    assert (steady.done, rising.done, restless.done) == (4, 5, 6)  # six seconds at most


def test_working_sets_fit_their_level() -> None:
    caches = CacheSizes(48 << 10, 1 << 20, 32 << 20)
    sets = working_sets(caches, 2)
    assert sets == {"L1": 24 << 10, "L2": 512 << 10, "L3": 4 << 20, "DRAM": 64 << 20}


def test_a_small_shared_cache_is_left_out() -> None:
    caches = CacheSizes(32 << 10, 2 << 20, 16 << 20)
    assert list(working_sets(caches, 8)) == ["L1", "L2", "DRAM"]
    assert list(working_sets(CacheSizes(32 << 10, 1 << 20, 0), 1)) == ["L1", "L2", "DRAM"]


def test_every_loop_is_there_for_each_number_of_threads() -> None:
    cases = cases_of(CacheSizes(32 << 10, 1 << 20, 32 << 20), [1, 2])
    names = [(case.name, case.threads) for case in cases]
    assert names.count(("L1", 1)) == names.count(("L3", 2)) == 3
    assert names.count(("DRAM", 1)) == names.count(("DRAM", 2)) == 5
    assert names.count(("float32", 2)) == 1
    walked = {case.work for case in cases if case.name == "DRAM"}
    assert all(0.99 * (128 << 20) < work <= 128 << 20 for work in walked)
