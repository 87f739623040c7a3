"""Operators and intrinsics on values: what each name of the IR computes, to the last bit where that
is defined.

Integers wrap. Floats of 32 and 64 bits round after every operation; narrower ones are computed in
float32 and rounded to their dtype. `min` and `max` of floats return the other operand when one is
NaN (C's fmin and fmax); `min_nan` and `max_nan` return NaN. For all of them +0 is greater than -0.
`round` takes ties away from zero, `nearbyint` to even. Transcendental functions are evaluated in
float64 and rounded once. A shift by at least the width shifts everything out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tileworkbench.compiler.ir import expr as ir
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.extrema import MAX, MAX_NAN, MIN, MIN_NAN
from tileworkbench.compiler.sim.fused import fma
from tileworkbench.compiler.sim.philox import philox
from tileworkbench.compiler.sim.values import (
    Value,
    from_storage,
    narrowed,
    storage_dtype,
    to_array,
    working_dtype,
    wrapper,
)

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name) for name in ir.COMPARISONS
}
_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "min": min,
    "max": max,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
}


def _truncdiv(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    quotient = np.floor_divide(a, b)
    inexact = np.not_equal(quotient * b, a) & (np.less(a, 0) != np.less(b, 0))
    return quotient + inexact.astype(quotient.dtype)


def _truncmod(a: Any, b: Any) -> Any:
    return a - b * _truncdiv(a, b) if isinstance(a, int) and isinstance(b, int) else np.fmod(a, b)


def _int_power(a: Any, b: Any) -> Any:
    """Integer power by squaring; a negative exponent gives what 1 / a ** -b truncates to."""
    if isinstance(a, int) and isinstance(b, int):
        if b >= 0:
            return a**b
        return 0 if abs(a) > 1 else (1 if b % 2 == 0 else a) if a else 0
    power = np.power(a, np.maximum(b, 0))
    unit = np.where(np.abs(a) == 1, np.where(np.remainder(b, 2) == 0, 1, a), 0)
    return np.where(np.less(b, 0), unit, power)


def _shift(op: str, bits: int) -> Callable[[Any, Any], Any]:
    def shift(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            if not 0 <= b < bits:
                return -1 if op == "shr" and a < 0 else 0
            return a << b if op == "shl" else a >> b
        return np.left_shift(a, b) if op == "shl" else np.right_shift(a, b)

    return shift


_ARRAY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "floordiv": np.floor_divide,
    "floormod": np.remainder,
}
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.true_divide,
    "min": MIN,
    "max": MAX,
    "fmod": np.fmod,
}


@cache
def binary_function(op: str, dtype: DType) -> Callable[[Value, Value], Value]:
    """`op` on two values of `dtype` (the operands'). Divisors are assumed not to be zero."""
    if op in _COMPARE:
        return _comparison(_COMPARE[op], dtype)
    if dtype.is_float:
        if op == "pow":  # np.power takes a root for an exponent of 0.5, which differs at -inf
            return rounded(np.float_power, dtype, np.dtype(np.float64))
        return rounded(_FLOAT[op], dtype, working_dtype(dtype))
    if dtype.is_bool:
        return _PYTHON[{"min": "and", "max": "or"}.get(op, op)]
    return _integer(op, dtype)


def _comparison(
    compare: Callable[[Any, Any], Any], dtype: DType
) -> Callable[[Value, Value], Value]:
    def run(a: Value, b: Value) -> Value:
        holds = compare(a, b)
        return holds if type(holds) is np.ndarray else bool(holds)

    return run


def _integer(op: str, dtype: DType) -> Callable[[Value, Value], Value]:
    special = {"truncdiv": _truncdiv, "truncmod": _truncmod, "pow": _int_power}
    shared = _shift(op, dtype.bits) if op in ("shl", "shr") else special.get(op)
    scalar = shared or _PYTHON[op]
    lanes = shared or _ARRAY.get(op, scalar)
    wrap, storage, narrow = wrapper(dtype), storage_dtype(dtype), dtype.bits == 4

    def run(a: Value, b: Value) -> Value:
        if type(a) is not np.ndarray and type(b) is not np.ndarray:
            return wrap(int(scalar(a, b)))
        made = lanes(a, b)
        if narrow:
            made = _wrap_four_bits(made, dtype)
        return made if made.dtype == storage else made.astype(storage)

    return run


def _wrap_four_bits(values: Any, dtype: DType) -> Any:
    """Results of 4-bit operations, computed in bytes, in the range of `dtype`."""
    return ((values + 8) & 15) - 8 if dtype.kind == "int" else values & 15


def rounded(
    function: Callable[..., Any], dtype: DType, working: np.dtype[Any]
) -> Callable[..., Value]:
    """`function` computed in `working` precision on values of `dtype`, its result rounded to
    `dtype`.
    """
    storage = storage_dtype(dtype)
    if storage == working:
        return function

    def run(*args: Value) -> Value:
        return narrowed(function(*[arg.astype(working) for arg in args]), storage)

    return run


@cache
def unary_function(op: str, dtype: DType) -> Callable[[Value], Value]:
    """`neg`, `abs`, `not` or `bitnot` on values of `dtype`."""
    if op == "not":
        return lambda a: ~a if type(a) is np.ndarray else not a
    functions: dict[str, Callable[[Any], Any]] = {
        "neg": operator.neg,
        "abs": abs,
        "bitnot": operator.invert,
    }
    function = functions[op]
    if dtype.is_float:
        return function
    wrap, narrow = wrapper(dtype), dtype.is_packed

    def run(a: Value) -> Value:
        if type(a) is not np.ndarray:
            return wrap(int(function(a)))
        made = function(a)
        return _wrap_four_bits(made, dtype) if narrow else made

    return run


def _round_away(a: Any) -> Any:
    """The nearest integer, ties away from zero."""
    whole = np.trunc(a)
    return np.where(np.abs(a - whole) >= 0.5, whole + np.sign(a), whole)[()]


def _elementwise(function: Callable[[float], Any]) -> Callable[[Any], Any]:
    lifted = np.frompyfunc(function, 1, 1)
    return lambda a: np.asarray(lifted(a), np.float64)[()]


_INTRINSICS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "exp10": lambda a: np.power(10.0, a),
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
    "atan": np.arctan,
    "erf": _elementwise(math.erf),
    "sigmoid": lambda a: 1.0 / (1.0 + np.exp(-a)),
    "round": _round_away,
    "nearbyint": np.rint,
    "fma": lambda a, b, c: a * b + c,
    "max_nan": MAX_NAN,
    "min_nan": MIN_NAN,
}
_HORIZONTAL: dict[str, Callable[..., Any]] = {
    "lanes_sum": np.add.reduce,
    "lanes_prod": np.multiply.reduce,
    "lanes_max": MAX.reduce,
    "lanes_min": MIN.reduce,
    "lanes_max_nan": MAX_NAN.reduce,
    "lanes_min_nan": MIN_NAN.reduce,
    "lanes_and": np.bitwise_and.reduce,
    "lanes_or": np.bitwise_or.reduce,
    "lanes_xor": np.bitwise_xor.reduce,
}


