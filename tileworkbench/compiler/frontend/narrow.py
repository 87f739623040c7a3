"""Arithmetic on integers below 32 bits as C does it: in 32 bits where more than low bits count.

The product of two int8 is an int8 by its type. Stored as one, or kept by a name, its low bits are
all there is; converted, compared, shifted to the right or divided, it is the whole product.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.build import cast, const_int
from tileworkbench.compiler.ir.expr import Binary, Cast, Expr, Region, Select, Unary
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.types import INT32, DType

# What gives low bits of low bits, and what never leaves the range of its operands.
_LOW = ("add", "sub", "mul", "shl", "and", "or", "xor", "neg", "bitnot")
_INSIDE = ("and", "or", "xor", "shr", "min", "max", "floormod", "truncmod")


def widen(body: Stmt) -> Stmt:
    """`body` with such arithmetic written out."""
    widener = _Widener()
    overflows = any(isinstance(node, Expr) and not widener.fits(node) for node in walk(body))
    return widener.statement(body) if overflows else body


def _is_narrow(dtype: DType) -> bool:
    return dtype.is_int and 8 <= dtype.bits < 32  # of four bits all arithmetic wraps


class _Widener:
    def __init__(self) -> None:
        self._fits: dict[Expr, bool] = {}
        self._exact: dict[Expr, Expr] = {}
        self._low: dict[Expr, Expr] = {}

    def fits(self, value: Expr) -> bool:
        """Whether a narrow value is the same in its own bits as in 32."""
        if not _is_narrow(value.dtype):
            return True
        if value not in self._fits:
            self._fits[value] = self._find_fit(value)
        return self._fits[value]

    def _find_fit(self, value: Expr) -> bool:
        match value:
            case Binary("floordiv" | "truncdiv", a, b):
                return self.fits(a) and self.fits(b) and (const_int(b) or 0) > 0
            case Binary(op, a, b):
                return op in _INSIDE and self.fits(a) and self.fits(b)
            case Unary(op, a):
                return op == "bitnot" and value.dtype.is_signed and self.fits(a)
            case Select(_, then, other):
                return self.fits(then) and self.fits(other)
        return True

    def statement(self, stmt: Stmt) -> Stmt:
        made: Stmt = stmt.map_children(self.visit)
        return made

    def visit(self, node: Any) -> Any:
        """A part of a statement or expression, where its low bits are all that is read of it."""
        if isinstance(node, Stmt):
            return self.statement(node)
        if isinstance(node, Region):
            return node.map_children(self.visit)
        if not isinstance(node, Expr):
            return node
        if node not in self._low:
            self._low[node] = self.low(node)
        return self._low[node]

    def low(self, value: Expr) -> Expr:
        match value:
            case Cast(inner, dtype) if _is_narrow(inner.dtype):
                return cast(self.exact(inner), dtype)
            case Binary(op, a, b) if op in ir.COMPARISONS and not (self.fits(a) and self.fits(b)):
                return Binary(op, self.wide(a), self.wide(b), value.dtype)
            case Binary(op) | Unary(op) if not self.fits(value) and op not in _LOW:
                return cast(self.exact(value), value.dtype)
        made: Expr = value.map_children(self.visit)
        return made

    def exact(self, value: Expr) -> Expr:
        """The value in 32 bits, or in its own where those hold it."""
        if self.fits(value):
            made: Expr = self.visit(value)
            return made
        if value not in self._exact:
            match value:
                case Binary(op, a, b):
                    wide: Expr = Binary(op, self.wide(a), self.wide(b), INT32)
                case Unary(op, a):
                    wide = Unary(op, self.wide(a), INT32)
                case Select(cond, then, other, lazy):
                    then, other = self.wide(then), self.wide(other)
                    wide = Select(self.visit(cond), then, other, lazy, INT32)
                case _:
                    wide = value
            self._exact[value] = wide
        return self._exact[value]

    def wide(self, value: Expr) -> Expr:
        return cast(self.exact(value), INT32)
