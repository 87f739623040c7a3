"""Floating-point instructions, scalar and packed (PTX ISA, "Floating Point Instructions", "Half
Precision Floating Point Instructions").

Halves and brain floats are computed exactly or in binary64 rounded to odd, then rounded once. What
the ISA calls approximate is the correctly rounded value of the function here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.module import Instruction, Operand
from tileworkbench.compiler.sim.ptx.numeric import (
    DTYPES,
    Array,
    flush,
    fma32,
    fma64,
    from_bfloat16,
    narrow,
    saturate,
    sum_to_odd,
)
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader, Writer
from tileworkbench.compiler.sim.ptx.state import State, Step

FLOATS = frozenset({"f16", "bf16", "f16x2", "bf16x2", "f32", "f64"})
_MODES = ("rz", "rm", "rp", "rna")


def rounding(i: Instruction) -> str:
    """The rounding mode an instruction names, "rn" by default."""
    return next((mode for mode in _MODES if mode in i.modifiers), "rn")


def decode_bits(value: Array, kind: str) -> Array:
    """The bits of a float format as floats: binary32 for the half formats, with a second axis of
    two for the packed ones."""
    if kind in ("f32", "f64"):
        return value.view(DTYPES[kind])
    if kind.endswith("x2"):
        halves = np.atleast_1d(value).view(np.uint16).reshape(-1, 2)
        return decode_bits(halves, kind[:-2])
    if kind == "f16":
        return value.view(np.float16).astype(np.float32)
    return from_bfloat16(value)


def encode_bits(value: Array, kind: str, mode: str = "rn") -> Array:
    """Floats (binary64 ones exact or rounded to odd) as the bits of a format."""
    if kind == "f64":
        return value.view(np.uint64)
    if kind == "f32":
        if value.dtype == np.float64:
            value = narrow(value, "f32", mode)
        return np.asarray(value).view(np.uint32)
    if kind.endswith("x2"):
        halves = np.ascontiguousarray(encode_bits(value, kind[:-2], mode))
        return halves.view(np.uint32).reshape(-1)
    rounded = narrow(value.astype(np.float64), kind, mode)
    return np.asarray(rounded).view(np.uint16)


def read_float(d: Decoder, operand: Operand, kind: str, ftz: bool = False) -> Reader:
    """A function that gives an operand of a float type as floats."""
    if kind in ("f32", "f64"):
        read = d.read(operand, kind)
        if ftz:
            return lambda state: flush(read(state))
        return read
    bits = d.read(operand, "b32" if kind.endswith("x2") else "b16")
    return lambda state: decode_bits(bits(state), kind)


def write_float(d: Decoder, operand: Operand, i: Instruction, kind: str) -> Writer:
    """A function that rounds, flushes and saturates a result as the instruction says."""
    write = d.write(operand, {"f64": "b64", "f16": "b16", "bf16": "b16"}.get(kind, "b32"))
    mode, ftz, sat, relu = rounding(i), i.has("ftz") and kind == "f32", i.has("sat"), i.has("relu")

    def finish(state: State, value: Array) -> None:
        if relu:
            value = np.where(value > 0, value, np.where(np.isnan(value), value, value * 0))
        if sat:
            value = saturate(value)
        if ftz:
            value = flush(narrow(value.astype(np.float64), "f32", mode))
        write(state, encode_bits(value, kind, mode))

    if not (relu or sat or ftz):
        return lambda state, value: write(state, encode_bits(value, kind, mode))
    return finish


def _apply(i: Instruction, d: Decoder, function: Callable[..., Array]) -> Step:
    kind = i.modifiers[-1]
    sources = [read_float(d, operand, kind, i.has("ftz")) for operand in i.operands[1:]]
    write = write_float(d, i.operands[0], i, kind)
    if len(sources) == 1:
        only = sources[0]
        return lambda state: write(state, function(only(state)))
    if len(sources) == 2:
        first, second = sources
        return lambda state: write(state, function(first(state), second(state)))
    return lambda state: write(state, function(*(source(state) for source in sources)))


def decode_add(i: Instruction, d: Decoder) -> Step:
    kind, negate = i.modifiers[-1], i.opcode == "sub"
    if kind in ("f32", "f64") and rounding(i) == "rn":
        return _apply(i, d, np.subtract if negate else np.add)
    if kind == "f64":
        raise unsupported(i, "directed rounding of binary64")

    def add(a: Array, b: Array) -> Array:
        other = -b if negate else b
        return sum_to_odd(a.astype(np.float64), other.astype(np.float64))

    return _apply(i, d, add)


def decode_mul(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    if kind in ("f32", "f64") and rounding(i) == "rn":
        return _apply(i, d, np.multiply)
    if kind == "f64":
        raise unsupported(i, "directed rounding of binary64")
    return _apply(i, d, lambda a, b: np.multiply(a, b, dtype=np.float64))


def decode_fma(i: Instruction, d: Decoder) -> Step:
    kind, mode = i.modifiers[-1], rounding(i)
    if kind == "f64":
        if mode != "rn":
            raise unsupported(i, "directed rounding of binary64")
        return _apply(i, d, fma64)
    if kind == "f32":
        return _apply(i, d, lambda a, b, c: fma32(a, b, c, mode))

    def fuse(a: Array, b: Array, c: Array) -> Array:
        return sum_to_odd(np.multiply(a, b, dtype=np.float64), c.astype(np.float64))

    return _apply(i, d, fuse)


def decode_div(i: Instruction, d: Decoder) -> Step:
    if rounding(i) != "rn":
        raise unsupported(i, "directed rounding of a quotient")
    return _apply(i, d, np.divide)


def choose(a: Array, b: Array, smaller: bool) -> Array:
    """The smaller or larger of each pair; a NaN gives way to a number, and -0 is below +0."""
    first = (a < b) | ((a == b) & np.signbit(a))
    chosen = np.where(first == smaller, a, b)
    return np.where(np.isnan(a), b, np.where(np.isnan(b), a, chosen))


def decode_min(i: Instruction, d: Decoder) -> Step:
    """The smaller or larger, as in `choose`; ``.NaN`` keeps a NaN."""
    smaller, keeps_nan, absolute = i.opcode == "min", i.has("NaN"), i.has("abs")

    def pick(a: Array, b: Array) -> Array:
        x, y = (np.abs(a), np.abs(b)) if absolute else (a, b)
        chosen = choose(x, y, smaller)
        if keeps_nan:
            chosen = np.where(np.isnan(x) | np.isnan(y), x.dtype.type(np.nan), chosen)
        if i.has("xorsign"):
            chosen = np.where(np.signbit(a) != np.signbit(b), -chosen, chosen)
        return chosen

    def pick_all(a: Array, *others: Array) -> Array:
        for b in others:
            a = pick(a, b)
        return a

    return _apply(i, d, pick_all)


def decode_abs(i: Instruction, d: Decoder) -> Step:
    return _apply(i, d, np.abs if i.opcode == "abs" else np.negative)


def _wide(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A function of binary32 evaluated in binary64, rounded when it is written."""
    return lambda x: function(x.astype(np.float64)) if x.dtype == np.float32 else function(x)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "rcp": lambda x: x.dtype.type(1) / x,
    "sqrt": np.sqrt,
    "rsqrt": _wide(lambda x: 1.0 / np.sqrt(x)),
    "sin": _wide(np.sin),
    "cos": _wide(np.cos),
    "lg2": _wide(np.log2),
    "ex2": _wide(np.exp2),
    "tanh": _wide(np.tanh),
}


def decode_unary(i: Instruction, d: Decoder) -> Step:
    if rounding(i) != "rn":
        raise unsupported(i, "directed rounding of a function")
    return _apply(i, d, _UNARY[i.opcode])


def decode_copysign(i: Instruction, d: Decoder) -> Step:
    return _apply(i, d, lambda a, b: np.copysign(b, a))


_TESTS: dict[str, Callable[[Array], Array]] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: (x != 0) & (np.abs(x) < np.finfo(x.dtype).tiny),
}


def decode_testp(i: Instruction, d: Decoder) -> Step:
    test = _TESTS[i.modifiers[0]]
    read = read_float(d, i.operands[1], i.modifiers[-1])
    write = d.write(i.operands[0], "pred")
    return lambda state: write(state, test(read(state)))
