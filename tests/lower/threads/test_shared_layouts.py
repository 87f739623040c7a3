"""Shared-memory layouts of operands: every access of copies and loads without bank conflicts."""

from __future__ import annotations

import numpy as np
import pytest

from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.lower.threads.shared_layouts import Reader, operand_layout
from tileworkbench.compiler.machine.tables import machine_of

LANES = np.arange(32)
ROWS = (16, 32, 64, 128)

MEMORY = machine_of("sm_80").shared


def wavefronts(addresses: np.ndarray, size: int) -> tuple[int, int]:
    """Wavefronts and their ideal for one access of a warp: `size` bytes of each lane."""
    total = ideal = 0
    lanes = {16: 8, 8: 16}.get(size, 32)  # lanes of a phase: 128 bytes, or the whole warp
    for phase in addresses.reshape(-1, lanes):
        touched = np.unique(phase[:, None] + np.arange(size))
        words = np.unique(touched // 4)
        total += int(np.bincount(words % 32).max())
        ideal += -(-len(touched) // 128)
    return total, ideal


def addresses(layout: Layout, i: np.ndarray, j: np.ndarray, bits: int) -> np.ndarray:
    """Byte addresses of elements."""
    return layout.table()[i, j] * bits // 8


def check_copies(layout: Layout, bits: int) -> None:
    """16-byte vectors of consecutive lanes, row after row."""
    rows, columns = layout.shape
    vector = 128 // bits
    per_row = columns // vector
    assert layout.vector_width(vector) == vector
    for start in range(0, rows * per_row - 31, 32):
        at = start + LANES
        found = wavefronts(addresses(layout, at // per_row, at % per_row * vector, bits), 16)
        assert found[0] == found[1], (layout, start, found)


def check_matrices(layout: Layout, bits: int) -> None:
    """Eight rows of 16 bytes at every place that ldmatrix can be pointed at."""
    rows, columns = layout.shape
    vector = 128 // bits
    for i in range(0, rows, 8):
        for j in range(0, columns, vector):
            place = addresses(layout, i + LANES[:8], np.full(8, j), bits)
            assert wavefronts(place, 16) == (1, 1), (layout, i, j)


COLUMNS_16 = (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 128, 192, 256)


@pytest.mark.parametrize("columns", COLUMNS_16)
def test_16_bit_operands_are_copied_and_loaded_without_conflicts(columns: int) -> None:
    for rows in ROWS:
        layout = operand_layout((rows, columns), 16, Reader.MATRIX, MEMORY)
        check_copies(layout, 16)
        check_matrices(layout, 16)


@pytest.mark.parametrize("columns", [16, 32, 48, 64, 80, 96, 128, 192, 256])
def test_8_bit_operands_along_k_have_no_conflicts(columns: int) -> None:
    for rows in ROWS:
        layout = operand_layout((rows, columns), 8, Reader.MATRIX, MEMORY)
        check_copies(layout, 8)
        check_matrices(layout, 8)


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 64, 96, 128])
def test_32_bit_operands_along_k_have_no_conflicts(columns: int) -> None:
    for rows in ROWS:
        layout = operand_layout((rows, columns), 32, Reader.MATRIX, MEMORY)
        check_copies(layout, 32)
        check_matrices(layout, 32)


@pytest.mark.parametrize("columns", [8, 16, 24, 32, 40, 64, 96, 128])
def test_transposed_32_bit_operands_have_no_conflicts(columns: int) -> None:
    for rows in ROWS:
        layout = operand_layout((rows, columns), 32, Reader.ELEMENTS, MEMORY)
        check_copies(layout, 32)
        for k in range(0, rows, 4):
            for m in range(0, columns, 8):
                place = addresses(layout, k + LANES % 4, m + LANES // 4, 32)
                assert wavefronts(place, 4) == (1, 1), (layout, k, m)


@pytest.mark.parametrize("columns", [4, 8, 12, 16, 24, 32, 64, 128])
def test_64_bit_operands_have_no_conflicts(columns: int) -> None:
    for rows in ROWS:
        layout = operand_layout((rows, columns), 64, Reader.ELEMENTS, MEMORY)
        check_copies(layout, 64)
        for i in range(0, rows, 8):
            for k in range(0, columns, 4):
                place = addresses(layout, i + LANES // 4, k + LANES % 4, 64)
                assert wavefronts(place, 8) == (2, 2), (layout, i, k)
        for k in range(0, rows, 4):
            for m in range(0, columns - 7, 8):
                place = addresses(layout, k + LANES % 4, m + LANES // 4, 64)
                assert wavefronts(place, 8) == (2, 2), (layout, k, m)


@pytest.mark.parametrize("columns", [16, 32, 48, 64, 80, 96, 128, 192, 256])
def test_transposed_bytes_take_at_most_twice_the_ideal(columns: int) -> None:
    for rows in (32, 64, 128):
        layout = operand_layout((rows, columns), 8, Reader.BYTES, MEMORY)
        check_copies(layout, 8)
        worst = 0
        for k in range(0, rows, 16):
            for m in range(0, columns, 8):
                for e in range(4):
                    place = addresses(layout, k + LANES % 4 * 4 + e, m + LANES // 4, 8)
                    worst = max(worst, wavefronts(place, 1)[0])
        assert worst == (1 if columns % 64 == 0 else 2), (layout, worst)


def test_swizzles_are_those_of_the_copy_engine() -> None:
    for columns, width in ((16, 32), (32, 64), (64, 128), (128, 128)):
        expected = Layout.swizzled((64, columns), 16, width)
        assert operand_layout((64, columns), 16, Reader.MATRIX, MEMORY) == expected


def test_versions_in_front_pass_through() -> None:
    flat = operand_layout((64, 32), 16, Reader.MATRIX, MEMORY)
    assert operand_layout((3, 64, 32), 16, Reader.MATRIX, MEMORY) == flat.expand((3,))


def test_rows_without_a_cut_are_padded_to_an_odd_number_of_units() -> None:
    assert operand_layout((64, 20), 16, Reader.MATRIX, MEMORY) == Layout.padded((64, 20), 24)
    assert operand_layout((20, 64), 16, Reader.MATRIX, MEMORY) == Layout.padded((20, 64), 72)
    assert operand_layout((20, 24), 16, Reader.MATRIX, MEMORY) == Layout.row_major((20, 24))
