"""The happens-before relation among threads that run at the same time, those of a block or of a
cluster: vector clocks on one global time.

Time goes up at every synchronisation. An access of thread w at time c happened before what thread t
does now when t is w, when all threads have met at `since` >= c, or when t has learnt (through
barriers that w arrived at) of everything that w did until some time >= c.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Clock:
    """The time of `threads` threads that run at once: `since`, when all of them met last, and what
    they have learnt from each other since.
    """

    threads: int
    since: int
    now: int
    known: Array | None = None  # [t, w]: until when t knows what w did

    def meet(self) -> None:
        """All threads synchronise with each other."""
        self.since = self.now
        self.now += 1


class Order:
    """The synchronisation of the threads of one block, of `count` threads that are numbered from
    `first` on among those of the clock.
    """

    __slots__ = ("clock", "count", "first")

    def __init__(self, count: int, clock: Clock, first: int = 0) -> None:
        self.count, self.clock, self.first = count, clock, first

    @property
    def threads(self) -> int:
        """How many threads the clock knows."""
        return self.clock.threads

    @property
    def since(self) -> int:
        """When all of them met last."""
        return self.clock.since

    @property
    def now(self) -> int:
        """The time."""
        return self.clock.now

    @property
    def known(self) -> Array | None:
        """What they have learnt since: see `Clock`."""
        return self.clock.known

    def ids(self, threads: Array) -> Array:
        """The numbers that threads of this block (indices) have on the clock."""
        return threads + self.first if self.first else threads

    def meet(self) -> None:
        """All threads of the block synchronise with each other."""
        if self.count == self.clock.threads:
            self.clock.meet()
        else:
            everyone = np.arange(self.count)
            self.acquire(everyone, self.release(everyone))

    def release(self, threads: Array) -> Array:
        """What `threads` (indices) know, including their own accesses until now: a time for each
        thread of the clock.
        """
        clock, ids = self.clock, self.ids(threads)
        if clock.known is None:
            made = np.zeros(clock.threads, np.int64)
        else:
            made = clock.known[ids].max(axis=0)
        made[ids] = clock.now
        clock.now += 1
        return made

    def acquire(self, threads: Array, times: Array) -> None:
        """`threads` learn what `release` returned to others."""
        clock, ids = self.clock, self.ids(threads)
        if clock.known is None:
            clock.known = np.zeros((clock.threads, clock.threads), np.int64)
        clock.known[ids] = np.maximum(clock.known[ids], times)

    def gather(self, threads: Array) -> None:
        """`threads` synchronise with each other."""
        if len(threads) == self.count:
            self.meet()
        else:
            self.acquire(threads, self.release(threads))

    def unordered(self, times: Array, others: Array, ids: Array) -> Array:
        """Where accesses of `others` at `times` did not happen before what `ids` do now, both
        numbers on the clock; others below zero stand for several threads.
        """
        late = (times > self.clock.since) & (others != ids)
        known = self.clock.known
        if known is not None and late.any():
            late &= (others < 0) | (times > known[ids, others])
        return np.asarray(late)


@dataclass(slots=True)
class ClusterPhases:
    """The barrier of a cluster of `threads` threads, in its two halves.

    `arrived` and `waited` say how often each thread did so. A phase is over when all have arrived;
    `complete_times` is what they knew then.
    """

    threads: int
    arrived: Array = field(init=False)
    waited: Array = field(init=False)
    times: Array = field(init=False)
    complete_times: Array = field(init=False)

    def __post_init__(self) -> None:
        self.arrived, self.waited = (np.zeros(self.threads, np.int64) for _ in range(2))
        self.times, self.complete_times = self.arrived.copy(), self.arrived.copy()

    @property
    def phase(self) -> int:
        """How many phases are over."""
        return int(self.arrived.min())

    def arrive(self, ids: Array, times: Array | None) -> None:
        """These threads arrive, and tell what `times` says."""
        self.arrived[ids] += 1
        if times is not None:
            self.times = np.maximum(self.times, times)
        if self.arrived.min() == self.arrived.max():
            self.complete_times = self.times
