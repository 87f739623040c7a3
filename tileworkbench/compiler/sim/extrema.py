"""Maxima and minima of floats, by one rule whatever the order of operands: NaN is ignored (or
kept), and +0 is greater than -0.

numpy does not define the sign of a zero, and does not always ignore a signalling NaN.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import larger, smaller

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Extremum:
    """A maximum or minimum, with the methods of a ufunc that the simulator uses.

    `choose` is numpy's, `beats` the order, and `prefers` the sign bit of the zero that wins.
    """

    choose: np.ufunc
    beats: Callable[[Any, Any], Any]
    prefers: bool
    keeps_nan: bool = False

    def __call__(self, a: Any, b: Any) -> Any:
        """The larger or smaller of each pair."""
        if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray) and not self.keeps_nan:
            return (smaller if self.prefers else larger)(a, b)
        nan = a != a if self.keeps_nan else b != b
        first = self.beats(a, b) | nan | ((a == b) & (np.signbit(a) == self.prefers))
        return np.where(first, a, b)[()]

    def reduce(self, values: Array, axis: int, dtype: Any = None, **options: Any) -> Any:
        """The extremum of all elements along `axis`, and of `initial` if there is one."""
        if not _has_signs(values):
            return self.choose.reduce(values, axis=axis, dtype=dtype, **options)
        extreme = np.asarray(self.choose.reduce(_quiet(values), axis=axis, dtype=dtype, **options))
        wins = np.asarray(self._winning(values).any(axis=axis))
        for start in options.values():
            wins = wins | self._winning(np.asarray(start, extreme.dtype))
        return self._signed(extreme, wins)[()]

    def accumulate(self, values: Array, axis: int, dtype: Any = None) -> Array:
        """The extremes of each element together with all before it."""
        if not _has_signs(values):
            return np.asarray(self.choose.accumulate(values, axis=axis, dtype=dtype))
        extremes = self.choose.accumulate(_quiet(values), axis=axis, dtype=dtype)
        return self._signed(extremes, np.logical_or.accumulate(self._winning(values), axis=axis))

    def at(self, data: Array, place: tuple[Array, ...], values: Array) -> None:
        """`data[place] = self(data[place], values)`, one after the other."""
        before = data[place]
        self.choose.at(data, place, _quiet(values) if _has_signs(values) else values)
        if not _has_signs(data):
            return
        zero = data[place] == 0
        wins = zero & (self._winning(before) | self._winning(values))
        for chosen, sign in ((zero, not self.prefers), (wins, self.prefers)):
            data[tuple(at[chosen] for at in place)] = -0.0 if sign else 0.0

    def _winning(self, values: Array) -> Array:
        return np.asarray((values == 0) & (np.signbit(values) == self.prefers))

    def _signed(self, extremes: Array, wins: Array) -> Array:
        """`extremes` with the sign of its zeros: that which wins where `wins`."""
        zero = extremes.dtype.type(0)
        return np.where(extremes == 0, np.where(wins == self.prefers, -zero, zero), extremes)


def _quiet(values: Array) -> Array:
    """`values` with one NaN for all of them."""
    return np.where(values != values, values.dtype.type(np.nan), values)


def _has_signs(values: Array) -> bool:
    """Whether zeros have a sign: not those of integers and bool."""
    return values.dtype.kind not in "iub"


MAX = Extremum(np.fmax, operator.gt, prefers=False)
MIN = Extremum(np.fmin, operator.lt, prefers=True)
MAX_NAN = Extremum(np.maximum, operator.gt, prefers=False, keeps_nan=True)
MIN_NAN = Extremum(np.minimum, operator.lt, prefers=True, keeps_nan=True)
