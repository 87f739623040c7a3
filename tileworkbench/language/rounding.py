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

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import current
from tileworkbench.compiler.frontend.control import let
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
from tileworkbench.compiler.ir.float_formats import FORMATS
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language import math

_ROUNDINGS = ("rn", "rz", "ru", "rd")
_CAST_ROUNDINGS = {"rn": "rn", "rz": "rz", "rp": "ru", "rm": "rd", "ru": "ru", "rd": "rd"}
_SINGLE, _DOUBLE, _SCALE = DType("float32"), DType("float64"), "float8_e8m0fnu"


# Casts --------------------------------------------------------------------------------------------


def cast(value: Any, dtype: Any, round: Any = None, sat: Any = None, rbits: Any = None) -> Any:
    """`value`, a scalar or a vector, converted to `dtype`: a float to an integer truncates toward
    zero, to a narrower float rounds to nearest even.

    `round` is "rn" (nearest even), "rz" (toward zero), "rp" or "rm" (toward plus or minus
    infinity; also "ru" and "rd"), or "rs" for floats of at most 32 bits: stochastic, upwards where
    the bits that are lost, added to as many of `rbits`, carry. Floats of 8 bits and less saturate;
    with `sat=False` what is too large becomes infinite or NaN, and with `sat=True` wider floats
    saturate too. Raises `TileValueError` for other options.

    >>> B[i] = T.cast(A[i], T.float16)
    """
    mode, target = _cast_mode(round, sat, rbits), to_dtype(dtype)
    if isinstance(value, VectorValue):
        return lanewise(lambda lane: cast(lane, target.scalar, round, sat, rbits).expr, value)
    if not mode and sat is None:
        return Value(*fitting(value, target))
    made = to_value(value)
    source = made.expr.dtype
    if mode == "rs" and not (source.is_float and source.bits <= 32 and target.is_float):
        raise TileValueError(
            f"T.cast of '{source}' to '{target}' cannot round stochastically",
            hint="'rs' rounds a float of at most 32 bits to a narrower one",
        )
    if target.is_int and source.is_float:
        return _to_integer(made, target, mode)
    if not target.is_float or source.is_bool:
        return made.astype(target)
    rounded = _narrowed(made, target, mode, rbits)
    return rounded if sat is None else _saturated(made, rounded, target, sat)


def Cast(dtype: Any, value: Any) -> Any:
    """`cast` with its arguments in the other order.

    >>> B[i] = T.Cast(T.float16, A[i])
    """
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
    rounded: Value = functions[mode](value) if mode in functions else value
    return rounded.astype(target)


def _narrowed(value: Value, target: DType, mode: str, rbits: Any) -> Value:
    """A number converted to a float."""
    source = value.expr.dtype
    if mode in ("", "rn") or (source.is_float and target.bits >= source.bits):
        return value.astype(target)
    if target == _SCALE:
        return _power_of_two(_narrowed(value, _SINGLE, mode, None), mode)
    if mode == "rs":
        value, mode = _with_noise(value.astype(_SINGLE), target, rbits), "rz"
    if target.bits == 6:
        return _on_grid(_narrowed(value, _SINGLE, mode, None), target, mode)
    nearest = value.astype(target)
    return _moved(nearest, _rest(value, nearest), mode)


def _rest(value: Value, nearest: Value) -> Value:
    """What `value` is more than the number it was rounded to."""
    wide, dtype = nearest.astype(_DOUBLE), value.expr.dtype
    if dtype.is_float or dtype.bits <= 32:
        rest: Value = value.astype(_DOUBLE) - wide
        return rest
    low = value & 0xFFFFFFFF
    rest = (value - low).astype(_DOUBLE) - wide + low.astype(_DOUBLE)
    return rest


def _on_grid(value: Value, target: DType, mode: str) -> Value:
    """A float32 rounded to a multiple of the step between numbers of its size."""
    step = _step(value, target)
    whole = {"rz": math.trunc, "ru": math.ceil, "rd": math.floor}[mode](value / step)
    rounded: Value = whole * step
    return rounded.astype(target)


def _step(value: Value, target: DType) -> Value:
    """How far apart the numbers of `target` near a float32 are, a float32."""
    mantissa, bias = _form(target)
    exponent = math.max(_bits(value) >> 23 & 255, 128 - bias)
    return _from_bits(exponent - mantissa << 23, _SINGLE)


