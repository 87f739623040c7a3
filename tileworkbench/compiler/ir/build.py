"""Smart constructors: they promote operands, fold constants and drop neutral elements, and always
return typed nodes.

Errors are plain `TypeError`, `ValueError` or `ZeroDivisionError` with the message a user should
see; the front end adds the place.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.expr import Binary, Const, Expr, Select, Unary
from tileworkbench.compiler.ir.types import (
    BOOL,
    FLOAT32,
    INT32,
    INT64,
    UINT32,
    UINT64,
    DType,
    promote,
)


def round_to(value: float, dtype: DType) -> float:
    """`value` rounded to the nearest value of a float dtype (ties to even), infinite when it
    overflows; floats of 8 bits and less saturate, and those without a NaN give their largest value
    for it."""
    name = str(dtype.scalar)
    if dtype.bits <= 8:
        return _round_to_small(value, dtype)
    if name == "float64" or math.isnan(value) or math.isinf(value):
        return float(value)
    if name in ("float32", "tfloat32"):
        return _pack_round(value, "f")
    if name == "float16":
        return _pack_round(value, "e")
    import ml_dtypes
    import numpy as np

    return float(np.float32(_to_odd(value)).astype(getattr(ml_dtypes, name)))


def _to_odd(value: float) -> float:
    """`value` in float32 with the last bit set unless exact, so that rounding again is rounding
    once."""
    nearest = _pack_round(value, "f")
    if nearest == value:
        return value
    bits = struct.unpack("I", struct.pack("f", nearest))[0] - (abs(nearest) > abs(value)) | 1
    return float(struct.unpack("f", struct.pack("I", bits))[0])


def _round_to_small(value: float, dtype: DType) -> float:
    import ml_dtypes
    import numpy as np

    limit = float(dtype.max_value)
    if math.isnan(value):
        return limit if dtype.bits < 8 else value
    value = min(max(value, -limit), limit)
    if dtype.scalar == "float8_e8m0fnu":
        return _round_to_scale(value)
    return float(np.float32(_to_odd(value)).astype(getattr(ml_dtypes, str(dtype.scalar))))


def _round_to_scale(value: float) -> float:
    """The power of two nearest to the magnitude of `value`, ties upwards, from 2 ** -127 to
    2 ** 127: what a scale factor can be.
    """
    fraction, exponent = math.frexp(abs(value))
    nearest = exponent if fraction >= 0.75 else exponent - 1
    return 2.0 ** min(max(nearest, -127), 127) if value else 2.0**-127


def _pack_round(value: float, code: str) -> float:
    try:
        return float(struct.unpack(code, struct.pack(code, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def const(value: bool | int | float, dtype: DType | str) -> Const:
    """`value` as a literal of `dtype`: integers wrap, floats round, and are truncated and saturated
    to an integer. Raises `ValueError` for NaN or infinity as an integer."""
    dtype = DType(dtype)
    if dtype.is_float:
        return Const(round_to(float(value), dtype), dtype)
    if dtype.is_bool:
        return Const(bool(value), dtype)
    if dtype.kind == "handle":
        return Const(int(value) & 0xFFFFFFFFFFFFFFFF, dtype)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} has no value in '{dtype}'")
    if isinstance(value, float):
        value = min(max(math.trunc(value), dtype.min_value), dtype.max_value)
    return Const(_wrap(int(value), dtype), dtype)


def _wrap(value: int, dtype: DType) -> int:
    value &= (1 << dtype.bits) - 1
    if dtype.kind == "int" and value >> (dtype.bits - 1):
        value -= 1 << dtype.bits
    return value


def python_scalar(value: bool | int | float) -> Const:
    """A Python number as the language types it: bool, int32 (int64 when it does not fit), float32.

    Raises `ValueError` for an integer of more than 64 bits.
    """
    if isinstance(value, bool):
        return const(value, BOOL)
    return _integer(value) if isinstance(value, int) else const(value, FLOAT32)


@lru_cache(maxsize=4096)
def _integer(value: int) -> Const:
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"{value} has no value in 'int64'")
    return const(value, INT32 if -(1 << 31) <= value < 1 << 31 else INT64)


def all_lanes(lanes: int) -> Const:
    """The mask of a warp's threads."""
    return const((1 << lanes) - 1, UINT32 if lanes <= 32 else UINT64)


