"""Times of calls beside each other, on a machine that others use too.

Clock, last cache and memory of a guest change by half from second to second. Calls that are made in
turn see the same changes: the ratio of their times in a round says more than the least of either.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LEAST_ROUNDS = 8


def in_turn(
    calls: Sequence[Callable[[], Any]],
    rounds: int = 60,
    seconds: float = 4.0,
    before: Callable[[int], None] = lambda number: None,
) -> NDArray[np.float64]:
    """Milliseconds of each call in each round, shaped (rounds, calls).

    Of a call in a round the faster of two counts, after one that brings its data near. The order
    changes from round to round; `before` is called before each, with its number. There are at most
    `rounds`, and no more than fit in `seconds`, but always 8.
    """
    order, found = list(range(len(calls))), []
    shuffle = random.Random(1).shuffle
    end = time.perf_counter() + seconds
    while len(found) < rounds and (len(found) < _LEAST_ROUNDS or time.perf_counter() < end):
        before(len(found))
        shuffle(order)
        row = [0.0] * len(calls)
        for at in order:
            calls[at]()
            row[at] = min(_milliseconds(calls[at]) for _ in range(2))
        found.append(row)
    return np.array(found)


def usual(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Milliseconds of each call, from what `in_turn` returned: the median of its ratios to the
    median of their round, times the median of all.
    """
    middle = np.median(times, axis=1, keepdims=True)
    return np.asarray(np.median(times / middle, axis=0) * np.median(middle))


def _milliseconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6
