"""Tiles that threads turn while they fill them: each holds blocks of a few rows, which it loads by
rows and stores by columns.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.loaded_layouts import Accesses, layout_between
from tileworkbench.compiler.machine.machine import VECTOR_BITS, Machine

_REGISTER_BITS = 32
_WORD = 4  # bytes


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of `rows` x `columns` elements, of which each thread has one or several: `loaded` says
    which, by rows.
    """

    rows: int
    columns: int
    loaded: Fragment


@lru_cache(maxsize=256)
def turned_block(shape: tuple[int, int], bits: int, threads: int, most: int) -> Blocks | None:
    """The blocks of a tile of `shape`, whose extents are powers of two: rows of up to 16 bytes, and
    as many of them, up to `most`, as leave a block for each thread. Rows and columns fill whole
    registers; None where there is too little for that.

    Threads whose columns together make 16 bytes are neighbours: a warp stores these in one phase,
    and swizzles keep them in one piece.
    """
    share, least = prod(shape) // threads, _REGISTER_BITS // bits
    columns = min(VECTOR_BITS // bits, shape[1], share // least)
    if columns < least:
        return None
    rows = min(share // columns, most, shape[0])
    if rows < least:
        return None
    near = min(max(VECTOR_BITS // bits // rows, 1), shape[0] // rows)

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        band, across = i // (rows * near), j // columns * near + i // rows % near
        number = band * (shape[1] // columns * near) + across
        slot = number // threads * (rows * columns) + i % rows * columns + j % columns
        return number % threads, slot

    return Blocks(rows, columns, Fragment(shape, place))


@lru_cache(maxsize=256)
def turned_bytes(shape: tuple[int, ...], threads: int) -> Fragment | None:
    """Blocks of a tile of bytes in rows, which threads turn from one tile in shared memory into
    another: a word of up to 16 rows each. None for a shape that is not shared out so.

    Blocks one below the other are neighbours, in twos: stores of 16 bytes of a column then meet in
    a bank in twos, as loads of a word of a row do, for layouts of wgmma and rows without a swizzle.
    """
    if len(shape) != 2 or any(n & (n - 1) for n in (*shape, threads)):
        return None
    share = shape[0] * shape[1] // threads
    rows = min(16, share // _WORD, shape[0])
    if rows < _WORD or shape[1] < _WORD:
        return None
    near = min(2, shape[0] // rows)

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        band, across = i // (rows * near), j // _WORD * near + i // rows % near
        number = band * (shape[1] // _WORD * near) + across
        slot = number // threads * (rows * _WORD) + i % rows * _WORD + j % _WORD
        return number % threads, slot

    return Fragment((shape[0], shape[1]), place)


def turned_layout(
    shape: tuple[int, int], bits: int, operand: Fragment, blocks: Blocks, machine: Machine
) -> Layout:
    """The layout of a tile of `shape` with its dimensions exchanged, into which threads store the
    columns of their blocks and from which warps load `operand`.
    """
    slots = range(0, blocks.loaded.slots, blocks.rows * blocks.columns)
    held = [blocks.loaded.elements_of(lane).tolist() for lane in range(machine.lanes)]
    starts = tuple(
        tuple((each[slot + column][1], each[slot + column][0]) for each in held)
        for slot in slots
        for column in range(blocks.columns)
    )
    stores = Accesses(starts, blocks.rows * bits // 8, False)
    return layout_between(shape[::-1], bits, operand, stores, machine)
