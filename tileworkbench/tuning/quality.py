"""How good predictions were."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite, nan

import numpy as np
from numpy.typing import NDArray

from tileworkbench.compiler.fast_dataclass import dataclass

_FEWEST = 3
_GOOD_ERROR, _GOOD_RANK = 0.5, 0.8


@dataclass(frozen=True, slots=True)
class Quality:
    """The median of abs(predicted - measured) / measured, and Spearman's rank correlation of the
    two (NaN where all are equal).
    """

    error: float
    rank: float

    @property
    def is_good(self) -> bool:
        """Whether what a model says of others may be believed, within its error: half of the time
        at most, in nearly the right order.
        """
        return self.error <= _GOOD_ERROR and self.rank >= _GOOD_RANK


def quality_of(pairs: Iterable[tuple[float, float]]) -> Quality | None:
    """Of (predicted, measured) times; None for fewer than three that are both numbers."""
    both = [(a, b) for a, b in pairs if isfinite(a) and isfinite(b)]
    if len(both) < _FEWEST:
        return None
    predicted, measured = np.array(both).T
    error = float(np.median(abs(predicted - measured) / measured))
    first, second = _ranks(predicted), _ranks(measured)
    if first.std() == 0 or second.std() == 0:
        return Quality(error, nan)
    return Quality(error, float(np.corrcoef(first, second)[0, 1]))


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The place of each value in ascending order; equal ones share the mean of theirs."""
    below = (values[None, :] < values[:, None]).sum(1)
    equal = (values[None, :] == values[:, None]).sum(1)
    ranks: NDArray[np.float64] = below + (equal - 1) / 2
    return ranks
