"""Where a layout puts an element, as an expression of its indices.

Digits of a sum are taken term by term: what is a multiple of the digit's reach drops out, what is a
multiple of its divisor divides out, and a remainder that is provably small needs no `%`. So a
swizzled address in an unrolled loop becomes one expression of the thread plus or xor a constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tileworkbench.compiler.analysis.extremes import to_expr
from tileworkbench.compiler.analysis.linear import Linear
from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import add, binary, const, mul
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.digits import Digit, DigitSum, Term
from tileworkbench.compiler.layout.layout import Layout


def computable(layout: Layout) -> bool:
    """Whether code can compute where the layout puts an element: it has a formula of digits."""
    return layout.digits is not None


def physical_index(
    layout: Layout, indices: Sequence[Expr], ranges: Ranges, dtype: DType
) -> Expr | None:
    """The offset of an element in memory, in elements; None for one that is not `computable`."""
    if not computable(layout):
        return None
    linears = [ranges.linear(index) for index in indices]
    total: Expr = const(0, dtype)
    for output, extent in zip(_grouped(layout), layout.output_shape, strict=True):
        total = mul(total, const(extent, dtype))
        for term in output.terms:
            value: Expr | None = None
            for part in term.digits:
                digit = _digit(linears[part.dim], part, layout.shape[part.dim], ranges, dtype)
                value = digit if value is None else binary("xor", value, digit)
            if value is not None:
                total = add(total, mul(value, const(term.stride, dtype)))
        total = add(total, const(output.constant, dtype))
    return total


def _digit(linear: Linear, part: Digit, extent: int, ranges: Ranges, dtype: DType) -> Expr:
    """`linear // divisor % extent` of the digit."""
    divisor, reach = part.divisor, part.divisor * part.extent
    whole = reach >= extent
    terms = linear.terms if whole else tuple(t for t in linear.terms if t[1] % reach)
    constant = linear.constant if whole else linear.constant % reach
    high = Linear(
        tuple((a, f // divisor) for a, f in terms if f % divisor == 0), constant // divisor
    )
    low = Linear(tuple((a, f) for a, f in terms if f % divisor), constant % divisor)
    bounds = ranges.linear_bounds(low)
    if low.terms and not _within(bounds.low, bounds.high, divisor):
        value = binary("floordiv", to_expr(low, dtype), const(divisor, dtype))
        value = add(value, to_expr(high, dtype))
        small = False
    else:
        value = to_expr(high, dtype)
        bounds = ranges.linear_bounds(high)
        small = _within(bounds.low, bounds.high, part.extent)
    return value if whole or small else binary("floormod", value, const(part.extent, dtype))


def _within(low: int | None, high: int | None, extent: int) -> bool:
    return low is not None and high is not None and low >= 0 and high < extent


@lru_cache(maxsize=512)
def _grouped(layout: Layout) -> tuple[DigitSum, ...]:
    """The digit sums of a layout, with neighbouring single bits joined to one digit."""
    sums = layout.mapping.sums  # type: ignore[union-attr]
    return tuple(
        DigitSum(total.constant, _merge(total.terms), total.minimum, total.maximum)
        for total in sums
    )


def _merge(terms: tuple[Term, ...]) -> tuple[Term, ...]:
    """Terms whose digits continue one another in every dimension, joined."""
    merged: list[Term] = []
    for term in sorted(terms, key=lambda term: (len(term.digits), term.stride, term.digits)):
        at = next((at for at, other in enumerate(merged) if _continues(other, term)), None)
        if at is None:
            merged.append(term)
            continue
        base = merged[at]
        extent = base.extent * term.extent
        digits = tuple(Digit(d.dim, d.divisor, extent) for d in base.digits)
        merged[at] = Term(digits, base.stride)
    return tuple(merged)


def _continues(base: Term, term: Term) -> bool:
    if len(base.digits) != len(term.digits) or term.stride != base.stride * base.extent:
        return False
    pairs = zip(base.digits, term.digits, strict=True)
    return all(a.dim == b.dim and b.divisor == a.divisor * a.extent for a, b in pairs)