def int_const(value: int) -> Const:
    """An index literal (int32, or int64 when it does not fit)."""
    return python_scalar(int(value))


TRUE = const(True, BOOL)
FALSE = const(False, BOOL)


def cast(value: Expr, dtype: DType | str) -> Expr:
    """`value` converted to `dtype` (lanes kept); itself when it has it already."""
    dtype = DType(dtype).scalar.with_lanes(value.dtype.lanes)
    if value.dtype == dtype:
        return value
    if isinstance(value, Const):
        if dtype.is_int and isinstance(value.value, float) and not math.isfinite(value.value):
            return ir.Cast(value, dtype)
        return const(value.value, dtype)
    return ir.Cast(value, dtype)


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def larger(a: Any, b: Any) -> Any:
    """The maximum of two numbers: NaN gives way to a number, and +0 is greater than -0."""
    if a == b:
        return a if math.copysign(1, a) > 0 else b
    return b if a != a else a if b != b or a > b else b


def smaller(a: Any, b: Any) -> Any:
    """The minimum of two numbers: NaN gives way to a number, and -0 is less than +0."""
    if a == b:
        return a if math.copysign(1, a) < 0 else b
    return b if a != a else a if b != b or a < b else b


FOLD: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "min": smaller,
    "max": larger,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _truncdiv,
    "truncmod": lambda a, b: a - b * _truncdiv(a, b),
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
FOLD_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "bitnot": operator.invert,
    "abs": abs,
}
_SYMBOL = {"shl": "<<", "shr": ">>", "and": "&", "or": "|", "xor": "^"}
_OF_BITS = {"add": "or", "sub": "xor", "mul": "and"}  # what is not zero is true
_ZERO_DIVISOR = ("floordiv", "floormod", "truncdiv", "truncmod")


def binary(op: str, a: Expr, b: Expr) -> Expr:
    """`a op b` in the promoted dtype. Raises `TypeError` for operand types the operation does not
    have."""
    if op in ir.LOGICAL:
        return logical(op, a, b)
    dtype = _operand_dtype(op, a, b)
    if dtype.is_bool:
        op = _OF_BITS.get(op, op)
    a, b = cast(a, dtype), cast(b, dtype)
    if a.dtype.lanes != b.dtype.lanes:
        a, b = _broadcast(a, dtype.lanes), _broadcast(b, dtype.lanes)
    result = BOOL.with_lanes(dtype.lanes) if op in ir.COMPARISONS else dtype
    folded = _fold(op, a, b, result)
    return folded if folded is not None else Binary(op, a, b, result)


def _broadcast(value: Expr, lanes: int) -> Expr:
    return value if value.dtype.lanes == lanes else ir.Broadcast(value, lanes)


def _operand_dtype(op: str, a: Expr, b: Expr) -> DType:
    if op in ("shl", "shr"):
        if not (a.dtype.is_int and b.dtype.is_int):
            raise TypeError(f"'{_SYMBOL[op]}' needs integers, got '{a.dtype}' and '{b.dtype}'")
        return a.dtype
    dtype = promote(a.dtype, b.dtype)
    if op == "div" and not dtype.is_float:
        raise TypeError(
            f"'/' between '{a.dtype}' and '{b.dtype}' is ambiguous; use '//' or T.truncdiv, or cast"
        )
    if op in ("floordiv", "floormod", "truncdiv", "truncmod") and not dtype.is_int:
        shown = {"floordiv": "//", "floormod": "%"}.get(op, f"T.{op}")
        raise TypeError(
            f"'{shown}' needs integers, got '{a.dtype}' and '{b.dtype}'; use T.floor or T.fmod"
        )
    if op in ("and", "or", "xor") and not (dtype.is_int or dtype.is_bool):
        raise TypeError(f"'{_SYMBOL[op]}' needs integers, got '{a.dtype}' and '{b.dtype}'")
    return dtype


