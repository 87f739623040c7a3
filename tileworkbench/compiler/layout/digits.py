"""Canonical sums of mixed-radix digits, the structural form of an index map.

A digit ``(dim, divisor, extent)`` is ``x[dim] // divisor % extent``. A term is a digit, or the
XOR of several digits of one power-of-two extent, times a stride; a sum is a constant plus terms.
`make_sum` brings a sum to the one canonical form of its function, so that equality of maps is
equality of objects:

- without XOR, every dimension contributes a function of its own, and the boundaries of its digits
  are the points where that function stops being linear, which determines them;
- with XOR, terms are split into parities of single bits. Parities of two or more independent bits
  are linearly independent of one another and of every additive function (Walsh expansion), so
  their weights are determined too.

A sum outside this form (divisors that do not divide one another, XOR of incomplete or dependent
bits) raises `NotDigitsError`; callers then tabulate the map.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Table = NDArray[np.int64]

Shape = tuple[int, ...]
Bit = tuple[int, int]
"""A binary digit ``x[dim] // divisor % 2`` written as ``(dim, divisor)``."""


class NotDigitsError(Exception):
    """The map has no digit form; never reaches users."""


@dataclass(frozen=True, slots=True, order=True)
class Digit:
    """``x[dim] // divisor % extent``."""

    dim: int
    divisor: int
    extent: int


@dataclass(frozen=True, slots=True, order=True)
class Term:
    """The XOR of `digits` (most often one digit), times `stride`; all digits have one extent."""

    digits: tuple[Digit, ...]
    stride: int

    @property
    def extent(self) -> int:
        return self.digits[0].extent


@dataclass(frozen=True, slots=True)
class DigitSum:
    """``constant + sum(terms)`` in canonical form, with its exact range over the index box."""

    constant: int
    terms: tuple[Term, ...]
    minimum: int = field(compare=False)
    maximum: int = field(compare=False)


def power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def binary_part(extent: int) -> int:
    """The largest power of two that divides `extent`: the range of its independent low bits."""
    return extent & -extent


def check_chain(bounds: list[int]) -> None:
    """Every digit boundary of a dimension must divide the next one."""
    for low, high in pairwise(bounds):
        if high % low:
            raise NotDigitsError