def _form(target: DType) -> tuple[int, int]:
    """The bits of the mantissa of a narrow float, and the bias of its exponent."""
    if target.bits == 16:
        return (10, 15) if target == "float16" else (7, 127)
    form = FORMATS[str(target)]
    return form.mantissa, form.bias


def _power_of_two(value: Value, mode: str) -> Value:
    """A scale: the power of two toward zero or away from it."""
    if mode not in ("rz", "ru"):
        raise TileValueError(f"T.cast to '{_SCALE}' rounds with rn, rz or rp")
    bits = _bits(value) & 0x7FFFFFFF
    if mode == "ru":
        bits = bits + 0x7FFFFF
    special = math.isnan(value) | math.isinf(value)
    power = _from_bits(bits & 0x7F800000, _SINGLE)
    return select(special, value, power, lazy=False).astype(_SCALE)


def _with_noise(value: Value, target: DType, rbits: Any) -> Value:
    """A float32 plus random bits below the last that `target` keeps of it."""
    lost = 23 - _form(target)[0]
    noise = to_value(rbits).astype("uint32") & ((1 << lost) - 1)
    if target == "bfloat16":
        return _from_bits(_bits(value) + noise, _SINGLE)
    away = noise.astype(_DOUBLE) * 2.0**-lost * _step(value, target)
    signed = select(value < 0.0, unary("neg", away), away, lazy=False)
    noisy: Value = value.astype(_DOUBLE) + signed
    return noisy


def _saturated(value: Value, rounded: Value, target: DType, sat: bool) -> Value:
    """`rounded` with the wanted result for what is too large."""
    source = value.expr.dtype
    if target == _SCALE or (source.is_float and target.bits >= source.bits):
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
    step = 2.0 ** (_exponent(largest) - _form(target)[0])
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

    >>> B[i] = T.ieee_add(A[i], B[i], "rz")
    """
    mode = _mode("ieee_add", rounding_mode)
    left, right = _operands(a, b)
    return _directed(_unfused("add", left, right), mode, _sum_error(left, right), left, right)


def ieee_sub(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a - b`, as `ieee_add`.

    >>> B[i] = T.ieee_sub(A[i], B[i], "ru")
    """
    _mode("ieee_sub", rounding_mode)
    left, right = _operands(a, b)
    return ieee_add(left, unary("neg", right), rounding_mode)


