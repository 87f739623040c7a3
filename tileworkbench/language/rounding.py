"""Conversions and arithmetic with a chosen direction of rounding.

A result is computed rounded to nearest, then compared with the exact one, and moved to the
neighbouring number where the direction asks for it. Results of up to 32 bits are compared in
float64, in which products of two operands are exact and sums are a number and its error (Knuth,
The Art of Computer Programming, volume 2, section 4.2.2, theorem B).
"""

from __future__ import annotations

from collections.abc import Callable
from math import frexp
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError, UnsupportedError
from tileworkbench.compiler.frontend.dtypes import to_dtype
from tileworkbench.compiler.frontend.values import (
    Value,
    arithmetic,
    describe,
    fitting,
    is_number,
    pair,
    select,
    to_value,
    unary,
)
from tileworkbench.compiler.frontend.vectors import VectorValue, lanewise
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language import math

_ROUNDINGS = ("rn", "rz", "ru", "rd")
_CAST_ROUNDINGS = {"rn": "rn", "rz": "rz", "rp": "ru", "rm": "rd", "ru": "ru", "rd": "rd"}
_DOUBLE, _SCALE = DType("float64"), "float8_e8m0fnu"


# Casts --------------------------------------------------------------------------------------------


def cast(value: Any, dtype: Any, round: Any = None, sat: Any = None, rbits: Any = None) -> Any:
    """`value`, a scalar or a vector, converted to `dtype`: a float to an integer truncates toward
    zero, to a narrower float rounds to nearest even.

    `round` is "rn" (nearest even), "rz" (toward zero), "rp" or "rm" (toward plus or minus
    infinity), or "rs": stochastic, upwards where the bits that are lost, added to as many of
    `rbits`, carry. Floats of 8 bits and less saturate; with `sat=False` what is too large becomes
    infinite or NaN, and with `sat=True` wider floats saturate too. Raises `TileValueError` for
    other options.
    """
    mode, target = _cast_mode(round, sat, rbits), to_dtype(dtype)
    if isinstance(value, VectorValue):
        return lanewise(lambda lane: cast(lane, target.scalar, round, sat, rbits).expr, value)
    if not mode and sat is None:
        return Value(*fitting(value, target))
    made = to_value(value)
    source = made.expr.dtype
    if not source.is_float or not (target.is_float or target.is_int):
        return made.astype(target)
    if target.is_int:
        return _to_integer(made, target, mode)
    rounded = _narrowed(made, target, mode, rbits)
    return rounded if sat is None else _saturated(made, rounded, target, sat)


def Cast(dtype: Any, value: Any) -> Any:
    """`cast` with its arguments in the other order."""
    return cast(value, dtype)


def _cast_mode(round: Any, sat: Any, rbits: Any) -> str:
    if round not in (None, "", "rs", *_CAST_ROUNDINGS):
        raise TileValueError(
            f"{round!r} is not a rounding of T.cast",
            hint=f"use one of {', '.join([*_CAST_ROUNDINGS][:4])} or rs",
        )
    if sat is not None and not isinstance(sat, bool):
        raise TileValueError(f"'sat' of T.cast must be True or False, not {describe(sat)}")
    if (round == "rs") != (rbits is not None):
        raise TileValueError("'rbits' of T.cast belongs to the rounding 'rs', which needs it")
    return _CAST_ROUNDINGS.get(round or "", round or "")


def _to_integer(value: Value, target: DType, mode: str) -> Value:
    functions = {"rn": math.nearbyint, "ru": math.ceil, "rd": math.floor}
    if mode == "rs":
        raise TileValueError(f"T.cast to '{target}' cannot round stochastically")
    rounded: Value = functions[mode](value) if mode in functions else value
    return rounded.astype(target)


