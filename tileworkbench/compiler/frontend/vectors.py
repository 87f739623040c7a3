"""Vectors as users hold them: a number of lanes, and what each lane is.

They become loops when they are stored, so no program holds a vector before its loops are chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Binding
from tileworkbench.compiler.frontend.dtypes import TileDType, to_dtype
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.values import (
    Value,
    deeper,
    describe,
    fitting,
    index_expr,
    to_value,
)
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.types import DType

Lane = Callable[[Expr], Expr]


class VectorValue(NotScalar):
    """`lanes` scalars of one dtype; `at` gives the expression of a lane."""

    __slots__ = ("at", "binding", "lanes", "origin")

    def __init__(self, lanes: int, at: Lane, binding: Binding | None) -> None:
        self.lanes = lanes
        self.at = at
        self.binding = binding
        self.origin: VectorValue | Value | None = None  # what its bits were read from

    @property
    def dtype(self) -> TileDType:
        """The type of the vector."""
        return TileDType(self.at(build.int_const(0)).dtype.with_lanes(self.lanes))

    @property
    def described(self) -> str:
        return f"a vector of {self.lanes}"

    def refuse(self, *_: Any) -> NoReturn:
        raise TileTypeError(
            f"a vector of {self.lanes} lanes stands where a scalar is needed",
            hint="store it into as many elements, as in B[0:4] = vector",
        )

    def astype(self, dtype: Any) -> VectorValue:
        """Every lane converted to `dtype`."""
        wanted = to_dtype(dtype).scalar
        return VectorValue(self.lanes, lambda lane: build.cast(self.at(lane), wanted), self.binding)

    def __getitem__(self, index: Any) -> Value:
        """One lane, chosen by a constant. Raises `TileValueError` for a lane that is none."""
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < self.lanes:
            raise TileValueError(f"a vector of {self.lanes} has no lane {index!r}")
        return Value(self.at(build.int_const(index)), self.binding)

    def _with(self, op: str, other: Any, swapped: bool = False) -> VectorValue:
        """Both operands combined lane by lane; a scalar stands in every lane."""
        if not isinstance(other, VectorValue):
            value = to_value(other, self.at(build.int_const(0)).dtype)
            scalar = value.expr
            other = VectorValue(self.lanes, lambda lane: scalar, value.binding)
        elif other.lanes != self.lanes:
            raise TileValueError(f"vectors of {self.lanes} and {other.lanes} lanes do not combine")
        a, b = (other.at, self.at) if swapped else (self.at, other.at)
        binding = deeper(self.binding, other.binding)
        return VectorValue(self.lanes, lambda lane: build.binary(op, a(lane), b(lane)), binding)

    def __add__(self, other: Any) -> VectorValue:
        return self._with("add", other)

    def __radd__(self, other: Any) -> VectorValue:
        return self._with("add", other, swapped=True)

    def __sub__(self, other: Any) -> VectorValue:
        return self._with("sub", other)

    def __rsub__(self, other: Any) -> VectorValue:
        return self._with("sub", other, swapped=True)

    def __mul__(self, other: Any) -> VectorValue:
        return self._with("mul", other)

    def __rmul__(self, other: Any) -> VectorValue:
        return self._with("mul", other, swapped=True)

    def __truediv__(self, other: Any) -> VectorValue:
        return self._with("div", other)

    def __rtruediv__(self, other: Any) -> VectorValue:
        return self._with("div", other, swapped=True)

    def __neg__(self) -> VectorValue:
        return lanewise(lambda value: build.unary("neg", value.expr), self)


def lanewise(combine: Callable[..., Expr], *operands: Any) -> VectorValue:
    """`combine` of the values that the operands have in each lane; a scalar stands in every one.

    One operand at least is a vector. Raises `TileValueError` for vectors of different lanes.
    """
    vectors = [operand for operand in operands if isinstance(operand, VectorValue)]
    lanes = vectors[0].lanes
    for vector in vectors:
        if vector.lanes != lanes:
            raise TileValueError(f"vectors of {lanes} and {vector.lanes} lanes do not combine")
    binding = None
    for operand in operands:
        if isinstance(operand, VectorValue | Value):
            binding = deeper(binding, operand.binding)

    def at(lane: Expr) -> Expr:
        return combine(
            *(Value(o.at(lane), binding) if isinstance(o, VectorValue) else o for o in operands)
        )

    return VectorValue(lanes, at, binding)


def gather(dtype: DType, values: tuple[Any, ...]) -> VectorValue:
    """A vector of `dtype` from one scalar per lane, from one for all, or from another vector.

    Raises `TileValueError` for any other number of values.
    """
    if len(values) == 1 and isinstance(values[0], VectorValue):
        if values[0].lanes != dtype.lanes:
            raise TileValueError(
                f"a vector of {values[0].lanes} lanes cannot be made a 'T.{dtype!s}'"
            )
        return values[0].astype(dtype)
    if len(values) not in (1, dtype.lanes):
        raise TileValueError(f"'T.{dtype!s}' takes {dtype.lanes} values or one, not {len(values)}")
    made = [fitting(value, dtype.scalar) for value in values]
    parts, binding = [expr for expr, _ in made], None
    for _, depends in made:
        binding = deeper(binding, depends)
    return VectorValue(dtype.lanes, lambda lane: _chosen(parts, lane), binding)


def _chosen(parts: list[Expr], lane: Expr) -> Expr:
    """The expression of one of the lanes `parts`."""
    number = build.const_int(lane)
    if number is not None:
        return parts[number % len(parts)]
    chosen = parts[-1]
    for index in reversed(range(len(parts) - 1)):
        here = build.binary("eq", lane, build.const(index, lane.dtype))
        chosen = build.select(here, parts[index], chosen)
    return chosen


def shuffle(vectors: Any, lanes: Any) -> VectorValue:
    """The lanes of several vectors, one after the other, that `lanes` numbers. See `T.Shuffle`."""
    sources = vectors if isinstance(vectors, list | tuple) else [vectors]
    for source in sources:
        if not isinstance(source, VectorValue):
            raise TileTypeError(f"T.Shuffle takes vectors, not {describe(source)}")
    every = [source[index] for source in sources for index in range(source.lanes)]
    for number in lanes:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(every):
            raise TileValueError(f"T.Shuffle has no lane {number!r}: its vectors have {len(every)}")
    chosen = [every[number] for number in lanes]
    return gather(chosen[0].expr.dtype.with_lanes(len(chosen)), tuple(chosen))


def regroup(value: VectorValue | Value, dtype: DType) -> VectorValue | Value:
    """The bits of `value` as elements of `dtype`, the lowest bits first, as memory holds them.

    Raises `TileTypeError` for another number of bits.
    """
    origin = value.origin if isinstance(value, VectorValue) else None
    if origin is not None and _form(origin) == dtype:
        return origin
    form, binding = _form(value), value.binding
    lanes, source = form.lanes, form.scalar
    at = value.at if isinstance(value, VectorValue) else _everywhere(value.expr)
    if source.bits * lanes != dtype.bits * dtype.lanes or min(source.bits, dtype.bits) < 8:
        raise TileTypeError(
            f"the bits of '{source.with_lanes(lanes)}' cannot be read as '{dtype}'",
            hint="both need the same width",
        )
    made = VectorValue(dtype.lanes, lambda lane: _bits(at, source, lane, dtype.scalar), binding)
    made.origin = value
    return made[0] if dtype.lanes == 1 else made


def _everywhere(expr: Expr) -> Lane:
    return lambda lane: expr


def _form(value: VectorValue | Value) -> DType:
    return value.dtype if isinstance(value, VectorValue) else value.expr.dtype


def _bits(at: Lane, source: DType, lane: Expr, target: DType) -> Expr:
    """Element `lane` of dtype `target` from the bits of elements of dtype `source`."""
    have, want = DType(f"uint{source.bits}"), DType(f"uint{target.bits}")

    def word(place: Expr) -> Expr:
        element = at(place)
        return element if source == have else ir.Reinterpret(element, have)

    if source.bits >= target.bits:
        ratio = build.int_const(source.bits // target.bits)
        place, part = build.binary("floordiv", lane, ratio), build.binary("floormod", lane, ratio)
        shift = build.cast(build.mul(part, build.const(target.bits, part.dtype)), have)
        bits = build.cast(build.binary("shr", word(place), shift), want)
    else:
        ratio_ = target.bits // source.bits
        bits = build.const(0, want)
        for part_ in range(ratio_):
            place = build.add(build.mul(lane, build.int_const(ratio_)), build.int_const(part_))
            moved = build.cast(word(place), want)
            shifted = build.binary("shl", moved, build.const(part_ * source.bits, want))
            bits = build.binary("or", bits, shifted)
    return bits if target == want else ir.Reinterpret(bits, target)


def ramp(base: Any, stride: Any, lanes: Any) -> VectorValue:
    """`base, base + stride, ...`. See `T.Ramp`."""
    count = _lanes("T.Ramp", lanes)
    first, depends = index_expr(base, "the base of T.Ramp")
    step, _ = index_expr(stride, "the stride of T.Ramp")
    return VectorValue(count, lambda lane: build.add(first, build.mul(lane, step)), depends)


def broadcast(value: Any, lanes: Any) -> VectorValue:
    """`value` in every lane. See `T.Broadcast`."""
    count = _lanes("T.Broadcast", lanes)
    scalar = to_value(value)
    return VectorValue(count, lambda lane: scalar.expr, scalar.binding)


def _lanes(construct: str, lanes: Any) -> int:
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise TileValueError(
            f"the lanes of {construct} must be a positive integer, not {describe(lanes)}"
        )
    return lanes