def fold_constants(op: str, a: Expr, b: Expr, result: DType) -> Expr | None:
    """An operation on two constants is their result.

    Raises `ZeroDivisionError`.
    """
    if not (isinstance(a, Const) and isinstance(b, Const) and op in FOLD):
        return None
    dtype = a.dtype
    if op in _ZERO_DIVISOR and b.value == 0:
        raise ZeroDivisionError("division by zero")
    if op in ("shl", "shr") and not 0 <= b.value < dtype.bits:
        return None
    if dtype.is_float and op in ("min", "max"):  # NaN order is the run time's business
        return None
    return const(FOLD[op](a.value, b.value), result)


def drop_neutral(op: str, a: Expr, b: Expr, result: DType) -> Expr | None:
    """`x + 0`, `x * 1`, `x // 1` and their like are `x`."""
    left, right = _NEUTRAL[op]
    if left is not None and isinstance(a, Const) and a.value == left:
        return b
    return a if isinstance(b, Const) and b.value == right else None


def absorb(op: str, a: Expr, b: Expr, result: DType) -> Expr | None:
    """`x * 0` and `x % 1` are 0."""
    left, right = _ABSORBING[op]
    zero = isinstance(b, Const) and b.value == right
    if left is not None:
        zero = zero or (isinstance(a, Const) and a.value == left)
    return const(0, result) if zero else None


def merge_equal(op: str, a: Expr, b: Expr, result: DType) -> Expr | None:
    """`x - x` is 0, `min(x, x)` is `x`, and `x <= x` is true."""
    if a is not b:
        return None
    if op in ("sub", "xor"):
        return const(0, result)
    return const(op in ("eq", "le", "ge"), result) if op in ir.COMPARISONS else a


# What the left and the right operand are for the other to be the result, or for zero to be it.
_NEUTRAL: dict[str, tuple[int | None, int]] = {
    **dict.fromkeys(("add", "or", "xor"), (0, 0)),
    **dict.fromkeys(("sub", "shl", "shr"), (None, 0)),
    **dict.fromkeys(("floordiv", "truncdiv"), (None, 1)),
    "mul": (1, 1),
}
_ABSORBING: dict[str, tuple[int | None, int]] = {
    **dict.fromkeys(("floormod", "truncmod"), (None, 1)),
    "mul": (0, 0),
}
_IDEMPOTENT = ("sub", "xor", "min", "max", "and", "or", *ir.COMPARISONS)

Fold = Callable[[str, Expr, Expr, DType], Expr | None]
FOLDS: dict[str, tuple[Fold, ...]] = {
    op: (
        fold_constants,
        *((drop_neutral,) if op in _NEUTRAL else ()),
        *((absorb,) if op in _ABSORBING else ()),
        *((merge_equal,) if op in _IDEMPOTENT else ()),
    )
    for op in FOLD
}
"""What is folded of each operation: `(op, a, b, result dtype)` to a simpler form or None."""


def folds(op: str, dtype: DType) -> tuple[Fold, ...]:
    """What is folded of `op` on two values of `dtype`: of floats constants only."""
    tried = FOLDS.get(op, ())
    return tried[:1] if dtype.is_float else tried


def _fold(op: str, a: Expr, b: Expr, result: DType) -> Expr | None:
    if not (isinstance(a, Const) or isinstance(b, Const) or a is b):
        return None
    for fold in folds(op, a.dtype):
        made = fold(op, a, b, result)
        if made is not None:
            return made
    return None


def _require_condition(value: Expr) -> None:
    if not ir.is_bool(value):
        raise TypeError(f"a condition must be 'bool', got '{value.dtype}'; compare it with 0")


def logical(op: str, a: Expr, b: Expr) -> Expr:
    """Lazy `logical_and` or `logical_or` of two conditions."""
    for side in (a, b):
        _require_condition(side)
    absorbing = op == "logical_or"
    for side, other in ((a, b), (b, a)):
        if isinstance(side, Const):
            if bool(side.value) == absorbing and side is a:
                return side
            if bool(side.value) != absorbing:
                return other
    if a is b:
        return a
    return Binary(op, a, b, BOOL.with_lanes(max(a.dtype.lanes, b.dtype.lanes)))


def conjunction(conditions: list[Expr]) -> Expr | None:
    """All of `conditions`; None when nothing is left to check."""
    result: Expr = TRUE
    for condition in conditions:
        result = logical("logical_and", result, condition)
    return None if result is TRUE else result


