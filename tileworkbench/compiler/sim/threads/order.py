"""What happens before what among the threads of a block: vector clocks on one global time.

Time goes up at every synchronisation. An access of thread w at time c happened before what thread t
does now when t is w, when all threads have met at `since` >= c, or when t has learnt (through
barriers that w arrived at) of everything that w did until some time >= c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
WARP = 32


class Order:
    """The synchronisation of the threads of one block."""

    __slots__ = ("known", "now", "since", "threads")

    def __init__(self, threads: int, now: int) -> None:
        self.threads = threads
        self.since, self.now = now, now + 1
        self.known: Array | None = None  # [t, w]: until when t knows what w did

    def meet(self) -> None:
        """All threads of the block synchronise with each other."""
        self.since = self.now
        self.now += 1

    def release(self, threads: Array) -> Array:
        """What `threads` (indices) know, their own accesses until now included: a time for each
        thread of the block.
        """
        if self.known is None:
            made = np.zeros(self.threads, np.int64)
        else:
            made = self.known[threads].max(axis=0)
        made[threads] = self.now
        self.now += 1
        return made

    def acquire(self, threads: Array, times: Array) -> None:
        """`threads` learn what `release` returned to others."""
        if self.known is None:
            self.known = np.zeros((self.threads, self.threads), np.int64)
        self.known[threads] = np.maximum(self.known[threads], times)

    def gather(self, threads: Array) -> None:
        """`threads` synchronise with each other."""
        if len(threads) == self.threads:
            self.meet()
        else:
            self.acquire(threads, self.release(threads))

    def unordered(self, times: Array, others: Array, threads: Array) -> Array:
        """Where accesses of `others` at `times` did not happen before `threads` now; others below
        zero stand for several threads.
        """
        found = (times > self.since) & (others != threads)
        if self.known is not None and found.any():
            found &= (others < 0) | (times > self.known[threads, others])
        return np.asarray(found)
