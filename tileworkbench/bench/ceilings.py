"""The ceilings of this machine, measured in this process: bandwidth of every memory level and peak
arithmetic of every element type, on one thread and on all.

A roof must not be lower than what a kernel can reach. So each ceiling is the best of several runs,
a level's bandwidth the best of reading, copying and STREAM's triad (memory also with streaming
stores, which spare reading what is overwritten), and more threads never have a lower roof than
fewer. Where other programs kept this one from having all its cores, what each core has of its own
(arithmetic, L1, L2) counts as many times as there are threads, and the note says so. The best that
was ever seen is kept with the machine, for all processes: nobody waits for it twice
(`best_of`). Bytes are those that the loop asks for: N read, 2 N copied, 3 N for the triad.

The peak of an element type is that of T.gemm with such operands: fused multiply-adds of float32
and float64; float16 is computed in float32, so its peak is that; bfloat16, int8 and uint8 with the
products that the processor sums in groups, where it does. A product and its sum are two operations.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from tileworkbench.bench.arithmetic import ARITHMETIC, arithmetic_probe, write_factors
from tileworkbench.bench.points import Ceiling, Machine
from tileworkbench.bench.probes import STEP_BYTES, ProbeRunner, host_isa, sample_clock
from tileworkbench.bench.streams import STREAMS, stream_probe
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.cache import default_cache
from tileworkbench.compiler.device.host.processor import CacheSizes
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.runtime.forks import fresh_lock

# Raised when the same measurement comes to mean something else.
_SCHEMA = 3
# A run is long enough to hide the launch. Runs go on until `_ROUNDS` in a row were no faster than
# the best before and `_ROUNDS` had all their cores, or for `_PATIENCE_NS`.
_RUN_NS = 4_000_000
_ROUNDS = 5
_AGAIN = 3
_GAIN = 0.99
_PATIENCE_NS = 200_000_000
# A run had all its cores if it used this part of their time.
_UNDISTURBED = 0.9
_SMALLEST_MEMORY_SET, _LARGEST_MEMORY_SET = 64 << 20, 1 << 30

LEVELS = ("L1", "L2", "L3", "DRAM")
"""Memory levels, innermost first; a machine without a measurable L3 has three of them."""

TYPES = ("float64", "float32", "float16", "bfloat16", "int8", "uint8")
"""Element types that have a peak."""

# Levels that all threads draw on together.
_SHARED = ("L3", "DRAM")
# Multiplied as this.
_WIDENED = {"float16": "float32"}

_lock = fresh_lock()
_known: dict[str, Machine] = {}


def machine(measure: bool = False) -> Machine:
    """The ceilings of this machine for the number of threads that a launch may use now.

    They are measured on first use (a few seconds) and kept in the user's cache directory;
    `measure` does it again, and the better of each ceiling stays. `busy` says that other programs
    disturbed it: then measure again when they are gone. Raises `UnsupportedError` where nothing can
    be compiled.
    """
    key = machine_key()
    with _lock:
        kept = _known.get(key) or _read(key)
        if kept is not None and not measure:
            _known[key] = kept
            return kept
        found = measure_machine()
        if kept is not None:
            found = best_of(kept, found)
        default_cache().put(key, machine_to_json(found).encode())
        _known[key] = found
        return found


def best_of(kept: Machine, new: Machine) -> Machine:
    """The better of two measurements, ceiling by ceiling.

    One of a quiet machine replaces one of a busy one, whose ceilings of all threads may be
    multiples that no kernel reaches, and is not changed by it.
    """
    if kept.busy != new.busy:
        return new if kept.busy else kept
    old = {(each.name, each.unit, each.threads): each for each in kept.ceilings}
    ceilings = tuple(
        max(each, old.get((each.name, each.unit, each.threads), each), key=lambda c: c.value)
        for each in new.ceilings
    )
    return replace(new, ceilings=ceilings)


def known_machine() -> Machine | None:
    """The ceilings of this machine where they are known already, by this process or another."""
    key = machine_key()
    with _lock:
        return _known.get(key) or _read(key)


def machine_key() -> str:
    """What a measurement holds for: processor, features, cores, threads, caches, compiler."""
    facts = (
        *(_SCHEMA, processor.machine_name(), processor.cpu_name(), processor.cpu_feature_string()),
        *(processor.llvm_version(), processor.core_count(), processor.cache_sizes()),
        get_num_threads(),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def machine_to_json(found: Machine) -> str:
    """A machine as JSON text; `machine_from_json` reads it."""
    return json.dumps({"schema": _SCHEMA, **asdict(found)}, indent=1)


def machine_from_json(text: str) -> Machine:
    """The machine that `machine_to_json` wrote. Raises `ValueError` for any other text."""
    try:
        data = json.loads(text)
        if data["schema"] != _SCHEMA:
            raise ValueError(f"schema {data['schema']} is not {_SCHEMA}")
        ceilings = tuple(_ceiling(each) for each in data["ceilings"])
        return Machine(str(data["name"]), ceilings, str(data["note"]), bool(data["busy"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not a measured machine: {error!r}") from None


def _ceiling(data: dict[str, object]) -> Ceiling:
    name, value, unit, threads = (data[key] for key in ("name", "value", "unit", "threads"))
    if not isinstance(value, float) or not value > 0 or not isinstance(threads, int):
        raise ValueError(f"'{data}' is not a ceiling")
    if unit == "GB/s" or unit == "GFLOP/s":
        return Ceiling(str(name), value, unit, threads)
    raise ValueError(f"'{unit}' is not a unit of a ceiling")


def _read(key: str) -> Machine | None:
    """What an earlier process measured; None for nothing or something unreadable."""
    data = default_cache().get(key)
    if data is None:
        return None
    try:
        return machine_from_json(data.decode())
    except ValueError:
        return None


def measure_machine() -> Machine:
    """Measure every ceiling, in a few seconds. Other work on the machine lowers the result."""
    start, clock = time.perf_counter(), sample_clock()
    threads = sorted({1, get_num_threads()})
    rates: dict[str, list[Rate]] = {}
    caches = processor.cache_sizes()
    sets = {count: working_sets(caches, count) for count in threads}
    for level in sets[threads[-1]]:
        rates[level] = [_measure_level(level, sets[count][level], count) for count in threads]
    for kind in ARITHMETIC:
        rates[kind] = [_measure_peak(kind, count) for count in threads]
    rates |= {wide: rates[kind] for wide, kind in _WIDENED.items()}
    undisturbed = all(rate.undisturbed for found in rates.values() for rate in found)
    seconds = time.perf_counter() - start
    busy = (
        ""
        if undisturbed
        else (
            f"the machine was busy: other programs kept some runs from having {threads[-1]} cores, "
            "so arithmetic, L1 and L2 of all threads may be multiples of one thread's, L3 and DRAM "
            "may be too low ('%tile peaks --measure' on a quiet machine mends that); "
        )
    )
    note = (
        "best run of read, copy and triad per level and of multiply-adds per type; "
        f"float16 is computed in float32; {busy}"
        f"clock {max(clock, sample_clock()):.1f} GHz; measured in {seconds:.1f} s"
    )
    # What disturbed one run may have disturbed others unseen: a host's other guests take time that
    # counts as ours.
    seen = {
        name: [replace(rate, undisturbed=undisturbed) for rate in found]
        for name, found in rates.items()
    }
    ceilings = [
        ceiling
        for name in (*LEVELS, *TYPES)
        if name in seen
        for ceiling in to_ceilings(name, seen[name], threads)
    ]
    return Machine(processor.machine_name(), tuple(ceilings), note, not undisturbed)


@dataclass(frozen=True, slots=True)
class Rate:
    """Work per nanosecond, and whether it was measured with all the cores asked for."""

    value: float
    undisturbed: bool


def to_ceilings(name: str, rates: Sequence[Rate], threads: Sequence[int]) -> list[Ceiling]:
    """The ceilings of one level or type from its rates with 1 and more threads, in that order."""
    unit: Literal["GB/s", "GFLOP/s"] = "GB/s" if name in LEVELS else "GFLOP/s"
    found: list[Ceiling] = []
    for rate, count in zip(rates, threads, strict=True):
        least = found[-1].value if found else 0.0
        if not rate.undisturbed and name not in _SHARED:
            least = max(least, rates[0].value * count)
        found.append(Ceiling(name, max(rate.value, least), unit, count))
    return found


def working_sets(caches: CacheSizes, threads: int) -> dict[str, int]:
    """Level -> bytes that one thread walks: half of a private cache, a quarter of the shared one,
    four times the largest for memory (of all threads together).

    A shared cache that `threads` such sets could not tell from the private ones is left out.
    """
    sets = {"L1": caches.l1 // 2, "L2": caches.l2 // 2}
    if caches.l3 // 4 // threads >= 2 * caches.l2:
        sets["L3"] = caches.l3 // 4 // threads
    largest = max(caches.l3, caches.l2 * threads)
    sets["DRAM"] = min(max(4 * largest, _SMALLEST_MEMORY_SET), _LARGEST_MEMORY_SET) // threads
    return sets


def _measure_level(level: str, bytes_: int, threads: int) -> Rate:
    """GB/s of one level with `threads` threads, each on its own `bytes_` bytes."""
    isa = host_isa()
    rates = []
    for kind, streaming in _streams(level):
        probe = stream_probe(kind, isa, streaming_stores=streaming)
        array_bytes = bytes_ // probe.work // STEP_BYTES * STEP_BYTES
        runner = ProbeRunner(probe, threads, array_bytes)
        rates.append(best_rate(_timed(runner), probe.work * array_bytes * threads, threads))
    undisturbed = all(rate.undisturbed for rate in rates)
    return Rate(max(rate.value for rate in rates), undisturbed)


def _streams(level: str) -> Iterator[tuple[str, bool]]:
    yield from ((kind, False) for kind in STREAMS)
    if level == "DRAM":
        yield from ((kind, True) for kind in STREAMS if kind != "read")


def _measure_peak(kind: str, threads: int) -> Rate:
    """Giga-operations per second of one kind of arithmetic."""
    isa = host_isa()
    probe = arithmetic_probe(kind, isa)
    runner = ProbeRunner(probe, threads)
    for block in range(threads):
        write_factors(runner.area(block), kind, isa)
    return best_rate(_timed(runner), probe.work * threads, threads)


def _timed(runner: ProbeRunner) -> Callable[[int], tuple[int, int]]:
    """A function from repeats to the nanoseconds a run took, and those of processor time."""

    def run(repeats: int) -> tuple[int, int]:
        start, start_used = time.perf_counter_ns(), time.process_time_ns()
        runner.run(repeats)
        used, now = time.process_time_ns(), time.perf_counter_ns()
        return max(now - start, 1), used - start_used

    return run


def best_rate(run: Callable[[int], tuple[int, int]], work: float, threads: int) -> Rate:
    """The most `work` per nanosecond that `run` did, a repetition being `work`.

    `run(repeats)` returns the nanoseconds it took and those of processor time on all threads.
    """
    repeats, taken = 1, run(1)[0]
    # A run that seems long is made again, for another program may have interrupted a short one.
    while taken < _RUN_NS or (taken := min(run(repeats)[0] for _ in range(_AGAIN))) < _RUN_NS:
        # At most tenfold, since a short run tells little about a long one.
        repeats *= min(10, max(2, _RUN_NS // taken))
        taken = run(repeats)[0]
    fastest, spent = taken, 0
    without_gain = undisturbed = 0
    while min(without_gain, undisturbed) < _ROUNDS and spent < _PATIENCE_NS:
        taken, used = run(repeats)
        without_gain = 0 if taken < fastest * _GAIN else without_gain + 1
        undisturbed += used >= _UNDISTURBED * threads * taken
        fastest, spent = min(fastest, taken), spent + taken
    return Rate(work * repeats / fastest, undisturbed >= _ROUNDS)
