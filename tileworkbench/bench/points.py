"""The roofline: what this machine could do at a kernel's arithmetic intensity, and what it did.

Model: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009: attainable = min(peak,
intensity x bandwidth), one roof per memory level whose bytes were counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from tileworkbench.bench.parts import Causes
from tileworkbench.bench.units import (
    format_bytes,
    format_count,
    format_percent,
    format_time,
    rate_unit,
)
from tileworkbench.compiler.fast_dataclass import dataclass

BANDWIDTH = "GB/s"
PEAK = "GFLOP/s"
FEW = 6  # points that each have a name in a drawing; of more only the fastest has
_SAME = 0.05  # numbers of bytes that differ by less are told as one
TOLERANCE = 1.05  # a point further above its roof is a mistake in the measurement


@dataclass(frozen=True, slots=True)
class Ceiling:
    """One measured limit.

    `name` is a memory level (``L1``, ``DRAM``) when `unit` is ``GB/s`` and an element type
    (``float32``) when it is ``GFLOP/s``; `threads` is how many threads reached `value` (0: it is
    published). `spread` is how far the best of repeated samples is above the third best (less one),
    `low` the least that was found (0: not known). `scaled` says that one thread's value was
    multiplied, as the other cores were taken, `shared` that other guests of the same host draw on
    it too: then it is what they left while it was measured, and another measurement may find any.
    """

    name: str
    value: float
    unit: Literal["GB/s", "GFLOP/s"]
    threads: int
    spread: float = 0.0
    scaled: bool = False
    low: float = 0.0
    shared: bool = False

    @property
    def seen(self) -> str:
        """From what to what it was found, ``52.1 to 90.3 GB/s``."""
        return f"{self.low or self.value:.1f} to {self.value:.1f} {self.shown_unit}"

    @property
    def shown_unit(self) -> str:
        """The unit for people: operations on integers are no FLOP."""
        return rate_unit([self.name]) if self.unit == PEAK else self.unit


@dataclass(frozen=True, slots=True)
class Machine:
    """A host and its ceilings. `note` says how they were measured, `doubt` (empty for a quiet
    machine) why another measurement may find others by more than 5 %, `caveat` (empty where all
    belongs to this machine) for which of them nobody can tell.
    """

    name: str
    ceilings: tuple[Ceiling, ...]
    note: str = ""
    doubt: str = ""

    @property
    def busy(self) -> bool:
        """Whether the machine was busy, or shared, while its ceilings were measured."""
        return bool(self.doubt)

    @property
    def shared(self) -> tuple[Ceiling, ...]:
        """The ceilings that other guests of the same host have a part in."""
        return tuple(ceiling for ceiling in self.ceilings if ceiling.shared)

    @property
    def caveat(self) -> str:
        """Which ceilings nothing is promised of, empty where there are none."""
        names = " and ".join(dict.fromkeys(ceiling.name for ceiling in self.shared))
        return names and f"best seen of {names}, on which other guests of the host may draw too"

    @property
    def remarks(self) -> str:
        """Doubt and caveat."""
        return "; ".join(filter(None, (self.doubt, self.caveat)))

    @property
    def threads(self) -> int:
        """The most threads any ceiling was measured with."""
        return max((ceiling.threads for ceiling in self.ceilings), default=1)

    @property
    def caption(self) -> str:
        """The name, and where its ceilings are no measurement, or one that may differ."""
        if self.ceilings and self.threads == 0:
            return f"{self.name}, published numbers"
        return "; ".join(filter(None, (self.name, self.brief)))

    @property
    def brief(self) -> str:
        """Doubt without its reasons, and caveat."""
        return "; ".join(filter(None, (self.doubt.split(" (", 1)[0], self.caveat)))

    def find(self, name: str, unit: str, threads: int = 0) -> Ceiling | None:
        """The ceiling for a level or element type with `threads` threads (0: the most measured).

        A count between two measured ones takes the higher: that roof still holds.
        """
        same = [c for c in self.ceilings if c.name == name and c.unit == unit]
        same.sort(key=lambda ceiling: ceiling.threads)
        above = [c for c in same if threads and c.threads >= threads]
        return above[0] if above else same[-1] if same else None


@dataclass(frozen=True, slots=True)
class Step:
    """One version of a kernel on its trail: its number from 1 on, its place, what was changed.

    `change` is what differs from the version before, a line each; `machine` is where it was, since
    times of different machines are no trail. `cold` says that it was measured with cold caches.
    """

    number: int
    flops: float
    bytes_: float
    time_us: float
    predicted: bool
    change: tuple[str, ...] = ()
    machine: str = ""
    cold: bool = False

    @property
    def intensity(self) -> float:
        """FLOP per byte; infinite for a kernel that moves nothing."""
        return self.flops / self.bytes_ if self.bytes_ else math.inf

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flops / self.time_us / 1e3


@dataclass(frozen=True, slots=True)
class Trail:
    """The versions of a kernel before the one that is shown, oldest first, and what was changed to
    get there; `number` counts versions from 1, 0 where nobody counts them.
    """

    number: int = 0
    change: tuple[str, ...] = ()
    before: tuple[Step, ...] = ()

    def on(self, machine: str) -> Trail:
        """Without the versions that ran, or are predicted, elsewhere."""
        return replace(self, before=tuple(s for s in self.before if s.machine == machine))


NO_TRAIL = Trail()


@dataclass(frozen=True, slots=True)
class Level:
    """What a kernel asks of one memory level: FLOP per byte that comes from it, GB/s, and the part
    of the level's roof that it takes.
    """

    name: str
    bytes_: float
    intensity: float
    gbytes: float
    fraction: float


@dataclass(frozen=True, slots=True)
class CountedLevel:
    """What one memory level (``L1`` .. ``DRAM``) gave and took in a call, in bytes.

    `read` came for loads; `allocated` are whole lines that came since stores filled only a part of
    them at a time; `written` went back. Of L1 all loads and stores.
    """

    name: str
    read: float
    allocated: float
    written: float

    @property
    def bytes_(self) -> float:
        """What loads and stores ask for: `read` and `written`, as bandwidths are counted here."""
        return self.read + self.written


@dataclass(frozen=True, slots=True)
class Counted:
    """Bytes by memory level, innermost first, that were counted of a kernel. `note` says how they
    were counted, or with no `levels` why not.
    """

    note: str
    levels: tuple[CountedLevel, ...] = ()

    @property
    def by_level(self) -> dict[str, float]:
        """Level -> `CountedLevel.bytes_`."""
        return {level.name: level.bytes_ for level in self.levels}


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel: floating-point operations, bytes moved at `level`, microseconds.

    `predicted` says that nothing was run, and `time_us` is what a model expects. `dtype` picks the
    peak, `threads` (0: all) the ceilings it is held against. `predicted_us` is what a model of the
    machine expects of a measured kernel, NaN without one, and `causes` where that time goes.
    `traffic` has the bytes that a model expects from each memory level, innermost first, `counted`
    those that were counted (None: nobody did). `trail` has the
    versions of the kernel before this one. `cold` says that it was measured with cold caches.
    """

    name: str
    flops: float
    bytes_: float
    time_us: float
    dtype: str
    level: str
    threads: int = 0
    predicted_us: float = math.nan
    predicted: bool = False
    causes: Causes | None = None
    traffic: tuple[tuple[str, float], ...] = ()
    trail: Trail = NO_TRAIL
    cold: bool = False
    counted: Counted | None = None

    @property
    def served(self) -> tuple[tuple[str, float], ...]:
        """The bytes of each memory level: counted where they were, else from the model."""
        if self.counted is not None and self.counted.levels:
            return tuple(self.counted.by_level.items())
        return self.traffic

    @property
    def how(self) -> str:
        """``predicted``, ``measured``, ``measured with cold caches``."""
        if self.predicted:
            return "predicted"
        return "measured with cold caches" if self.cold else "measured"

    @property
    def intensity(self) -> float:
        """FLOP per byte; infinite for a kernel that moves nothing."""
        return self.flops / self.bytes_ if self.bytes_ else float("inf")

    @property
    def gflops(self) -> float:
        """GFLOP/s."""
        return self.flops / self.time_us / 1e3

    @property
    def gbytes(self) -> float:
        """GB/s at `level`."""
        return self.bytes_ / self.time_us / 1e3


