"""Two ways to shared memory: of the threads, and of the copy engine and tensor cores.

On sm_90 and later these engines see what a thread wrote to shared memory, and overwrite it, only
behind a fence between the two ways, "proxies" (PTX ISA, "fence.proxy.async"): by the writer, or by
somebody who already knows of the write. Each byte that threads wrote has a mark until then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.simt import Engine
from tileworkbench.compiler.sim.byte_marks import ByteMarks
from tileworkbench.compiler.sim.problems import NOT_FENCED, NOT_FENCED_WRITE, REGISTERS_NOT_FENCED
from tileworkbench.compiler.sim.report import FindingKind

if TYPE_CHECKING:
    from tileworkbench.compiler.sim.memory import Storage
    from tileworkbench.compiler.sim.threads.frame import ThreadFrame

Array = np.ndarray[Any, Any]
_ENGINES = (Engine.TMA, Engine.TMA_STORE, Engine.CLUSTER, Engine.WGMMA, Engine.TENSOR)


@dataclass(frozen=True, slots=True)
class _Write:
    """By `threads` (numbers on the clock) at `time`, in the statement `site`."""

    threads: Array
    time: int
    site: int


class Proxies:
    """What threads wrote to the shared memories of a cluster, and nobody has fenced."""

    def __init__(self) -> None:
        self._writes: dict[int, _Write] = {}
        self._marks = ByteMarks()  # by memory: the number of the write of each byte
        self._last = 0

    def touch(
        self,
        frame: ThreadFrame,
        storage: Storage,
        place: tuple[Any, ...],
        write: bool,
        engine: Engine | None,
        threads: Array,
    ) -> None:
        """An `engine`, or `threads` (numbers on the clock), are about to read or write there."""
        if engine not in _ENGINES:
            if write:
                self._wrote(frame, storage, place, threads)
        elif write:
            if engine is Engine.TMA:
                self._check(frame, storage, place, NOT_FENCED_WRITE)
            marks = self._marks.of(storage)
            if marks is not None:
                marks[place] = 0
        else:
            self._check(frame, storage, place, NOT_FENCED)

    def _wrote(
        self, frame: ThreadFrame, storage: Storage, place: tuple[Any, ...], threads: Array
    ) -> None:
        marks = self._marks.of(storage, make=True)
        last, now = self._writes.get(self._last), frame.order.now
        alike = last is not None and last.time == now and last.site == frame.site
        if not (alike and last is not None and np.array_equal(last.threads, threads)):
            self._last += 1
            self._writes[self._last] = _Write(threads, now, frame.site)
        if marks is not None:
            marks[place] = self._last

    def _check(
        self, frame: ThreadFrame, storage: Storage, place: tuple[Any, ...], problem: str
    ) -> None:
        marks = self._marks.of(storage)
        writes = None if marks is None else marks[place]
        if writes is None or not writes.any():
            return
        wrong = writes.any(axis=-1)
        write = self._writes[int(writes.max())]
        frame.recorder.found(
            FindingKind.RACE,
            problem,
            storage.name,
            (),
            frame.block,
            frame.site,
            int(np.count_nonzero(wrong)),
            other=write.site,
        )

    def fence(self, frame: ThreadFrame, threads: Array) -> None:
        """`threads` (numbers on the clock) order what they know of before what engines do next."""
        seen = [number for number, write in self._writes.items() if _knows(frame, threads, write)]
        for marks in self._marks:
            marks[np.isin(marks, seen)] = 0
        for number in seen:
            del self._writes[number]


def _knows(frame: ThreadFrame, threads: Array, write: _Write) -> bool:
    """Whether the write is their own, or happened before."""
    others = write.threads[~np.isin(write.threads, threads)]
    times = np.full(len(others), write.time)
    return not frame.order.unordered(times, others, threads[:1]).any()


class RegisterFences:
    """Which threads have used registers that products use too, with no fence behind that (PTX ISA,
    "wgmma.fence"). The first product of a thread needs a fence in any case.
    """

    def __init__(self) -> None:
        self._used: dict[int, Array] = {}  # by memory: by thread, whether it is so
        self._fenced: dict[tuple[int, ...], Array] = {}  # by block: who has fenced at all

    def touch(self, frame: ThreadFrame, storage: Storage, product: bool) -> None:
        """Active threads are about to access such registers, or a `product` is."""
        key, active = storage.data.ctypes.data, frame.active()
        used = self._used.get(key)
        if used is None:
            fenced = self._fenced.get(frame.block)
            used = np.ones(len(active), np.bool_) if fenced is None else ~fenced
            self._used[key] = used
        if not product:
            used |= active
        elif (wrong := used & active).any() and frame.options.races:
            first = int(np.argmax(wrong))
            frame.recorder.found(
                FindingKind.RACE,
                REGISTERS_NOT_FENCED,
                storage.name,
                (),
                frame.block,
                frame.site,
                int(np.count_nonzero(wrong)),
                first,
            )

    def fence(self, frame: ThreadFrame) -> None:
        """The accesses of the active threads so far are ordered before those of engines."""
        active = frame.active()
        fenced = self._fenced.setdefault(frame.block, np.zeros(len(active), np.bool_))
        fenced |= active
        for used in self._used.values():
            used &= ~active
