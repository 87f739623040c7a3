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
from tileworkbench.compiler.frontend.values import deeper, describe, index_expr, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr

Lane = Callable[[Expr], Expr]


class VectorValue(NotScalar):
    """`lanes` scalars of one dtype; `at` gives the expression of a lane."""

    __slots__ = ("at", "binding", "lanes")

    def __init__(self, lanes: int, at: Lane, binding: Binding | None) -> None:
        self.lanes = lanes
        self.at = at
        self.binding = binding

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


def ramp(base: Any, stride: Any, lanes: Any) -> VectorValue:
    """`base, base + stride, ...`. See `T.Ramp`."""
    count = _lanes("T.Ramp", lanes)
    first, depends = index_expr(base, "the base of T.Ramp")
    step, _ = index_expr(stride, "the stride of T.Ramp")
    return VectorValue(count, lambda lane: build.add(first, build.mul(lane, step)), depends)


def broadcast(value: Any, lanes: Any) -> VectorValue:
    """`value` in every lane. See `T.Broadcast`."""
    count = _lanes("T.Broadcast", lanes)
    found = to_value(value)
    return VectorValue(count, lambda lane: found.expr, found.binding)


def _lanes(construct: str, lanes: Any) -> int:
    if isinstance(lanes, bool) or not isinstance(lanes, int) or lanes < 1:
        raise TileValueError(
            f"the lanes of {construct} must be a positive integer, not {describe(lanes)}"
        )
    return lanes
