"""Samples of what this machine can do: each loop on one thread and on all, in sweeps.

A sweep runs every loop a few times. After a few sweeps only the ceilings go on whose best was not
found again, so that the time that is left is theirs: seldom is it more than DRAM. So the samples of
one ceiling are spread over seconds, and how far the best of them are from each other tells what
another process would find: other guests of a host change clock, L3 and DRAM for seconds at a time.
All loops of a sweep walk the same memory, in large pages where the system has them; each
sweep has another one, as another process would, and begins elsewhere in it: what is a large page to
a guest may be small ones to its host, and then some places fit worse into the second-level cache
(by 5 to 12 % on an EPYC, 2 places of 16), as long as the guest runs. Threads are placed by the
system, as those of a launch are.

DRAM is walked piece by piece, so that a run is short and yet nothing of its piece is left in the
caches: the rule of STREAM, four times the caches, holds for what is read alone. (Streaming stores
leave the caches to what is read: 128 MiB that were half read, half written, came from a third-level
cache of 32 MiB by a fifth, and by how much depended on who else used that cache.)

L2 is the level that most often looks slower than it is: it holds less where its pages fit badly,
and where the host runs another guest on the other hardware thread of the core; and several threads
must all be undisturbed at once. So its loops walk a quarter of it, at several places in a sweep.
And what each core has of its own is sought on while all threads together have less than their
multiple of one thread's: three equal samples on such a plateau agree with each other, not with
those of another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from itertools import chain, count

import numpy as np
from numpy.typing import NDArray

from tileworkbench.bench.arithmetic import ARITHMETIC, arithmetic_probe, write_factors
from tileworkbench.bench.probes import (
    STEP_BYTES,
    Probe,
    ProbeRunner,
    host_isa,
    load_probe,
    touched_memory,
)
from tileworkbench.bench.streams import STREAMS, stream_probe
from tileworkbench.compiler.device.host.launch import Launcher
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.fast_dataclass import dataclass

# A run is long enough to hide the launch, and so short that others seldom come between.
_RUN_NS = 1_000_000
_RUNS, _AGAIN = 8, 3
# Sweeps: at least so many, and on while there is time and some ceiling's best sweep is alone: what
# only `_FOUND_AGAIN` sweeps came near to is not sure to be found by another process.
_LEAST_SWEEPS, _FOUND_AGAIN, _PATIENCE_NS = 4, 3, 9_000_000_000
_NEAR = 0.01
# All threads have so much less than their multiple of one's only where something held them up.
_LAG = 0.02
# Levels that all threads draw on together.
SHARED_LEVELS = ("L3", "DRAM")
# Places of a level that a sweep visits, where pages matter.
_PLACES = {"L1": 2, "L2": 4}
# A run had all its cores if it used this part of their time; a ceiling needs as many such runs.
_UNDISTURBED, _ENOUGH = 0.9, 5
# Of what DRAM is measured with, a run walks one piece.
_PIECES = 8
_SMALLEST_MEMORY_SET, _LARGEST_MEMORY_SET = 128 << 20, 1 << 30
# Sweeps begin so far from each other: no two of a small level share a page of 2 MiB.
_APART = 24 << 20
# Between the arrays of an area and at its ends.
_GAPS = 64 << 10

Key = tuple[str, int]
"""A ceiling: its name and the number of threads."""

Run = Callable[[int], tuple[int, int]]
"""From repeats to the nanoseconds a run took, and those of processor time on all threads."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Work per nanosecond: the best, whether enough runs had all the cores asked for, how far the
    best sweep is above the third best (less one), the worst where there are fewer, and what the
    worst of all sweeps found (0: not known).
    """

    value: float
    undisturbed: bool
    spread: float = 0.0
    low: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    """A loop on so many threads, for the ceiling `name`: its `work` a repetition, how to make what
    runs it in some memory, and how many bytes of that it needs.
    """

    name: str
    threads: int
    work: float
    bytes_: int
    make: Callable[[NDArray[np.uint8]], ProbeRunner]

    @property
    def key(self) -> Key:
        """The ceiling."""
        return self.name, self.threads


@dataclass(slots=True)
class _Samples:
    """What was found of one ceiling: the best of each sweep, and runs that had all their cores."""

    bests: list[float] = field(default_factory=list)
    undisturbed: int = 0

    def rate(self) -> Rate:
        enough = self.undisturbed >= _ENOUGH
        return Rate(max(self.bests), enough, self.spread(), min(self.bests))

    def spread(self) -> float:
        best, *others = sorted(self.bests, reverse=True)[:_FOUND_AGAIN]
        return best / others[-1] - 1 if others else 0.0


def measure_rates(cases: Sequence[Case]) -> dict[Key, Rate]:
    """The rate of each ceiling and number of threads: the best of its cases."""
    repeats: dict[Case, int] = {}
    needed, sweeps = max(case.bytes_ for case in cases), count()

    def sweep(wanted: Collection[Key]) -> Iterator[tuple[Key, float, int]]:
        chosen = [case for case in cases if case.key in wanted]
        memory, number = touched_memory(needed), next(sweeps)
        for case in chosen:
            places = _PLACES.get(case.name, 1)
            for place in range(number * places, (number + 1) * places):
                run = _timed(case.make(part_of(memory, case.bytes_, place)))
                if case not in repeats:
                    repeats[case] = enough_repeats(run)
                yield case.key, *best_of_runs(run, case.work, repeats[case], case.threads)

    return sample(dict.fromkeys(case.key for case in cases), sweep)


def sample(
    keys: Collection[Key],
    sweep: Callable[[Collection[Key]], Iterable[tuple[Key, float, int]]],
    now: Callable[[], int] = time.perf_counter_ns,
) -> dict[Key, Rate]:
    """The rates of ceilings from sweeps. Each yields, of every loop of the ceilings that it is
    asked for, the ceiling, a rate, and how many of its runs had all their cores.
    """
    samples = {key: _Samples() for key in keys}
    sweeps, end, wanted = 0, now() + _PATIENCE_NS, list(samples)
    while sweeps < _LEAST_SWEEPS or (wanted and now() < end):
        best = dict.fromkeys(wanted, 0.0)
        for key, rate, undisturbed in sweep(wanted):
            best[key] = max(best[key], rate)
            samples[key].undisturbed += undisturbed
        for key, rate in best.items():
            samples[key].bests.append(rate)
        sweeps += 1
        if sweeps >= _LEAST_SWEEPS:
            lagging = lagging_of({key: max(each.bests) for key, each in samples.items()})
            wanted = [
                key for key, each in samples.items() if each.spread() > _NEAR or key in lagging
            ]
    return {key: each.rate() for key, each in samples.items()}


def lagging_of(rates: Mapping[Key, float]) -> set[Key]:
    """The ceilings of several threads that are below their multiple of one thread's, although each
    core has what they measure of its own.
    """
    return {
        (name, threads)
        for (name, threads), rate in rates.items()
        if name not in SHARED_LEVELS and (name, 1) in rates
        if rate < (1 - _LAG) * threads * rates[name, 1]
    }


def part_of(memory: NDArray[np.uint8], bytes_: int, sweep: int) -> NDArray[np.uint8]:
    """Where a loop that needs `bytes_` bytes of `memory` has its arrays in sweep 0, 1, 2 ..."""
    places = 1 + (memory.size - bytes_) // _APART
    return memory[sweep % places * _APART :]


def best_of_runs(run: Run, work: float, repeats: int, threads: int) -> tuple[float, int]:
    """The most `work` per nanosecond of some runs, and how many of these had all their cores."""
    fastest, undisturbed = 0, 0
    for _ in range(_RUNS):
        taken, used = run(repeats)
        fastest = min(fastest or taken, taken)
        undisturbed += used >= _UNDISTURBED * threads * taken
    return work * repeats / fastest, undisturbed


def enough_repeats(run: Run) -> int:
    """How many repetitions make a run long enough."""
    repeats, taken = 1, run(1)[0]
    # A run that seems long is made again, for another program may have interrupted a short one.
    while taken < _RUN_NS or (taken := min(run(repeats)[0] for _ in range(_AGAIN))) < _RUN_NS:
        # At most tenfold, since a short run tells little about a long one.
        repeats *= min(10, max(2, _RUN_NS // taken))
        taken = run(repeats)[0]
    return repeats


def _timed(runner: ProbeRunner) -> Run:
    def run(repeats: int) -> tuple[int, int]:
        start, start_used = time.perf_counter_ns(), time.process_time_ns()
        runner.run(repeats)
        used, now = time.process_time_ns(), time.perf_counter_ns()
        return max(now - start, 1), used - start_used

    return run


def sure_part(caches: CacheSizes) -> int:
    """So many bytes of the last cache that a core surely has: of a large one most is others'."""
    return min(caches.l3 // 4, 16 * caches.l2)


def working_sets(caches: CacheSizes, threads: int) -> dict[str, int]:
    """Level -> bytes that one thread walks: half of L1, a quarter of L2 (but four times L1, so that
    nothing comes from there), the sure part of the shared cache, sixteen times the largest for
    memory (of all threads together; piece by piece).

    A shared cache that `threads` such sets could not tell from the private ones is left out.
    """
    sets = {"L1": caches.l1 // 2, "L2": min(max(caches.l2 // 4, 4 * caches.l1), caches.l2 // 2)}
    if sure_part(caches) // threads >= 2 * caches.l2:
        sets["L3"] = sure_part(caches) // threads
    largest = max(caches.l3, caches.l2 * threads)
    sets["DRAM"] = min(max(16 * largest, _SMALLEST_MEMORY_SET), _LARGEST_MEMORY_SET) // threads
    return sets


def cases_of(caches: CacheSizes, counts: Sequence[int]) -> list[Case]:
    """Every loop for these numbers of threads. A level or type that is left out for the most
    threads is left out for all.
    """
    sets: Mapping[int, dict[str, int]] = {count: working_sets(caches, count) for count in counts}
    levels = sets[counts[-1]]
    streams = (_streams(level, sets[count][level], count) for level in levels for count in counts)
    return [*chain(*streams), *(_peak(kind, count) for kind in ARITHMETIC for count in counts)]


def _streams(level: str, bytes_: int, threads: int) -> Iterator[Case]:
    """Reading, copying and the triad, each thread on its own `bytes_` bytes."""
    memory = level == "DRAM"
    for kind in STREAMS:
        for streaming in (False, True) if memory and kind != "read" else (False,):
            probe = stream_probe(kind, host_isa(), streaming_stores=streaming)
            walked = bytes_ // _PIECES if memory else bytes_
            array_bytes = walked // probe.work // STEP_BYTES * STEP_BYTES
            make = partial(_runner, probe, threads, array_bytes, load_probe(probe), memory)
            needed = bytes_ * threads + _GAPS * threads * (_PIECES if memory else 1)
            yield Case(level, threads, probe.work * array_bytes * threads, needed, make)


def _runner(
    probe: Probe,
    threads: int,
    array_bytes: int,
    loaded: Launcher,
    in_turn: bool,
    memory: NDArray[np.uint8],
) -> ProbeRunner:
    return ProbeRunner(probe, threads, array_bytes, loaded=loaded, memory=memory, in_turn=in_turn)


def _peak(kind: str, threads: int) -> Case:
    """One kind of arithmetic."""
    isa = host_isa()
    probe = arithmetic_probe(kind, isa)
    loaded = load_probe(probe)

    def make(memory: NDArray[np.uint8]) -> ProbeRunner:
        # Elsewhere than streams, which would overwrite the factors.
        runner = ProbeRunner(probe, threads, loaded=loaded)
        for block in range(threads):
            write_factors(runner.area(block), kind, isa)
        return runner

    return Case(kind, threads, probe.work * threads, 0, make)
