"""The value of a scalar expression on the host: grid extents, symbolic shapes, trip counts."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import FOLD, FOLD_UNARY, const
from tileworkbench.compiler.ir.expr import (
    AddressOf,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Reinterpret,
    Select,
    Unary,
    Var,
)
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.types import DType


def _round_away(value: float) -> float:
    """The nearest integer, ties away from zero."""
    whole = math.trunc(value)
    return whole + math.copysign(1, value) if abs(value - whole) >= 0.5 else whole


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    **FOLD,
    "div": operator.truediv,
    "fmod": math.fmod,
    "pow": operator.pow,
}
_UNARY: dict[str, Callable[[Any], Any]] = {**FOLD_UNARY, "not": operator.not_}
_CALLS: dict[str, Callable[..., Any]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": _round_away,
    "nearbyint": round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "exp2": lambda value: 2.0**value,
    "log": math.log,
    "log2": math.log2,
}
_FORMATS: dict[str, str] = {  # of struct, by dtype
    **{"int16": "h", "uint16": "H", "float16": "e"},
    **{"int32": "i", "uint32": "I", "float32": "f"},
}


WIDER = "declare its symbols with 64 bits, as in T.dynamic('n', 'int64')"
"""The hint of an error about a size that `exact_size` refuses."""

ASSUMPTION = "an assumption of the kernel (T.assume) does not hold"


def is_on_host(value: Expr, program: Program) -> bool:
    """Whether `value` follows from the arguments of a call: integers and extents."""
    scalars = {param.value for param in program.params if isinstance(param.value, Var)}
    known = {*program.symbols, *(var for var in scalars if not var.dtype.is_float)}
    return all(
        node in known if isinstance(node, Var) else not isinstance(node, Load | AddressOf)
        for node in walk(value)
    )


Number = int | float | bool


class WrappedSizeError(OverflowError):
    """A size is `number`, which `dtype` does not hold."""

    def __init__(self, number: Number, dtype: DType) -> None:
        super().__init__(f"{number} is no '{dtype}'")
        self.number, self.dtype = number, dtype


def exact_size(value: Expr, env: Mapping[str, Number]) -> int:
    """An extent, stride or other size with the variables of `env`, which must not wrap around.

    Raises `WrappedSizeError`, and as `evaluate`.
    """
    return int(_Evaluation(env, exact=True)(value))


def evaluate(value: Expr, env: Mapping[str, Number]) -> Number:
    """`value` with the variables of `env`, by name; integers wrap and floats round to their dtype.

    Raises `KeyError` for a variable that `env` lacks, `ValueError` for an expression that has no
    value on the host (a load), and `ZeroDivisionError`.
    """
    return _Evaluation(env)(value)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    env: Mapping[str, Number]
    exact: bool = False

    def __call__(self, value: Expr) -> Number:
        match value:
            case Const():
                return value.value
            case Var(name):
                return self.env[name]
            case Binary("logical_and", a, b):
                return bool(self(a)) and bool(self(b))
            case Binary("logical_or", a, b):
                return bool(self(a)) or bool(self(b))
            case Binary(op, a, b, dtype):
                return self.rounded(_BINARY[op](self(a), self(b)), dtype)
            case Unary(op, a, dtype):
                return self.rounded(_UNARY[op](self(a)), dtype)
            case Select(cond, then, other):
                return self(then if self(cond) else other)
            case Cast(inner, dtype):
                number = self(inner)
                return const(int(number) if dtype.is_int else number, dtype).value
            case Reinterpret(inner, dtype) if {inner.dtype, dtype} <= _FORMATS.keys():
                bits = struct.pack(_FORMATS[inner.dtype], self(inner))
                return const(struct.unpack(_FORMATS[dtype], bits)[0], dtype).value
            case Call(name, args, dtype) if name in _CALLS:
                return const(_CALLS[name](*map(self, args)), dtype).value
        raise ValueError(f"a '{type(value).__name__}' has no value on the host")

    def rounded(self, number: Number, dtype: DType) -> Number:
        made = const(number, dtype).value
        if self.exact and dtype.is_int and made != number:
            raise WrappedSizeError(number, dtype)
        return made
