"""Integer and logic instructions (PTX ISA, "Integer Arithmetic", "Logic and Shift")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.sim.ptx.errors import unsupported
from tileworkbench.compiler.sim.ptx.module import TYPE_BITS, Instruction
from tileworkbench.compiler.sim.ptx.numeric import (
    DTYPES,
    SIGNED,
    UNSIGNED,
    Array,
    divide_truncated,
    multiply_high,
)
from tileworkbench.compiler.sim.ptx.operands import Decoder
from tileworkbench.compiler.sim.ptx.state import State, Step


def _elementwise(
    i: Instruction, d: Decoder, function: Callable[..., Array], kind: str | None = None
) -> Step:
    """A result that is a function of the sources, all of the instruction's own type."""
    kind = kind or i.modifiers[-1]
    sources = d.read_all(i.operands[1:], kind)
    write = d.write(i.operands[0], kind)
    if len(sources) == 2:
        first, second = sources
        return lambda state: write(state, function(first(state), second(state)))
    if len(sources) == 1:
        only = sources[0]
        return lambda state: write(state, function(only(state)))
    return lambda state: write(state, function(*(source(state) for source in sources)))


def decode_add(i: Instruction, d: Decoder) -> Step:
    if i.has("cc") or i.opcode in ("addc", "subc"):
        return _carry(i, d)
    function = np.add if i.opcode == "add" else np.subtract
    if i.has("sat"):
        kind = i.modifiers[-1]
        limits = np.iinfo(DTYPES[kind])

        def saturated(a: Array, b: Array) -> Array:
            wide = function(a.astype(np.int64), b.astype(np.int64))
            return np.clip(wide, limits.min, limits.max).astype(DTYPES[kind])

        return _elementwise(i, d, saturated)
    kind = f"b{TYPE_BITS[i.modifiers[-1]]}"
    if i.modifiers[-1] in ("u16x2", "s16x2"):
        return _elementwise(i, d, lambda a, b: _by_half(function, a, b), kind)
    return _elementwise(i, d, function, kind)


def _by_half(function: Callable[..., Array], *values: Array) -> Array:
    """Apply a function to both 16-bit halves of words."""
    halves = [np.atleast_1d(value).view(np.uint16) for value in values]
    return np.asarray(function(*halves)).view(np.uint32)


def _carry(i: Instruction, d: Decoder) -> Step:
    """``add.cc``, ``addc``, ``sub.cc``, ``subc``, ``mad.cc`` and ``madc``: with the carry (borrow)
    of each lane.
    """
    bits = TYPE_BITS[i.modifiers[-1]]
    kind, dtype = f"b{bits}", UNSIGNED[bits]
    *factors, last = d.read_all(i.operands[1:], i.modifiers[-1])
    write = d.write(i.operands[0], kind)
    subtracts, takes, gives = i.opcode.startswith("sub"), i.opcode.endswith("c"), i.has("cc")
    multiply = multiply_high if i.has("hi") else np.multiply

    def step(state: State) -> None:
        numbers = [factor(state) for factor in factors]
        a = (multiply(*numbers) if len(numbers) == 2 else numbers[0]).astype(dtype)
        b = last(state).astype(dtype)
        carry = state.carry.astype(dtype) if takes else np.zeros(state.lanes, dtype=dtype)
        if subtracts:
            partial = a - b
            result = partial - carry
            out = (a < b) | (partial < carry)
        else:
            partial = a + b
            result = partial + carry
            out = (partial < a) | (result < partial)
        write(state, np.asarray(result))
        if gives:
            state.carry = np.where(state.mask, out, state.carry).astype(np.uint32)

    return step


