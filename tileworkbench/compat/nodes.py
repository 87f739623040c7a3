"""Classes of TVM's IR by name, for scripts that ask what a value is (`isinstance(x, T.PrimExpr)`)
or write an operation as its node (`tirx.FloorMod(a, b)`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tileworkbench.language as language
from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend.function import PrimFunc
from tileworkbench.compiler.frontend.tensors import RegionValue, TensorValue
from tileworkbench.compiler.frontend.values import (
    Operators,
    Value,
    arithmetic,
    deeper,
    to_value,
)
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.rewrite import substitute
from tileworkbench.compiler.ir.types import DType


class NodeClass(type):
    """A class whose instances are the values that `matches` accepts; a call gives `make(...)`."""

    matches: Callable[[Any], bool]
    make: Callable[..., Any]

    def __instancecheck__(cls, value: Any) -> bool:
        return cls.matches(value)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.make(*args, **kwargs)


def _node(
    name: str, matches: Callable[[Any], bool], make: Callable[..., Any], *bases: type
) -> NodeClass:
    members = {"matches": staticmethod(matches), "make": staticmethod(make)}
    return NodeClass(name, bases, members | {"__module__": __name__})


def _expression(kind: type[ir.Expr], op: str = "") -> Callable[[Any], bool]:
    def matches(value: Any) -> bool:
        made = value.expr if isinstance(value, Value) else None
        return isinstance(made, kind) and getattr(made, "op", "") in (op, "")

    return matches


def _number(floating: bool) -> Callable[[Any], bool]:
    def matches(value: Any) -> bool:
        made = value.expr if isinstance(value, Value) else None
        return isinstance(made, ir.Const) and made.dtype.is_float == floating

    return matches


def constant(value: Any, dtype: Any = None) -> Any:
    """`tirx.const`: a literal of that dtype, of the number's own by default."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else type(value)
    return language.dtype(dtype)(value)


def _imm(dtype: Any, value: Any, span: Any = None) -> Any:
    return constant(value, dtype)


def _variable(name: str = "v", dtype: Any = "int32", span: Any = None) -> Any:
    return Value(ir.Var(name, DType(dtype)))


def bound(var: Any, value: Any, body: Any, span: Any = None) -> Any:
    """`tirx.Let`: `body` with `value` in the place of the variable `var`. Equal parts of a
    statement are computed once.
    """
    inner, made = to_value(body), to_value(value)
    name = to_value(var).expr
    if not isinstance(name, ir.Var):
        raise TileTypeError("tirx.Let takes a variable of tirx.Var first")
    changed = substitute(inner.expr, {name: made.expr})
    return Value(changed, deeper(inner.binding, made.binding))


class Op(str):
    """`tvm.ir.Op`: an intrinsic by its name, for `T.call_intrin`."""

    __slots__ = ()

    @classmethod
    def get(cls, name: str) -> Op:
        """The intrinsic of that name."""
        return cls(name)

    @property
    def name(self) -> str:
        return str(self)


def _binary(op: str) -> NodeClass:
    name = _BINARY[op]
    return _node(name, _expression(ir.Binary, op), lambda a, b, span=None: arithmetic(op, a, b))


_BINARY = {
    **{"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "truncmod": "Mod"},
    **{"floordiv": "FloorDiv", "floormod": "FloorMod", "min": "Min", "max": "Max"},
    **{"eq": "EQ", "ne": "NE", "lt": "LT", "le": "LE", "gt": "GT", "ge": "GE"},
}
Var = _node("Var", _expression(ir.Var), _variable, language.Var)
NODES: dict[str, Any] = {
    "PrimExpr": Operators,
    "Var": Var,
    "SizeVar": Var,
    "IntImm": _node("IntImm", _number(False), _imm),
    "FloatImm": _node("FloatImm", _number(True), _imm),
    "StringImm": str,
    "Let": _node("Let", lambda value: False, bound),
    "Buffer": TensorValue,
    "BufferRegion": RegionValue,
    "BufferLoad": _node("BufferLoad", _expression(ir.Load), lambda buffer, at: buffer[at]),
    "PrimFunc": PrimFunc,
    "Cast": _node("Cast", _expression(ir.Cast), language.Cast),
    "Select": _node("Select", _expression(ir.Select), language.Select),
    "And": _node("And", _expression(ir.Binary, "logical_and"), language.And),
    "Or": _node("Or", _expression(ir.Binary, "logical_or"), language.Or),
    "Not": _node("Not", _expression(ir.Unary, "not"), language.Not),
    **{name: _binary(op) for op, name in _BINARY.items()},
}