def _narrowed(value: Value, target: DType, mode: str, rbits: Any) -> Value:
    """A float converted to another float."""
    if target.bits >= value.expr.dtype.bits or mode in ("", "rn"):
        return value.astype(target)
    if target == _SCALE:
        return _power_of_two(value.astype("float32"), mode)
    if target.bits == 6:
        raise UnsupportedError(f"T.cast to '{target}' rounds to nearest only")
    if mode == "rs":
        value, mode = _with_noise(value.astype("float32"), target, rbits), "rz"
    nearest = value.astype(target)
    rest = value.astype(_DOUBLE) - nearest.astype(_DOUBLE)
    return _moved(nearest, rest, mode)


def _power_of_two(value: Value, mode: str) -> Value:
    """A scale: the power of two toward zero or away from it."""
    if mode not in ("rz", "ru"):
        raise TileValueError(f"T.cast to '{_SCALE}' rounds with rn, rz or rp")
    bits = _bits(value) & 0x7FFFFFFF
    if mode == "ru":
        bits = bits + 0x7FFFFF
    special = math.isnan(value) | math.isinf(value)
    power = _from_bits(bits & 0x7F800000, DType("float32"))
    return select(special, value, power, lazy=False).astype(_SCALE)


def _with_noise(value: Value, target: DType, rbits: Any) -> Value:
    """`value` plus random bits below the last that a normal number of `target` keeps."""
    kept = {"float16": 10, "bfloat16": 7, "float8_e4m3fn": 3, "float8_e4m3fnuz": 3}
    lost = 23 - kept.get(str(target), 2 if target.bits == 8 else 1)
    noise = to_value(rbits).astype("uint32") & ((1 << lost) - 1)
    return _from_bits(_bits(value) + noise, DType("float32"))


def _saturated(value: Value, rounded: Value, target: DType, sat: bool) -> Value:
    """`rounded` with the wanted result for what is too large."""
    if target.bits >= value.expr.dtype.bits or target == _SCALE:
        return rounded
    largest = float(target.max_value)
    wide = value.astype(_DOUBLE)
    if sat:
        if target.bits <= 8:
            return rounded
        top = Value(build.const(largest, target))
        limited = select(wide > 0, top, -top, lazy=False)
        return select(math.isinf(rounded), limited, rounded, lazy=False)
    if target.bits < 8:
        raise TileValueError(f"'{target}' has no infinity and no NaN: T.cast to it saturates")
    # Half a step above the largest number; a tie goes to the even neighbour, which is the larger
    # one where the last bit kept is set.
    mantissa = 3 if "e4m3" in target else 2
    step = 2.0 ** (_exponent(largest) - mantissa)
    odd = int(largest / step) % 2 == 1
    limit = largest + step / 2
    size = math.abs(wide)
    over = size >= limit if odd else size > limit
    special = build.const(float("nan"), target)
    if target == "float8_e5m2":
        infinite = ir.Reinterpret(build.const(0x7C, "uint8"), target)
        negative = ir.Reinterpret(build.const(0xFC, "uint8"), target)
        signed = select(wide > 0, Value(infinite), Value(negative), lazy=False)
        return select(over, signed, rounded, lazy=False)
    return select(over, Value(special), rounded, lazy=False)


def _exponent(value: float) -> int:
    return frexp(value)[1] - 1


# Arithmetic ---------------------------------------------------------------------------------------


