"""Instructions that count, find and reverse bits (PTX ISA, "popc", "clz", "bfind", "brev")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tileworkbench.compiler.sim.ptx.module import TYPE_BITS, Instruction
from tileworkbench.compiler.sim.ptx.numeric import UNSIGNED, Array
from tileworkbench.compiler.sim.ptx.operands import Decoder
from tileworkbench.compiler.sim.ptx.state import Step


def _count(i: Instruction, d: Decoder, function: Callable[[Array], Array]) -> Step:
    """An instruction whose result is a number of bits, 32 bits wide."""
    read = d.read(i.operands[1], i.modifiers[-1])
    write = d.write(i.operands[0], "u32")
    return lambda state: write(state, function(read(state)).astype(np.uint32))


def _length(x: Array) -> Array:
    """The number of bits that an unsigned value needs."""
    x = np.asarray(x)
    length = np.zeros(x.shape, dtype=np.int64)
    for step in (32, 16, 8, 4, 2, 1):
        if step < x.dtype.itemsize * 8:
            big = (x >> x.dtype.type(step)) != 0
            length = length + np.where(big, step, 0)
            x = np.where(big, x >> x.dtype.type(step), x)
    return np.asarray(length + (x != 0))


_BITS_SET = np.array([value.bit_count() for value in range(256)], dtype=np.uint32)


def decode_popc(i: Instruction, d: Decoder) -> Step:
    def count(x: Array) -> Array:
        by_byte = _BITS_SET[np.atleast_1d(x).view(np.uint8)]
        return np.asarray(by_byte.reshape(-1, x.dtype.itemsize).sum(axis=1))

    return _count(i, d, count)


def decode_clz(i: Instruction, d: Decoder) -> Step:
    bits = TYPE_BITS[i.modifiers[-1]]
    return _count(i, d, lambda x: bits - _length(x))


def decode_bfind(i: Instruction, d: Decoder) -> Step:
    """The place of the highest bit that differs from the sign; all ones without one."""
    bits = TYPE_BITS[i.modifiers[-1]]
    unsigned = UNSIGNED[bits]

    def find(x: Array) -> Array:
        magnitude = np.where(x < 0, ~x, x).view(unsigned) if x.dtype.kind == "i" else x
        length = _length(magnitude)
        place = bits - length if i.has("shiftamt") else length - 1
        return np.where(length == 0, -1, place)

    return _count(i, d, find)


def decode_brev(i: Instruction, d: Decoder) -> Step:
    def reverse(x: Array) -> Array:
        swapped = np.atleast_1d(x).byteswap()
        kind = swapped.dtype.type
        for shift, mask in ((4, 0x0F), (2, 0x33), (1, 0x55)):
            pattern = kind(int.from_bytes(bytes([mask]) * swapped.dtype.itemsize, "big"))
            low = (swapped & pattern) << kind(shift)
            swapped = ((swapped >> kind(shift)) & pattern) | low
        return swapped.reshape(np.shape(x))

    kind = i.modifiers[-1]
    read, write = d.read(i.operands[1], kind), d.write(i.operands[0], kind)
    return lambda state: write(state, reverse(read(state)))