def ieee_mul(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a * b`, as `ieee_add`.

    >>> B[i] = T.ieee_mul(A[i], B[i], "rd")
    """
    mode = _mode("ieee_mul", rounding_mode)
    left, right = _operands(a, b)

    def error(result: Value) -> Value:
        wide = [part.astype(_DOUBLE) for part in (left, right, unary("neg", result))]
        return _fma(*wide)

    return _directed(_unfused("mul", left, right), mode, error, left, right)


def ieee_fdiv(a: Any, b: Any, rounding_mode: str = "rn") -> Any:
    """`a / b`, as `ieee_add`.

    >>> B[i] = T.ieee_fdiv(A[i], 3.0)
    """
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
    """`1 / value`, as `ieee_add`.

    >>> B[i] = T.ieee_frcp(A[i])
    """
    made = to_value(value)
    _mode("ieee_frcp", rounding_mode)
    return ieee_fdiv(Value(build.const(1, made.expr.dtype)), made, rounding_mode)


def ieee_fsqrt(value: Any, rounding_mode: str = "rn") -> Any:
    """The square root, as `ieee_add`.

    >>> B[i] = T.ieee_fsqrt(A[i])
    """
    mode = _mode("ieee_fsqrt", rounding_mode)
    made = to_value(value)

    def error(result: Value) -> Value:
        wide = result.astype(_DOUBLE)
        return _fma(unary("neg", wide), wide, made.astype(_DOUBLE))

    return _directed(math.sqrt(made), mode, error, made)


def ieee_frsqrt(value: Any, rounding_mode: str = "rn") -> Any:
    """1 over the square root, as `ieee_add`.

    >>> B[i] = T.ieee_frsqrt(A[i])
    """
    mode = _mode("ieee_frsqrt", rounding_mode)
    made, _ = _operands(value, value)
    if made.expr.dtype == _DOUBLE:
        return _moved(*_double_rsqrt(made), mode)
    wide, one = made.astype(_DOUBLE), Value(build.const(1, _DOUBLE))

    def error(result: Value) -> Value:
        root = result.astype(_DOUBLE)
        return _fma(unary("neg", wide), root * root, one)  # the product has 48 bits

    # Checked for every float32: rounding twice, from float64 to float32, is rounding once.
    nearest = arithmetic("div", one, math.sqrt(wide)).astype(made.expr.dtype)
    return _directed(nearest, mode, error, made, exact=made == _zero_like(made))


def _double_rsqrt(x: Value) -> tuple[Value, Value]:
    """1 over the square root of a float64, and a number with the sign of what it lacks.

    `x` is m 4^k with m in [1, 4), of which the exact root is one Newton step from 1 / sqrt(m): a
    step that needs 1 - m y^2 to more digits than a float64 has.
    """
    x, one = _named(x), Value(build.const(1, _DOUBLE))
    small = _named(x < 2.0**-900)
    code = _named(_bits(select(small, x * 2.0**200, x, lazy=False)).astype("int64"))
    half = _named((code >> 52) - 1023 >> 1)
    m = _named(_from_bits(code - (half << 53), _DOUBLE))
    guess = _named(arithmetic("div", one, math.sqrt(m)))
    near = _named(_fma(guess, _rsqrt_rest(m, guess) * 0.5, guess))
    scale = _from_bits((1023 - half << 52) + select(small, 100 << 52, 0, lazy=False), _DOUBLE)
    regular = _named(math.And(math.isfinite(x), x > _zero_like(x)))
    other = arithmetic("div", one, math.sqrt(x))
    rest = select(regular, _rsqrt_rest(m, near), _zero_like(x), lazy=False)
    return _named(select(regular, near * scale, other, lazy=False)), _named(rest)


def _rsqrt_rest(m: Value, y: Value) -> Value:
    """1 - m y^2 of float64 numbers, for a product near 1."""
    square, square_low = map(_named, _two_product(y, y))
    product, low = map(_named, _two_product(m, square))
    other, other_low = map(_named, _two_product(m, square_low))
    above = _named(_less(Value(build.const(1, _DOUBLE)), product))  # exact
    total, first = map(_named, _two_sum(above, unary("neg", low)))
    total, second = map(_named, _two_sum(total, unary("neg", other)))
    middle, least = map(_named, _two_sum(first, second))
    total, middle = map(_named, _two_sum(total, middle))
    return _more(total, _more(middle, _less(least, other_low)))


def _named(value: Value) -> Value:
    """`value` under a name of its own: what is used often must not be written out as often."""
    return let(current("T.ieee_frsqrt"), "part", value)


def ieee_fmaf(a: Any, b: Any, c: Any, rounding_mode: str = "rn") -> Any:
    """`a * b + c` rounded once, as `ieee_add`.

    >>> B[i] = T.ieee_fmaf(A[i], 2.0, B[i])
    """
    mode = _mode("ieee_fmaf", rounding_mode)
    made = math.fma(a, b, c)
    if mode == "rn":
        return made
    parts = [to_value(part).astype(made.expr.dtype) for part in (a, b, c)]
    x, y, z = (part.astype(_DOUBLE) for part in parts)
    product, low = _two_product(x, y)
    rest, least = _two_sum(z, low)
    total, middle = _two_sum(product, rest)

    def error(result: Value) -> Value:
        return _more(_more(_less(total, result.astype(_DOUBLE)), middle), least)

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


def _more(a: Value, b: Value) -> Value:
    return _unfused("add", a, b)


def _less(a: Value, b: Value) -> Value:
    return _unfused("add", a, unary("neg", b))


def _two_product(a: Value, b: Value) -> tuple[Value, Value]:
    """The product of two doubles and what it lacks."""
    product = _unfused("mul", a, b)
    return product, _fma(a, b, unary("neg", product))


def _two_sum(a: Value, b: Value) -> tuple[Value, Value]:
    """The sum of two doubles and what it lacks."""
    total = _more(a, b)
    virtual = _less(total, a)
    return total, _more(_less(a, _less(total, virtual)), _less(b, virtual))


def _sum_error(left: Value, right: Value) -> Callable[[Value], Value]:
    """What the exact sum is more than a result."""
    total, missing = _two_sum(left.astype(_DOUBLE), right.astype(_DOUBLE))
    return lambda result: _more(_less(total, result.astype(_DOUBLE)), missing)


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
