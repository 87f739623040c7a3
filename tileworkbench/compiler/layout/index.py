"""Symbolic indices: arithmetic on digit sums, for tracing the function of a layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from .digits import Bit, Digit, DigitSum, NotDigitsError, Shape, Term, make_sum, power_of_two


class Index:
    """A digit sum over the box `shape`, with ``+ - * // % ^`` (also ``& << >>`` by constants).

    Comparing, hashing or converting one to an integer raises `NotDigitsError`: a function that
    branches on its indices has no digit form that tracing could see.
    """

    __slots__ = ("shape", "sum")

    def __init__(self, shape: Shape, value: DigitSum) -> None:
        self.shape = shape
        self.sum = value

    @staticmethod
    def variables(shape: Shape) -> tuple[Index, ...]:
        """One index per dimension of the box."""
        return tuple(
            Index(shape, make_sum(shape, 0, [Term((Digit(dim, 1, extent),), 1)]))
            for dim, extent in enumerate(shape)
        )

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, Index):
            terms = (*self.sum.terms, *other.sum.terms)
            return self._new(self.sum.constant + other.sum.constant, terms)
        return self._new(self.sum.constant + _integer(other), self.sum.terms)

    def __mul__(self, factor: int) -> Index:
        factor = _integer(factor)
        terms = [Term(term.digits, term.stride * factor) for term in self.sum.terms]
        return self._new(self.sum.constant * factor, terms if factor else ())

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __rsub__(self, other: int) -> Index:
        return self * -1 + other

    def __neg__(self) -> Index:
        return self * -1

    def __floordiv__(self, divisor: int) -> Index:
        return self._divide(_integer(divisor))[0]

    def __mod__(self, divisor: int) -> Index:
        return self._divide(_integer(divisor))[1]

    def __lshift__(self, count: int) -> Index:
        return self * (1 << _integer(count))

    def __rshift__(self, count: int) -> Index:
        return self // (1 << _integer(count))

    def __and__(self, mask: int) -> Index:
        if not power_of_two(_integer(mask) + 1):
            raise NotDigitsError
        return self % (mask + 1)

    def __xor__(self, other: Index | int) -> Index:
        if not isinstance(other, Index):
            other = self._new(_integer(other), ())
        wide, narrow = self, other
        if wide.sum.maximum < narrow.sum.maximum:
            wide, narrow = narrow, wide
        if narrow.sum.minimum < 0 or wide.sum.minimum < 0:
            raise NotDigitsError
        granularity = narrow.sum.constant
        for term in narrow.sum.terms:
            granularity |= term.stride
        if granularity == 0:
            return wide
        unit = granularity & -granularity
        window = 1 << (narrow.sum.maximum // unit).bit_length()
        upper, low = wide._divide(unit)
        high, middle = upper._divide(window)
        return high * (unit * window) + _xor_bits(middle, narrow // unit) * unit + low

    __radd__ = __add__
    __rmul__ = __mul__
    __rxor__ = __xor__

    def __bool__(self) -> NoReturn:
        raise NotDigitsError

    def __index__(self) -> NoReturn:
        raise NotDigitsError

    def __hash__(self) -> NoReturn:
        raise NotDigitsError

    def __eq__(self, other: object) -> NoReturn:
        raise NotDigitsError

    def __lt__(self, other: object) -> NoReturn:
        raise NotDigitsError

    __ne__ = __le__ = __gt__ = __ge__ = __lt__

    def _new(self, constant: int, terms: Iterable[Term]) -> Index:
        return Index(self.shape, make_sum(self.shape, constant, terms))

    def _divide(self, divisor: int) -> tuple[Index, Index]:
        """Quotient and remainder: strides are split at `divisor`, and the rest must not carry."""
        if divisor <= 0:
            raise NotDigitsError
        if self.sum.minimum >= 0 and self.sum.maximum < divisor:
            return self._new(0, ()), self
        quotient: list[Term] = []
        remainder: list[Term] = []
        for term in self.sum.terms:
            multiple, rest = divmod(term.stride, divisor)
            if multiple:
                quotient.append(Term(term.digits, multiple))
            if rest:
                low, high = self._split(term.digits, divisor, rest)
                remainder.append(Term(low, rest))
                if high:
                    quotient.append(Term(high, 1))
        multiple, rest = divmod(self.sum.constant, divisor)
        small = self._new(rest, remainder)
        if small.sum.maximum >= divisor:
            raise NotDigitsError
        return self._new(multiple, quotient), small

    def _split(
        self, digits: tuple[Digit, ...], divisor: int, stride: int
    ) -> tuple[tuple[Digit, ...], tuple[Digit, ...]]:
        """Digits below and above the place where ``digit * stride`` reaches `divisor`."""
        extent = digits[0].extent
        if divisor % stride or divisor // stride >= extent:
            return digits, ()
        cut = divisor // stride
        if len(digits) > 1 and not power_of_two(cut):
            raise NotDigitsError
        top = digits[0].divisor * extent >= self.shape[digits[0].dim]
        if extent % cut and not top:
            raise NotDigitsError
        low = tuple(Digit(d.dim, d.divisor, cut) for d in digits)
        high = tuple(Digit(d.dim, d.divisor * cut, -(-extent // cut)) for d in digits)
        return low, high

    def _bits(self) -> tuple[dict[int, set[Bit]], int]:
        """Output bit weight -> input bits XORed into it, and the constant; sums must not carry."""
        places: dict[int, set[Bit]] = {}
        for term in self.sum.terms:
            top = term.digits[0].divisor * term.extent >= self.shape[term.digits[0].dim]
            if not power_of_two(term.stride) or not (power_of_two(term.extent) or top):
                raise NotDigitsError
            for place in range((term.extent - 1).bit_length()):
                weight = term.stride << place
                if weight in places:
                    raise NotDigitsError
                places[weight] = {(d.dim, d.divisor << place) for d in term.digits}
        constant = self.sum.constant
        if any(weight & constant for weight in places):
            raise NotDigitsError
        return places, constant


def _integer(value: object) -> int:
    """An operand as a plain integer; anything else has no place in a digit sum."""
    if isinstance(value, int):
        return int(value)
    if hasattr(value, "__index__") and not isinstance(value, Index):
        return int(value.__index__())
    raise NotDigitsError


def _xor_bits(left: Index, right: Index) -> Index:
    """XOR of two carry-free sums of bits; ``1 ^ bit`` is ``1 - bit``."""
    left_bits, left_constant = left._bits()
    right_bits, right_constant = right._bits()
    constant = left_constant ^ right_constant
    terms: list[Term] = []
    for weight in sorted(left_bits.keys() | right_bits.keys()):
        bits = left_bits.get(weight, set()) ^ right_bits.get(weight, set())
        if bits:
            digits = tuple(Digit(dim, divisor, 2) for dim, divisor in sorted(bits))
            terms.append(Term(digits, -weight if constant & weight else weight))
    return left._new(constant, terms)
