"""Where elements lie in memory: sums of loop variables, and what division makes of them."""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.pytorch.shapes import Extents


@dataclass(frozen=True, slots=True)
class Index:
    """A number that is never negative: `constant` and a sum of variables, each as (text, extent,
    factor); a variable is less than its extent.
    """

    terms: tuple[tuple[str, int, int], ...] = ()
    constant: int = 0

    @property
    def most(self) -> int:
        """The largest value that it has."""
        return self.constant + sum((extent - 1) * factor for _, extent, factor in self.terms)

    def __add__(self, other: Index) -> Index:
        factors: dict[tuple[str, int], int] = {}
        for text, extent, factor in (*self.terms, *other.terms):
            factors[text, extent] = factors.get((text, extent), 0) + factor
        terms = tuple((*key, factor) for key, factor in factors.items())
        return Index(terms, self.constant + other.constant)

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return Index()
        terms = tuple((text, extent, own * factor) for text, extent, own in self.terms)
        return Index(terms, self.constant * factor)

    def __floordiv__(self, divisor: int) -> Index:
        return self._divided(divisor)[0]

    def __mod__(self, divisor: int) -> Index:
        return self._divided(divisor)[1]

    def _divided(self, divisor: int) -> tuple[Index, Index]:
        """(quotient, remainder)."""
        whole = tuple(each for each in self.terms if each[2] % divisor == 0)
        rest = Index(
            tuple(each for each in self.terms if each[2] % divisor), self.constant % divisor
        )
        quotient = Index(
            tuple((text, extent, factor // divisor) for text, extent, factor in whole),
            self.constant // divisor,
        )
        if rest.most < divisor:
            return quotient, rest
        for step in sorted({each[2] for each in rest.terms}, reverse=True):
            if step == 1 or divisor % step:
                continue
            low = Index(tuple(each for each in rest.terms if each[2] % step), rest.constant % step)
            if low.most >= step:
                continue
            high = tuple((t, e, f // step) for t, e, f in rest.terms if f % step == 0)
            inner = Index(high, rest.constant // step)._divided(divisor // step)
            return quotient + inner[0], inner[1] * step + low
        text = rest.text if len(rest.terms) == 1 and rest.is_plain else f"({rest.text})"
        return (
            quotient + Index(((f"{text} // {divisor}", rest.most // divisor + 1, 1),)),
            Index(((f"{text} % {divisor}", divisor, 1),)),
        )

    @property
    def is_plain(self) -> bool:
        """Whether it is one variable."""
        return len(self.terms) == 1 and not self.constant and self.terms[0][2] == 1

    @property
    def text(self) -> str:
        """The index as T writes it."""
        parts = [
            text if factor == 1 else f"{text} * {factor}"
            for text, _, factor in sorted(self.terms, key=lambda each: -each[2])
        ]
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts)


def variable(name: str, extent: int) -> Index:
    """A loop variable; one of a single value is 0."""
    return Index(((name, extent, 1),)) if extent > 1 else Index()


def position(indices: Sequence[Index], strides: Sequence[int], offset: int = 0) -> Index:
    """Where the element with these indices lies."""
    place = Index((), offset)
    for index, stride in zip(indices, strides, strict=True):
        place = place + index * stride
    return place


def unravelled(place: Index, shape: Extents, strides: Extents) -> list[Index]:
    """The indices of the element at `place` of a dense tensor: the inverse of `position`."""
    indices = [Index()] * len(shape)
    order = sorted((at for at in range(len(shape)) if shape[at] > 1), key=lambda at: -strides[at])
    for at in order:
        indices[at], place = place // strides[at], place % strides[at]
    return indices


def row_major(shape: Extents) -> Extents:
    """The strides of a contiguous tensor."""
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))