def least_us(point: Point, machine: Machine) -> float:
    """Microseconds that the roofs over a point allow, 0 where there are none."""
    bandwidth = machine.find(point.level, BANDWIDTH, point.threads)
    peak = machine.find(point.dtype, PEAK, point.threads)
    work = ((point.bytes_, bandwidth), (point.flops, peak))
    return max(amount / roof.value / 1e3 if roof and amount > 0 else 0.0 for amount, roof in work)


def levels_of(point: Point, machine: Machine) -> tuple[Level, ...]:
    """What a point asks of each memory level with a roof, innermost first."""
    levels = []
    for name, bytes_ in point.served:
        roof = machine.find(name, BANDWIDTH, point.threads)
        if bytes_ > 0 and roof is not None:
            rate = bytes_ / point.time_us / 1e3
            level = Level(name, bytes_, point.flops / bytes_, rate, rate / roof.value)
            levels.append(level)
    return tuple(levels)


def explain_levels(point: Point, machine: Machine) -> str:
    """The levels of a point in one sentence, empty where there are not several."""
    levels = levels_of(point, machine)
    if len(levels) < 2:
        return ""
    nearest = max(levels, key=lambda level: level.fraction)
    return (
        "Each memory level has a roof of its own, and a diamond at the operations per byte that "
        f"come from it: of the levels {nearest.name} is nearest to its roof, at "
        f"{format_percent(nearest.fraction)} of it, and would hold this kernel up first. "
        f"Bytes of levels are {_origin(point)}.{_other_bytes(point, levels)}"
    )


