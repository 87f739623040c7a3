"""How the samples of a ceiling are taken, and what they say of it."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from tileworkbench.bench import ceiling_samples
from tileworkbench.bench.ceiling_samples import (
    Key,
    Rate,
    best_of_runs,
    cases_of,
    enough_repeats,
    lagging_of,
    part_of,
    sample,
    working_sets,
)
from tileworkbench.bench.probes import touched_memory
from tileworkbench.compiler.device.host.processor import CacheSizes

MS = 1_000_000
A, B = ("a", 1), ("b", 1)


class Runs:
    """A run whose repetitions take these nanoseconds each in turn, the last one for ever."""

    def __init__(self, *costs: int, used: float = 1.0) -> None:
        self.costs, self.used, self.repeats = list(costs), used, list[int]()

    def __call__(self, repeats: int) -> tuple[int, int]:
        self.repeats.append(repeats)
        cost = self.costs.pop(0) if len(self.costs) > 1 else self.costs[0]
        return repeats * cost, int(repeats * cost * self.used)


def test_rate_is_work_over_the_fastest_run() -> None:
    assert best_of_runs(Runs(20, 20, 10, 20), 5, 7, 1) == (0.5, 8)


def test_runs_without_all_cores_are_told_apart() -> None:
    assert best_of_runs(Runs(10 * MS, used=1.0), 1, 1, 2)[1] == 0
    assert best_of_runs(Runs(10 * MS, used=1.9), 1, 1, 2)[1] == 8


def test_runs_are_made_long_enough() -> None:
    runs = Runs(1000)
    assert enough_repeats(runs) == 1000
    assert runs.repeats[:4] == [1, 10, 100, 1000]


def test_an_interrupted_short_run_is_not_taken_for_a_long_one() -> None:
    runs = Runs(5 * MS, 1000, 6 * MS, 1000)
    assert enough_repeats(runs) * 1000 >= MS
    assert runs.repeats[:6] == [1, 1, 1, 1, 10, 100]


class Sweeps:
    """Sweeps in which ceiling a finds `rates` in turn, the last one for ever, and b finds 1.0."""

    def __init__(self, *rates: float) -> None:
        self.rates, self.asked, self.time = list(rates), list[list[Key]](), 0

    def __call__(self, wanted: Collection[Key]) -> Iterator[tuple[Key, float, int]]:
        self.asked.append(list(wanted))
        for key in wanted:
            if key == B:
                yield B, 1.0, 4
            else:
                yield A, self.rates.pop(0) if len(self.rates) > 1 else self.rates[0], 2
                yield A, 0.4, 0

    def rates_of(self) -> list[Rate]:
        return list(sample([A, B], self, lambda: len(self.asked) * 1_000 * MS).values())


def test_the_best_sweep_counts_and_the_third_best_tells_how_sure_it_is() -> None:
    first, second = Sweeps(4.0, 10.0, 9.0, 8.0, 1.0).rates_of()
    assert first == Rate(10.0, True, 0.25, 1.0)
    assert second == Rate(1.0, True, 0.0, 1.0)


def test_a_ceiling_with_several_loops_takes_the_best_of_a_sweep() -> None:
    assert Sweeps(0.3, 0.4).rates_of()[0] == Rate(0.4, True, 0.0, 0.4)


def test_sweeps_go_on_until_the_best_was_found_again() -> None:
    steady, rising, restless = Sweeps(1.0), Sweeps(1, 2, 3, 3), Sweeps(*range(1, 100))
    for sweeps in (steady, rising, restless):
        sweeps.rates_of()
    assert [len(each.asked) for each in (steady, rising, restless)] == [4, 5, 9]  # nine seconds


def test_only_what_was_not_found_again_is_measured_on() -> None:
    restless = Sweeps(*range(1, 100))
    restless.rates_of()
    assert restless.asked == [[A, B]] * 4 + [[A]] * 5


def test_what_each_core_has_of_its_own_lags_below_its_multiple() -> None:
    rates = {("L2", 1): 100.0, ("L2", 2): 195.0, ("L2", 4): 395.0, ("DRAM", 1): 40.0}
    rates |= {("DRAM", 2): 41.0, ("int8", 1): 10.0, ("int8", 2): 19.7, ("L1", 2): 1.0}
    assert lagging_of(rates) == {("L2", 2)}


def test_a_plateau_of_all_threads_is_not_the_end() -> None:
    """Three sweeps that agree, below what each thread has alone."""
    asked: list[list[Key]] = []
    pairs: list[Key] = [("L2", 1), ("L2", 2)]

    def sweep(wanted: Collection[Key]) -> Iterator[tuple[Key, float, int]]:
        asked.append(list(wanted))
        for key in wanted:
            together = 2.0 if len(asked) > 6 else 1.8
            yield key, together if key[1] == 2 else 1.0, 4

    found = sample(pairs, sweep, lambda: len(asked) * 1_000 * MS)
    assert asked == [pairs] * 4 + [pairs[1:]] * 5
    assert found["L2", 2].value == 2.0


def test_one_sweep_alone_has_no_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling_samples, "_LEAST_SWEEPS", 1)
    assert Sweeps(5.0).rates_of()[0] == Rate(5.0, False, 0.0, 5.0)


def test_each_sweep_begins_elsewhere() -> None:
    """One that always walked the same pages would take a slow place for the machine's rate."""
    memory, apart = touched_memory(5 * MS), ceiling_samples._APART
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ceiling_samples, "_APART", MS)
        starts = [memory.size - part_of(memory, 1_500_000, n).size for n in range(5)]
        assert starts == [0, MS, 2 * MS, 3 * MS, 0]
        assert all(part_of(memory, 5 * MS, n).size == memory.size for n in range(3))
    assert apart % (2 << 20) == 0