def decode_mul(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    if i.has("wide"):
        return _multiply_wide(i, d, False)
    if i.has("hi"):
        return _elementwise(i, d, multiply_high)
    return _elementwise(i, d, np.multiply, f"b{TYPE_BITS[kind]}")


def decode_mad(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    if i.has("cc") or i.opcode == "madc":
        return _carry(i, d)
    if i.has("wide"):
        return _multiply_wide(i, d, True)
    if i.has("hi"):
        return _elementwise(i, d, lambda a, b, c: multiply_high(a, b) + c)
    return _elementwise(i, d, lambda a, b, c: a * b + c, f"b{TYPE_BITS[kind]}")


def _multiply_wide(i: Instruction, d: Decoder, adds: bool) -> Step:
    kind = i.modifiers[-1]
    wide_kind = f"{kind[0]}{2 * TYPE_BITS[kind]}"
    wide = DTYPES[wide_kind]
    first, second = d.read_all(i.operands[1:3], kind)
    third = d.read(i.operands[3], wide_kind) if adds else None
    write = d.write(i.operands[0], wide_kind)

    def step(state: State) -> None:
        product = first(state).astype(wide) * second(state).astype(wide)
        write(state, product if third is None else product + third(state))

    return step


def decode_mul24(i: Instruction, d: Decoder) -> Step:
    shift = SIGNED[32](8) if i.modifiers[-1] == "s32" else UNSIGNED[32](8)

    def multiply(a: Array, b: Array, *c: Array) -> Array:
        low = ((a << shift) >> shift) * ((b << shift) >> shift)
        return np.asarray(low + c[0] if c else low)

    if not i.has("lo"):
        raise unsupported(i)
    return _elementwise(i, d, multiply)


def decode_div(i: Instruction, d: Decoder) -> Step:
    part = 0 if i.opcode == "div" else 1
    return _elementwise(i, d, lambda a, b: divide_truncated(a, b)[part])


def decode_min(i: Instruction, d: Decoder) -> Step:
    function = np.minimum if i.opcode == "min" else np.maximum
    kind = i.modifiers[-1]
    if kind in ("u16x2", "s16x2"):
        dtype = DTYPES[f"{kind[0]}16"]
        return _elementwise(
            i, d, lambda a, b: _by_half(lambda x, y: function(x.view(dtype), y.view(dtype)), a, b)
        )
    return _elementwise(i, d, function)


def decode_abs(i: Instruction, d: Decoder) -> Step:
    return _elementwise(i, d, np.abs if i.opcode == "abs" else np.negative)


def decode_sad(i: Instruction, d: Decoder) -> Step:
    def distance(a: Array, b: Array, c: Array) -> Array:
        return c + np.where(a < b, b - a, a - b)

    return _elementwise(i, d, distance)


LOGIC: dict[str, Callable[..., Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}


def decode_logic(i: Instruction, d: Decoder) -> Step:
    return _elementwise(i, d, LOGIC[i.opcode])


def decode_cnot(i: Instruction, d: Decoder) -> Step:
    return _elementwise(i, d, lambda a: (a == 0).astype(a.dtype))


def decode_shift(i: Instruction, d: Decoder) -> Step:
    """Shifts clamp their distance to the width."""
    kind = i.modifiers[-1]
    bits, dtype = TYPE_BITS[kind], DTYPES[kind]
    value, distance = d.read(i.operands[1], kind), d.read(i.operands[2], "u32")
    write = d.write(i.operands[0], kind)
    left, signed = i.opcode == "shl", kind.startswith("s")

    def step(state: State) -> None:
        x, by = value(state), distance(state)
        amount = np.minimum(by, np.uint32(bits - 1)).astype(dtype)
        shifted = np.left_shift(x, amount) if left else np.right_shift(x, amount)
        write(state, shifted if signed else np.where(by < bits, shifted, dtype(0)))

    return step


def decode_funnel(i: Instruction, d: Decoder) -> Step:
    """``shf``: the upper (left) or lower (right) word of a shifted 64-bit pair."""
    low, high, distance = d.read_all(i.operands[1:4], "b32")
    write = d.write(i.operands[0], "b32")
    left, wraps = i.has("l"), i.has("wrap")

    def step(state: State) -> None:
        by = distance(state)
        amount = by & np.uint32(31) if wraps else np.minimum(by, np.uint32(32))
        pair = high(state).astype(np.uint64) << np.uint64(32) | low(state).astype(np.uint64)
        if left:
            pair = (pair << amount.astype(np.uint64)) >> np.uint64(32)
        else:
            pair = pair >> amount.astype(np.uint64)
        write(state, pair.astype(np.uint32))

    return step


def decode_bfe(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    bits = TYPE_BITS[kind]
    value = d.read(i.operands[1], kind)
    position, length = d.read_all(i.operands[2:4], "u32")
    write = d.write(i.operands[0], kind)
    signed, unsigned = kind.startswith("s"), UNSIGNED[bits]

    def step(state: State) -> None:
        start = np.minimum(position(state) & np.uint32(0xFF), np.uint32(bits - 1))
        count = np.minimum(length(state) & np.uint32(0xFF), np.uint32(bits))
        x = value(state)
        # Bits above the register repeat the sign of a signed value.
        shifted = (x >> start.astype(x.dtype)).view(unsigned)
        above = (position(state) & np.uint32(0xFF)) >= bits
        filler = np.where(x < 0, ~unsigned(0), unsigned(0)) if signed else unsigned(0)
        shifted = np.where(above, filler, shifted)
        spare = np.minimum(bits - count.astype(np.int64), bits - 1).astype(unsigned)
        moved = (shifted << spare).view(DTYPES[kind]) >> spare.astype(DTYPES[kind])
        write(state, np.where(count == 0, DTYPES[kind](0), moved))

    return step


def decode_bfi(i: Instruction, d: Decoder) -> Step:
    kind = i.modifiers[-1]
    bits = TYPE_BITS[kind]
    dtype = UNSIGNED[bits]
    source, target = d.read_all(i.operands[1:3], kind)
    position, length = d.read_all(i.operands[3:5], "u32")
    write = d.write(i.operands[0], kind)

    def step(state: State) -> None:
        start = position(state) & np.uint32(0xFF)
        count = np.minimum(length(state) & np.uint32(0xFF), np.uint32(bits))
        inside = np.minimum(start, np.uint32(bits - 1)).astype(dtype)
        ones = np.where(
            count == bits, ~dtype(0), (dtype(1) << (count % bits).astype(dtype)) - dtype(1)
        )
        mask = np.where(start >= bits, dtype(0), ones << inside)
        write(state, (target(state) & ~mask) | ((source(state) << inside) & mask))

    return step


def decode_prmt(i: Instruction, d: Decoder) -> Step:
    """Select four of eight bytes; bit 3 of a selector replicates the byte's sign."""
    first, second, selector = d.read_all(i.operands[1:4], "b32")
    write = d.write(i.operands[0], "b32")
    mode = next((name for name in i.modifiers if name in _PRMT_MODES), "")

    def step(state: State) -> None:
        pair = second(state).astype(np.uint64) << np.uint64(32) | first(state).astype(np.uint64)
        control = selector(state).astype(np.uint32)
        result = np.zeros(np.broadcast(pair, control).shape, dtype=np.uint32)
        for number in range(4):
            choice = _PRMT_MODES[mode](control, number)
            byte = (pair >> ((choice & np.uint32(7)).astype(np.uint64) * np.uint64(8))).astype(
                np.uint32
            ) & np.uint32(0xFF)
            sign = np.where(byte & np.uint32(0x80), np.uint32(0xFF), np.uint32(0))
            byte = np.where(choice & np.uint32(8), sign, byte)
            result = result | (byte << np.uint32(8 * number))
        write(state, result)

    return step


def _prmt_table(rows: tuple[tuple[int, ...], ...]) -> Callable[[Array, int], Array]:
    table = np.array(rows, dtype=np.uint32)
    return lambda control, number: table[(control & np.uint32(3)).astype(np.int64), number]


# Byte `number` of the result for each value of the control operand (PTX ISA, "prmt").
_PRMT_MODES: dict[str, Callable[[Array, int], Array]] = {
    "": lambda control, number: (control >> np.uint32(4 * number)) & np.uint32(15),
    "f4e": _prmt_table(((0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6))),
    "b4e": _prmt_table(((0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0))),
    "rc8": _prmt_table(((0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3))),
    "ecl": _prmt_table(((0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3))),
    "ecr": _prmt_table(((0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3))),
    "rc16": _prmt_table(((0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3))),
}


def decode_lop3(i: Instruction, d: Decoder) -> Step:
    table = int(d.constant(i.operands[4], "u32"))

    def lookup(a: Array, b: Array, c: Array) -> Array:
        result = np.zeros_like(a | b | c)
        for row in range(8):
            if table >> row & 1:
                term = a if row & 4 else ~a
                term = term & (b if row & 2 else ~b)
                result = result | (term & (c if row & 1 else ~c))
        return result

    first, second, third = d.read_all(i.operands[1:4], "b32")
    write = d.write(i.operands[0], "b32")
    return lambda state: write(state, lookup(first(state), second(state), third(state)))


def decode_dp4a(i: Instruction, d: Decoder) -> Step:
    """Four byte products, or two of 16 by 8 bits (``dp2a``), added to a word."""
    first_kind, second_kind = i.modifiers[-2:]
    first, second = d.read_all(i.operands[1:3], "b32")
    third = d.read(i.operands[3], "b32")
    write = d.write(i.operands[0], "b32")
    width = 4 if i.opcode == "dp4a" else 2
    start = 2 if i.has("hi") else 0

    def split(x: Array, kind: str, bits: int) -> Array:
        dtype: Any = (SIGNED if kind.startswith("s") else UNSIGNED)[bits]
        parts: Array = np.atleast_1d(x).view(dtype)
        return parts.reshape(-1, 32 // bits).astype(np.int64)

    def step(state: State) -> None:
        a = split(first(state), first_kind, 32 // width)
        b = split(second(state), second_kind, 8)[:, start : start + width]
        write(state, third(state) + (a * b).sum(axis=1).astype(np.uint32))

    return step
