"""Shared-memory layouts of gemm operands, without bank conflicts.

Rows (the last dimension) are cut in units of 16 or 32 bytes, and the number of a unit is XORed with
bits of the row's number, so that what a warp reads in one phase lies in different banks:

- ldmatrix reads the units of 16 bytes at one column of 8 rows that follow one another;
- loads of 32- and 64-bit elements for transposed operands read 32 bytes of 4 rows;
- loads of bytes for transposed operands read 8 bytes of 4 rows that are 4 apart, those of 4 bits
  for the same read 4 bytes of 4 rows that are 8 apart.

A row of `2**z * odd` units starts 8 (or 4) / 2**z different banks, and z bits of the row's number
tell apart the rows that start at one. Vectors of 16 bytes stay in one piece, so copies by rows
have no conflicts either. Where rows have no such cut they are padded to an odd number of units.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.machine.machine import SharedMemory


class Reader(Enum):
    """How a gemm reads an operand from shared memory: bytes of a unit, how far apart the rows of
    one phase are, and how many they are.
    """

    MATRIX = (16, 1, 8)
    """ldmatrix: 8 rows of 16 bytes."""
    ELEMENTS = (32, 1, 4)
    """Elements of 32 and 64 bits: 4 rows of 32 bytes."""
    BYTES = (16, 4, 4)
    """Bytes of a transposed operand: 4 rows, 4 apart."""
    NIBBLES = (16, 8, 4)
    """4-bit elements of a transposed operand: 4 rows, 8 apart."""


def operand_layout(shape: Sequence[int], bits: int, reader: Reader, memory: SharedMemory) -> Layout:
    """The layout of a buffer of `bits`-bit elements in shared `memory` that `reader` reads.

    Only the last two dimensions are rearranged. Where one of the swizzles of the copy engine does
    the same, it is that one.
    """
    box = tuple(shape)
    rows, columns = box[-2:]
    unit_bytes, spacing, count = reader.value
    unit = unit_bytes * 8 // bits
    if columns % unit or rows % (spacing * count):
        return _padded(box, unit)
    row_bytes = columns * bits // 8
    if reader is Reader.MATRIX and (row_bytes in (32, 64) or row_bytes % memory.row_bytes == 0):
        return Layout.swizzled(box, bits, min(row_bytes, memory.row_bytes))
    return _swizzled_rows(box, unit, spacing, count)


def _swizzled_rows(box: tuple[int, ...], unit: int, spacing: int, count: int) -> Layout:
    """Row-major, with the number of each unit XORed with bits of the row's number."""
    rows, columns = box[-2:]
    free = count.bit_length() - 1
    places = min((columns // unit & -(columns // unit)).bit_length() - 1, free)
    divisor = spacing * (count >> places if spacing == 1 else 1)

    def place(i: Any, j: Any) -> Any:
        swizzled = j // unit ^ i // divisor % 2**places if places else j // unit
        return i * columns + swizzled * unit + j % unit

    return Layout((rows, columns), place).expand(box[:-2])


def _padded(box: tuple[int, ...], unit: int) -> Layout:
    """Rows an odd number of units apart."""
    pitch = (-(-box[-1] // unit) | 1) * unit
    if pitch == box[-1]:
        return Layout.row_major(box[-2:]).expand(box[:-2])
    return Layout.padded(box[-2:], pitch).expand(box[:-2])