def unary(op: str, a: Expr) -> Expr:
    """`neg`, `not`, `bitnot` or `abs` of `a`. Raises `TypeError` for a dtype it does not have."""
    if op == "not":
        _require_condition(a)
        if isinstance(a, Const):
            return const(not a.value, BOOL)
        if isinstance(a, Unary) and a.op == "not":
            return a.a
        return Unary(op, a, a.dtype)
    if op == "neg" and a.dtype.kind == "uint":
        raise TypeError(f"unary minus of unsigned '{a.dtype}'; cast it first")
    if op == "bitnot" and not (a.dtype.is_int or a.dtype.is_bool):
        raise TypeError(f"'~' needs an integer, got '{a.dtype}'")
    if op == "bitnot" and a.dtype.is_bool:
        return unary("not", a)
    if op == "neg" and a.dtype.is_bool:
        a = cast(a, INT32)
    if isinstance(a, Const):
        return const(FOLD_UNARY[op](a.value), a.dtype)
    return Unary(op, a, a.dtype)


def select(cond: Expr, then: Expr, other: Expr, lazy: bool = True) -> Expr:
    """`then if cond else other`, branches promoted; a constant condition chooses at once."""
    _require_condition(cond)
    dtype = promote(then.dtype, other.dtype)
    then, other = cast(then, dtype), cast(other, dtype)
    if isinstance(cond, Const):
        return then if cond.value else other
    if then is other and lazy:
        return then
    lanes = max(dtype.lanes, cond.dtype.lanes)
    return Select(cond, then, other, lazy, dtype.with_lanes(lanes))


def call(name: str, *args: Expr) -> Expr:
    """A math intrinsic: the arguments' common dtype, integers computed in float32."""
    dtype = args[0].dtype
    for arg in args[1:]:
        dtype = promote(dtype, arg.dtype)
    if not dtype.is_float and name not in ("popcount", "philox"):
        dtype = FLOAT32.with_lanes(dtype.lanes)
    cast_args = tuple(cast(arg, dtype) for arg in args)
    if name.startswith("lanes_"):
        return ir.Call(name, cast_args, dtype.scalar)
    if name in ("isnan", "isinf"):
        return ir.Call(name, cast_args, BOOL.with_lanes(dtype.lanes))
    return ir.Call(name, cast_args, dtype)


def add(a: Expr, b: Expr) -> Expr:
    """`a + b`, with constants gathered on the right."""
    if isinstance(a, Const) and not isinstance(b, Const):
        a, b = b, a
    if isinstance(b, Const) and b.dtype.is_int and isinstance(a, Binary) and a.dtype == b.dtype:
        if a.op == "add" and isinstance(a.b, Const):
            return binary("add", a.a, binary("add", a.b, b))
        if a.op == "sub" and isinstance(a.b, Const):
            return binary("add", a.a, binary("sub", b, a.b))
    return binary("add", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    """`a - b`."""
    return binary("sub", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    """`a * b`."""
    return binary("mul", a, b)


def product(values: tuple[Expr, ...]) -> Expr:
    """The product of extents, 1 for none: an exact number, in 64 bits with symbols in it."""
    result: Expr = int_const(1)
    for value in values:
        a, b = const_int(result), const_int(value)
        if a is not None and b is not None:
            result = int_const(a * b)
        elif a == 1 or b == 1:
            result = value if a == 1 else result
        else:
            result = mul(cast(result, INT64), cast(value, INT64))
    return result


def ceildiv(a: Expr, b: Expr) -> Expr:
    """`-(-a // b)` for positive `b`."""
    if isinstance(a, Const) and isinstance(b, Const):
        return const(-(-a.value // b.value), promote(a.dtype, b.dtype))
    return binary("floordiv", add(a, sub(b, const(1, b.dtype))), b)


def const_int(value: Expr) -> int | None:
    """The Python int of an integer literal, else None."""
    return int(value.value) if isinstance(value, Const) and value.dtype.is_int else None


def is_zero(value: Expr | None) -> bool:
    """Whether it is the constant zero, which None stands for."""
    return value is None or (isinstance(value, Const) and not value.value)
