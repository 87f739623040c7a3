"""Joins the accesses of one statement."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.sim.replay.memory import Tracked, spread_threads
from tileworkbench.compiler.sim.replay.places import Places

Array = np.ndarray[Any, Any]
Who = Array | int

_MOST_BYTES = 8 << 20  # of what is remembered
_MOST_THREADS = 256


class Merged:
    """The accesses of a statement as places, each once and in order, with the threads that came
    last. Loops make the same accesses again and again: the last results are remembered.
    """

    def __init__(self) -> None:
        self._known: dict[Any, tuple[Places, Who]] = {}
        self._threads: dict[tuple[int, int], tuple[Array, Who]] = {}  # by identity
        self._bytes = 0

    def of(self, tracked: Tracked, accesses: list[tuple[Places, Any]]) -> tuple[Places, Who]:
        """The places; the threads as int32, or one number where all are the same."""
        if len(accesses) == 1 and accesses[0][0].is_rising:
            places, threads = accesses[0]
            return places, threads if type(threads) is int else self._spread(threads, places.size)
        key = tuple(
            [
                (
                    places.positions.tobytes(),
                    threads.tobytes() if type(threads) is np.ndarray else threads,
                )
                for places, threads in accesses
            ]
        )
        known = self._known.get(key)
        if known is None:
            known = _merge(tracked, accesses)
            self._bytes += 2 * sum(len(places) for places, _ in key)
            if self._bytes > _MOST_BYTES:
                self._known, self._bytes = {}, 0
            self._known[key] = known
        return known

    def _spread(self, threads: Array, size: int) -> Who:
        key = id(threads), size
        known = self._threads.get(key)
        if known is None:
            known = threads, one_or_all(spread_threads(threads, size))
            if not threads.flags.writeable:
                if len(self._threads) >= _MOST_THREADS:
                    self._threads = {}
                self._threads[key] = known
        return known[1]


def _merge(tracked: Tracked, accesses: list[tuple[Places, Any]]) -> tuple[Places, Who]:
    places = np.concatenate([each.positions for each, _ in accesses])
    threads = np.concatenate([spread_threads(who, each.size) for each, who in accesses])
    if not (places[1:] > places[:-1]).all():
        places, last = np.unique(places[::-1], return_index=True)
        threads = threads[::-1][last]
    return tracked.at(places), one_or_all(threads)


def one_or_all(values: Array) -> Array | int:
    """One number where all are the same, else as int32."""
    if not values.ndim:
        return int(values)
    first = values.flat[0] if values.size else 0
    return int(first) if (values == first).all() else values.astype(np.int32)