@cache
def intrinsic_function(name: str, dtype: DType) -> Callable[..., Value]:
    """The intrinsic `name` on arguments of `dtype`."""
    if name in _HORIZONTAL:
        return _horizontal(_HORIZONTAL[name], dtype)
    if name in ("isnan", "isinf"):
        test = np.isnan if name == "isnan" else np.isinf
        return lambda a: from_storage(test(a.astype(np.float64)), DType("bool"))
    if name == "popcount":
        return _popcount(dtype)
    if name == "philox":
        return philox
    if name == "fma" and dtype == "float64":
        return fma
    if name == "dp4a":
        return _dot_bytes
    if not dtype.is_float:
        return _integer(name.removesuffix("_nan"), dtype)
    return rounded(_INTRINSICS[name], dtype, np.dtype(np.float64))


def _popcount(dtype: DType) -> Callable[[Value], Value]:
    mask = (1 << dtype.bits) - 1
    lifted = np.frompyfunc(lambda a: (int(a) & mask).bit_count(), 1, 1)
    return lambda a: from_storage(np.asarray(lifted(a), storage_dtype(dtype)), dtype)


def _dot_bytes(a: Value, b: Value, c: Value) -> Value:
    """The products of the four signed bytes of two int32 values, added to a third; wraps."""
    total = np.asarray(c, np.int64)
    for shift in (0, 8, 16, 24):
        left, right = (((np.asarray(x, np.int64) >> shift & 255) ^ 128) - 128 for x in (a, b))
        total = total + left * right
    return from_storage(total.astype(np.int32), DType("int32"))


def _horizontal(function: Callable[..., Any], dtype: DType) -> Callable[[Value], Value]:
    scalar, working, storage = dtype.scalar, working_dtype(dtype), storage_dtype(dtype)

    def run(vector: Value) -> Value:
        lanes = to_array(vector, dtype).astype(working)
        return from_storage(narrowed(function(lanes, axis=-1, dtype=working), storage), scalar)

    return run