def test_every_ceiling_has_another_place_in_each_of_the_first_sweeps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also when only a small level is still measured."""
    caches = CacheSizes(32 << 10, 1 << 20, 32 << 20)
    cases = [each for each in cases_of(caches, [1]) if each.name in ("L2", "DRAM")]
    most = max(each.bytes_ for each in cases)
    [case] = {each.name: each for each in cases if each.name == "L2"}.values()
    places = {1 + n % ((most - case.bytes_) // ceiling_samples._APART + 1) for n in range(9)}
    assert len(places) == 9


def test_working_sets_fit_their_level() -> None:
    caches = CacheSizes(48 << 10, 1 << 20, 32 << 20)
    sets = working_sets(caches, 2)
    assert sets == {"L1": 24 << 10, "L2": 256 << 10, "L3": 4 << 20, "DRAM": 256 << 20}
    assert working_sets(CacheSizes(48 << 10, 256 << 10, 0), 1)["L2"] == 128 << 10
    # Of a cache of hundreds of megabytes a guest has a small part.
    assert working_sets(CacheSizes(48 << 10, 2 << 20, 480 << 20), 1)["L3"] == 32 << 20


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
    assert all(0.99 * (64 << 20) < work <= 64 << 20 for work in walked)


@pytest.mark.parametrize("threads", [1, 2])
def test_what_a_run_reads_of_memory_is_walked_again_after_four_times_the_caches(
    monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    monkeypatch.setattr(ceiling_samples, "_SMALLEST_MEMORY_SET", 1 << 20)
    caches = CacheSizes(4 << 10, 16 << 10, 128 << 10)
    for case in cases_of(caches, [threads]):
        if case.name == "DRAM":
            runner = case.make(touched_memory(case.bytes_))
            launched: list[int] = []
            monkeypatch.setattr(runner, "_launch", lambda data, _, to=launched: to.append(data[0]))
            runner.run(2 * ceiling_samples._PIECES)
            again = launched.index(launched[0], 1)
            # A third of the triad is written, half of a copy.
            assert (again - 1) * case.work / 2 >= 4 * caches.l3 - 4096 * threads * again
            assert len(set(launched)) == again >= ceiling_samples._PIECES
