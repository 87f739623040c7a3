"""The ceilings of this machine, measured in this process: bandwidth of every memory level and peak
arithmetic of every element type, on one thread and on all.

A roof must not be lower than what a kernel can reach. So each ceiling is the best of many samples
(`ceiling_samples`), a level's bandwidth the best of reading, copying and STREAM's triad (memory
also with streaming stores, which spare reading what is overwritten), and more threads never have a
lower roof than fewer. Bytes are those that the loop asks for: N read, 2 N copied, 3 N for the
triad. The best that was ever seen is kept with the machine, for all processes: nobody waits for it
twice (`best_of`).

A quiet machine is one whose ceilings another process finds again within `AGREEMENT`. That is
promised where repeated samples agree as well, every run had its cores, and neither other programs
nor the host took time meanwhile; else `Machine.doubt` says what was seen. Where runs did not have
all cores, what each core has of its own (arithmetic, L1, L2) counts as many times as there are
threads. Where a core was slowed as long as one ceiling took, only the others tell (`uneven`).

A virtual machine can promise only what its cores have of their own. L3 and DRAM belong to the host:
where it runs the cores, and what its other guests do, changes them by half from one process to
the next, and nothing that one process sees tells. So they are `Ceiling.shared`, have the least and
the most that was seen, and no part in `Machine.doubt`. Where the system does not say whether it is
a guest, it counts as one.

The peak of an element type is that of T.gemm with such operands: fused multiply-adds of float32
and float64; float16 is computed in float32, so its peak is that; bfloat16, int8 and uint8 with the
products that the processor sums in groups, where it does. A product and its sum are two operations.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Literal

from tileworkbench.bench.alone import alone
from tileworkbench.bench.ceiling_samples import SHARED_LEVELS, Rate, cases_of, measure_rates
from tileworkbench.bench.disturbance import Disturbance, Watch
from tileworkbench.bench.points import Ceiling, Machine
from tileworkbench.bench.probes import sample_clock
from tileworkbench.bench.units import format_percent
from tileworkbench.compiler.device.host import processor
from tileworkbench.compiler.device.host.cache import default_cache
from tileworkbench.compiler.device.host.threads import get_num_threads
from tileworkbench.compiler.runtime.forks import fresh_lock

AGREEMENT = 0.05
"""Measurements that call the machine quiet agree within this: largest over smallest, less one."""

# The three best sweeps of a ceiling are no further apart than this: then another process, which
# makes as many, all but certainly finds one as good.
_STEADY = AGREEMENT / 2
# Raised when the same measurement comes to mean something else.
_SCHEMA = 8
# Parts of the processor's time that change ceilings by less than `AGREEMENT`.
_OTHERS, _HOST = 0.02, 0.01

LEVELS = ("L1", "L2", "L3", "DRAM")
"""Memory levels, innermost first; a machine without a measurable L3 has three of them."""

TYPES = ("float64", "float32", "float16", "bfloat16", "int8", "uint8")
"""Element types that have a peak."""

# Another guest on the other hardware thread of a core takes a third of what the core does; threads
# gain less from each other in one ceiling than in another by so much only then.
_UNEVEN = 2 * AGREEMENT
# Multiplied as this.
_WIDENED = {"float16": "float32"}

_lock = fresh_lock()
_known: dict[str, Machine] = {}


def machine(measure: bool = False) -> Machine:
    """The ceilings of this machine for the number of threads that a launch may use now.

    They are measured on first use (a few seconds) and kept in the user's cache directory;
    `measure` does it again, and the better of each ceiling stays. `doubt` says that other programs
    or a host's other guests disturbed it: then measure again when they are gone. `caveat` names
    what a virtual machine cannot promise. Raises
    `UnsupportedError` where nothing can be compiled.
    """
    key = machine_key()
    with _lock:
        kept = _kept(key)
        if kept is not None and not measure:
            return kept
        with alone():
            others = _read(key)  # measured by who was before us
            if others is None or measure:
                measured = measure_machine()
                kept = measured if kept is None else best_of(kept, measured)
                default_cache().put(key, machine_to_json(kept).encode())
            else:
                kept = others
        _known[key] = _with_others(kept)
        return _known[key]


def best_of(kept: Machine, new: Machine) -> Machine:
    """The better of two measurements, ceiling by ceiling.

    What was seen once is possible, so the most that was ever measured stays. Multiples of one
    thread's value were not seen: they yield to anything that was. Of a quiet and a busy machine the
    quiet one says how sure the ceilings are, else the newer one, as far as the two agree.
    """
    first, second = (kept, new) if new.busy and not kept.busy else (new, kept)
    ceilings = _raised(first.ceilings, second.ceilings)
    if first.busy or ceilings == first.ceilings:
        return replace(first, ceilings=ceilings)
    return replace(first, ceilings=ceilings, doubt=doubt_of(ceilings, ()))


def _raised(ceilings: Sequence[Ceiling], others: Sequence[Ceiling]) -> tuple[Ceiling, ...]:
    """Ceilings with what else was seen of each."""
    seen = {(each.name, each.unit, each.threads): each for each in others}
    return tuple(
        _better(each, seen.get((each.name, each.unit, each.threads), each)) for each in ceilings
    )


def _better(first: Ceiling, other: Ceiling) -> Ceiling:
    """`first`, raised to what `other` has seen, from which its own samples are then further."""
    if first.scaled and not other.scaled:
        return other
    if other.scaled > first.scaled:
        return first
    first = replace(first, low=min(first.low, other.low))
    if other.value <= first.value:
        return first
    third = first.value / (1 + first.spread)
    return replace(first, value=other.value, spread=other.value / third - 1)


def known_machine() -> Machine | None:
    """The ceilings of this machine where they are known already, by this process or another."""
    with _lock:
        return _kept(machine_key())


def _kept(key: str) -> Machine | None:
    """What this process knows, or an earlier one has measured."""
    if key not in _known and (read := _read(key)) is not None:
        _known[key] = _with_others(read)
    return _known.get(key)


def _with_others(machine: Machine) -> Machine:
    """With what was seen of the same threads when launches might use others: one thread's ceilings
    do not depend on that.
    """
    for threads in sorted({1, processor.core_count()} - {get_num_threads()}):
        other = _read(machine_key(threads))
        if other is not None:
            machine = replace(machine, ceilings=_raised(machine.ceilings, other.ceilings))
    return machine


def machine_key(threads: int = 0) -> str:
    """What a measurement on so many threads, those that a launch may use now if 0, holds for:
    processor, features, cores, caches, compiler.
    """
    facts = (
        *(_SCHEMA, processor.machine_name(), processor.cpu_name(), processor.cpu_feature_string()),
        *(processor.llvm_version(), processor.core_count(), processor.cache_sizes()),
        threads or get_num_threads(),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def machine_to_json(machine: Machine) -> str:
    """A machine as JSON text; `machine_from_json` reads it."""
    return json.dumps({"schema": _SCHEMA, **asdict(machine)}, indent=1)


def machine_from_json(text: str) -> Machine:
    """The machine that `machine_to_json` wrote. Raises `ValueError` for any other text."""
    try:
        data = json.loads(text)
        if data["schema"] != _SCHEMA:
            raise ValueError(f"schema {data['schema']} is not {_SCHEMA}")
        ceilings = tuple(_ceiling(each) for each in data["ceilings"])
        return Machine(str(data["name"]), ceilings, str(data["note"]), str(data["doubt"]))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"this is not a measured machine: {error!r}") from None


def _ceiling(data: dict[str, object]) -> Ceiling:
    name, value, unit, threads = (data[key] for key in ("name", "value", "unit", "threads"))
    spread, low = data["spread"], data["low"]
    scaled, shared = bool(data["scaled"]), bool(data["shared"])
    if not isinstance(value, float) or not value > 0 or not isinstance(threads, int):
        raise ValueError(f"'{data}' is not a ceiling")
    if not isinstance(spread, float) or not spread >= 0:
        raise ValueError(f"'{data}' is not a ceiling")
    if not isinstance(low, float) or not low >= 0:
        raise ValueError(f"'{data}' is not a ceiling")
    if unit == "GB/s" or unit == "GFLOP/s":
        return Ceiling(str(name), value, unit, threads, spread, scaled, low, shared)
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
    start, clock, watch = time.perf_counter(), sample_clock(), Watch()
    threads = sorted({1, get_num_threads()})
    rates = measure_rates(cases_of(processor.cache_sizes(), threads))
    note = (
        "best of read, copy and triad per level and of multiply-adds per type, each sampled "
        "several times; float16 is computed in float32; "
        f"clock {max(clock, sample_clock()):.1f} GHz; "
        f"measured in {time.perf_counter() - start:.1f} s"
    )
    guest = processor.is_guest() is not False
    own_l2 = len(processor.caches()[1].sharers) == 1
    name, seen = processor.machine_name(), watch.read()
    return to_machine(name, rates, threads, seen, note, guest, own_l2)


def to_machine(
    name: str,
    rates: Mapping[tuple[str, int], Rate],
    threads: Sequence[int],
    seen: Disturbance,
    note: str = "",
    guest: bool = False,
    own_l2: bool = False,
) -> Machine:
    """The machine that these rates, with these numbers of threads, are of; `guest` of a host. Each
    core has its `own_l2` as far as the system says.
    """
    undisturbed = all(rate.undisturbed for rate in rates.values())
    # What disturbed one run may have disturbed others unseen.
    marked = {key: replace(rate, undisturbed=undisturbed) for key, rate in rates.items()}
    ceilings = [
        replace(ceiling, shared=guest and kind in SHARED_LEVELS)
        for kind in (*LEVELS, *TYPES)
        for source in [_WIDENED.get(kind, kind)]
        if (source, threads[0]) in marked
        for ceiling in to_ceilings(kind, [marked[source, n] for n in threads], threads)
    ]
    reasons = []
    if seen.others > _OTHERS:
        reasons.append(f"other programs took {format_percent(seen.others)} of the processor")
    if seen.host > _HOST:
        reasons.append(f"the host took {format_percent(seen.host)} of it")
    if not undisturbed:
        reasons.append(
            "some runs did not have all their cores, so arithmetic, L1 and L2 of all threads may "
            "be multiples of one thread's"
        )
    reasons += uneven(ceilings, own_l2)
    return Machine(name, tuple(ceilings), note, doubt_of(ceilings, reasons))


def uneven(ceilings: Sequence[Ceiling], own_l2: bool = False) -> list[str]:
    """What says that cores were slowed for seconds: of what each core has of its own, all threads
    together have the same multiple of one thread's. Nothing where they have. Two cores that are the
    hardware threads of one, as the host has it, still have twice the L2 of one; where cores share
    L2, less says nothing, but where each has its `own_l2`, it has the multiple of L1.
    """
    rates: dict[str, list[float]] = {}
    for ceiling in ceilings:
        if ceiling.name in ("L1", "L2", *TYPES):
            rates.setdefault(ceiling.name, []).append(ceiling.value)
    gains = {name: values[-1] / values[0] for name, values in rates.items()}
    most = max(gains, key=gains.__getitem__)
    least = min((name for name in gains if name != "L2"), key=gains.__getitem__)
    if gains[least] < (1 - _UNEVEN) * gains[most]:
        return [
            f"all threads have {gains[least]:.1f} times the {least} of one, "
            f"but {gains[most]:.1f} times the {most}"
        ]
    if own_l2 and gains.get("L2", math.inf) < (1 - AGREEMENT) * gains.get("L1", 0.0):
        return [f"all threads have {gains['L2']:.2f} times the L2 of one, though each has its own"]
    return []


def doubt_of(ceilings: Sequence[Ceiling], reasons: Sequence[str]) -> str:
    """Why another measurement may find other ceilings of those that are promised, empty where it
    will not.
    """
    own = [ceiling for ceiling in ceilings if not ceiling.shared]
    worst = max(own, key=lambda ceiling: ceiling.spread)
    if worst.spread > _STEADY:
        far = worst.spread >= 1
        much = f"{1 + worst.spread:.1f} times" if far else f"{format_percent(worst.spread)} above"
        apart = f"the best sample of {worst.name}, {worst.threads} T, is {much} the third best"
        reasons = (*reasons, apart)
    if not reasons:
        return ""
    # Samples several times apart say nothing about how far the best is from the truth.
    off = format_percent(max(worst.spread, AGREEMENT))
    off = f"±{off}" if worst.spread < 1 else "maybe far too low"
    return (
        f"busy or shared machine: ceilings are the best seen, {off} "
        f"({'; '.join(reasons)}); '%tile peaks --measure' measures again and keeps the better"
    )


def to_ceilings(name: str, rates: Sequence[Rate], threads: Sequence[int]) -> list[Ceiling]:
    """The ceilings of one level or type from its rates with 1 and more threads, in that order."""
    unit: Literal["GB/s", "GFLOP/s"] = "GB/s" if name in LEVELS else "GFLOP/s"
    ceilings: list[Ceiling] = []
    # What each of several threads did at the same time, one alone can do.
    alone = max(rate.value / count for rate, count in zip(rates, threads, strict=True))
    for rate, count in zip(rates, threads, strict=True):
        value, spread, scaled, low = max(rate.value, alone), rate.spread, False, rate.low
        if not rate.undisturbed and name not in SHARED_LEVELS and rates[0].value * count > value:
            value, spread, scaled = rates[0].value * count, rates[0].spread, True
        value = max(value, ceilings[-1].value if ceilings else 0.0)
        ceilings.append(Ceiling(name, value, unit, count, spread, scaled, low))
    return ceilings
