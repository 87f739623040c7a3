"""How warps use memory: wavefronts of shared memory, sectors of global memory, instructions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.machine.machine import SECTOR_BYTES, SharedMemory
from tileworkbench.compiler.sim.report import AccessCount

Array = np.ndarray[Any, Any]
MEMORY = SharedMemory(0)  # 32 banks, lanes in their order
_MOST_PATTERNS = 1 << 14
_NOBODY = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Service:
    """How shared memory with `banks` banks of words of so many bytes serves the lanes of a warp
    that access `width` bytes each: `phases` has the lanes that are served at once.
    """

    phases: tuple[tuple[int, ...], ...]
    width: int
    banks: int
    word: int


@lru_cache(maxsize=256)
def service_of(memory: SharedMemory, warp: int, width: int, kind: str) -> Service:
    """The service of an access of the `kind` of `AccessCount`."""
    phases = memory.phases(warp, width, kind == "load")
    return Service(phases, width, memory.banks, memory.bank_bytes)


def wavefronts(addresses: Array, active: Array, service: Service) -> tuple[int, int]:
    """(wavefronts, ideal) of the threads' accesses at byte `addresses`: the sums of `phase_costs`.
    """
    used, ideal = phase_costs(addresses, active, service)
    return int(used.sum()), int(ideal.sum())


def phase_costs(addresses: Array, active: Array, service: Service) -> tuple[Array, Array]:
    """(wavefronts, ideal) of each phase of the threads' accesses at byte `addresses`.

    A phase takes as many wavefronts as the busiest bank has distinct words, and could take the
    number of its distinct bytes over those of all banks.
    """
    width, banks, word = service.width, service.banks, service.word
    group = len(service.phases[0])
    lanes = np.array(service.phases).reshape(-1)
    missing = -len(addresses) % len(lanes)
    if missing:
        addresses = np.concatenate([addresses, np.zeros(missing, np.int64)])
        active = np.concatenate([active, np.zeros(missing, np.bool_)])
    addresses = addresses.reshape(-1, len(lanes))[:, lanes].reshape(-1)
    active = active.reshape(-1, len(lanes))[:, lanes].reshape(-1)
    words = _units(addresses, active, width, word).reshape(len(addresses) // group, -1)
    words.sort(axis=1)
    new = words != _NOBODY
    new[:, 1:] &= words[:, 1:] != words[:, :-1]
    rows = np.nonzero(new)[0]
    load = np.bincount(rows * banks + words[new] % banks, minlength=len(words) * banks)
    if width >= word:
        counts = np.bincount(rows, minlength=len(words)) * word
    else:
        counts = np.array(
            [
                len(np.unique(row[chosen])) * width
                for row, chosen in zip(
                    addresses.reshape(-1, group), active.reshape(-1, group), strict=True
                )
            ]
        )
    return load.reshape(-1, banks).max(axis=1), -(-counts // (banks * word))


def sectors(addresses: Array, active: Array, width: int, warp: int) -> tuple[int, int]:
    """(sectors, ideal) of the requests of warps: accesses of `width` bytes at byte `addresses`."""
    missing = -len(addresses) % warp
    if missing:
        addresses = np.concatenate([addresses, np.zeros(missing, np.int64)])
        active = np.concatenate([active, np.zeros(missing, np.bool_)])
    touched = _units(addresses, active, width, SECTOR_BYTES).reshape(len(addresses) // warp, -1)
    counts = _distinct(touched)
    starts = np.where(active, addresses, _NOBODY).reshape(-1, warp)
    return int(counts.sum()), int((-(-_distinct(starts) * width // SECTOR_BYTES)).sum())


def _units(addresses: Array, active: Array, width: int, unit: int) -> Array:
    """The units of `unit` bytes that each access touches; `_NOBODY` where it is not active."""
    first, last = addresses // unit, (addresses + width - 1) // unit
    most = int((last - first).max(initial=0)) + 1
    made = first[:, None] + np.arange(most)
    return np.asarray(np.where(active[:, None] & (made <= last[:, None]), made, _NOBODY))


def _distinct(rows: Array) -> Array:
    """The number of distinct values of each row, without `_NOBODY`."""
    rows = np.sort(rows, axis=1)
    new = rows != _NOBODY
    new[:, 1:] &= rows[:, 1:] != rows[:, :-1]
    return np.asarray(new.sum(axis=1))


@dataclass(slots=True)
class _Total:
    count: int = 0
    wavefronts: int = 0
    ideal: int = 0
    sectors: int = 0
    ideal_sectors: int = 0


class Counters:
    """The sums of a run on a machine with this shared memory, whose warps have `warp` threads."""

    def __init__(self, warp: int, memory: SharedMemory = MEMORY) -> None:
        self.warp, self.memory = warp, memory
        self._totals: dict[tuple[int, str, str, str, int], _Total] = {}
        self._instructions: dict[str, int] = {}
        self._known: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.barriers = 0

    def instruction(self, name: str, active: Array) -> None:
        """The warps of the active threads execute an instruction of the class `name`."""
        self._instructions[name] = self._instructions.get(name, 0) + _warps(active, self.warp)

    def shared(
        self,
        site: int,
        buffer: str,
        kind: str,
        addresses: Array,
        active: Array,
        width: int,
    ) -> None:
        """The threads of a block access shared memory, `addresses[t]` for thread t."""
        service = service_of(self.memory, self.warp, width, kind)
        used, ideal = self._memo(wavefronts, self.memory.row_bytes, addresses, active, service)
        total = self._total(site, buffer, "shared", kind, width)
        total.count += _warps(active, self.warp)
        total.wavefronts += used
        total.ideal += ideal

    def global_(
        self, site: int, buffer: str, kind: str, addresses: Array, active: Array, width: int
    ) -> None:
        """The threads of a block access global memory."""
        used, ideal = self._memo(sectors, SECTOR_BYTES, addresses, active, width, self.warp)
        total = self._total(site, buffer, "global", kind, width)
        total.count += _warps(active, self.warp)
        total.sectors += used
        total.ideal_sectors += ideal

    def _total(self, site: int, buffer: str, scope: str, kind: str, width: int) -> _Total:
        return self._totals.setdefault((site, buffer, scope, kind, width), _Total())

    def _memo(
        self, function: Any, period: int, addresses: Array, active: Array, *options: Any
    ) -> tuple[int, int]:
        """The same pattern at another place costs the same, where that is a multiple of `period`
        bytes away.
        """
        base = int(addresses[0]) // period * period
        relative = addresses - base if base else addresses
        key = (function, relative.tobytes(), active.tobytes(), *options)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_PATTERNS:
                self._known.clear()
            known = self._known[key] = function(relative, active, *options)
        return known

    def accesses(self, program: Program) -> tuple[AccessCount, ...]:
        """All accesses, in the order first met."""
        return tuple(
            AccessCount(
                site,
                program.span(site),
                buffer,
                scope,
                kind,
                width,
                total.count,
                total.wavefronts,
                total.ideal,
                total.sectors,
                total.ideal_sectors,
            )
            for (site, buffer, scope, kind, width), total in self._totals.items()
        )

    def instructions(self) -> tuple[tuple[str, int], ...]:
        """(class, number that warps executed), in the order first met."""
        return tuple(self._instructions.items())


def _warps(active: Array, warp: int) -> int:
    """In how many warps some thread is active."""
    missing = -len(active) % warp
    if missing:
        active = np.concatenate([active, np.zeros(missing, np.bool_)])
    return int(active.reshape(-1, warp).any(axis=1).sum())
