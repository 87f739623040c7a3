"""Vector values, for accesses of several elements at once, and arithmetic on pairs."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend import vectors
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.regions import Operand, to_operand
from tileworkbench.compiler.frontend.tensors import (
    TensorValue,
    check_access,
    emit_store,
    store_vector,
)
from tileworkbench.compiler.frontend.values import (
    Value,
    condition,
    describe,
    fitting,
    to_value,
)
from tileworkbench.compiler.frontend.vectors import VectorValue, lanewise, regroup
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr, Load
from tileworkbench.compiler.ir.stmt import If, Store
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language import math

_PAIRS = ("float16x2", "bfloat16x2", "float32x2")


def Ramp(base: Any, stride: Any, lanes: int) -> VectorValue:
    """The integers `base, base + stride, ...`: an index of `lanes` elements, or their values.

    `A[T.Ramp(0, 2, 4)]` is a vector of four elements; a negative index counts from the end. Vectors
    of equal lanes and scalars are added, subtracted, multiplied and divided lane by lane. Raises
    `TileTypeError` or `TileValueError` for arguments of a wrong kind.

    >>> C[0, 0:4] = C[1, T.Ramp(0, 2, 4)]
    """
    return vectors.ramp(base, stride, lanes)


def Broadcast(value: Any, lanes: int) -> VectorValue:
    """`value` in each of `lanes` lanes: `B[0:32] = T.Broadcast(x, 32)`.

    Raises `TileValueError` for a number of lanes that is none.

    >>> C[0, 0:4] = T.Broadcast(1.0, 4)
    """
    return vectors.broadcast(value, lanes)


def Shuffle(values: Any, lanes: Any) -> VectorValue:
    """A vector of chosen lanes: number `lanes[i]` of those of `values`, a list of vectors.

    Raises `TileTypeError` for anything but vectors and `TileValueError` for a lane that none of
    them has.

    >>> C[0, 0:4] = T.Shuffle([C[1, T.Ramp(0, 1, 4)]], [3, 2, 1, 0])
    """
    return vectors.shuffle(values, lanes)


# Pairs -------------------------------------------------------------------------------------------


def _pair(name: str, *operands: Any) -> None:
    for operand in operands:
        if not isinstance(operand, VectorValue) or operand.dtype not in _PAIRS:
            what = operand.dtype if isinstance(operand, VectorValue) else describe(operand)
            raise TileValueError(
                f"T.{name} takes vectors of two, not {what}", hint=f"use one of {', '.join(_PAIRS)}"
            )


def _function(name: str, what: str, combine: Callable[..., Any]) -> Callable[..., VectorValue]:
    count = len(signature(combine).parameters)

    def function(*operands: Any, rounding_mode: str = "rn") -> VectorValue:
        if len(operands) != count:
            vectors = "1 vector" if count == 1 else f"{count} vectors"
            raise TileTypeError(f"T.{name} takes {vectors}, not {len(operands)}")
        _pair(name, *operands)
        if rounding_mode != "rn":
            raise TileValueError(f"'{rounding_mode}' is not a rounding mode of T.{name}; 'rn' is")
        return lanewise(lambda *lanes: to_value(combine(*lanes)).expr, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{what} of vectors of two. Raises `TileValueError` for values of other types.\n\n"
        f">>> x = A[T.Ramp(0, 1, 2)]\n>>> B[0:2] = T.{name}({', '.join(['x'] * count)})"
    )
    return function


add2 = _function("add2", "`a + b`", lambda a, b: a + b)
sub2 = _function("sub2", "`a - b`", lambda a, b: a - b)
mul2 = _function("mul2", "`a * b`", lambda a, b: a * b)
fma2 = _function("fma2", "`a * b + c`, rounded once,", math.fma)
max2 = _function("max2", "The larger of each two lanes", math.max)
min2 = _function("min2", "The smaller of each two lanes", math.min)
abs2 = _function("abs2", "The absolute values", math.abs)


# Accesses of several bytes -----------------------------------------------------------------------


def _place(construct: str, value: Any, scope: str, bits: int) -> tuple[Operand, int]:
    """The first element of an access of `bits` bits, and how many elements it takes."""
    place = to_operand(value, construct, "operand")
    buffer = place.buffer
    if place.extents is not None or not place.mins:
        raise TileTypeError(
            f"{construct} takes an element, as in '{buffer.name}[i]', not a whole tensor or a slice"
        )
    if buffer.scope != scope:
        raise TileValueError(
            f"{construct} is for {scope} memory, and '{buffer.name}' is {buffer.scope}"
        )
    width = buffer.dtype.bits
    if width < 8 or bits % width or buffer.dtype.is_bool:
        raise TileTypeError(
            f"{construct} moves {bits} bits, which are no elements of '{buffer.dtype}'"
        )
    return place, bits // width


def _load(construct: str, scope: str, bits: int) -> Callable[..., Any]:
    def load(element: Any, pred: Any = None) -> Any:
        place, count = _place(construct, element, scope, bits)
        holds = None if pred is None else condition(pred, f"'pred' of {construct}")

        def at(lane: Expr) -> Expr:
            indices = (*place.mins[:-1], build.add(place.mins[-1], lane))
            check_access(place.buffer, indices)
            loaded = Load(place.buffer, indices)
            if holds is None:
                return loaded
            return build.select(holds.expr, loaded, build.const(0, loaded.dtype))

        binding = element.binding if isinstance(element, Value) else None
        read: VectorValue | Value = VectorValue(count, at, binding)
        if count == 1:
            read = Value(at(build.int_const(0)), binding)
        return regroup(read, DType("uint32").with_lanes(bits // 32))

    return _documented(load, construct, f"{bits} bits of {scope} memory as `uint32` values")


def _store(construct: str, scope: str, bits: int) -> Callable[..., None]:
    def store(element: Any, value: Any, pred: Any = None) -> None:
        place, count = _place(construct, element, scope, bits)
        builder = in_kernel(construct)
        dtype = place.buffer.dtype.with_lanes(count)
        bits_of = regroup(value if isinstance(value, VectorValue) else to_value(value), dtype)
        frame = None if pred is None else builder.push("then")
        if isinstance(bits_of, VectorValue):
            last = Value(place.mins[-1])
            index = (*(Value(low) for low in place.mins[:-1]), slice(last, last + count))
            store_vector(TensorValue(place.buffer), index, bits_of)
        else:
            emit_store(Store(place.buffer, place.mins, bits_of.expr))
        if frame is not None:
            body = builder.pop(frame)
            builder.emit(If(condition(pred, f"'pred' of {construct}").expr, body))

    return _documented(store, construct, f"{bits} bits, of any element type, into {scope} memory")


_EXAMPLES = {
    "ldg": "x = {}(A[0])",
    "lds": "x = {}(s[0])",
    "stg": "{}(B[0], T.ldg{}(A[0]))",
    "sts": "{}(s[0], T.ldg{}(A[0]))",
}


def _documented(function: Callable[..., Any], construct: str, what: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = construct.removeprefix("T.")
    function.__doc__ = (
        f"{what}, from the element given on; where `pred` does not hold nothing is accessed and a "
        "load gives 0. Raises `TileTypeError` or `TileValueError` for other operands.\n\n>>> "
        + _EXAMPLES[construct[2:5]].format(construct, construct[5:])
    )
    return function


ACCESSES: dict[str, Callable[..., Any]] = {
    f"{name}{bits}": make(f"T.{name}{bits}", scope, bits)
    for name, scope, make in (
        ("ldg", "global", _load),
        ("lds", "shared", _load),
        ("stg", "global", _store),
        ("sts", "shared", _store),
    )
    for bits in (32, 64, 128, 256)
}


def dp4a(A: Any, B: Any, C: Any) -> None:
    """`C += A[0] * B[0] + ... + A[3] * B[3]`: four neighbours each, given by their first element,
    as C is.

    A and B are `int8` (or both `uint8`), C is `int32`. Raises `TileTypeError` for operands in no
    memory and `TileValueError` for other dtypes.

    >>> bytes = T.alloc_local((4,), T.int8)
    >>> T.clear(bytes)
    >>> T.dp4a(bytes[0], bytes[0], N[tx])
    """
    a, b, c = (to_operand(v, "T.dp4a", f"operand {n}") for v, n in ((A, "A"), (B, "B"), (C, "C")))
    for place, name, wanted in ((a, "A", ("int8", "uint8")), (b, "B", (a.buffer.dtype,))):
        if place.buffer.dtype not in wanted:
            raise TileValueError(
                f"dp4a requires {' or '.join(map(repr, map(str, wanted)))} as operand {name}, not "
                f"'{place.buffer.dtype}'"
            )
    if c.buffer.dtype not in ("int32", "uint32"):
        raise TileValueError(f"dp4a requires 'int32' as operand C, not '{c.buffer.dtype}'")
    total: Expr = Load(c.buffer, c.mins)
    for step in range(4):
        parts = [
            build.cast(Load(p.buffer, (*p.mins[:-1], build.add(p.mins[-1], build.int_const(step)))),
                       c.buffer.dtype)
            for p in (a, b)
        ]  # fmt: skip
        total = build.add(total, build.mul(*parts))
    emit_store(Store(c.buffer, c.mins, total))


_INTRINSICS = {
    **{name: getattr(math, name) for name in ("exp", "exp2", "exp10", "log", "log2", "log10")},
    **{name: getattr(math, name) for name in ("log1p", "sqrt", "rsqrt", "sin", "cos", "tan")},
    **{name: getattr(math, name) for name in ("sinh", "cosh", "tanh", "atan", "erf", "sigmoid")},
    **{name: getattr(math, name) for name in ("floor", "ceil", "trunc", "round", "nearbyint")},
    **{name: getattr(math, name) for name in ("isnan", "isinf", "popcount", "pow", "fmod", "fma")},
    **{"fabs": math.abs, "if_then_else": math.if_then_else, "likely": math.likely},
    **{"max_nan": math.max_nan, "min_nan": math.min_nan},
}


def call_intrin(dtype: Any, name: Any, *operands: Any) -> Value:
    """The intrinsic `name` of TIR, such as "tir.exp", converted to `dtype`.

    Mathematical functions exist; raises `TileValueError` for anything else, which has no meaning
    outside the compiler it belongs to.

    >>> B[i] = T.call_intrin("float32", "tir.exp", A[i])
    """
    in_kernel("T.call_intrin")
    short = str(getattr(name, "name", name)).rsplit(".", 1)[-1]
    if short not in _INTRINSICS:
        raise TileValueError(
            f"T.call_intrin has no intrinsic {name!r}",
            hint="mathematical functions exist, as in 'tir.exp'; others are functions of T",
        )
    made = to_value(_INTRINSICS[short](*operands))
    expr, binding = fitting(made, DType(str(dtype)))
    return Value(expr, binding)
