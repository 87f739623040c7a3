"""What else used the processor while something was measured: other programs, and on a virtual
machine the host, which runs other guests meanwhile ("steal" of proc(5), /proc/stat)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tileworkbench.compiler.fast_dataclass import dataclass

_STAT = Path("/proc/stat")
# Fields of the line "cpu": user, nice, system, idle, iowait, irq, softirq, steal.
_WORK, _STEAL, _FIELDS = (0, 1, 2, 5, 6), 7, 8


@dataclass(frozen=True, slots=True)
class Disturbance:
    """Parts of the time of all cores, 0 to 1: what other programs had, and what the host withheld.

    Both are 0 where the system does not tell (it has no /proc/stat).
    """

    others: float = 0.0
    host: float = 0.0


class Watch:
    """From its making to `read`: what others used."""

    def __init__(self) -> None:
        self._ticks, self._own = processor_ticks(), time.process_time()

    def read(self) -> Disturbance:
        """What others used so far."""
        ticks, own = processor_ticks(), time.process_time() - self._own
        if self._ticks is None or ticks is None:
            return Disturbance()
        return disturbance(self._ticks, ticks, own * os.sysconf("SC_CLK_TCK"))


def disturbance(before: tuple[int, ...], after: tuple[int, ...], own: float) -> Disturbance:
    """What others used between two readings, of which `own` ticks were this process's."""
    spent = [end - start for start, end in zip(before, after, strict=True)]
    total = sum(spent)
    if total <= 0:
        return Disturbance()
    work = sum(spent[field] for field in _WORK)
    return Disturbance(max(work - own, 0.0) / total, max(spent[_STEAL], 0) / total)


def processor_ticks() -> tuple[int, ...] | None:
    """The time of all cores since the start of the machine by what it went to, in clock ticks;
    None where the system does not tell.
    """
    try:
        words = _STAT.read_text().split("\n", 1)[0].split()
        return tuple(int(word) for word in words[1 : 1 + _FIELDS]) if len(words) > _FIELDS else None
    except (OSError, ValueError):
        return None
