"""How the values of a kernel are cut into blocks."""

from __future__ import annotations

from itertools import product
from math import inf

TILE = 4096  # elements of a tile that is read and written once
LONGEST_ROW = 16384  # columns of a row that is kept in fast memory
LONGEST_KEPT = 131072  # of one of which a processor's second cache keeps what costs much
_PIECE = 2048  # columns of a piece of a longer one
_ROW_TILE = 2048  # elements of a tile of rows
WIDEST = 128  # columns of a product's tile
_MOST_ROWS, _WIDTHS = 256, (WIDEST, 64)  # of it on a processor
_DEPTH = 384  # of its operands' tiles there: a tile of the result is loaded and stored so seldom
_VECTOR = 64  # columns that a piece is a multiple of: a reduction adds so many at once
_UNIT = 4  # of a depth that is divided evenly
_ROWS_OF_PACKING, _COLUMNS_OF_COPYING = 4, 2  # multiplied in the time of an operand's copy
DEPTH = 32  # of the tiles of operands on every target


def tile_of(rows: int, columns: int, has_reductions: bool) -> tuple[int, int]:
    """Rows and columns of a block of what is no product."""
    if has_reductions and columns > LONGEST_ROW:
        return 1, piece_of(columns)
    if has_reductions:
        return max(1, min(_ROW_TILE // columns, power_of_two(rows), 64)), columns
    wide = min(columns, TILE)
    return max(1, min(TILE // wide, power_of_two(rows))), wide


def piece_of(columns: int) -> int:
    """Columns of a piece of a row that is read in pieces: those that divide it evenly have nothing
    behind its end, which each reduction would have to leave out.
    """
    if columns <= _PIECE:
        return columns
    fewest = -(-columns // _PIECE)
    even = (n for n in range(fewest, 4 * fewest) if columns % (n * _VECTOR) == 0)
    pieces = next(even, fewest)
    return -(-columns // (pieces * _VECTOR)) * _VECTOR


def tile_of_product(rows: int, columns: int, threads: int) -> tuple[int, int]:
    """Rows and columns of a block of a product, for so many threads of a processor.

    Rows are split evenly, whatever their number: a block multiplies all its rows, those behind the
    last one of the tensor, too. Each block packs its part of the second operand and copies that of
    the first one, which the loops over the block repay. The thread with most blocks is the last.
    """
    best, chosen = inf, (rows, columns)
    for parts, width in product(range(-(-rows // _MOST_ROWS), rows // 16 + 2), _WIDTHS):
        size = (-(-rows // parts), min(width, -(-columns // 16) * 16))
        rounds = -(-(-(-rows // size[0]) * -(-columns // size[1])) // threads)  # of blocks
        time = rounds * (size[0] + _ROWS_OF_PACKING) * (size[1] + _COLUMNS_OF_COPYING)
        if time < best:
            best, chosen = time, size
    return chosen


def depth_of_product(depth: int) -> int:
    """The depth of the tiles of a product's operands on a processor.

    Tiles that divide it evenly have nothing behind the end of a row, which would be multiplied,
    too, and checked for; the first operand is read where it lies then.
    """
    fewest = -(-depth // _DEPTH)
    even = (n for n in range(fewest, 2 * fewest + 1) if depth % (n * _UNIT) == 0)
    steps = next(even, 0)
    return depth // steps if steps else -(-depth // (16 * fewest)) * 16


def tile_of_any(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a product's block that fits GPUs, and products of every size."""
    return min(WIDEST, power_of_two(rows)), min(WIDEST, power_of_two(columns))


def power_of_two(size: int) -> int:
    """The next power of two, from 16 on; 1 for one."""
    return max(16, 1 << (size - 1).bit_length()) if size > 1 else 1
