"""Who accessed each granule of a memory last, and which of those accesses are races."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.problems import THREAD_READS, THREADS_WRITE
from tileworkbench.compiler.sim.threads.order import Order

Array = np.ndarray[Any, Any]
SEVERAL = -1
EVERY = -2  # every thread wrote the same value
UNSETTLED = -3  # each thread wrote it more than once, unordered: the last value stays
MOST_TIMES = 1 << 28  # times of all readers of all granules that are kept


@dataclass(frozen=True, slots=True)
class Clash:
    """Accesses that race with earlier ones: which they are, the threads of the earlier ones (below
    zero for several, of which `some` names one), and their sites.
    """

    detail: str
    where: Array
    others: Array
    sites: Array
    some: Array


class Marks:
    """The last accesses of the granules of one memory by the threads of a block.

    A granule is the smallest unit that any access touches. With `partial` synchronisation (of some
    threads only) the times of all readers are kept, otherwise the last one and whether there were
    others is enough. Where there would be too many times, several readers that were not all ordered
    are not found.
    """

    __slots__ = (
        "_atomic",
        "_atomics",
        "_read_site",
        "_read_time",
        "_reader",
        "_reads",
        "_some_reader",
        "_some_writer",
        "_write_site",
        "_write_time",
        "_writer",
    )

    def __init__(self, granules: int, threads: int, partial: bool) -> None:
        self._write_time = np.zeros(granules, np.int64)
        self._read_time = np.zeros(granules, np.int64)
        self._writer = np.zeros(granules, np.int32)
        self._reader = np.zeros(granules, np.int32)
        self._some_writer = np.zeros(granules, np.int32)
        self._some_reader = np.zeros(granules, np.int32)
        self._write_site = np.zeros(granules, np.int32)
        self._read_site = np.zeros(granules, np.int32)
        self._atomic = np.zeros(granules, np.bool_)
        partial = partial and threads * granules <= MOST_TIMES
        # Pages that are never touched are never made.
        self._reads = np.zeros((threads, granules), np.int64) if partial else None
        self._atomics = np.zeros((threads, granules), np.int64) if partial else None

    def read(self, order: Order, threads: Array, at: Array, site: int) -> Clash | None:
        """`threads` read the granules `at`, one each."""
        threads = order.ids(threads)
        clash = self._against_writes(THREAD_READS, order, threads, at)
        times = self._read_time[at]
        before = self._reader[at]
        now = np.where((times > order.since) & (before != threads), SEVERAL, threads)
        self._reader[at] = now
        shared = self._reader[at] != now
        if shared.any():
            self._reader[at[shared]] = SEVERAL
        several = shared | (now == SEVERAL)
        if several.any():
            self._some_reader[at[several]] = threads[several]
        self._read_time[at], self._read_site[at] = order.now, site
        if self._reads is not None:
            self._reads[threads, at] = order.now
        return clash

    def write(self, order: Order, threads: Array, at: Array, site: int) -> list[Clash]:
        """`threads` write the granules `at`, one each; threads of one call that write one granule
        write the same value.
        """
        threads = order.ids(threads)
        clashes = [
            self._against_writes(THREADS_WRITE, order, threads, at),
            self._against_reads(order, threads, at),
        ]
        self._writer[at] = threads
        if (self._writer[at] != threads).any():
            self._some_writer[at] = threads
            places, counts = np.unique(at, return_counts=True)
            self._writer[places[counts > 1]] = SEVERAL
            self._writer[places[counts >= order.threads]] = EVERY
            clashes[0] = self._settled(clashes[0], at)
        self._write_time[at], self._write_site[at] = order.now, site
        self._atomic[at] = False
        return [clash for clash in clashes if clash is not None]

    def _settled(self, clash: Clash | None, at: Array) -> Clash | None:
        """`clash` of writes to the granules `at`, without granules that every thread writes now and
        wrote before: whichever thread comes last, the last value is the same.
        """
        if clash is None:
            return None
        again = clash.where & (clash.others <= EVERY) & (self._writer[at] == EVERY)
        self._writer[at[again]] = UNSETTLED
        rest = clash.where & ~again
        return replace(clash, where=rest) if rest.any() else None

    def update(self, order: Order, threads: Array, at: Array, site: int) -> list[Clash]:
        """`threads` access the granules `at` atomically."""
        threads = order.ids(threads)
        plain = ~self._atomic[at]
        clashes = [
            self._against_writes(THREADS_WRITE, order, threads, at, plain),
            self._against_reads(order, threads, at),
        ]
        times = self._write_time[at]
        lone = (times <= order.since) | (self._writer[at] == threads)
        self._writer[at] = now = np.where(lone, threads, SEVERAL)
        shared = self._writer[at] != now
        self._writer[at[shared]] = SEVERAL
        self._some_writer[at] = threads
        self._write_time[at], self._write_site[at], self._atomic[at] = order.now, site, True
        if self._atomics is not None:
            self._atomics[threads, at] = order.now
        return [clash for clash in clashes if clash is not None]

    def landed(self, order: Order, threads: Array, at: Array, site: int) -> None:
        """The asynchronous writes of `threads` to the granules `at` are complete for these threads.
        """
        self._writer[at], self._write_time[at] = order.ids(threads), order.now
        self._write_site[at] = site
        self._atomic[at] = False

    def _against_writes(
        self, detail: str, order: Order, threads: Array, at: Array, chosen: Array | None = None
    ) -> Clash | None:
        times = self._write_time[at]
        if not times.size or times.max() <= order.since:
            return None
        writers = self._writer[at]
        bad = order.unordered(times, writers, threads)
        if detail is THREAD_READS:
            bad &= writers != EVERY  # each thread has written this value itself
        if chosen is not None:
            bad &= chosen
        elif self._atomics is not None and order.known is not None:
            many = np.flatnonzero(bad & (writers == SEVERAL) & self._atomic[at])
            bad[many] = _any_unordered(order, self._atomics, threads[many], at[many])
        if not bad.any():
            return None
        return Clash(detail, bad, writers, self._write_site[at], self._some_writer[at])

    def _against_reads(self, order: Order, threads: Array, at: Array) -> Clash | None:
        times = self._read_time[at]
        if not times.size or times.max() <= order.since:
            return None
        readers = self._reader[at]
        bad = (times > order.since) & (readers != threads)
        if self._reads is not None and order.known is not None:
            many = np.flatnonzero(bad)
            bad[many] = _any_unordered(order, self._reads, threads[many], at[many])
        elif order.known is not None:
            bad = order.unordered(times, readers, threads) & (readers >= 0)
        if not bad.any():
            return None
        some = self._some_reader[at]
        return Clash(THREAD_READS, bad, readers, self._read_site[at], some)


def _any_unordered(order: Order, times: Array, threads: Array, at: Array) -> Array:
    """For each access, whether some other thread's at that granule did not happen before it."""
    latest = times[:, at].T  # [access, thread]
    unordered = np.greater(latest, order.since)
    if order.known is not None:
        unordered &= np.greater(latest, order.known[threads])
    unordered[np.arange(len(threads)), threads] = False
    return np.asarray(unordered.any(axis=1))