def ieee_add(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a + b` rounded as IEEE 754 says, never joined with a product into a fused operation.

    `rounding_mode` is "rn" (to nearest), "rz" (toward zero), "ru" (up) or "rd" (down). Raises
    `TileValueError` for another one.
    """
    mode = _mode("ieee_add", rounding_mode)
    left, right = _operands(a, b)
    return _directed(_unfused("add", left, right), mode, _sum_error(left, right), left, right)


def ieee_sub(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a - b`, as `ieee_add`."""
    _mode("ieee_sub", rounding_mode)
    left, right = _operands(a, b)
    return ieee_add(left, unary("neg", right), rounding_mode)


def ieee_mul(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a * b`, as `ieee_add`."""
    mode = _mode("ieee_mul", rounding_mode)
    left, right = _operands(a, b)

    def error(result: Value) -> Value:
        if _is_double(left):
            return _fma(left, right, unary("neg", result))
        exact: Value = left.astype(_DOUBLE) * right.astype(_DOUBLE) - result.astype(_DOUBLE)
        return exact

    return _directed(_unfused("mul", left, right), mode, error, left, right)


def ieee_fdiv(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a / b`, as `ieee_add`."""
    mode = _mode("ieee_fdiv", rounding_mode)
    left, right = _operands(a, b)

    def error(result: Value) -> Value:
        wide = [part.astype(_DOUBLE) for part in (unary("neg", result), right, left)]
        rest = _fma(*wide)  # of the dividend, with the divisor's sign
        return select(wide[1] < 0, unary("neg", rest), rest, lazy=False)

    zero = right == _zero_like(right)
    made = arithmetic("div", left, right)
    return _directed(made, mode, error, left, right, exact=zero)


def ieee_frcp(value: Any, rounding_mode: str = "rn") -> Any:
    """`1 / value`, as `ieee_add`."""
    made = to_value(value)
    _mode("ieee_frcp", rounding_mode)
    return ieee_fdiv(Value(build.const(1, made.expr.dtype)), made, rounding_mode)


def ieee_fsqrt(value: Any, rounding_mode: str = "rn") -> Any:
    """The square root, as `ieee_add`."""
    mode = _mode("ieee_fsqrt", rounding_mode)
    made = to_value(value)

    def error(result: Value) -> Value:
        wide = result.astype(_DOUBLE)
        return _fma(unary("neg", wide), wide, made.astype(_DOUBLE))

    return _directed(math.sqrt(made), mode, error, made)


def ieee_frsqrt(value: Any, rounding_mode: str = "rn") -> Any:
    """1 over the square root, both rounded to nearest; no other rounding exists."""
    if _mode("ieee_frsqrt", rounding_mode) != "rn":
        raise TileValueError(f"T.ieee_frsqrt rounds to nearest, not with '{rounding_mode}'")
    return ieee_frcp(math.sqrt(value))


def ieee_fmaf(a: Any, b: Any, c: Any, rounding_mode: str = "rn") -> Any:
    """`a * b + c` rounded once, as `ieee_add`."""
    mode = _mode("ieee_fmaf", rounding_mode)
    made = math.fma(a, b, c)
    if mode == "rn":
        return made
    if _is_double(made):
        raise UnsupportedError("T.ieee_fmaf of 'float64' rounds to nearest only")
    parts = [to_value(part).astype(made.expr.dtype) for part in (a, b, c)]
    product = parts[0].astype(_DOUBLE) * parts[1].astype(_DOUBLE)
    error = _sum_error(product, parts[2].astype(_DOUBLE))
    return _directed(made, mode, error, *parts)


def _mode(name: str, mode: str) -> str:
    if mode not in _ROUNDINGS:
        raise TileValueError(
            f"'{mode}' is not a rounding mode of T.{name}",
            hint=f"use one of {', '.join(_ROUNDINGS)}",
        )
    return mode


def _operands(a: Any, b: Any) -> tuple[Value, Value]:
    """Two floats of one dtype."""
    left, right = (to_value(a), to_value(b)) if is_number(a) and is_number(b) else pair(a, b)
    total = build.binary("add", left.expr, right.expr).dtype
    if not total.is_float:
        raise TileTypeError(f"IEEE arithmetic needs floats, not '{total}'")
    return left.astype(total), right.astype(total)


def _is_double(value: Value) -> bool:
    return value.expr.dtype == _DOUBLE


def _zero_like(like: Value) -> Value:
    """Zero of a value's dtype."""
    return Value(build.const(0, like.expr.dtype))


def _fma(a: Value, b: Value, c: Value) -> Value:
    made: Value = math.fma(a, b, c)
    return made


def _unfused(op: str, left: Value, right: Value) -> Value:
    """`left op right` as a fused multiply-add with a neutral part, which no compiler may contract
    further.

    `a * 1 + b` and `a * b + (-0)` are exact up to the one rounding (IEEE 754-2019, section 5.4.1).
    """
    one, zero = build.const(1.0, left.expr.dtype), build.const(-0.0, left.expr.dtype)
    return _fma(left, right, Value(zero)) if op == "mul" else _fma(left, Value(one), right)


def _sum_error(left: Value, right: Value) -> Callable[[Value], Value]:
    """What the exact sum is more than a result: the error of the sum in float64, and the rest."""
    a, b = left.astype(_DOUBLE), right.astype(_DOUBLE)

    def less(x: Value, y: Value) -> Value:
        return _unfused("add", x, unary("neg", y))

    def error(result: Value) -> Value:
        total = _unfused("add", a, b)
        virtual = less(total, a)
        missing = _unfused("add", less(a, less(total, virtual)), less(b, virtual))
        return _unfused("add", less(total, result.astype(_DOUBLE)), missing)

    return error


def _directed(
    nearest: Any,
    mode: str,
    error: Callable[[Value], Value],
    *operands: Value,
    exact: Any = None,
) -> Value:
    """`nearest` moved where the exact result lies on the other side of it; where `exact` holds
    it is the result.
    """
    result = to_value(nearest)
    if mode == "rn":
        return result
    rest = error(result)
    # An infinite result of finite operands stands for a finite one that is nearer to zero.
    overflow: Any = math.isinf(result)
    for operand in operands:
        overflow = math.And(overflow, math.isfinite(operand))
    if exact is not None:
        overflow = math.And(overflow, math.Not(exact))
    away = unary("neg", result).astype(rest.expr.dtype)
    return _moved(result, select(overflow, away, rest, lazy=False), mode)


def _moved(nearest: Value, rest: Value, mode: str) -> Value:
    """The neighbour of `nearest` that `mode` asks for, when the exact result is `rest` more."""
    zero = _zero_like(rest)
    up, down = rest > zero, rest < zero
    if mode == "rz":
        positive = nearest > _zero_like(nearest)
        negative = nearest < _zero_like(nearest)
        up, down = math.And(negative, up), math.And(positive, down)
    bits = _bits(nearest)
    dtype = nearest.expr.dtype
    sign = 1 << (dtype.bits - 1)
    is_zero = nearest == _zero_like(nearest)
    is_negative = nearest < _zero_like(nearest)
    larger, smaller = bits + 1, bits - 1
    above = select(is_zero, 1, select(is_negative, smaller, larger, lazy=False), lazy=False)
    below = select(is_zero, sign | 1, select(is_negative, larger, smaller, lazy=False), lazy=False)
    size = math.abs(nearest)
    if dtype.bits <= 8:  # nothing lies beyond the largest number
        inside = size < Value(build.const(dtype.max_value, dtype))
        up = math.And(up, math.Or(inside, is_negative))
        down = math.And(down, math.Or(inside, math.Not(is_negative)))
    moved = nearest
    if mode in ("ru", "rz"):
        moved = select(up, _from_bits(above, dtype), moved, lazy=False)
    if mode in ("rd", "rz"):
        moved = select(down, _from_bits(below, dtype), moved, lazy=False)
    return moved


def _bits(value: Value) -> Value:
    """The code of a float as an unsigned integer of at least 32 bits."""
    dtype = value.expr.dtype
    code = Value(ir.Reinterpret(value.expr, DType(f"uint{dtype.bits}")), value.binding)
    return code.astype("uint32") if dtype.bits < 32 else code


def _from_bits(code: Value, dtype: DType) -> Value:
    word = to_value(code).astype(f"uint{dtype.bits}")
    return Value(ir.Reinterpret(word.expr, dtype), word.binding)