def _other_bytes(point: Point, levels: Sequence[Level]) -> str:
    """Why the share of the roof over a point is another one than that of its level."""
    for level in levels:
        if level.name == point.level and abs(level.bytes_ / point.bytes_ - 1) > _SAME:
            return (
                f" The point is for {format_bytes(point.bytes_)}, each tensor moved once, the "
                f"diamond of {level.name} for the {format_bytes(level.bytes_)} that it moves."
            )
    return ""


def _origin(point: Point) -> str:
    counted = point.counted
    return counted.note if counted is not None and counted.levels else "from the model"


def relevant_ceilings(points: Sequence[Point], machine: Machine) -> Machine:
    """The machine without the peaks of element types that no point uses, if there are points."""
    dtypes = {point.dtype for point in points}
    kept = (c for c in machine.ceilings if c.unit == BANDWIDTH or c.name in dtypes or not dtypes)
    return replace(machine, ceilings=tuple(kept))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a point's place under its roof says.

    `attainable` is in `unit`; `fraction` is achieved over attainable; `wrong` marks a point above
    its roof, which no kernel can reach. Without the needed ceilings `attainable` is 0. `next_step`
    names the `line` to look at (0: none), where the model of the machine knows the kernel.
    """

    bound: Literal["memory", "compute", "unknown"]
    attainable: float
    fraction: float
    unit: str
    sentence: str
    next_step: str
    wrong: bool = False
    line: int = 0


def judge(point: Point, machine: Machine) -> Verdict:
    """Compare a point with the roof over it."""
    bandwidth = machine.find(point.level, BANDWIDTH, point.threads)
    peak = machine.find(point.dtype, PEAK, point.threads)
    if bandwidth is None or (peak is None and point.flops):
        missing = f"bandwidth of '{point.level}'" if bandwidth is None else f"'{point.dtype}' peak"
        sentence = f"The {missing} has not been measured on this machine, so no roof is known."
        return Verdict("unknown", 0.0, 0.0, PEAK, sentence, "Measure the machine's ceilings again.")
    if peak is None or not point.flops:
        return _judge_traffic(point, bandwidth, machine.busy or bandwidth.shared)
    slope = point.intensity * bandwidth.value
    memory = slope < peak.value
    attainable = min(slope, peak.value)
    fraction = point.gflops / attainable
    ridge = peak.value / bandwidth.value
    side = "left" if memory else "right"
    unit = rate_unit([point.dtype])
    roof = f"{point.level} bandwidth" if memory else f"{point.dtype} peak"
    bound: Literal["memory", "compute"] = "memory" if memory else "compute"
    place = (
        f"At {_short(point.intensity)} {unit[1:-2]}/B it is {side} of the ridge at "
        f"{_short(ridge)}, in the {bound}-bound region"
    )
    if point.predicted:
        sentence = (
            f"Predicted, nothing was run. {place}: the {roof} allows "
            f"{format_rate(attainable, unit)}. The model expects "
            f"{format_time(point.time_us)} for a launch{_share(fraction)}."
        )
    else:
        sentence = (
            f"{place}, and reaches {format_percent(fraction)} of the "
            f"{format_rate(attainable, unit)} that the {roof} allows{_ONCE if memory else ''}."
        )
    doubtful = machine.busy or (memory and bandwidth.shared)
    return _finish(bound, attainable, fraction, unit, sentence, point, doubtful)


_ONCE = ", each tensor moved once"  # the bytes that a point is placed by
_MEASURE = "A prediction is no measurement: run the kernel on the machine to know its time."


def _share(fraction: float) -> str:
    """What a model that knows more than the roofs expects of them."""
    return "" if fraction > 0.995 else f", {format_percent(fraction)} of what the roofs allow"


def _judge_traffic(point: Point, bandwidth: Ceiling, doubtful: bool) -> Verdict:
    """A kernel without arithmetic is held against bandwidth alone."""
    fraction = point.gbytes / bandwidth.value
    if point.predicted:
        sentence = (
            "Predicted, nothing was run. It does no floating-point work: its roof is the "
            f"{point.level} bandwidth of {format_rate(bandwidth.value, BANDWIDTH)}. The model "
            f"expects {format_time(point.time_us)} for a launch{_share(fraction)}."
        )
        return _finish("memory", bandwidth.value, fraction, BANDWIDTH, sentence, point, doubtful)
    sentence = (
        f"It does no floating-point work, and reaches {format_percent(fraction)} "
        f"of the {format_rate(bandwidth.value, BANDWIDTH)} of {point.level} bandwidth{_ONCE}."
    )
    return _finish("memory", bandwidth.value, fraction, BANDWIDTH, sentence, point, doubtful)


def _finish(
    bound: Literal["memory", "compute"],
    attainable: float,
    fraction: float,
    unit: str,
    sentence: str,
    point: Point,
    doubtful: bool,
) -> Verdict:
    if fraction > TOLERANCE and doubtful:
        sentence = (
            f"This point lies {format_percent(fraction - 1)} above its roof: the ceilings were "
            "measured while the machine was busy or shared, and are too low."
        )
        step = "Measure them again on a quiet machine: '%tile peaks --measure'."
        return Verdict(bound, attainable, fraction, unit, sentence, step, wrong=True)
    if fraction > TOLERANCE:
        sentence = (
            f"This point lies {format_percent(fraction - 1)} above its roof, which is impossible: "
            "a count of FLOPs or bytes, the time or a ceiling is wrong. This is an error of "
            "tileworkbench."
        )
        step = "Please report it; do not trust this measurement."
        return Verdict(bound, attainable, fraction, unit, sentence, step, wrong=True)
    if point.cold:
        sentence += " Every call began with cold caches: all of it comes from memory."
    if not math.isnan(point.predicted_us):
        measured, expected = format_time(point.time_us), format_time(point.predicted_us)
        sentence += f" It took {measured}; the model of this machine expects {expected}."
    steps = [_MEASURE] if point.predicted else []
    if point.causes is None:
        return Verdict(bound, attainable, fraction, unit, sentence, "".join(steps))
    measured_us = math.nan if point.predicted else point.time_us
    diagnosis = point.causes.diagnose(measured_us, fraction * point.time_us)
    text = " ".join([diagnosis.text, *steps])
    return Verdict(bound, attainable, fraction, unit, sentence, text, line=diagnosis.line)


def format_rate(value: float, unit: str) -> str:
    """``51.2 GFLOP/s``, ``1.3 TFLOP/s``, ``640 MB/s`` from a number in giga-units."""
    return f"{format_count(value * 1e9).replace(' ', ' ')}{unit[1:]}"


def _short(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"
