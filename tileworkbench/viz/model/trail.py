"""The trail of a kernel: the versions of its cell, with what was changed from one to the next."""

from __future__ import annotations

import difflib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from tileworkbench.bench.points import Machine, Point, Step, Trail
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model.text import clip

KEPT = 16
"""Versions of a kernel that its trail keeps, the last ones."""
_LINES, _WIDTH = 12, 160  # of a change that are kept


def change_between(old: tuple[str, str], new: tuple[str, str]) -> tuple[str, ...]:
    """What differs between two versions of a cell, each the magic's line and the text: flags and
    lines, gone with ``- `` and come with ``+ ``.
    """
    flags = Counter(_flags(new[0]))
    flags.subtract(_flags(old[0]))
    changes = [f"{'+' if count > 0 else '-'} {flag}" for flag, count in flags.items() if count]
    changes.sort(key=lambda flag: flag[0] == "+")
    lines = difflib.ndiff(old[1].splitlines(), new[1].splitlines())
    changes += [line for line in lines if line[0] in "+-" and line[2:].strip()]
    shown = [clip(line.rstrip(), _WIDTH) for line in changes[:_LINES]]
    more = len(changes) - _LINES
    return (*shown, *([f"and {more} lines more"] if more > 0 else []))


def _flags(line: str) -> list[str]:
    """The flags of a magic's line, each with its value."""
    try:
        words = shlex.split(line, posix=False)
    except ValueError:
        words = line.split()
    flags: list[str] = []
    for word in words:
        if flags and not word.startswith("-") and flags[-1].startswith("-"):
            flags[-1] += f" {word}"
        else:
            flags.append(word)
    return flags


def next_trail(
    last: Trail, point: Point | None, machine: Machine | None, change: tuple[str, ...]
) -> Trail:
    """The trail of the version after the one with this trail and point (None: not known)."""
    before = last.before
    if point is not None and machine is not None:
        facts = (point.flops, point.bytes_, point.time_us, point.predicted)
        before = (*before, Step(last.number, *facts, last.change, machine.name, point.cold))
    return Trail(last.number + 1, change, before[1 - KEPT :])


def trail_steps(point: Point, machine: str = "") -> tuple[Step, ...]:
    """The versions of a kernel, this one last; () where nobody counts them."""
    trail = point.trail
    if not trail.number:
        return ()
    facts = (point.flops, point.bytes_, point.time_us, point.predicted)
    return (*trail.before, Step(trail.number, *facts, trail.change, machine, point.cold))


def join_trails(
    point: Point, machine: str, kept: Sequence[Any], session: str
) -> tuple[Point, list[dict[str, Any]]]:
    """A point with the versions of earlier sessions before its own, and what to keep of all.

    `kept` is what was kept, from a file that anybody may have written: what is no step of this
    machine is left out. Later versions of this session stay in what is kept, and are not drawn.
    Versions are numbered anew.
    """
    points = [each for data in kept if (each := _read(data)) and each.step.machine == machine]
    earlier = [each for each in points if each.session != session]
    mine = {each.at: each for each in points if each.session == session}
    own = trail_steps(point, machine)
    mine |= {step.number: _Kept(session, step.number, step) for step in own}
    ordered = [*earlier, *(mine[at] for at in sorted(mine))][-KEPT:]
    stored = [
        {**asdict(replace(each.step, number=number)), "session": each.session, "at": each.at}
        for number, each in enumerate(ordered, 1)
    ]
    if not own:
        return point, stored
    last = own[-1].number
    drawn = [each.step for each in ordered if each.session != session or each.at <= last]
    steps = [replace(step, number=number) for number, step in enumerate(drawn, 1)]
    trail = Trail(steps[-1].number, steps[-1].change, tuple(steps[:-1]))
    return replace(point, trail=trail), stored


@dataclass(frozen=True, slots=True)
class _Kept:
    """A step of a session, `at` its number there."""

    session: str
    at: int
    step: Step


def _read(data: Any) -> _Kept | None:
    """A step that was kept, None for anything else."""
    if not isinstance(data, Mapping):
        return None
    try:
        flops, bytes_, time_us = (float(data[name]) for name in ("flops", "bytes_", "time_us"))
        change = tuple(clip(str(line), _WIDTH) for line in list(data["change"])[: _LINES + 1])
        predicted, machine = bool(data["predicted"]), str(data["machine"])
        cold = bool(data.get("cold", False))  # earlier files lack it
        session, at = str(data["session"]), int(data["at"])
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
    if not all(0 <= number < 1e30 for number in (flops, bytes_, time_us)) or not time_us > 0:
        return None
    return _Kept(session, at, Step(0, flops, bytes_, time_us, predicted, change, machine, cold))
