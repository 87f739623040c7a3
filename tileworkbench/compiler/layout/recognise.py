"""Recover the canonical digit sum of a tabulated function, where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .digits import (
    Digit,
    DigitSum,
    NotDigitsError,
    Shape,
    Term,
    binary_part,
    make_sum,
)

if TYPE_CHECKING:
    from .digits import Table


def recognise_sum(values: Table) -> DigitSum:
    """The digit sum whose table over ``values.shape`` is `values`.

    First as a sum of one function per dimension; otherwise the independent low bits of all
    dimensions are expanded in parities by a Walsh-Hadamard transform, the rest additively.

    Raises:
        NotDigitsError: there is none.
    """
    shape: Shape = values.shape
    constant = int(values[(0,) * len(shape)])
    try:
        return make_sum(shape, constant, _recognise_additive(values))
    except NotDigitsError:
        return make_sum(shape, constant, _recognise_xor(values))


def _recognise_additive(values: Table, unit: Shape | None = None) -> list[Term]:
    """Terms of a sum of functions of one dimension each; `unit` scales the divisors."""
    rank = values.ndim
    rest = values - values[(0,) * rank]
    terms: list[Term] = []
    for dim in range(rank):
        axis = values[(0,) * dim + (slice(None),) + (0,) * (rank - dim - 1)]
        axis = axis - axis[0]
        rest = rest - axis.reshape((-1,) + (1,) * (rank - dim - 1))
        for divisor, extent, stride in _recognise_axis(axis):
            scaled = divisor * (unit[dim] if unit else 1)
            terms.append(Term((Digit(dim, scaled, extent),), stride))
    if rest.any():
        raise NotDigitsError
    return terms


def _recognise_axis(axis: Table) -> list[tuple[int, int, int]]:
    """Digits ``(divisor, extent, stride)`` of a function with value 0 at 0.

    A digit ends where the function first leaves the line through its first two points.
    """
    import numpy as np

    digits = []
    divisor = 1
    while axis.size > 1:
        stride = int(axis[1])
        bent = np.flatnonzero(axis != stride * np.arange(axis.size))
        extent = int(bent[0]) if bent.size else axis.size
        digits.append((divisor, extent, stride))
        low = axis[:extent]
        high = axis[::extent]
        if not np.array_equal(axis, (high[:, None] + low).reshape(-1)[: axis.size]):
            raise NotDigitsError
        axis = high
        divisor *= extent
    return digits


def _recognise_xor(values: Table) -> list[Term]:
    """Terms of a sum of an additive part above the low bits of all dimensions, and parities."""
    low = tuple(binary_part(extent) for extent in values.shape)
    if max(low) == 1:
        raise NotDigitsError
    rank = values.ndim
    halves = [(extent // part, part) for extent, part in zip(values.shape, low, strict=True)]
    split = values.reshape([part for pair in halves for part in pair])
    split = split.transpose([*range(0, 2 * rank, 2), *range(1, 2 * rank, 2)])
    upper = split[(slice(None),) * rank + (0,) * rank]
    lower = split[(0,) * rank]
    if (split - upper.reshape(upper.shape + (1,) * rank) - (lower - lower[(0,) * rank])).any():
        raise NotDigitsError
    return _recognise_additive(upper, low) + _expand_parities(lower)


def _expand_parities(lower: Table) -> list[Term]:
    """Walsh expansion: a coefficient ``c`` of a set of bits is a parity of weight ``-2 c``."""
    import numpy as np

    bits = [
        (dim, 1 << place)
        for dim, extent in enumerate(lower.shape)
        for place in reversed(range(extent.bit_length() - 1))
    ]
    spectrum = lower.reshape((2,) * len(bits))
    for position in range(len(bits)):
        zero, one = np.take(spectrum, 0, position), np.take(spectrum, 1, position)
        spectrum = np.stack((zero + one, zero - one), position)
    terms: list[Term] = []
    parities = np.argwhere(spectrum)
    if len(parities) > 2 * len(bits) + 1:  # more parities than bits cannot be independent
        raise NotDigitsError
    for chosen in parities:
        members = [bits[position] for position in np.flatnonzero(chosen)]
        if members:
            weight, rest = divmod(-2 * int(spectrum[tuple(chosen)]), lower.size)
            if rest:
                raise NotDigitsError
            terms.append(Term(tuple(Digit(dim, v, 2) for dim, v in sorted(members)), weight))
    return terms
