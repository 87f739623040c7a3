"""What lines of the cache cost a core that nobody fetches ahead: nanoseconds of a run of lines.

The rows of a block lie in pages apart from each other where its tile is narrower than the tensor.
A run of lines in one page is fetched with what its first lines have under way at once; only from
some dozen lines on is the processor's prefetcher ahead. Runs are loaded or stored to, column after
column. Rows that are a power of two apart share a few places of the first cache, which waits for
lines one after the other there, and of the second one, which cannot hold the lines behind the runs
until they are loaded; others come in several times as fast. Both are measured once (some seconds)
and kept with the machine.

Before a core can access a page it has to find where that one is in memory. It remembers so many
`pages`; for others it walks through the tables of the system (Intel SDM 3A, 4.10). Both are
measured with one line in each page, which is loaded, stored to, or loaded and fetched some rows
before by an instruction.

A line that is stored to is fetched first, and given back later: twice the time of one that is
loaded. Some processors do not fetch what is stored whole; copies of data in a row tell.

`kept_part` is how much of the last cache can be filled before it begins to lose data: others use it
as well, other guests of the host too. It follows from the times of reads of half its size and more,
beside those of a quarter and of four times as much.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Collection, Mapping
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from tileworkbench.bench.ceiling_samples import sure_part
from tileworkbench.bench.measured_once import MeasuredOnce, Numbers
from tileworkbench.bench.probes import Probe, ProbeRunner, host_isa, module_text, touched_memory
from tileworkbench.compiler.analysis.streaming import rows_ahead
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.fast_dataclass import dataclass

LINE_BYTES, PAGE_BYTES = 64, 4096
RUNS = (1, 2, 4, 8, 16, 64)
"""Lines of the runs that are measured; the longest is a page."""

_APART = 2 * PAGE_BYTES
_ODD = 5 * LINE_BYTES  # more, for rows that share no places
_LARGEST = 256 << 20  # bytes walked of memory: of a larger last cache a guest has a part
# Each is measured so often at least, and for so many seconds with all others of its level.
_TIMES, _SECONDS = 5, 0.4
_LEAST_LINES = 200_000  # of a measurement, or the call would count
_NEXT = PAGE_BYTES + LINE_BYTES  # rows of which each is in the next page
_SUMS = 4  # that are carried side by side, or each line would wait for the sum of the last
_SCHEMA = 15
_KEPT_PART, _REMEMBERED = "kept part", "pages"
SHARED = " shared"
"""Behind the name of a level: for rows that share a few places of the first cache."""
_LEVELS = ("L2", "L3", "DRAM")
LOAD, STORE, FETCH = KINDS = "load", "store", "fetch"
COPY = "copy"
RUN_KINDS = LOAD, STORE
_RUNS_OF = (
    *(
        f"{level}{places} {kind}"
        for level, places, kind in itertools.product(_LEVELS, ("", SHARED), RUN_KINDS)
    ),
    *(f"{level} {FETCH}" for level in _LEVELS),
)
_BEHIND = ("L3", "DRAM")  # the caches of a core
_PARTS = (1 / 2, 5 / 8, 3 / 4)  # of the last cache
_ROWS = 1024  # at most, whose pages a core remembers
# Pages that may be remembered: the first number surely, the last not.
_PAGES = (512, 720, 1024, 1448, 2048, 2896, 4096, 5792, 8192, 11584)
_ALL_PAGES, _NO_PAGES = 0.6, 1.4  # times `pages`: remembered to the last, and not one

# An EPYC of 2024 (Zen 5), for machines that are only described; rows from behind its second cache
# that share no places take what they do beside the others on one of 2022 (Zen 4).
_ASSUMED: Mapping[str, tuple[float, ...]] = {
    "L2 load": (0.6, 1.2, 2.5, 4.2, 7.8, 31.0),
    "L2 store": (0.9, 1.5, 2.5, 4.5, 8.1, 31.0),
    f"L2{SHARED} load": (1.8, 3.2, 3.9, 5.0, 7.8, 31.0),
    f"L2{SHARED} store": (2.0, 2.8, 3.9, 5.6, 8.1, 31.0),
    "L3 load": (0.8, 1.6, 3.1, 6.0, 11.0, 40.0),
    "L3 store": (1.1, 2.0, 3.8, 7.2, 12.0, 38.0),
    f"L3{SHARED} load": (3.0, 3.7, 4.5, 7.4, 12.0, 40.0),
    f"L3{SHARED} store": (4.0, 5.7, 8.0, 11.3, 16.0, 38.0),
    "DRAM load": (4.0, 7.5, 15.0, 29.0, 55.0, 110.0),
    "DRAM store": (5.8, 9.5, 14.0, 27.0, 52.0, 110.0),
    f"DRAM{SHARED} load": (5.5, 9.7, 17.0, 32.0, 60.0, 110.0),
    f"DRAM{SHARED} store": (8.5, 11.3, 15.0, 28.7, 55.0, 110.0),
}
_FETCHED_AND_STORED = 2.0
_ASSUMED_PAGES, _ASSUMED_WALKS = 4000.0, {LOAD: 8.0, STORE: 2.0, FETCH: 4.0}

SHARED_KEPT = 1 / 3
"""Part of the last cache, which other cores and other guests of the host use as well, that it
serves whole if nothing else is known; of more it has less, by the logarithm, and nothing of as much
as its own size.
"""


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """Nanoseconds of runs of `RUNS` lines, by level and kind (`KINDS`); the part of the last
    cache that holds data; by level, nanoseconds of a line of data in a row as they usually are,
    where the ceilings have the best of many, and those of a line that is loaded and stored
    elsewhere; of how many pages a core remembers half, and
    nanoseconds of an access to one that it does not remember, by kind (`KINDS`).
    """

    runs_ns: Mapping[str, tuple[float, ...]]
    kept_part: float
    row_ns: Mapping[str, float] = field(default_factory=dict)
    pages: float = math.inf
    walk_ns: Mapping[str, float] = field(default_factory=dict)
    copy_ns: Mapping[str, float] = field(default_factory=dict)

    def run_ns(self, level: str, kind: str, lines: float, crowded: float = 0.0) -> float:
        """A run of so many lines of a level, of rows that are so `crowded` in the first cache, from
        0 to 1, which what is fetched ahead does not wait for.
        """
        there, shared = (self._run_ns(f"{level}{each} {kind}", lines) for each in ("", SHARED))
        return there + crowded * max(shared - there, 0.0)

    def _run_ns(self, name: str, lines: float) -> float:
        """Between what is measured, by the logarithms."""
        times = self.runs_ns.get(name, (0.0,) * len(RUNS))
        if lines >= RUNS[-1]:
            return times[-1] * lines / RUNS[-1]
        place = max(math.log(max(lines, 1.0)), 0.0)
        return math.exp(float(np.interp(place, np.log(RUNS), np.log(np.maximum(times, 1e-3)))))

    def walked_ns(self, kind: str, time_ns: float, visits: float, pages: float) -> float:
        """What takes `time_ns` where all pages are remembered, if so many `visits` go round so many
        pages. Walks through the tables overlap with lines that are under way, but not all of them.
        """
        most = max(pages / self.pages, _ALL_PAGES)
        part = min(math.log(most / _ALL_PAGES) / math.log(_NO_PAGES / _ALL_PAGES), 1.0)
        walks = visits * self.walk_ns.get(kind, 0.0)
        return time_ns + part * (math.hypot(time_ns, walks) - time_ns)

    def usual(self, level: str, gb_s: float) -> float:
        """How many times as long as at the ceiling of one thread, so many GB/s, data in a row
        usually take.
        """
        return max(self.row_ns.get(level, 0.0) * gb_s / LINE_BYTES, 1.0)

    def stored(self, level: str) -> float:
        """How many times as long as a line that is loaded one takes that is stored to, in a row."""
        if level not in self.copy_ns:
            return _FETCHED_AND_STORED
        times = self.copy_ns[level] / self.row_ns[level] - 1
        return min(max(times, 1.0), _FETCHED_AND_STORED)


def assumed_memory() -> MemoryRates:
    """The rates of an ordinary server."""
    return MemoryRates(_ASSUMED, SHARED_KEPT, pages=_ASSUMED_PAGES, walk_ns=_ASSUMED_WALKS)


def memory_rates() -> MemoryRates:
    """The rates of this machine; measured on first use.

    Raises `UnsupportedError` where nothing can be compiled.
    """
    return once.get()


def measure_memory() -> Numbers:
    """Measure all runs on one thread, and the last cache."""
    caches = processor.cache_sizes()
    largest = min(4 * max(caches.l3, 4 * caches.l2), _LARGEST)
    sizes = {"L2": caches.l2 // 2, "L3": sure_part(caches), "DRAM": largest}
    most = _PAGES[-1] * _NEXT  # where the last cache is small, more than that
    parts = int(max(_PARTS) * caches.l3)
    memory = touched_memory(max(largest, most, parts) + (1 << 20))
    times = dict[str, float]()
    for level, size in sizes.items():
        apart = max(_APART, 1 << max((size // _ROWS).bit_length() - 1, 0))
        pitches = {"": apart + _ODD, SHARED: apart}
        walks = {
            f"{level}{places} {kind} {lines}": Runs(kind, lines, size, pitches[places])
            for places, kind, lines in itertools.product(pitches, KINDS, RUNS)
            if kind in RUN_KINDS or not places
        }
        if level in _BEHIND:
            walks[f"{level} row"] = _in_a_row(size)
            walks[f"{level} {COPY}"] = _in_a_row(size // 2, COPY)
        # A cache that is not there serves nothing.
        enough = size >= _SUMS * _APART
        measured = _usual_ns(walks.values(), memory) if enough else [0.0] * len(walks)
        times |= {name: max(each, 1e-3) for name, each in zip(walks, measured, strict=True)}
        if level in _BEHIND:
            for name in ("row", COPY):
                times[f"{level} {name}"] /= RUNS[-1]
    times[_KEPT_PART] = _kept_part(memory, caches.l3, times["L3 row"], times["DRAM row"])
    walks = {f"walk {kind}": Runs(kind, 1, most, _NEXT, columns=1) for kind in KINDS}
    loads = [Runs(LOAD, 1, count * _NEXT, _NEXT, columns=1) for count in _PAGES]
    measured = _usual_ns([*walks.values(), *loads], memory)
    times |= dict(zip(walks, measured, strict=False))
    times[_REMEMBERED] = remembered(dict(zip(_PAGES, measured[len(walks) :], strict=True)))
    return times


def remembered(times_ns: Mapping[int, float]) -> float:
    """Of how many pages half are remembered, from the times of accesses to one of so many after the
    other: where they are halfway from those of the fewest to those of the most.
    """
    (few, low), *_, (_, high) = times_ns.items()
    half = (low + high) / 2
    for (less, before), (more, after) in itertools.pairwise(times_ns.items()):
        if after >= half > before:
            part = (half - before) / (after - before)
            return float(less * (more / less) ** part)
    return float(few)


def kept_part(whole_ns: float, parts_ns: Mapping[float, float], far_ns: float) -> float:
    """How much of a cache is filled before it begins to lose data, if what it has of more falls
    with the logarithm to nothing at its size: from the times of a line of data that it has, of
    parts of its size, and of much more. Each part tells; the median counts.
    """
    if far_ns <= whole_ns:
        return SHARED_KEPT
    told: list[float] = []
    for part, part_ns in parts_ns.items():
        held = min(max((far_ns - part_ns) / (far_ns - whole_ns), 0.25), 1.0)
        told.append(float(part ** (1 / held)))
    return statistics.median(told)


def _kept_part(memory: NDArray[np.uint8], cache: int, whole_ns: float, far_ns: float) -> float:
    if cache < 8 * _APART:
        return SHARED_KEPT
    parts_ns = {
        part: _usual_ns([_in_a_row(int(part * cache))], memory)[0] / RUNS[-1] for part in _PARTS
    }
    return kept_part(whole_ns, parts_ns, far_ns)


def _usual_ns(walks: Collection[Runs], memory: NDArray[np.uint8]) -> list[float]:
    """Nanoseconds of runs. They take turns, so that nobody disturbs all times of one of them, and
    the median counts.
    """
    turns: list[tuple[ProbeRunner, int, int]] = []
    for each in walks:
        runs = each.rows * each.in_a_row
        repeats = -(-_LEAST_LINES // (runs * each.lines))
        probe = run_probe(each, host_isa())
        turns.append((ProbeRunner(probe, 1, memory=memory), runs, repeats))
    for runner, _, repeats in turns:
        runner.run(repeats)
    taken: list[list[float]] = [[] for _ in walks]
    end = time.perf_counter() + _SECONDS
    while time.perf_counter() < end or len(taken[0]) < _TIMES:
        for times, (runner, runs, repeats) in zip(taken, turns, strict=True):
            start = time.perf_counter_ns()
            runner.run(repeats)
            times.append((time.perf_counter_ns() - start) / runs / repeats)
    return [statistics.median(times) for times in taken]


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of so many lines down the rows of `size` bytes, `pitch` bytes from one to the next,
    column after column: so many columns, or all.
    """

    kind: str
    lines: int
    size: int
    pitch: int = _APART
    columns: int = 0

    @property
    def in_a_row(self) -> int:
        """Runs of a row."""
        return self.columns or self.pitch // (self.lines * LINE_BYTES)

    @property
    def together(self) -> int:
        """Rows whose runs have a sum of their own for each line."""
        return max(_SUMS // self.lines, 1)

    @property
    def rows(self) -> int:
        """Rows that are walked, as many as are loaded together at a time."""
        return max(self.size // self.pitch // self.together, 1) * self.together


def _in_a_row(size: int, kind: str = LOAD) -> Runs:
    """Whole pages, one after the other."""
    return Runs(kind, RUNS[-1], size, PAGE_BYTES)


def run_probe(runs: Runs, isa: Isa) -> Probe:
    """Walks down rows; what is loaded is left in the first vector as sums, or stored behind all
    rows.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    vector = VectorType("float", isa.lanes(4))
    run_bytes, pitch = runs.lines * LINE_BYTES, runs.pitch
    rows = rows_ahead(isa.near_rows)
    ahead = max(rows.bytes_ // run_bytes, 1) * pitch
    step = isa.vector_bits // 8

    def run(row: str, column: str, sums: list[str]) -> list[str]:
        start = writer.let(f"add i64 {row}, {column}")
        base = writer.let(f"getelementptr i8, ptr %area, i64 {start}")
        places = (
            at * pitch + offset
            for at in range(runs.together)
            for offset in range(0, run_bytes, step)
        )
        for number, offset in enumerate(places):
            place = writer.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            if runs.kind == FETCH and not offset % LINE_BYTES:
                further = writer.let(f"getelementptr i8, ptr {place}, i64 {ahead}")
                writer.prefetch(further, rows.cache)
            sums = _accessed(writer, runs, vector, place, number, sums)
        return sums

    def walk(column: str, sums: list[str]) -> list[str]:
        carried = [(vector, each) for each in sums]
        last, by = runs.rows * pitch, runs.together * pitch
        return writer.counted_loop(last, by, lambda row, each: run(row, column, each), carried)

    def again(counter: str, sums: list[str]) -> list[str]:
        carried = [(vector, each) for each in sums]
        return writer.counted_loop(runs.in_a_row * run_bytes, run_bytes, walk, carried)

    zeros = [(vector, vector.constant(0.0))] * (0 if runs.kind in (STORE, COPY) else _SUMS)
    ends = writer.counted_loop("%repeats", 1, again, zeros)
    if ends:
        total = ends[0]
        for each in ends[1:]:
            total = writer.let(f"fadd {vector} {total}, {each}")
        writer.do(f"store {vector} {total}, ptr %area, align {step}")
    return Probe(f"{runs.kind} {runs.lines} lines", module_text(writer), 1)


def _accessed(
    writer: FunctionWriter,
    runs: Runs,
    vector: VectorType,
    place: str,
    number: int,
    sums: list[str],
) -> list[str]:
    """The sums after the access to one vector."""
    align = 4 * vector.lanes
    if runs.kind == STORE:
        writer.do(f"store {vector} {vector.constant(1.0)}, ptr {place}, align {align}")
        return sums
    value = writer.let(f"load {vector}, ptr {place}, align {align}")
    if runs.kind == COPY:
        # Loads whose addresses are those of stores, but for whole pages, would wait.
        other = f"getelementptr i8, ptr {place}, i64 {runs.rows * runs.pitch + _ODD}"
        writer.do(f"store {vector} {value}, ptr {writer.let(other)}, align {align}")
        return sums
    at = number % len(sums)
    return [*sums[:at], writer.let(f"fadd {vector} {sums[at]}, {value}"), *sums[at + 1 :]]


def _made(numbers: Numbers) -> MemoryRates:
    runs = {name: tuple(numbers[f"{name} {lines}"] for lines in RUNS) for name in _RUNS_OF}
    rows = {level: numbers[f"{level} row"] for level in _BEHIND}
    walks = {kind: numbers[f"walk {kind}"] for kind in KINDS}
    copies = {level: numbers[f"{level} {COPY}"] for level in _BEHIND}
    return MemoryRates(runs, numbers[_KEPT_PART], rows, numbers[_REMEMBERED], walks, copies)


_NAMES = frozenset(
    (
        *(_KEPT_PART, _REMEMBERED, *(f"walk {kind}" for kind in KINDS)),
        *(f"{level} {name}" for level in _BEHIND for name in ("row", COPY)),
        *(f"{name} {lines}" for name in _RUNS_OF for lines in RUNS),
    )
)
once = MeasuredOnce("memory", _SCHEMA, _NAMES, measure_memory, _made)
