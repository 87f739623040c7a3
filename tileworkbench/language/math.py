"""Scalar arithmetic, math functions, selection and casts.

Operands are values of the kernel or Python numbers; on Python numbers alone the integer functions
fold to Python numbers. Mixed operands are promoted. A function of one float argument keeps its
dtype (16-bit floats are computed in float32 and rounded); integers are computed in float32.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.dtypes import is_dtype, to_dtype
from tileworkbench.compiler.frontend.values import (
    Value,
    arithmetic,
    condition,
    deeper,
    is_number,
    pair,
    power,
    select,
    to_value,
    unary,
)
from tileworkbench.compiler.frontend.vectors import VectorValue, lanewise, regroup
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.types import promote


def _numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _has_vector(*operands: Any) -> bool:
    return any(isinstance(operand, VectorValue) for operand in operands)


def _binary(op: str, a: Any, b: Any) -> Any:
    if _has_vector(a, b):
        return lanewise(lambda x, y: to_value(_binary(op, x, y)).expr, a, b)
    if is_number(a) and is_number(b):
        return arithmetic(op, to_value(a), b)
    return arithmetic(op, a, b)


def _call(name: str, *operands: Any) -> Any:
    """A math function of one operand, or of several brought to one type; lane by lane."""
    if _has_vector(*operands):
        return lanewise(lambda *lanes: _call(name, *lanes).expr, *operands)
    values = [to_value(operand) for operand in operands]
    partner = next(
        (v.expr.dtype for v, o in zip(values, operands, strict=True) if not is_number(o)), None
    )
    values = [to_value(operand, partner) for operand in operands]
    binding = None
    for value in values:
        binding = deeper(binding, value.binding)
    return Value(build.call(name, *(value.expr for value in values)), binding)


# Integer division ---------------------------------------------------------------------------------
# -------------------


def ceildiv(a: Any, b: Any) -> Any:
    """`a / b` rounded up, for positive `b`.

    >>> N[i] = T.ceildiv(N[i], 3)
    """
    if _numbers(a, b):
        return -(-a // b)
    left, right = pair(a, b)
    return Value(build.ceildiv(left.expr, right.expr), deeper(left.binding, right.binding))


cdiv = ceildiv


def floordiv(a: Any, b: Any) -> Any:
    """`a / b` rounded toward minus infinity: Python's `//`.

    >>> N[i] = T.floordiv(N[i], 3)
    """
    return a // b if _numbers(a, b) else arithmetic("floordiv", a, b)


def floormod(a: Any, b: Any) -> Any:
    """`a - b * floordiv(a, b)`: Python's `%`.

    >>> N[i] = T.floormod(N[i], 3)
    """
    return a % b if _numbers(a, b) else arithmetic("floormod", a, b)


def truncdiv(a: Any, b: Any) -> Any:
    """`a / b` rounded toward zero: C's `/`.

    >>> N[i] = T.truncdiv(N[i], 3)
    """
    return _number_of(_binary("truncdiv", a, b), a, b)


def truncmod(a: Any, b: Any) -> Any:
    """`a - b * truncdiv(a, b)`: C's `%`.

    >>> N[i] = T.truncmod(N[i], 3)
    """
    return _number_of(_binary("truncmod", a, b), a, b)


def _number_of(value: Any, *operands: Any) -> Any:
    """A Python integer when every operand was one."""
    return int(value) if _numbers(*operands) else value


def align_up(a: Any, b: Any) -> Any:
    """The least multiple of `b` that is not less than `a`.

    >>> N[i] = T.align_up(N[i], 16)
    """
    return ceildiv(a, b) * b


# Choice -------------------------------------------------------------------------------------------
# -------------------


def if_then_else(cond: Any, then: Any, other: Any) -> Any:
    """`then` where `cond` holds, else `other`; only the chosen one is evaluated.

    >>> B[i] = T.if_then_else(A[i] > 0, A[i], T.exp(A[i]) - 1)
    """
    if isinstance(cond, bool):
        return then if cond else other
    return select(cond, then, other, lazy=True)


def Select(cond: Any, then: Any, other: Any) -> Any:
    """`then` where `cond` holds, else `other`; both are evaluated.

    >>> B[i] = T.Select(A[i] > 0, A[i], 0)
    """
    return select(cond, then, other, lazy=False)


def max(a: Any, b: Any) -> Any:
    """The larger operand: of a NaN and a number, the number; of two zeros, +0.

    >>> B[i] = T.max(A[i], 0)
    """
    if _numbers(a, b):
        return build.larger(a, b)
    return _binary("max", a, b)


def min(a: Any, b: Any) -> Any:
    """The smaller operand: of a NaN and a number, the number; of two zeros, -0.

    >>> B[i] = T.min(A[i], 1)
    """
    if _numbers(a, b):
        return build.smaller(a, b)
    return _binary("min", a, b)


def max_nan(a: Any, b: Any) -> Any:
    """The larger operand of two floats; NaN where either is one."""
    return _call("max_nan", a, b)


def min_nan(a: Any, b: Any) -> Any:
    """The smaller operand of two floats; NaN where either is one."""
    return _call("min_nan", a, b)


def clamp(value: Any, min_val: Any, max_val: Any) -> Any:
    """`value` limited to [min_val, max_val]; NaN stays NaN.

    >>> B[i] = T.clamp(A[i], 0, 1)
    """
    operands = (value, min_val, max_val)
    if not _numbers(*operands) and any(to_value(o).expr.dtype.is_float for o in operands):
        return min_nan(max_nan(value, min_val), max_val)
    return min(max(value, min_val), max_val)


def abs(value: Any) -> Any:
    """The absolute value.

    >>> B[i] = T.abs(A[i])
    """
    if _has_vector(value):
        return lanewise(lambda lane: abs(lane).expr, value)
    return (value if value >= 0 else -value) if _numbers(value) else unary("abs", value)


def likely(cond: Any) -> Any:
    """`cond`, with a hint that it usually holds.

    >>> if T.likely(A[i] > 0):
    ...     B[i] = A[i]
    """
    return cond


# Math functions -----------------------------------------------------------------------------------
# -------------------


def _function(name: str, what: str) -> Callable[[Any], Any]:
    def function(value: Any) -> Any:
        return _call(name, value)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{what}.\n\n>>> {'N' if name.startswith('is') else 'B'}[i] = T.{name}(A[i])"
    return function


exp = _function("exp", "e to the power of the operand")
exp2 = _function("exp2", "2 to the power of the operand")
exp10 = _function("exp10", "10 to the power of the operand")
log = _function("log", "The natural logarithm")
log2 = _function("log2", "The logarithm to base 2")
log10 = _function("log10", "The logarithm to base 10")
log1p = _function("log1p", "The natural logarithm of 1 plus the operand")
sqrt = _function("sqrt", "The square root")
rsqrt = _function("rsqrt", "1 over the square root")
sin = _function("sin", "The sine of an angle in radians")
cos = _function("cos", "The cosine of an angle in radians")
tan = _function("tan", "The tangent of an angle in radians")
sinh = _function("sinh", "The hyperbolic sine")
cosh = _function("cosh", "The hyperbolic cosine")
tanh = _function("tanh", "The hyperbolic tangent")
atan = _function("atan", "The arc tangent in radians")
erf = _function("erf", "The error function")
sigmoid = _function("sigmoid", "1 / (1 + exp(-x))")
floor = _function("floor", "The largest integer that is not larger, as a float")
ceil = _function("ceil", "The least integer that is not less, as a float")
trunc = _function("trunc", "The integer part, as a float")
nearbyint = _function("nearbyint", "The nearest integer as a float, ties to even")
isnan = _function("isnan", "Whether the operand is NaN; a bool")
isinf = _function("isinf", "Whether the operand is infinite; a bool")


def isfinite(value: Any) -> Value:
    """Whether the operand is neither NaN nor infinite; a bool.

    >>> B[i] = T.if_then_else(T.isfinite(A[i]), A[i], 0)
    """
    made = to_value(value)
    finite = [build.unary("not", build.call(name, made.expr)) for name in ("isnan", "isinf")]
    return Value(build.logical("logical_and", *finite), made.binding)


_ROUNDINGS = {
    **dict.fromkeys(("ties-to-even", "ties_even", "rn"), "nearbyint"),
    **dict.fromkeys(("ties-away-from-zero", "ties_away"), "round"),
}


def round(value: Any, rounding_mode: str = "ties-to-even") -> Any:
    """The nearest integer as a float; a tie goes to the even one, or with "ties-away-from-zero" to
    the one that is farther from zero.

    Raises `TileValueError` for another mode.

    >>> B[i] = T.round(A[i])
    """
    name = _ROUNDINGS.get(rounding_mode) if isinstance(rounding_mode, str) else None
    if name is None:
        raise TileValueError(
            f"{rounding_mode!r} is not a mode of T.round",
            hint="use 'ties-to-even' or 'ties-away-from-zero'",
        )
    return _call(name, value)


def pow(base: Any, exponent: Any) -> Any:
    """`base ** exponent`: by multiplication for a small constant integer exponent.

    >>> B[i] = T.pow(A[i], 3)
    """
    return power(base, exponent)


def fmod(a: Any, b: Any) -> Any:
    """The remainder of `a / b` with the sign of `a`, for floats.

    >>> B[i] = T.fmod(A[i], 0.5)
    """
    made = _binary("fmod", a, b)
    if not made.expr.dtype.is_float:
        raise TileTypeError("T.fmod needs floats", hint="use '%' or T.truncmod for integers")
    return made


def copysign(magnitude: Any, sign: Any) -> Any:
    """The absolute value of `magnitude` with the sign bit of `sign`, for floats of 16, 32 or 64
    bits; Python numbers take the dtype of the other side.

    Raises `TileTypeError` for other dtypes.

    >>> B[i] = T.copysign(1.0, A[i])
    """
    left, right = pair(magnitude, sign)
    dtype = promote(left.expr.dtype, right.expr.dtype)
    if not dtype.is_float or dtype.bits < 16:
        raise TileTypeError(f"T.copysign needs floats of at least 16 bits, not '{dtype}'")
    word = to_dtype(f"uint{dtype.bits}")
    top = build.const(1 << (dtype.bits - 1), word)
    bits = [ir.Reinterpret(build.cast(side.expr, dtype), word) for side in (left, right)]
    kept = build.binary("and", bits[0], build.unary("bitnot", top))
    made = build.binary("or", kept, build.binary("and", bits[1], top))
    return Value(ir.Reinterpret(made, dtype), deeper(left.binding, right.binding))


def fast_rcp(value: Any) -> Any:
    """1 over a float, where a target may use a faster approximation.

    Raises `TileTypeError` for an operand that is no float.

    >>> B[i] = T.fast_rcp(A[i])
    """
    if not to_value(value).expr.dtype.is_float:
        raise TileTypeError("'T.fast_rcp' needs a float", hint="cast the operand")
    return arithmetic("div", 1, value)


def fma(a: Any, b: Any, c: Any) -> Any:
    """`a * b + c`, rounded once.

    >>> B[i] = T.fma(A[i], 2.0, B[i])
    """
    return _call("fma", a, b, c)


def popcount(value: Any) -> Any:
    """The number of set bits of an integer.

    >>> N[i] = T.popcount(N[i])
    """
    return _call("popcount", value)


def _fast(name: str, function: Callable[[Any], Value]) -> Callable[[Any], Value]:
    def fast(value: Any) -> Value:
        if not to_value(value).expr.dtype.is_float:
            raise TileTypeError(
                f"'T.{name}' needs a float", hint=f"use T.{function.__name__}, or cast the operand"
            )
        return function(value)

    fast.__name__ = fast.__qualname__ = name
    fast.__doc__ = (
        f"`{function.__name__}` of a float, where a target may use a faster approximation.\n\n"
        f">>> B[i] = T.{name}(A[i])"
    )
    return fast


FAST_FUNCTIONS = {
    f"__{function.__name__}": _fast(f"__{function.__name__}", function)
    for function in (exp, exp10, log, log2, log10, sin, cos, tan)
}


# Bits and logic -----------------------------------------------------------------------------------
# -------------------


def bitwise_and(a: Any, b: Any) -> Any:
    """`a & b`

    >>> N[i] = T.bitwise_and(N[i], 15)
    """
    return _number_of(_binary("and", a, b), a, b)


def bitwise_or(a: Any, b: Any) -> Any:
    """`a | b`

    >>> N[i] = T.bitwise_or(N[i], 1)
    """
    return _number_of(_binary("or", a, b), a, b)


def bitwise_xor(a: Any, b: Any) -> Any:
    """`a ^ b`

    >>> N[i] = T.bitwise_xor(N[i], 255)
    """
    return _number_of(_binary("xor", a, b), a, b)


def bitwise_not(a: Any) -> Any:
    """`~a`

    >>> N[i] = T.bitwise_not(N[i])
    """
    return ~a


def shift_left(a: Any, b: Any) -> Any:
    """`a << b`

    >>> N[i] = T.shift_left(N[i], 2)
    """
    return _number_of(_binary("shl", a, b), a, b)


def shift_right(a: Any, b: Any) -> Any:
    """`a >> b`, keeping the sign of a signed `a`.

    >>> N[i] = T.shift_right(N[i], 2)
    """
    return _number_of(_binary("shr", a, b), a, b)


def _logical(op: str, operands: tuple[Any, ...]) -> Any:
    if all(isinstance(operand, bool) for operand in operands):
        return all(operands) if op == "logical_and" else any(operands)
    result = condition(operands[0], "an operand of T.And and T.Or")
    for operand in operands[1:]:
        right = condition(operand, "an operand of T.And and T.Or")
        result = Value(
            build.logical(op, result.expr, right.expr), deeper(result.binding, right.binding)
        )
    return result


def And(first: Any, *others: Any) -> Any:
    """All of the conditions hold.

    >>> if T.And(A[i] > 0, A[i] < 1):
    ...     B[i] = A[i]
    """
    return _logical("logical_and", (first, *others))


def Or(first: Any, *others: Any) -> Any:
    """One of the conditions holds.

    >>> if T.Or(A[i] < 0, A[i] > 1):
    ...     B[i] = A[i]
    """
    return _logical("logical_or", (first, *others))


def Not(cond: Any) -> Any:
    """The condition does not hold.

    >>> if T.Not(A[i] > 0):
    ...     B[i] = 0
    """
    return (
        not cond
        if isinstance(cond, bool)
        else unary("not", condition(cond, "the operand of T.Not"))
    )


# Casts and limits ---------------------------------------------------------------------------------
# -------------------


def reinterpret(value: Any, dtype: Any) -> Any:
    """The bits of `value`, a scalar or a vector, as a `dtype` of the same width.

    Raises `TileTypeError` when the widths differ.

    >>> N[i] = T.reinterpret(A[i], T.int32)
    """
    if is_dtype(value) and not is_dtype(dtype):
        value, dtype = dtype, value  # an older order of the arguments
    if _has_vector(value) or to_dtype(dtype).lanes > 1:
        return regroup(value if _has_vector(value) else to_value(value), to_dtype(dtype))
    made, target = to_value(value), to_dtype(dtype)
    source = made.expr.dtype
    if source.bits * source.lanes != target.bits * target.lanes or target.is_bool or source.is_bool:
        raise TileTypeError(
            f"T.reinterpret cannot read the bits of '{source}' as '{target}'",
            hint="both need the same width",
        )
    return made if source == target else Value(ir.Reinterpret(made.expr, target), made.binding)


def infinity(dtype: Any) -> Value:
    """Positive infinity of a float dtype. Raises `TileTypeError` for a type without it.

    >>> B[i] = T.min(A[i], T.infinity(T.float32))
    """
    kind = to_dtype(dtype)
    if not kind.is_float or (kind.bits <= 8 and kind != "float8_e5m2"):
        raise TileTypeError(f"'{kind}' has no infinity", hint=f"use T.max_value('{kind}')")
    return Value(build.const(_math.inf, kind))


def max_value(dtype: Any) -> Value:
    """The largest finite value of a dtype.

    >>> N[i] = T.max_value(T.int32)
    """
    kind = to_dtype(dtype)
    return Value(build.const(kind.max_value, kind))


def min_value(dtype: Any) -> Value:
    """The least finite value of a dtype.

    >>> N[i] = T.min_value(T.int32)
    """
    kind = to_dtype(dtype)
    return Value(build.const(kind.min_value, kind))
