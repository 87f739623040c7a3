"""The value of a scalar expression on the host: grid extents, symbolic shapes, trip counts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from tileworkbench.compiler.ir.build import const
from tileworkbench.compiler.ir.expr import Binary, Call, Cast, Const, Expr, Select, Unary, Var


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
    "fmod": math.fmod,
    "pow": operator.pow,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "not": operator.not_,
    "bitnot": operator.invert,
    "abs": abs,
}
_CALLS: dict[str, Callable[..., Any]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "nearbyint": round,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "exp2": lambda value: 2.0**value,
    "log": math.log,
    "log2": math.log2,
}


def evaluate(value: Expr, env: Mapping[str, int | float | bool]) -> int | float | bool:
    """`value` with the variables of `env`, by name; integers wrap and floats round to their dtype.

    Raises `KeyError` for a variable that `env` lacks, `ValueError` for an expression that has no
    value on the host (a load), and `ZeroDivisionError`.
    """
    match value:
        case Const():
            return value.value
        case Var(name):
            return env[name]
        case Binary("logical_and", a, b):
            return bool(evaluate(a, env)) and bool(evaluate(b, env))
        case Binary("logical_or", a, b):
            return bool(evaluate(a, env)) or bool(evaluate(b, env))
        case Binary(op, a, b, dtype):
            return const(_BINARY[op](evaluate(a, env), evaluate(b, env)), dtype).value
        case Unary(op, a, dtype):
            return const(_UNARY[op](evaluate(a, env)), dtype).value
        case Select(cond, then, other):
            return evaluate(then if evaluate(cond, env) else other, env)
        case Cast(inner, dtype):
            found = evaluate(inner, env)
            return const(int(found) if dtype.is_int else found, dtype).value
        case Call(name, args, dtype) if name in _CALLS:
            return const(_CALLS[name](*(evaluate(arg, env) for arg in args)), dtype).value
    raise ValueError(f"a '{type(value).__name__}' has no value on the host")
