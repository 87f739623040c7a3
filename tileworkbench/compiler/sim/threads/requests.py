"""The requests of warps: which byte each lane of an access goes to, phase by phase."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.machine.machine import SECTOR_BYTES, SharedMemory
from tileworkbench.compiler.sim.report import AccessCount
from tileworkbench.compiler.sim.threads.counters import (
    MEMORY,
    Counters,
    Service,
    phase_costs,
    service_of,
)

_WORD = MEMORY.bank_bytes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """The threads of a block make one access together, each warp by one instruction.

    Attributes:
        addresses: the first byte of each thread, ``(threads,)`` int64: in the shared memory of the
            block, or from the beginning of the tensor.
        active: which threads take part, ``(threads,)`` bool.
        register: what each thread loads or stores, such as ``C_local[8:16]``; empty where memory
            is copied without a register, or computed.
        times: how often the code makes these very accesses.
    """

    addresses: Array
    active: Array
    register: str = ""
    times: int = 1


@dataclass(frozen=True)
class Phase:
    """Lanes of a warp that shared memory serves together: lane ``lanes[i]`` accesses `width` bytes
    from ``addresses[i]`` on.
    """

    request: int
    warp: int
    number: int
    lanes: tuple[int, ...]
    addresses: tuple[int, ...]
    width: int
    bank_count: int = MEMORY.banks

    @cached_property
    def banks(self) -> dict[int, dict[int, tuple[int, ...]]]:
        """For each bank the 4-byte words that are wanted from it, and the lanes that want them."""
        banks: dict[int, dict[int, list[int]]] = {}
        for lane, address in zip(self.lanes, self.addresses, strict=True):
            for word in self.words(address):
                banks.setdefault(word % self.bank_count, {}).setdefault(word, []).append(lane)
        return {
            bank: {word: tuple(lanes) for word, lanes in sorted(words.items())}
            for bank, words in sorted(banks.items())
        }

    def words(self, address: int) -> range:
        """The numbers of the 4-byte words of an access from byte `address` on."""
        return range(address // _WORD, (address + self.width - 1) // _WORD + 1)

    @cached_property
    def degree(self) -> int:
        """The wavefronts it takes: distinct words in the busiest bank."""
        return max(map(len, self.banks.values()), default=0)

    @cached_property
    def ideal(self) -> int:
        """The wavefronts that its distinct bytes need."""
        if self.width >= _WORD:
            count = _WORD * sum(map(len, self.banks.values()))
        else:
            count = self.width * len(set(self.addresses))
        return -(-count // (_WORD * self.bank_count))


@dataclass(frozen=True, slots=True, eq=False)
class WarpAccess:
    """One access of the lowered code of a GPU with the addresses behind its counts.

    Attributes:
        count: its entry of ``kernel.accesses``: line, buffer, kind, width and sums.
        requests: what the threads of a block do, in program order.
        bits: of an element of the buffer.
        base: the first byte of the buffer in shared memory; 0 for tensors.
        warp: the threads of a warp.
        places: elements that the buffer has room for, over all its versions; 0 where unknown.
        memory: the shared memory of the machine.
    """

    count: AccessCount
    requests: tuple[Request, ...]
    bits: int
    warp: int
    base: int = 0
    places: int = 0
    memory: SharedMemory = MEMORY

    @property
    def service(self) -> Service:
        """How shared memory serves the lanes of a warp."""
        return service_of(self.memory, self.warp, self.count.width, self.count.kind)

    @property
    def group(self) -> int:
        """The lanes of a phase."""
        return len(self.service.phases[0])

    def phases(self, request: int = 0) -> Iterator[Phase]:
        """The phases of a request in which some lane takes part, warp by warp."""
        asked = self.requests[request]
        for first in range(0, len(asked.active), self.warp):
            for number, lanes in enumerate(self.service.phases):
                there = (lane for lane in sorted(lanes) if first + lane < len(asked.active))
                taking = tuple(lane for lane in there if asked.active[first + lane])
                if taking:
                    addresses = tuple(int(asked.addresses[first + lane]) for lane in taking)
                    yield Phase(
                        *(request, first // self.warp, number, taking, addresses),
                        *(self.count.width, self.memory.banks),
                    )

    @property
    def degree(self) -> int:
        """Shared memory: the wavefronts of its worst phase, 1 without conflicts."""
        return max((int(self.costs(at).max()) for at in range(len(self.requests))), default=0)

    def costs(self, request: int = 0) -> Array:
        """The wavefronts of all phases of a request, those without lanes too: ``(phases,)``."""
        asked = self.requests[request]
        return phase_costs(asked.addresses, asked.active, self.service)[0]

    def sectors(self, request: int = 0) -> dict[int, tuple[int, ...]]:
        """Global memory: for each warp of a request, the 32-byte sectors that it touches."""
        asked = self.requests[request]
        last = asked.addresses + self.count.width - 1
        touched: dict[int, set[int]] = {}
        for thread in np.flatnonzero(asked.active).tolist():
            sectors = range(
                asked.addresses[thread] // SECTOR_BYTES, last[thread] // SECTOR_BYTES + 1
            )
            touched.setdefault(thread // self.warp, set()).update(sectors)
        return {warp: tuple(sorted(sectors)) for warp, sectors in touched.items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; addresses of threads that take no part are None."""
        count = self.count
        return {
            "line": count.span.line if count.span is not None else 0,
            "buffer": count.buffer,
            "scope": count.scope,
            "kind": count.kind,
            "width": count.width,
            "count": count.count,
            "wavefronts": count.wavefronts,
            "ideal": count.ideal,
            "sectors": count.sectors,
            "ideal_sectors": count.ideal_sectors,
            "lanes_per_phase": self.group if count.scope == "shared" else self.warp,
            "requests": [
                {
                    "times": request.times,
                    "register": request.register,
                    "addresses": [
                        address if on else None
                        for address, on in zip(
                            request.addresses.tolist(), request.active.tolist(), strict=True
                        )
                    ],
                }
                for request in self.requests
            ],
        }

    def __str__(self) -> str:
        return str(self.count)


