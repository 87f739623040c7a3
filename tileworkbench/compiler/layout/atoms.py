"""Register fragments of the tensor-core instructions, and blocks of them built by the algebra.

Index conventions: A is ``[row, k]``, B is ``[n, k]`` (its transpose is what the instruction reads),
C is ``[row, column]``; a thread is a lane, a slot a register element. `bits` is the width of an
operand element. Lane maps: PTX ISA, "Matrix fragments for mma" and "wgmma"; CDNA3 ISA for MFMA.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.fast_dataclass import dataclass

from .fragment import Fragment
from .layout import Layout


@cache
def mma_operand(rows: int, depth: int, bits: int) -> Fragment:
    """`rows` x `depth` of one mma operand: 8 rows of 4 lanes, registers of 32 bits along K.

    Registers count along the rows first. Elements of 64 bits take a register each.
    """
    if bits not in (4, 8, 16, 32, 64):
        raise LayoutError(f"mma takes operands of 4, 8, 16, 32 or 64 bits, not {bits}.")
    per_register = max(1, 32 // bits)
    half = 4 * per_register
    registers = rows // 8

    def place(i: Any, k: Any) -> tuple[Any, Any]:
        lane = i % 8 * 4 + k % half // per_register
        register = k // half * registers + i // 8
        return lane, register * per_register + k % per_register

    return Fragment((rows, depth), place)


def mma_a(bits: int) -> Fragment:
    """A of mma.m16n8k(256/bits): 16 x K; of m8n8k4 for 64 bits: 8 x 4."""
    return mma_operand(8, 4, 64) if bits == 64 else mma_operand(16, 256 // bits, bits)


def mma_b(bits: int) -> Fragment:
    """B, as ``[n, k]``, of mma.m16n8k(256/bits): 8 x K; of m8n8k4 for 64 bits: 8 x 4."""
    return mma_operand(8, 4 if bits == 64 else 256 // bits, bits)


@cache
def mma_c(rows: int = 16) -> Fragment:
    """C of mma.m16n8k*, 16 x 8 for any operands; of m8n8k* for ``rows=8``."""
    return Fragment((rows, 8), lambda i, j: (4 * (i % 8) + j // 2, i // 8 * 2 + j % 2))


@cache
def mma_b_across(depth: int, bits: int, across: int) -> Fragment:
    """B, as ``[n, k]``, of `across` mma: a lane has so many neighbours along N, one for each."""
    one = mma_operand(8, depth, bits)

    def place(i: Any, k: Any) -> tuple[Any, Any]:
        lane, slot = one.evaluate(i // across, k)
        return lane, i % across * one.slots + slot

    return Fragment((8 * across, depth), place)


@cache
def mma_c_across(rows: int, across: int) -> Fragment:
    """C of `across` mma, whose columns take turns, as the registers of a lane do."""
    one = mma_c(rows)

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        lane, slot = one.evaluate(i, j // across)
        return lane, slot * across + j % across

    return Fragment((rows, 8 * across), place)


@dataclass(frozen=True, slots=True)
class WarpGrid:
    """`rows` x `columns` of C over `warps_m` x `warps_n` warps, which count along M first.

    `atom` is M and N of the instruction.
    """

    rows: int
    columns: int
    warps_m: int
    warps_n: int
    atom: tuple[int, int] = (16, 8)

    def __post_init__(self) -> None:
        rows, columns = self.atom
        if self.rows % (rows * self.warps_m) or self.columns % (columns * self.warps_n):
            raise LayoutError(
                f"A block of {self.rows} x {self.columns} does not split over {self.warps_m} x "
                f"{self.warps_n} warps in tiles of a multiple of {rows} x {columns}."
            )

    @property
    def warp_rows(self) -> int:
        return self.rows // self.warps_m

    @property
    def warp_columns(self) -> int:
        return self.columns // self.warps_n


def transposed(fragment: Fragment) -> Fragment:
    """The fragment of the transposed matrix."""
    rows, columns = fragment.shape
    return fragment @ Layout((columns, rows), lambda j, i: (i, j))


@lru_cache(maxsize=1024)
def block_c(grid: WarpGrid, atom: Fragment) -> Fragment:
    """The accumulator of a block of warps: atom after atom along the rows of a warp."""
    warp = atom.repeat((grid.warp_rows // atom.shape[0], grid.warp_columns // atom.shape[1]))
    return warp.repeat_on_thread((grid.warps_m, grid.warps_n), lower_dim_first=False)


@lru_cache(maxsize=1024)
def block_a(grid: WarpGrid, depth: int, atom: Fragment) -> Fragment:
    """A in registers, ``[rows, depth]``: each row of warps holds its rows, copied over the columns.

    This is the derivation of Figure 6: atom, repeat in a warp, repeat over warps, replicate.
    """
    repeats = (grid.warp_rows // atom.shape[0], depth // atom.shape[1])
    warp = atom.repeat(repeats, lower_dim_first=False)
    return warp.repeat_on_thread((grid.warps_m, 1)).replicated(grid.warps_n)


@lru_cache(maxsize=1024)
def block_b(grid: WarpGrid, depth: int, atom: Fragment) -> Fragment:
    """B in registers, ``[columns, depth]``: every column of warps holds its own columns."""
    repeats = (grid.warp_columns // atom.shape[0], depth // atom.shape[1])
    warp = atom.repeat(repeats, lower_dim_first=False)
    return warp.replicated(grid.warps_m).repeat_on_thread((grid.warps_n, 1))


@cache
def wgmma_a(bits: int) -> Fragment:
    """A of one wgmma in registers, 64 x K, over the four warps of a warpgroup."""
    return mma_a(bits).repeat_on_thread((4, 1))


@cache
def wgmma_c(columns: int) -> Fragment:
    """The accumulator of one wgmma.m64nNk*: 64 x `columns` over the four warps of a warpgroup."""
    return mma_c().repeat((1, columns // 8)).repeat_on_thread((4, 1))


@lru_cache(maxsize=1024)
def wgmma_block_c(grid: WarpGrid) -> Fragment:
    """The accumulator of a block on the wgmma path; warps come in groups of four along M."""
    _check_warpgroups(grid)
    group = wgmma_c(grid.warp_columns).repeat((grid.warp_rows // 16, 1))
    return group.repeat_on_thread((grid.warps_m // 4, grid.warps_n), lower_dim_first=False)


@lru_cache(maxsize=1024)
def wgmma_block_a(grid: WarpGrid, depth: int) -> Fragment:
    """16-bit A in registers for wgmma: rows go to the warps that hold them in the accumulator."""
    _check_warpgroups(grid)
    group = wgmma_a(16).repeat((grid.warp_rows // 16, depth // 16), lower_dim_first=False)
    return group.repeat_on_thread((grid.warps_m // 4, 1)).replicated(grid.warps_n)


def _check_warpgroups(grid: WarpGrid) -> None:
    if grid.warps_m % 4:
        raise LayoutError(f"wgmma takes a multiple of 4 warps along M, not {grid.warps_m}.")


def mfma_operand(edge: int, depth: int) -> Fragment:
    """A ``[row, k]`` or B ``[n, k]`` of an MFMA of `edge` x `edge` x `depth` on 64 lanes. More than
    16 elements of a lane are 16 of each half along K; no result depends on which they are.
    """
    per_lane = edge * depth // 64
    run = min(per_lane, 16)

    def place(i: Any, k: Any) -> tuple[Any, Any]:
        part = k % (64 // edge * run)
        return i + edge * (part // run), k // (64 // edge * run) * run + part % run

    return Fragment((edge, depth), place)


def mfma_operand_across(edge: int, depth: int, across: int) -> Fragment:
    """B ``[n, k]`` of `across` MFMA: a lane has so many neighbours along N, one for each."""
    per_lane = edge * depth // 64

    def place(i: Any, k: Any) -> tuple[Any, Any]:
        lane = i // across + edge * (k // per_lane)
        return lane, i % across * per_lane + k % per_lane

    return Fragment((edge * across, depth), place)


def mfma_c_across(edge: int, across: int) -> Fragment:
    """C of `across` MFMA, whose columns take turns, as the registers of a lane do."""
    lanes = 64 // edge

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        column = j // across
        group = column // 4
        slot = group // lanes * 4 + column % 4
        return i + edge * (group % lanes), slot * across + j % across

    return Fragment((edge, edge * across), place)


def mfma_c(edge: int, swapped: bool = True) -> Fragment:
    """C of an MFMA of edge 16 or 32; `swapped`: B came first, so a lane's four run along N."""
    lanes = 64 // edge

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        lane_index, register_index = (i, j) if swapped else (j, i)
        group = register_index // 4
        return lane_index + edge * (group % lanes), group // lanes * 4 + register_index % 4

    return Fragment((edge, edge), place)


def mfma_c_wide() -> Fragment:
    """C of an MFMA of float64, 16 x 16, B first: every fourth column in a lane."""
    return Fragment((16, 16), lambda i, j: (i + 16 * (j % 4), j // 4))


def matrix_core_swizzle(rows: int, columns: int, bits: int, kpack: int = 1) -> Layout:
    """Shared-memory swizzle for MFMA operands: vectors of a row XORed with the row's phase."""
    vector = 64 // bits * kpack
    per_phase = max(1, 1024 // bits // columns)
    phases = min(16 // per_phase, columns // vector)

    def place(i: Any, j: Any) -> tuple[Any, Any]:
        return i, (j // vector ^ i // per_phase % phases) * vector + j % vector

    return Layout((rows, columns), place)
