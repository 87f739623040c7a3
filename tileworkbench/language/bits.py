"""Positions of bits in words, as GPUs count them."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.control import let
from tileworkbench.compiler.frontend.values import Value, describe, is_number, to_value
from tileworkbench.language import math
from tileworkbench.language.dtypes import int32, uint32, uint64


def ffs(value: Any) -> Any:
    """The position of the lowest bit that is set, counted from 1; 0 where none is (int32).

    Raises `TileTypeError` for anything but an integer.

    >>> N[i] = T.__ffs(N[i])
    """
    word = _word("T.__ffs", value)
    word, one = _named("word", word), word.dtype(1)
    # The bits up to the lowest one that is set; of zero, all of them.
    low = math.popcount(word ^ (word - one))
    return math.Select(word == word.dtype(0), int32(0), int32(low))


def clz(value: Any) -> Any:
    """How many bits above the highest one that is set are zero, of a word of 32 or 64 bits: all of
    them for zero (int32).

    Raises `TileTypeError` for anything but an integer.

    >>> N[i] = T.clz(N[i])
    """
    word = _word("T.clz", value)
    width = word.expr.dtype.bits
    for step in (1 << k for k in range(width.bit_length() - 1)):  # ones down from the highest bit
        word = _named("word", word | (word >> word.dtype(step)))
    return int32(width) - int32(math.popcount(word))


def fns(mask: Any, base: Any, offset: Any) -> Any:
    """The position of the bit of the 32-bit `mask` that is number `offset` of those that are set,
    counted from the bit `base` on (0 to 31) upwards, or downwards where `offset` is negative; 0
    asks for the bit `base` itself. 0xFFFFFFFF where there is none (uint32).

    Raises `TileTypeError` for anything but integers.

    >>> N[i] = T.__fns(255, 0, 3)
    """
    construct = "T.__fns"
    bits, start = uint32(_word(construct, mask)), _named("start", uint32(_word(construct, base)))
    steps = _named("steps", int32(_integer(construct, offset)))
    ones = uint32(0xFFFFFFFF)
    upwards, downwards = bits & (ones << start), bits & (ones >> (uint32(31) - start))
    alone = bits & (uint32(1) << start)
    chosen = math.Select(steps > 0, upwards, math.Select(steps < 0, downwards, alone))
    among = _named("among", chosen)
    count = _named("count", int32(math.popcount(among)))
    # Downwards, number 1 is the highest.
    wanted = math.Select(steps > 0, steps, math.Select(steps < 0, count + steps + 1, int32(1)))
    left = wanted = _named("wanted", wanted)
    place = uint32(0)
    for width in (16, 8, 4, 2, 1):
        below = int32(math.popcount((among >> place) & uint32((1 << width) - 1)))
        below = _named("below", below)
        beyond = left > below
        place = _named("place", math.Select(beyond, place + uint32(width), place))
        left = _named("left", math.Select(beyond, left - below, left))
    exists = math.And(wanted >= 1, wanted <= count)
    return math.Select(exists, place, ones)


def _named(name: str, value: Value) -> Value:
    """`value`, computed once."""
    return let(in_kernel("a bit's position"), name, value)


def _word(construct: str, value: Any) -> Any:
    """An integer as an unsigned word of 32 or 64 bits."""
    made = _integer(construct, value)
    return uint64(made) if made.expr.dtype.bits == 64 else uint32(made)


def _integer(construct: str, value: Any) -> Any:
    if is_number(value) and 1 << 31 <= value < 1 << 32:
        return uint32(value)
    made = to_value(value)
    if not made.expr.dtype.is_int:
        described = describe(value) if is_number(value) else f"'{made.expr.dtype}'"
        raise TileTypeError(f"{construct} takes integers, not {described}")
    return made
