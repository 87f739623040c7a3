"""How tensor cores find an operand in shared memory: a start address, two distances and a swizzle.

PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "Matrix Descriptor Format" and
"Strides". An operand is cut in pieces of eight lines. A line is `swizzle` bytes long, or 16 without
a swizzle, and runs along K, or along the rows of an operand that is `transposed`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass

from .layout import SWIZZLES, Layout

WIDTHS = (*SWIZZLES, 0)
LINES = 8  # of a piece
UNIT = 16  # bytes that a swizzle keeps together
_CODES = {0: 0, 128: 1, 64: 2, 32: 3}


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Distances in bytes: `leading` between pieces side by side, `stride` between those one behind
    the other along the lines' other direction. Without a swizzle, and `transposed`, it is the other
    way round, as the instruction has it.
    """

    leading: int
    stride: int
    swizzle: int
    transposed: bool

    @property
    def line(self) -> int:
        """The bytes of a line."""
        return self.swizzle or UNIT

    def places(self, row: Any, k: Any, size: int) -> Any:
        """The byte of element (`row`, `k`) of `size` bytes, counted from the first one, before bits
        of the address are swizzled.
        """
        outer, inner = (k, row * size) if self.transposed else (row, k * size)
        across, down = self.leading, self.stride
        if self.transposed and not self.swizzle:
            across, down = down, across
        within = outer % LINES * self.line + inner % self.line
        return outer // LINES * down + inner // self.line * across + within

    def swizzled(self, address: Any) -> Any:
        """Where the byte at `address` is."""
        return address ^ (address >> 3 & (self.swizzle - UNIT if self.swizzle else 0))

    @property
    def bits(self) -> int:
        """The 64 bits of the descriptor of an operand at address 0."""
        return self.leading >> 4 << 16 | self.stride >> 4 << 32 | _CODES[self.swizzle] << 62


def descriptor_layout(shape: tuple[int, ...], bits: int) -> Layout:
    """The layout in which tensor cores read a tile of `bits`-bit elements, along either of its last
    two dimensions: with the widest swizzle that its rows have, else in lines of 16 bytes.

    Raises `LayoutError` where rows are no multiple of 16 bytes.
    """
    row_bytes = shape[-1] * bits // 8
    for width in SWIZZLES:
        if row_bytes % width == 0:
            return Layout.swizzled(shape, bits, width)
    rows, unit = shape[-2], UNIT * 8 // bits

    def place(i: Any, j: Any) -> Any:
        return j // unit * (rows * unit) + i * unit + j % unit

    return Layout(shape[-2:], place).expand(shape[:-2])


@lru_cache(maxsize=256)
def find_descriptor(
    layout: Layout, bits: int, transposed: bool, extents: tuple[int, int]
) -> Descriptor | None:
    """The descriptor that reads every block of `extents` (rows, elements along K) of a tile of
    `bits`-bit elements, which begins at a multiple of 1024 bytes; None where `layout` is not one
    that descriptors have.

    The last dimension of the tile is K, or the rows of an operand that is `transposed`; dimensions
    in front of the last two count tiles.
    """
    import numpy as np

    size, front = bits // 8, (0,) * (layout.rank - 2)
    grid = np.indices(layout.shape[-2:])
    flat: Any = 0
    for position, extent in zip(layout.evaluate(*front, *grid), layout.output_shape, strict=True):
        flat = flat * extent + np.asarray(position, np.int64)
    table = np.broadcast_to(flat, grid[0].shape) * size
    table = table.T if transposed else table  # [row, k]
    rows, depth = extents
    if table.shape[0] % rows or table.shape[1] % depth:
        return None
    for width in WIDTHS:
        descriptor = _fitted(table, width, transposed, size)
        if all(
            _reads(descriptor, table[r : r + rows, k : k + depth], size)
            for r in range(0, table.shape[0], rows)
            for k in range(0, table.shape[1], depth)
        ):
            tiles = int(table.max()) + size
            whole = tiles % (LINES * descriptor.line) == 0 or not front
            return descriptor if whole else None
    return None


def _fitted(table: Any, width: int, transposed: bool, size: int) -> Descriptor:
    """The descriptor of that swizzle whose distances are those of `table`."""
    lines = table.T if transposed else table  # [line, element along it]
    along = (width or UNIT) // size
    down = int(lines[LINES, 0] - lines[0, 0]) if lines.shape[0] > LINES else UNIT
    across = int(lines[0, along] - lines[0, 0]) if lines.shape[1] > along else UNIT
    if transposed and not width:
        across, down = down, across
    return Descriptor(across, down, width, transposed)


def _reads(descriptor: Descriptor, block: Any, size: int) -> bool:
    """Whether the elements of `block` are where the instruction looks for them."""
    import numpy as np

    row, k = np.indices(block.shape)
    distances = (descriptor.leading, descriptor.stride)
    if any(not 0 < each < 1 << 18 or each % UNIT for each in distances) or block[0, 0] % UNIT:
        return False
    linear = block[0, 0] + descriptor.places(row, k, size)
    return bool(np.array_equal(descriptor.swizzled(linear), block))
