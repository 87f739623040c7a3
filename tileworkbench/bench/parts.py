"""Where the time of a launch goes, by cause and by line, and the one line to look at.

Parts that keep the same thing busy (`Part.uses`) follow each other; parts that keep different ones
busy overlap, which a norm of their times stands for, by default the square root of the sum of
squares: more than the longest, less than all of them. The share of a part is what it has of the
whole, so that shares add up to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from tileworkbench.bench.units import format_time
from tileworkbench.compiler.fast_dataclass import dataclass

NOTHING_WASTED = "Nothing is wasted that this model knows of."
NOTABLE = 0.1
"""Part of a launch that is worth a look."""


@dataclass(frozen=True, slots=True)
class Part:
    """Microseconds of a launch that one line spends on one cause, as if nothing else went on.

    Attributes:
        cause: ``compute``, a memory level, ``wavefronts``, ``barriers``, ``launch`` and so on.
        uses: what is busy meanwhile; empty for time that overlaps with nothing.
        line: of the user's text, 0 where it is nobody's.
        finding: what the line does, in numbers, as the end of a sentence that begins with "it".
        waste_us: what of `time_us` the remedy would save; 0 where nothing is wasted.
        remedy: what to do about the waste, as a sentence.
        alone: which part of `time_us`, from 0 to 1, overlaps with nothing after all.
    """

    cause: str
    time_us: float
    uses: str = ""
    line: int = 0
    finding: str = ""
    waste_us: float = 0.0
    remedy: str = ""
    alone: float = 0.0

    def split(self, time_us: float) -> dict[str, float]:
        """So much of its time by what it keeps busy: empty for what overlaps with nothing."""
        split = {self.uses: time_us * (1 - self.alone)}
        if self.alone:
            split[""] = split.get("", 0.0) + time_us * self.alone
        return split


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The line to look at: 0 for none. `saved_us` is what its remedy would save of a launch, 0
    where the line takes the most time and wastes none.
    """

    line: int
    cause: str
    sentence: str
    remedy: str
    saved_us: float = 0.0

    @property
    def text(self) -> str:
        """Sentence and remedy."""
        return f"{self.sentence} {self.remedy}".strip()