Key = tuple[int, str, str, str, int]  # as `Counters` keys its sums


@dataclass(slots=True)
class _Found:
    bits: int
    base: int
    places: int
    requests: dict[tuple[bytes, bytes], Request] = field(default_factory=dict)


class RequestRecorder:
    """Counts requests, and keeps them."""

    def __init__(self, warp: int, memory: SharedMemory = MEMORY) -> None:
        self._warp, self._memory, self._counters = warp, memory, Counters(warp, memory)
        self._found: dict[Key, _Found] = {}

    def add(
        self,
        site: int,
        buffer: str,
        scope: str,
        kind: str,
        width: int,
        request: Request,
        bits: int,
        base: int,
        places: int,
    ) -> None:
        """The threads of a block make `request` to `buffer`; the rest is as in `WarpAccess`."""
        addresses, active = request.addresses, request.active
        if scope == "shared":
            self._counters.shared(site, buffer, kind, addresses, active, width)
        else:
            self._counters.global_(site, buffer, kind, addresses, active, width)
        key = (site, buffer, scope, kind, width)
        kept = self._found.setdefault(key, _Found(bits, base, places))
        same = (np.where(active, addresses, 0).tobytes(), active.tobytes())
        first = kept.requests.get(same)
        times = request.times + (first.times if first is not None else 0)
        register = first.register if first is not None else request.register
        kept.requests[same] = Request(addresses, active, register, times)

    def accesses(self, program: Any) -> tuple[WarpAccess, ...]:
        """All accesses with their counts, in the order first met."""
        counts: Sequence[AccessCount] = self._counters.accesses(program)
        return tuple(
            WarpAccess(
                count,
                tuple(kept.requests.values()),
                kept.bits,
                self._warp,
                kept.base,
                kept.places,
                self._memory,
            )
            for count, kept in zip(counts, self._found.values(), strict=True)
        )