def make_sum(shape: Shape, constant: int, terms: Iterable[Term]) -> DigitSum:
    """The canonical form of ``constant + sum(terms)`` over the box `shape`.

    Raises:
        NotDigitsError: the sum has no canonical digit form.
    """
    pieces: dict[int, list[tuple[int, int, int]]] = {}
    parities: dict[tuple[Bit, ...], int] = {}
    for term in terms:
        _collect(term, pieces, parities)
    parities = {bits: weight for bits, weight in parities.items() if weight}
    low = high = constant
    canonical: list[Term] = []
    for dim in sorted(pieces) if not parities else range(len(shape)):
        split = binary_part(shape[dim]) if parities else 1
        steps = _merge_pieces(shape[dim], pieces.get(dim, []), split)
        axis_low, axis_high = _axis_range(shape[dim], steps)
        low, high = low + axis_low, high + axis_high
        for position, (divisor, stride) in enumerate(steps):
            if stride:
                last = position + 1 == len(steps)
                extent = -(-shape[dim] // divisor) if last else steps[position + 1][0] // divisor
                canonical.append(Term((Digit(dim, divisor, extent),), stride))
    if parities:
        _check_parities(shape, parities, canonical)
        for term in _merge_parities(parities):
            low += min(0, term.stride * (term.extent - 1))
            high += max(0, term.stride * (term.extent - 1))
            canonical.append(term)
    return DigitSum(constant, tuple(canonical), low, high)


def _collect(
    term: Term,
    pieces: dict[int, list[tuple[int, int, int]]],
    parities: dict[tuple[Bit, ...], int],
) -> None:
    """Sort a term into the additive pieces of its dimension or into single-bit parities."""
    if len(term.digits) == 1:
        digit = term.digits[0]
        pieces.setdefault(digit.dim, []).append((digit.divisor, digit.extent, term.stride))
        return
    for place in range(term.extent.bit_length() - 1):
        bits: set[Bit] = set()
        for digit in term.digits:
            bits ^= {(digit.dim, digit.divisor << place)}
        weight = term.stride << place
        if len(bits) == 1:
            dim, divisor = bits.pop()
            _collect(Term((Digit(dim, divisor, 2),), weight), pieces, parities)
        elif bits:
            key = tuple(sorted(bits))
            parities[key] = parities.get(key, 0) + weight


def _merge_pieces(
    extent: int, pieces: list[tuple[int, int, int]], split: int
) -> list[tuple[int, int]]:
    """Add up the pieces of one dimension as ``[(divisor, stride)]``, boundaries only where needed.

    `split` is a further boundary that the pieces must be compatible with.
    """
    bounds = {1, split}
    for divisor, size, _ in pieces:
        bounds.update((divisor, divisor * size))
    ordered = sorted(bound for bound in bounds if bound < extent or bound == 1)
    check_chain(ordered)
    steps: list[tuple[int, int]] = []
    for bound in ordered:
        stride = sum(
            weight * (bound // divisor)
            for divisor, size, weight in pieces
            if divisor <= bound < divisor * size
        )
        if not steps or stride != steps[-1][1] * (bound // steps[-1][0]):
            steps.append((bound, stride))
    return steps


def _axis_range(extent: int, steps: list[tuple[int, int]]) -> tuple[int, int]:
    """Smallest and largest value of the digits `steps` over ``0 <= x < extent``."""
    if not steps:
        return 0, 0
    divisor, stride = steps[-1]
    top, rest = divmod(extent - 1, divisor)
    low, high = _axis_range(rest + 1, steps[:-1])
    if rest + 1 == divisor:
        return low + min(0, stride * top), high + max(0, stride * top)
    low, high = low + stride * top, high + stride * top
    if top:
        full_low, full_high = _axis_range(divisor, steps[:-1])
        low = min(low, full_low + min(0, stride * (top - 1)))
        high = max(high, full_high + max(0, stride * (top - 1)))
    return low, high


def _merge_parities(parities: dict[tuple[Bit, ...], int]) -> list[Term]:
    """Join parities whose bits follow one another with doubled weight into wider XOR digits."""
    terms = []
    for bits, weight in sorted(parities.items()):
        if all(divisor > 1 for _, divisor in bits):
            before = tuple((dim, divisor // 2) for dim, divisor in bits)
            if 2 * parities.get(before, 0) == weight:
                continue
        extent = 2
        while True:
            after = tuple((dim, divisor * extent) for dim, divisor in bits)
            if parities.get(after, 0) != weight * extent:
                break
            extent *= 2
        terms.append(Term(tuple(Digit(dim, divisor, extent) for dim, divisor in bits), weight))
    return terms


def _check_parities(
    shape: Shape, parities: dict[tuple[Bit, ...], int], additive: list[Term]
) -> None:
    """XOR takes complete bits, and every parity must vary independently of the rest of the sum."""
    numbers: dict[Bit, int] = {}
    rows = []
    for bits in parities:
        row = 0
        for dim, divisor in bits:
            if binary_part(shape[dim]) % (2 * divisor) or not power_of_two(divisor):
                raise NotDigitsError
            if any(
                digit.dim == dim and digit.divisor <= divisor < digit.divisor * digit.extent
                for term in additive
                for digit in term.digits
            ):
                continue
            row |= 1 << numbers.setdefault((dim, divisor), len(numbers))
        rows.append(row)
    if rank(rows) < len(rows):
        raise NotDigitsError


def rank(rows: Iterable[int]) -> int:
    """Rank over GF(2) of rows given as bit masks."""
    basis: list[int] = []
    for row in rows:
        for other in basis:
            row = min(row, row ^ other)
        if row:
            basis.append(row)
    return len(basis)