@dataclass(frozen=True, slots=True)
class Causes:
    """The predicted time of a launch by cause. `model` says what the prediction rests on, `norm`
    which norm of the times of what is busy is the time of all: 1 their sum, more and more the
    longest of them.
    """

    parts: tuple[Part, ...]
    model: str = ""
    norm: float = 2.0
    _times: dict[str, float] = field(init=False, repr=False, compare=False)
    _wastes: dict[tuple[int, str], dict[str, float]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Add up the times by what they use, and the wastes by line and remedy too."""
        times: dict[str, float] = {}
        wastes: dict[tuple[int, str], dict[str, float]] = {}
        for part in self.parts:
            waste = wastes.setdefault((part.line, part.remedy), {})
            for all_, one in ((times, part.time_us), (waste, part.waste_us)):
                for uses, time_us in part.split(one).items():
                    all_[uses] = all_.get(uses, 0.0) + time_us
        object.__setattr__(self, "_times", times)
        object.__setattr__(self, "_wastes", wastes)

    @property
    def total_us(self) -> float:
        """The whole launch."""
        return _total(self._times, self.norm)

    @property
    def total_ms(self) -> float:
        """The whole launch in milliseconds."""
        return self.total_us / 1e3

    def share_us(self, part: Part) -> float:
        """What `part` has of `total_us`."""
        overlapped, share = _overlapped(self._times, self.norm), 0.0
        for uses, time_us in part.split(part.time_us).items():
            overlaps = bool(uses and overlapped)
            weight = (self._times[uses] / overlapped) ** (self.norm - 1) if overlaps else 1.0
            share += time_us * weight
        return share

    def saving_us(self, part: Part) -> float:
        """How much shorter the launch would be without the waste of `part`, and of the parts for
        which the same is to be done in its line.
        """
        waste = self._wastes[part.line, part.remedy]
        rest = {uses: time_us - waste.get(uses, 0.0) for uses, time_us in self._times.items()}
        return self.total_us - _total(rest, self.norm)

    def by_line(self, cause: str) -> dict[int, float]:
        """Line to microseconds of one cause, the largest first; line 0 is nobody's."""
        shares: dict[int, float] = {}
        for part in self.parts:
            if part.cause == cause:
                shares[part.line] = shares.get(part.line, 0.0) + self.share_us(part)
        return dict(sorted(shares.items(), key=lambda item: -item[1]))

    def by_cause(self) -> dict[str, float]:
        """Cause to microseconds; they add up to `total_us`, the largest first."""
        shares: dict[str, float] = {}
        for part in self.parts:
            shares[part.cause] = shares.get(part.cause, 0.0) + self.share_us(part)
        ordered = sorted(shares.items(), key=lambda item: -item[1])
        return {cause: time_us for cause, time_us in ordered if time_us > 0}

    def diagnose(self, measured_us: float = math.nan, least_us: float = 0.0) -> Diagnosis:
        """The line whose waste costs most, else the one that takes most time.

        With a measurement, waste counts only as far as the measured time is above `least_us`, what
        the roofs allow.
        """
        total = self.total_us
        if not total > 0:
            return Diagnosis(0, "", "Nothing is known to take time.", "")
        room = math.inf if math.isnan(measured_us) else (measured_us - least_us) / measured_us
        wasted = [
            part
            for part in self.parts
            # What nothing overlaps with is a launch's own price: of note where it is most of it.
            if part.waste_us > 0 and (part.uses or 2 * part.time_us > total)
        ]
        worst = max(wasted, key=self.saving_us, default=None)
        if worst is not None and room >= NOTABLE and self.saving_us(worst) >= NOTABLE * total:
            return self._name(worst)
        return self._largest()

    def _name(self, part: Part) -> Diagnosis:
        total, saved = self.total_us, self.saving_us(part)
        effect = (
            f"without that a launch would take about {format_time(total - saved)} instead of "
            f"{format_time(total)} (predicted)"
            if part.uses
            else f"that is {part.time_us / total * 100:.0f} % of the predicted time"
        )
        sentence = f"{_who(part)} {part.finding}: {effect}."
        return Diagnosis(part.line, part.cause, sentence, part.remedy, saved)

    def _largest(self) -> Diagnosis:
        """No waste is worth a look: the line that takes the most, and what it does; or what takes
        the most that is no line's.
        """
        lines: dict[int, float] = {}
        for part in self.parts:
            lines[part.line] = lines.get(part.line, 0.0) + self.share_us(part)
        line = max(lines, key=lambda each: lines[each])
        mine = [part for part in self.parts if part.line == line]
        mine.sort(key=lambda part: -self.share_us(part))
        shares = [self.share_us(part) for part in mine]
        does = dict.fromkeys(
            part.finding for part, share in zip(mine, shares, strict=True) if share > shares[0] / 4
        )
        told = ", ".join(filter(None, does))
        where = f"on line {line}, which {told}" if line else f"{mine[0].cause}, which {told}"
        sentence = (
            f"{NOTHING_WASTED} The largest part of the predicted time, "
            f"{sum(shares) / self.total_us * 100:.0f} %, is {where}."
        )
        return Diagnosis(line, mine[0].cause, sentence, "")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data: parts with their shares, sums by cause, the diagnosis."""
        diagnosis = self.diagnose()
        return {
            "model": self.model,
            "total_us": self.total_us,
            "causes": self.by_cause(),
            "parts": [
                {
                    "cause": part.cause,
                    "line": part.line,
                    "time_us": part.time_us,
                    "share_us": self.share_us(part),
                    "waste_us": part.waste_us,
                    "finding": part.finding,
                    "remedy": part.remedy,
                }
                for part in self.parts
            ],
            "line": diagnosis.line,
            "sentence": diagnosis.sentence,
            "remedy": diagnosis.remedy,
        }

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {format_time(us)}" for name, us in self.by_cause().items())
        return f"{format_time(self.total_us)} ({shown})"


def _who(part: Part) -> str:
    return f"Look at line {part.line}: it" if part.line else "The launch"


def _overlapped(times: Mapping[str, float], norm: float) -> float:
    """The time of what is busy together."""
    return together([time_us for uses, time_us in times.items() if uses], norm)


def together(times: Iterable[float], norm: float) -> float:
    """The time of what overlaps: the norm of its times."""
    return float(sum(each**norm for each in times) ** (1 / norm))


def _total(times: Mapping[str, float], norm: float) -> float:
    return times.get("", 0.0) + _overlapped(times, norm)
