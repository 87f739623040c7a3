"""CuTe's swizzles of a tile, ``Swizzle<B, M, S>``: what its accesses cost with each, and the best.

The numbers count bits of an element's place: the B bits from ``M + S`` on are XORed into those from
``M`` on; with S below 0 those from ``M`` on into those from ``M - S`` on. Places are in row-major
order of the last two dimensions, or in chunks of columns as the copy engine and the tensor cores
have them (`Layout.swizzled`, whose 32, 64 and 128 bytes are B = 1, 2 and 3 over chunks as wide);
dimensions in front pass through. `static/swizzles.js` has the same arithmetic, and tests compare
both.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

from tileworkbench.compiler.analysis.physical import computable
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.layout.digits import binary_part, power_of_two
from tileworkbench.viz.model.tiles import MisfitError, SharedTile, rearranged, total

CHUNKS = (0, 32, 64, 128)  # bytes; 0: whole rows
MOST_BITS = 5  # B that a search tries: 32 banks are 5 bits
MOST_SHIFT = 7
_FEW = 3


@dataclass(frozen=True, slots=True)
class Swizzle:
    """``Swizzle<bits, base, shift>`` over whole rows, or over chunks of `chunk` bytes of them."""

    bits: int
    base: int
    shift: int
    chunk: int = 0

    def __str__(self) -> str:
        over = f" over chunks of {self.chunk} bytes" if self.chunk else ""
        return f"<{self.bits}, {self.base}, {self.shift}>{over}"

    @property
    def source(self) -> int:
        """The lowest bit that is read."""
        return self.base + max(self.shift, 0)

    @property
    def target(self) -> int:
        """The lowest bit that changes."""
        return self.base + max(-self.shift, 0)

    def problem(self, shape: tuple[int, ...], bits: int) -> str:
        """Why a tile of that shape, of `bits` per element, cannot be swizzled so; empty where it
        can. What the compiler refuses is a problem, too.
        """
        if self.bits < 0 or self.base < 0 or abs(self.shift) < self.bits:
            return f"{self} is no swizzle: B and M are 0 or more, and S is B or more, or -B or less"
        rows, columns = shape[-2:]
        width = self.chunk * 8 // bits or columns
        if columns % width:
            return f"rows of {columns} elements are no multiple of {width}"
        highest = self.target + self.bits - 1
        if self.bits and self.shift < 0 and 2**highest >= rows * columns:
            return f"bit {highest} of a place is beyond the {rows * columns} places of the tile"
        if not computable(self.layout(shape, bits)):
            whole = _whole_bits(rows, columns, width).bit_length() - 1
            return (
                f"no code could compute it: what is XORed must be bits of a row's or a column's "
                f"number, and of {rows}x{columns} elements only the {whole} lowest bits of a place "
                "are"
            )
        return ""

    def layout(self, shape: tuple[int, ...], bits: int) -> Layout:
        """The places of a tile of that shape, of `bits` per element, with which it has no
        `problem`.
        """
        rows, columns = shape[-2:]
        width = self.chunk * 8 // bits or columns
        return _layout(self, rows, columns, width).expand(shape[:-2])


@lru_cache(maxsize=1024)
def _layout(swizzle: Swizzle, rows: int, columns: int, width: int) -> Layout:
    source, target = swizzle.source, swizzle.target

    def place(i: Any, j: Any) -> Any:
        plain = j // width * (rows * width) + i * width + j % width
        return plain ^ (plain // 2**source % 2**swizzle.bits * 2**target)

    return Layout((rows, columns), place)


def _whole_bits(rows: int, columns: int, width: int) -> int:
    """The places, a power of two, whose bits are bits of a row's or a column's number."""
    whole = binary_part(width)
    if power_of_two(width):
        whole *= binary_part(rows)
        if power_of_two(rows):
            whole *= binary_part(columns // width)
    return whole


@dataclass(frozen=True, slots=True)
class Swizzled:
    """A swizzle of a tile, and the wavefronts of all accesses of the tile with it."""

    swizzle: Swizzle
    wavefronts: int
    ideal: int


def measured(tile: SharedTile, swizzle: Swizzle) -> Swizzled:
    """What the accesses of `tile` cost with `swizzle`.

    Raises `ArgumentError` where the tile cannot be swizzled so, or an access is taken apart.
    """
    problem = swizzle.problem(tile.shape, tile.bits)
    if not problem:
        layout = swizzle.layout(tile.shape, tile.bits)
        try:
            moved = [rearranged(tile, access, layout) for access in tile.accesses]
            return Swizzled(swizzle, *total(moved))
        except MisfitError as error:
            problem = str(error)
    raise ArgumentError(f"'{tile.name}' cannot be swizzled by {swizzle}: {problem}")


def best(tile: SharedTile, few: int = _FEW) -> tuple[Swizzled, ...]:
    """The swizzles with the fewest wavefronts, of equals those that XOR the fewest bits. No more
    bits are tried once nothing waits.
    """
    ranking: list[Swizzled] = []
    for bits in range(MOST_BITS + 1):
        for swizzle in _of_bits(tile, bits):
            try:
                ranking.append(measured(tile, swizzle))
            except ArgumentError:
                continue
        if any(each.wavefronts == each.ideal for each in ranking):
            break
    ranking.sort(key=lambda each: each.wavefronts)  # of equals, the first stays in front
    return tuple(ranking[:few])


def advice(tile: SharedTile) -> str:
    """The best swizzles of a tile in one sentence; empty for a tile that has no other layout."""
    ranking = () if tile.fixed else best(tile)
    if not ranking:
        return ""
    counts = ", ".join(f"{each.swizzle} {each.wavefronts}" for each in ranking)
    return (
        f"{tile.name}: of CuTe's swizzles <B, M, S> these take the fewest wavefronts, of "
        f"{ranking[0].ideal} needed: {counts}"
    )


def _of_bits(tile: SharedTile, bits: int) -> Iterator[Swizzle]:
    """The swizzles of so many bits that move something and keep the vectors of the tile whole."""
    size = prod(tile.shape[-2:])
    lanes = max(max(access.count.width * 8 // tile.bits, 1) for access in tile.accesses)
    vector = lanes.bit_length() - 1
    row = tile.shape[-1] * tile.bits // 8
    for chunk in CHUNKS:
        if chunk and (chunk >= row or row % chunk):
            continue
        if not bits:
            yield Swizzle(0, vector, 0, chunk)
            continue
        for base in range(vector, vector + 3):
            for shift in range(bits, MOST_SHIFT + 1):
                if 2 ** (base + shift) < size:
                    yield Swizzle(bits, base, shift, chunk)
