"""Moves and conversions (PTX ISA, "Data Movement and Conversion Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.floats import (
    FLOATS,
    encode_bits,
    read_float,
    rounding,
)
from tileworkbench.compiler.sim.ptx.memory import WINDOWS, space_of, window_number
from tileworkbench.compiler.sim.ptx.module import TYPE_BITS, Instruction, Vector
from tileworkbench.compiler.sim.ptx.numeric import (
    DTYPES,
    UNSIGNED,
    Array,
    float8_bits,
    flush,
    from_float8,
    saturate,
    tfloat32_bits,
)
from tileworkbench.compiler.sim.ptx.operands import Decoder, Reader
from tileworkbench.compiler.sim.ptx.state import State, Step


def decode_mov(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    kind = kind if kind in ("pred", "f32", "f64") else f"b{TYPE_BITS[kind]}"
    target, source = i.operands[0], i.operands[1]
    if isinstance(target, Vector) and isinstance(source, Vector):
        moves = [
            (d.read(a, kind), d.write(b, kind))
            for a, b in zip(source.items, target.items, strict=True)
        ]

        def step(state: State) -> None:
            values = [read(state) for read, _ in moves]
            for value, (_, write) in zip(values, moves, strict=True):
                write(state, value)

        return step
    read, write = d.read(source, kind), d.write(target, kind)
    return lambda state: write(state, read(state))


def decode_cvta(i: Instruction, d: Decoder) -> Step:
    """Generic addresses are the addresses of a space plus the start of its window."""
    space = next(name.split("::")[0] for name in i.modifiers if name != "to" and name[0] != "u")
    kind = i.modifiers[-1]
    read, write = d.read(i.operands[1], "b64"), d.write(i.operands[0], kind)
    window = np.uint64(WINDOWS.get(space, 0))
    if i.has("to"):
        return lambda state: write(state, read(state) - window)
    return lambda state: write(state, read(state) + window)


def decode_policy(i: Instruction, d: Decoder) -> Step:
    """A cache policy: any value will do."""
    write = d.write(i.operands[0], "b64")
    return lambda state: write(state, np.zeros(state.lanes, dtype=np.uint64))


def decode_isspacep(i: Instruction, d: Decoder) -> Step:
    space = i.modifiers[0].split("::")[0]
    read, write = d.read(i.operands[1], "b64"), d.write(i.operands[0], "pred")
    if space in WINDOWS:
        window = window_number(space)
        return lambda state: write(state, space_of(read(state)) == window)
    others = [window_number(other) for other in WINDOWS]
    return lambda state: write(state, ~np.isin(space_of(read(state)), others))


def decode_cvt(i: Instruction, d: Decoder) -> Step:
    kinds = [name for name in i.modifiers if name in TYPE_BITS]
    if i.has("pack"):
        return _convert_pack(i, d)
    if len(kinds) != 2:
        raise unsupported(i)
    target, source = kinds
    if target == source and target in ("f32", "f64", "f16") and _integer_rounding(i):
        return _round_to_integer(i, d, target)
    if target in ("f16x2", "bf16x2", "e4m3x2", "e5m2x2") or source in ("e4m3x2", "e5m2x2"):
        return _convert_packed(i, d, target, source)
    if target == "tf32":
        return _convert_tfloat(i, d)
    if target in FLOATS:
        return _convert_to_float(i, d, target, source)
    if source in FLOATS:
        return _convert_to_integer(i, d, target, source)
    return _convert_integer(i, d, target, source)


_INTEGER_MODES: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}


def _integer_rounding(i: Instruction) -> Callable[[Array], Array] | None:
    return next((_INTEGER_MODES[name] for name in i.modifiers if name in _INTEGER_MODES), None)


def _round_to_integer(i: Instruction, d: Decoder, kind: str) -> Step:
    function = _integer_rounding(i) or np.trunc
    read = read_float(d, i.operands[1], kind, i.has("ftz"))
    write = d.write(i.operands[0], f"b{TYPE_BITS[kind]}")
    sat = i.has("sat")

    def step(state: State) -> None:
        value = function(read(state))
        write(state, encode_bits(saturate(value) if sat else value, kind))

    return step


def _convert_integer(i: Instruction, d: Decoder, target: str, source: str) -> Step:
    read, write = d.read(i.operands[1], source), d.write(i.operands[0], target)
    dtype = DTYPES[target]
    if not i.has("sat"):
        return lambda state: write(state, read(state).astype(dtype))
    limits = np.iinfo(dtype)

    def step(state: State) -> None:
        value = read(state)
        low = max(int(limits.min), int(np.iinfo(value.dtype).min))
        high = min(int(limits.max), int(np.iinfo(value.dtype).max))
        write(state, np.clip(value, low, high).astype(dtype))

    return step


def _convert_to_integer(i: Instruction, d: Decoder, target: str, source: str) -> Step:
    """Conversions from floats saturate; NaN gives 0 (for 64-bit results from binary32 and
    binary64, the lowest value)."""
    function = _integer_rounding(i) or np.trunc
    read = read_float(d, i.operands[1], source, i.has("ftz"))
    write = d.write(i.operands[0], target)
    dtype = DTYPES[target]
    limits = np.iinfo(dtype)
    wide = TYPE_BITS[target] == 64
    not_a_number = dtype(1 << 63) if wide and target == "u64" else dtype(limits.min if wide else 0)

    def step(state: State) -> None:
        value = function(read(state).astype(np.float64))
        above, below = value >= float(limits.max), value <= float(limits.min)
        unknown = np.isnan(value)
        inside = np.where(above | below | unknown, 0.0, value).astype(dtype)
        result = np.where(above, dtype(limits.max), np.where(below, dtype(limits.min), inside))
        write(state, np.where(unknown, not_a_number, result).astype(dtype))

    return step


def _convert_to_float(i: Instruction, d: Decoder, target: str, source: str) -> Step:
    mode, ftz, sat, relu = rounding(i), i.has("ftz"), i.has("sat"), i.has("relu")
    if source in FLOATS:
        read: Reader = read_float(d, i.operands[1], source, ftz and source == "f32")
    else:
        read = d.read(i.operands[1], source)
    write = d.write(i.operands[0], f"b{TYPE_BITS[target]}")

    def step(state: State) -> None:
        value = read(state)
        if value.dtype.kind in "iu":
            value = _float_of_integer(value, target)
        if relu:
            value = np.where(value < 0, value * 0, value)
        if sat:
            value = saturate(value)
        if target == "f64":
            value = value.astype(np.float64)
        bits = encode_bits(value, target, mode)
        if ftz and target == "f32":
            bits = flush(bits.view(np.float32)).view(np.uint32)
        write(state, bits)

    return step


def _float_of_integer(value: Array, target: str) -> Array:
    """An integer as binary64, so that rounding it to `target` gives what rounding the integer
    would."""
    wide = value.astype(np.float64)
    if value.dtype.itemsize < 8 or target == "f64":
        return wide
    # The lowest 12 bits of a large integer only matter for being zero or not.
    kind = value.dtype.type
    sticky = ((value & kind(0xFFF)) != 0).astype(kind) << kind(11)
    exact = ((value & ~kind(0xFFF)) | sticky).astype(np.float64)
    return np.where(np.abs(wide) >= 2.0**53, exact, wide)


def _convert_tfloat(i: Instruction, d: Decoder) -> Step:
    read, write = d.read(i.operands[1], "f32"), d.write(i.operands[0], "b32")
    mode = rounding(i)
    return lambda state: write(state, tfloat32_bits(read(state), mode))


def _read_halves(i: Instruction, d: Decoder, target: str, source: str) -> Reader:
    """The sources of a packed conversion as floats with a last axis of two, the lower first."""
    if source == "f32":
        high, low = (read_float(d, operand, "f32") for operand in i.operands[1:3])
        return lambda state: np.stack(np.broadcast_arrays(low(state), high(state)), axis=-1)
    if source in ("e4m3x2", "e5m2x2"):
        packed = d.read(i.operands[1], "b16")

        def read(state: State) -> Array:
            pairs = np.atleast_1d(packed(state)).view(np.uint8).reshape(-1, 2)
            return from_float8(pairs, source[:-2])

        return read
    if source in ("f16x2", "bf16x2"):
        return read_float(d, i.operands[1], source)
    raise unsupported(i)


def _convert_packed(i: Instruction, d: Decoder, target: str, source: str) -> Step:
    read = _read_halves(i, d, target, source)
    eight_bits = target in ("e4m3x2", "e5m2x2")
    write = d.write(i.operands[0], "b16" if eight_bits else "b32")
    mode, relu = rounding(i), i.has("relu")
    limit = 65504.0 if target == "f16x2" else float(np.uint32(0x7F7F0000).view(np.float32))

    def step(state: State) -> None:
        value = read(state)
        if relu:
            value = np.where(value < 0, value * 0, value)
        if eight_bits:
            pairs = np.ascontiguousarray(float8_bits(value, target[:-2]))
            write(state, pairs.view(np.uint16).reshape(-1))
            return
        if i.has("satfinite"):
            value = np.where(np.isnan(value), value, np.clip(value, -limit, limit))
        write(state, encode_bits(value, target, mode))

    return step


def _convert_pack(i: Instruction, d: Decoder) -> Step:
    """``cvt.pack.sat``: two words as narrow integers, in front of the halves already there."""
    kinds = [name for name in i.modifiers if name in TYPE_BITS]
    target, source = kinds[0], kinds[1]
    bits = TYPE_BITS[target]
    first, second = d.read_all(i.operands[1:3], source)
    rest = d.read(i.operands[3], "b32") if len(i.operands) > 3 else None
    write = d.write(i.operands[0], "b32")
    limits = np.iinfo(DTYPES[target])

    def clamp(x: Array) -> Array:
        narrow: Array = np.clip(x, limits.min, limits.max).astype(DTYPES[target])
        return np.asarray(narrow.view(UNSIGNED[bits]).astype(np.uint32))

    def step(state: State) -> None:
        pair = clamp(first(state)) << np.uint32(bits) | clamp(second(state))
        if rest is not None:
            pair = pair | rest(state) << np.uint32(2 * bits)
        write(state, pair)

    return step
