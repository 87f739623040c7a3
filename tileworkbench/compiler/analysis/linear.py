"""Intervals of integers and sums of expressions with integer coefficients."""

from __future__ import annotations

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Expr


@dataclass(frozen=True, slots=True)
class Interval:
    """All integers from `low` to `high`, both included; None means no bound."""

    low: int | None
    high: int | None

    def __add__(self, other: Interval) -> Interval:
        return Interval(sum_bounds(self.low, other.low), sum_bounds(self.high, other.high))

    def scale(self, factor: int) -> Interval:
        """Every member times `factor`."""
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        return Interval(*(ends if factor >= 0 else reversed(ends))) if factor else Interval(0, 0)

    def union(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        low = None if self.low is None or other.low is None else min(self.low, other.low)
        high = None if self.high is None or other.high is None else max(self.high, other.high)
        return Interval(low, high)


ANY = Interval(None, None)


def sum_bounds(a: int | None, b: int | None) -> int | None:
    """`a + b`, without a bound where one of them has none."""
    return None if a is None or b is None else a + b


@dataclass(frozen=True, slots=True)
class Linear:
    """`constant + sum(coefficient * atom)`; atoms are expressions that are no sums."""

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def coefficient(self, atom: Expr) -> int:
        """How often `atom` is in the sum."""
        return next((factor for node, factor in self.terms if node is atom), 0)


def combine(parts: list[tuple[Linear, int]], constant: int = 0) -> Linear:
    """The weighted sum of linear forms."""
    terms: dict[Expr, int] = {}
    for part, weight in parts:
        constant += weight * part.constant
        for atom, factor in part.terms:
            terms[atom] = terms.get(atom, 0) + weight * factor
    return Linear(tuple((atom, factor) for atom, factor in terms.items() if factor), constant)
