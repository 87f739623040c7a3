"""What lines of the cache cost a core that nobody fetches ahead: nanoseconds of a run of lines.

The rows of a block lie in pages apart from each other where its tile is narrower than the tensor.
A run of lines in one page is fetched with what its first lines have under way at once; only from
some dozen lines on is the processor's prefetcher ahead. Runs are loaded or stored to, column after
column. Those of the second cache are a few lines more than a page's multiple apart, so that the
cache can hold them; those from behind it are powers of two apart, as rows are that it cannot hold.
Such rows share a few places of the first cache, too, where lines come in slower: runs of the second
cache are measured with them as well. All are measured once (some seconds) and kept with the
machine.

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

from tileworkbench.bench.measured_once import MeasuredOnce, Numbers
from tileworkbench.bench.probes import Probe, ProbeRunner, host_isa, module_text, touched_memory
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.emit.llvm.isa import Isa
from tileworkbench.compiler.emit.llvm.text import FunctionWriter, VectorType
from tileworkbench.compiler.fast_dataclass import dataclass

LINE_BYTES, PAGE_BYTES = 64, 4096
RUNS = (1, 2, 4, 8, 16, 64)
"""Lines of the runs that are measured; the longest is a page."""

_APART = 2 * PAGE_BYTES
_ODD = 5 * LINE_BYTES  # more, for the second cache
_LARGEST = 256 << 20  # bytes walked of memory, unless the last cache is larger
# Each is measured so often at least, and for so many seconds with all others of its level.
_TIMES, _SECONDS = 5, 0.2
_LEAST_LINES = 200_000  # of a measurement, or the call would count
_IN_A_ROW = "load", RUNS[-1], PAGE_BYTES  # whole pages, one after the other
_SUMS = 4  # that are carried side by side, or each line would wait for the sum of the last
_SCHEMA = 11
_KEPT_PART = "kept part"
SHARED = "L2 shared"
"""The second cache for rows that share a few places of the first one."""
_LEVELS = ("L2", SHARED, "L3", "DRAM")
_BEHIND = ("L3", "DRAM")  # the caches of a core
_PARTS = (1 / 2, 5 / 8, 3 / 4)  # of the last cache

# An EPYC of 2024 (Zen 5), for machines that are only described.
_ASSUMED: Mapping[str, tuple[float, ...]] = {
    "L2 load": (0.6, 1.2, 2.5, 4.2, 7.8, 31.0),
    "L2 store": (0.9, 1.5, 2.5, 4.5, 8.1, 31.0),
    f"{SHARED} load": (1.8, 3.2, 3.9, 5.0, 7.8, 31.0),
    f"{SHARED} store": (2.0, 2.8, 3.9, 5.6, 8.1, 31.0),
    "L3 load": (3.0, 3.7, 4.5, 7.4, 12.0, 40.0),
    "L3 store": (4.0, 5.7, 8.0, 11.3, 16.0, 38.0),
    "DRAM load": (5.5, 9.7, 17.0, 32.0, 60.0, 110.0),
    "DRAM store": (8.5, 11.3, 15.0, 28.7, 55.0, 110.0),
}

SHARED_KEPT = 1 / 3
"""Part of the last cache, which other cores and other guests of the host use as well, that it
serves whole if nothing else is known; of more it has less, by the logarithm, and nothing of as much
as its own size.
"""


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """Nanoseconds of runs of `RUNS` lines, by level and ``load`` or ``store``; the part of the last
    cache that holds data; and, by level, nanoseconds of a line of data in a row as they usually
    are, where the ceilings have the best of many.
    """

    runs_ns: Mapping[str, tuple[float, ...]]
    kept_part: float
    row_ns: Mapping[str, float] = field(default_factory=dict)

    def run_ns(self, level: str, stored: bool, lines: float) -> float:
        """A run of so many lines of a level; between those measured, by the logarithms."""
        times = self.runs_ns.get(f"{level} {'store' if stored else 'load'}", (0.0,) * len(RUNS))
        if lines >= RUNS[-1]:
            return times[-1] * lines / RUNS[-1]
        place = max(math.log(max(lines, 1.0)), 0.0)
        return math.exp(float(np.interp(place, np.log(RUNS), np.log(np.maximum(times, 1e-3)))))

    def usual(self, level: str, gb_s: float) -> float:
        """How many times as long as at the ceiling of one thread, so many GB/s, data in a row
        usually take.
        """
        return max(self.row_ns.get(level, 0.0) * gb_s / LINE_BYTES, 1.0)


def assumed_memory() -> MemoryRates:
    """The rates of an ordinary server."""
    return MemoryRates(_ASSUMED, SHARED_KEPT)


def memory_rates() -> MemoryRates:
    """The rates of this machine; measured on first use.

    Raises `UnsupportedError` where nothing can be compiled.
    """
    return once.get()


def measure_memory() -> Numbers:
    """Measure all runs on one thread, and the last cache."""
    caches = processor.cache_sizes()
    largest = min(4 * max(caches.l3, 4 * caches.l2), max(_LARGEST, 2 * caches.l3))
    sizes = {"L2": caches.l2 // 2, SHARED: caches.l2 // 2, "L3": caches.l3 // 4, "DRAM": largest}
    memory = touched_memory(largest + (1 << 20))
    times = dict[str, float]()
    for level, size in sizes.items():
        pitch = _APART + _ODD if level == "L2" else _APART
        kinds = itertools.product(("load", "store"), RUNS)
        walks = {f"{level} {kind} {lines}": (kind, lines, pitch) for kind, lines in kinds}
        if level in _BEHIND:
            walks[f"{level} row"] = _IN_A_ROW
        # A cache that is not there serves nothing.
        enough = size >= _SUMS * _APART
        measured = _usual_ns(walks.values(), size, memory) if enough else [0.0] * len(walks)
        times |= {name: max(each, 1e-3) for name, each in zip(walks, measured, strict=True)}
        if level in _BEHIND:
            times[f"{level} row"] /= RUNS[-1]
    times[_KEPT_PART] = _kept_part(memory, caches.l3, times["L3 row"], times["DRAM row"])
    return times


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
        part: _usual_ns([_IN_A_ROW], int(part * cache), memory)[0] / RUNS[-1] for part in _PARTS
    }
    return kept_part(whole_ns, parts_ns, far_ns)


def _usual_ns(
    walks: Collection[tuple[str, int, int]], size: int, memory: NDArray[np.uint8]
) -> list[float]:
    """Nanoseconds of runs, by their kind, lines and pitch. They take turns, so that nobody disturbs
    all times of one of them, and the median counts.
    """
    turns: list[tuple[ProbeRunner, int, int]] = []
    for kind, lines, pitch in walks:
        probe = run_probe(kind, lines, size, host_isa(), pitch)
        runs = _rows(lines, size, pitch) * _columns(lines, pitch)
        repeats = -(-_LEAST_LINES // (runs * lines))
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


def _columns(lines: int, pitch: int) -> int:
    """Runs of a row."""
    return pitch // (lines * LINE_BYTES)


def _rows(lines: int, size: int, pitch: int) -> int:
    """Rows that are walked, as many as are loaded together at a time."""
    together = _together(lines)
    return max(size // pitch // together, 1) * together


def _together(lines: int) -> int:
    """Rows whose runs have a sum of their own for each line."""
    return max(_SUMS // lines, 1)


def run_probe(kind: str, lines: int, size: int, isa: Isa, pitch: int = _APART) -> Probe:
    """Walks runs of so many lines down the rows of `size` bytes, `pitch` bytes from one to the
    next, column after column. ``load`` leaves the sums of what it has read in the first vector.
    """
    writer = FunctionWriter("work", "void", "ptr %area, i64 %bytes, i64 %repeats")
    vector = VectorType("float", isa.lanes(4))
    run_bytes, columns = lines * LINE_BYTES, _columns(lines, pitch)
    step = isa.vector_bits // 8

    def run(row: str, column: str, sums: list[str]) -> list[str]:
        start = writer.let(f"add i64 {row}, {column}")
        base = writer.let(f"getelementptr i8, ptr %area, i64 {start}")
        places = (
            at * pitch + offset
            for at in range(_together(lines))
            for offset in range(0, run_bytes, step)
        )
        for number, offset in enumerate(places):
            place = writer.let(f"getelementptr i8, ptr {base}, i64 {offset}")
            if kind == "store":
                writer.do(f"store {vector} {vector.constant(1.0)}, ptr {place}, align {step}")
            else:
                at = number % len(sums)
                value = writer.let(f"load {vector}, ptr {place}, align {step}")
                sums = [*sums]
                sums[at] = writer.let(f"fadd {vector} {sums[at]}, {value}")
        return sums

    def walk(column: str, sums: list[str]) -> list[str]:
        carried = [(vector, each) for each in sums]
        last = _rows(lines, size, pitch) * pitch
        by = _together(lines) * pitch
        return writer.counted_loop(last, by, lambda row, each: run(row, column, each), carried)

    def again(counter: str, sums: list[str]) -> list[str]:
        carried = [(vector, each) for each in sums]
        return writer.counted_loop(columns * run_bytes, run_bytes, walk, carried)

    zeros = [(vector, vector.constant(0.0))] * (_SUMS if kind == "load" else 0)
    ends = writer.counted_loop("%repeats", 1, again, zeros)
    if ends:
        total = ends[0]
        for each in ends[1:]:
            total = writer.let(f"fadd {vector} {total}, {each}")
        writer.do(f"store {vector} {total}, ptr %area, align {step}")
    return Probe(f"{kind} {lines} lines", module_text(writer), 1)


def _made(numbers: Numbers) -> MemoryRates:
    kinds = [f"{level} {kind}" for level in _LEVELS for kind in ("load", "store")]
    runs = {name: tuple(numbers[f"{name} {lines}"] for lines in RUNS) for name in kinds}
    rows = {level: numbers[f"{level} row"] for level in _BEHIND}
    return MemoryRates(runs, numbers[_KEPT_PART], rows)


_NAMES = frozenset(
    (
        _KEPT_PART,
        *(f"{level} row" for level in _BEHIND),
        *(f"{level} {kind} {n}" for level in _LEVELS for kind in ("load", "store") for n in RUNS),
    )
)
once = MeasuredOnce("memory", _SCHEMA, _NAMES, measure_memory, _made)
