"""Instruction fragments against the lane-by-lane maps of the ISA and the closed block formulas."""

from __future__ import annotations

import numpy as np
import pytest

from tileworkbench.compiler.diagnostics import LayoutError
from tileworkbench.compiler.layout import Fragment, Layout, contains
from tileworkbench.compiler.layout.atoms import (
    WarpGrid,
    block_a,
    block_b,
    block_c,
    matrix_core_swizzle,
    mfma_c,
    mfma_operand,
    mma_a,
    mma_b,
    mma_c,
    transposed,
    wgmma_block_a,
    wgmma_block_c,
    wgmma_c,
)
from tileworkbench.compiler.layout.maps import DigitMap

# Register e of lane t (g = t // 4, q = t % 4) -> element; B as (k, n), the rest as (row, column).
RAW = {
    ("A", 16, 8): lambda g, q, e: (g + 8 * (e % 4 // 2), 2 * q + e % 2 + 8 * (e // 4)),
    ("B", 16, 4): lambda g, q, e: (2 * q + e % 2 + 8 * (e // 2), g),
    ("A", 8, 16): lambda g, q, e: (g + 8 * (e // 4 % 2), 4 * q + e % 4 + 16 * (e // 8)),
    ("B", 8, 8): lambda g, q, e: (4 * q + e % 4 + 16 * (e // 4), g),
    ("A", 32, 4): lambda g, q, e: (g + 8 * (e % 2), q + 4 * (e // 2)),
    ("B", 32, 2): lambda g, q, e: (q + 4 * e, g),
    ("A", 4, 32): lambda g, q, e: (g + 8 * (e // 8 % 2), 8 * q + e % 8 + 32 * (e // 16)),
    ("B", 4, 16): lambda g, q, e: (8 * q + e % 8 + 32 * (e // 8), g),
    ("A", 64, 1): lambda g, q, e: (g, q),
    ("B", 64, 1): lambda g, q, e: (q, g),
    ("C", 32, 4): lambda g, q, e: (g + 8 * (e // 2), 2 * q + e % 2),
    ("C", 64, 2): lambda g, q, e: (g, 2 * q + e),
}
ATOMS = {"A": mma_a, "B": mma_b, "C": lambda bits: mma_c(8 if bits == 64 else 16)}


def check(fragment: Fragment, thread, slot) -> None:
    """Compare with closed formulas over (i, j, rep), element by element; must be digits."""
    assert isinstance(fragment.mapping, DigitMap)
    i, j, rep = np.indices(fragment.mapping.shape)
    threads, slots = fragment.table()
    assert np.array_equal(threads, np.broadcast_to(thread(i, j, rep), threads.shape))
    assert np.array_equal(slots[..., None] + 0 * rep, slot(i, j, rep))
    assert fragment.is_bijective


@pytest.mark.parametrize(("operand", "bits", "registers"), RAW)
def test_mma_atoms_lane_by_lane(operand, bits, registers):
    fragment = ATOMS[operand](bits)
    assert (fragment.threads, fragment.slots) == (32, registers)
    assert fragment.is_bijective
    for lane in range(32):
        held = fragment.elements_of(lane).tolist()
        for register in range(registers):
            element = RAW[operand, bits, registers](lane // 4, lane % 4, register)
            expected = element[::-1] if operand == "B" else element
            assert tuple(held[register]) == expected


def test_atom_shapes():
    assert {bits: mma_a(bits).shape for bits in (4, 8, 16, 32, 64)} == {
        4: (16, 64),
        8: (16, 32),
        16: (16, 16),
        32: (16, 8),
        64: (8, 4),
    }
    assert mma_c(8).shape == (8, 8) and mma_c().shape == (16, 8)


def test_sixteen_wide_atoms():
    def lane(i, j, rep):
        return 4 * (i % 8) + j % 8 // 2

    check(mma_a(16), lane, lambda i, j, rep: 4 * (j // 8) + 2 * (i // 8) + j % 2)

    def wide_lane(i, j, rep):
        return 4 * (i % 8) + j % 16 // 4

    check(mma_a(8), wide_lane, lambda i, j, rep: 8 * (j // 16) + 4 * (i // 8) + j % 4)


GRIDS = [
    WarpGrid(128, 128, 2, 2),
    WarpGrid(128, 64, 4, 2),
    WarpGrid(64, 64, 1, 4),
    WarpGrid(16, 32, 1, 1),
    WarpGrid(96, 96, 3, 2),
]


@pytest.mark.parametrize("grid", [*GRIDS, WarpGrid(64, 48, 2, 2)], ids=str)
def test_block_c_formula(grid):
    wr, wc, wm = grid.warp_rows, grid.warp_columns, grid.warps_m

    def thread(i, j, rep):
        return 32 * (i // wr + wm * (j // wc)) + 4 * (i % wr % 8) + j % wc % 8 // 2

    def slot(i, j, rep):
        ii, jj = i % wr, j % wc
        if wc % 16 == 0:
            return (
                ii // 16 * (wc // 16) * 8
                + jj // 16 * 8
                + 4 * (jj % 16 // 8)
                + 2 * (ii % 16 // 8)
                + jj % 2
            )
        return ii // 16 * (wc // 8) * 4 + jj // 8 * 4 + 2 * (ii % 16 // 8) + jj % 2

    check(block_c(grid, mma_c()), thread, slot)


@pytest.mark.parametrize("bits", [4, 8, 16, 32])
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_block_operand_formulas(grid, bits):
    qe, kd = 32 // bits, 256 // bits
    wr, wc, wm, wn = grid.warp_rows, grid.warp_columns, grid.warps_m, grid.warps_n

    def slot_a(i, k, rep):
        ii = i % wr
        return (
            (ii // 16 + wr // 16 * (k // kd)) * (kd // 2)
            + 2 * qe * (k % kd // (4 * qe))
            + qe * (ii % 16 // 8)
            + k % qe
        )

    a = block_a(grid, 2 * kd, mma_a(bits))
    assert a.replicate == wn
    check(
        a,
        lambda i, k, rep: 32 * (i // wr + wm * rep) + 4 * (i % wr % 8) + k % (4 * qe) // qe,
        slot_a,
    )

    def slot_b(n, k, rep):
        nn = n % wc
        return (
            (nn // 16 + wc // 16 * (k // kd)) * (kd // 2)
            + 2 * qe * (nn % 16 // 8)
            + qe * (k % kd // (4 * qe))
            + k % qe
        )

    b = block_b(grid, 2 * kd, mma_b(bits))
    assert b.replicate == wm
    if wc % 16 == 0:
        check(
            b,
            lambda n, k, rep: 32 * (rep + wm * (n // wc)) + 4 * (n % wc % 8) + k % (4 * qe) // qe,
            slot_b,
        )


def test_narrow_b_block_feeds_single_instructions():
    grid = WarpGrid(64, 48, 2, 2)
    b = block_b(grid, 32, mma_b(16))
    assert (b.shape, b.threads, b.slots, b.replicate) == ((48, 32), 128, 24, 2)
    assert b.is_bijective


def test_transposed_operands_swap_the_coordinates():
    a = block_a(WarpGrid(64, 64, 2, 2), 32, mma_a(16))
    flipped = transposed(a)
    assert flipped.shape == (32, 64)
    assert all(
        flipped.thread_of(k, i, rep=1) == a.thread_of(i, k, rep=1)
        and flipped.slot_of(k, i) == a.slot_of(i, k)
        for i, k in [(0, 0), (13, 7), (63, 31)]
    )
    assert transposed(flipped) == a


def test_wgmma_accumulator_lane_by_lane():
    fragment = wgmma_c(32)
    assert (fragment.shape, fragment.threads, fragment.slots) == ((64, 32), 128, 16)
    for thread in range(128):
        w, g, q = thread // 32, thread % 32 // 4, thread % 4
        for e, element in enumerate(fragment.elements_of(thread).tolist()):
            assert element == [16 * w + g + 8 * (e // 2 % 2), 8 * (e // 4) + 2 * q + e % 2]


@pytest.mark.parametrize(
    "grid", [WarpGrid(64, 64, 4, 1), WarpGrid(256, 64, 8, 1), WarpGrid(128, 96, 4, 2)], ids=str
)
def test_wgmma_blocks(grid):
    wm, wc, wr = grid.warps_m, grid.warp_columns, grid.warp_rows // 16

    def thread(i, j, rep):
        w = i % 64 // 16
        first = i // (64 * wr) * 128 + 32 * w + 4 * (i % 8)
        return first + j % wc % 8 // 2 + 32 * wm * (j // wc)

    check(
        wgmma_block_c(grid),
        thread,
        lambda i, j, rep: (
            i % (64 * wr) // 64 * (wc // 2) + 4 * (j % wc // 8) + 2 * (i % 16 // 8) + j % 2
        ),
    )
    a = wgmma_block_a(grid, 32)
    check(
        a,
        lambda i, k, rep: (
            i // (64 * wr) * 128 + 32 * (i % 64 // 16) + 4 * (i % 8) + k % 8 // 2 + 32 * wm * rep
        ),
        lambda i, k, rep: (
            (i % (64 * wr) // 64 + wr * (k // 16)) * 8
            + 4 * (k % 16 // 8)
            + 2 * (i % 16 // 8)
            + k % 2
        ),
    )


def test_wgmma_rows_of_a_and_c_are_in_the_same_warp():
    """Eight warps over full rows, two m64 atoms each: the warp of a row must not differ."""
    grid = WarpGrid(256, 64, 8, 1)
    a, c = wgmma_block_a(grid, 16), wgmma_block_c(grid)
    warps_a, warps_c = a.table()[0][:, 0, 0] // 32, c.table()[0][:, 0, 0] // 32
    assert np.array_equal(warps_a, warps_c)
    first_columns = Layout((256, 8), lambda i, j: (i, j))
    assert contains(a, c, first_columns, first_columns)


@pytest.mark.parametrize(
    ("edge", "depth", "lane", "slot"),
    [
        (16, 16, lambda i, k: i + 16 * (k // 4), lambda i, k: k % 4),
        (32, 8, lambda i, k: i % 32 + 32 * (k // 4), lambda i, k: k % 4),
        (16, 32, lambda i, k: i + 16 * (k // 8), lambda i, k: k % 8),
        (16, 4, lambda i, k: i + 16 * k, lambda i, k: 0 * k),
        (32, 16, lambda i, k: i + 32 * (k // 8), lambda i, k: k % 8),
    ],
)
def test_mfma_operands(edge, depth, lane, slot):
    check(
        mfma_operand(edge, depth),
        lambda i, k, rep: lane(i, k),
        lambda i, k, rep: slot(i, k),
    )


@pytest.mark.parametrize("edge", [16, 32])
def test_mfma_accumulators(edge):
    plain, swapped = mfma_c(edge, swapped=False), mfma_c(edge)
    for lane in range(64):
        for r, element in enumerate(plain.elements_of(lane).tolist()):
            if edge == 16:
                assert element == [4 * (lane // 16) + r, lane % 16]
            else:
                assert element == [8 * (r // 4) + 4 * (lane // 32) + r % 4, lane % 32]
    assert swapped == transposed(plain)
    if edge == 32:
        check(
            swapped,
            lambda i, j, rep: i % 32 + 32 * (j % 8 // 4),
            lambda i, j, rep: 4 * (j // 8) + j % 4,
        )


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize(("width", "swizzle_bits"), [(32, 1), (64, 2), (128, 3)])
@pytest.mark.parametrize("shape", [(64, 128), (8, 256), (24, 384)])
def test_swizzles(shape, width, swizzle_bits, bits):
    layout = Layout.swizzled(shape, bits, width)
    size = bits // 8
    i, j = np.indices(shape)
    jb = j * size
    plain = jb // width * shape[0] * width + i * width + jb % width
    physical = plain ^ ((plain >> 7 & (1 << swizzle_bits) - 1) << 4)
    assert np.array_equal(layout.table() * size, physical)
    assert isinstance(layout.mapping, DigitMap)
    assert layout.is_bijective
    for row in range(0, shape[0], 8):
        for column in range(0, shape[1], 16 // size):
            chunks = layout.table()[row : row + 8, column] * size // 16 % 8
            assert sorted(chunks.tolist()) == list(range(8))


def test_swizzle_chunk_view():
    rows = np.arange(64)
    for width, phase in ((128, rows % 8), (64, rows // 2 % 4), (32, rows // 4 % 2)):
        layout = Layout.swizzled((64, width // 2), 16, width)
        assert np.array_equal(layout.table()[:, 0], rows * (width // 2) + 8 * phase)


def test_swizzle_passes_leading_dimensions_through():
    layout = Layout.swizzled((3, 2, 64, 64), 16, 128)
    assert layout.output_shape == (3, 2, 4096)
    assert layout(2, 1, 9, 17) == (2, 1, *Layout.swizzled((64, 64), 16, 128)(9, 17))
    assert layout.is_bijective


def test_user_layouts_on_shared_memory():
    """A layout that puts two elements in one place is seen; a padded one is not refused."""
    assert not Layout((32, 32), lambda i, j: i * 16 + j).is_injective
    padded = Layout((32, 32), lambda i, j: i * 40 + j)
    assert padded.is_injective and padded.output_shape == (31 * 40 + 32,)


def test_matrix_core_swizzle():
    for rows, columns, bits, kpack in [(64, 32, 16, 1), (64, 64, 16, 2), (32, 16, 32, 1)]:
        vector = 64 // bits * kpack
        per_phase = max(1, 1024 // bits // columns)
        phases = min(16 // per_phase, columns // vector)
        i, j = np.indices((rows, columns))
        expected = (j // vector ^ i // per_phase % phases) * vector + j % vector
        layout = matrix_core_swizzle(rows, columns, bits, kpack)
        assert np.array_equal(layout.table(linear=False)[..., 1], expected)
        assert layout.is_bijective


MESSAGES = [
    (lambda: mma_a(12), "mma takes operands of 4, 8, 16, 32 or 64 bits, not 12."),
    (
        lambda: WarpGrid(64, 20, 2, 1),
        "A block of 64 x 20 does not split over 2 x 1 warps in tiles of a multiple of 16 x 8.",
    ),
    (
        lambda: wgmma_block_c(WarpGrid(64, 64, 2, 2)),
        "wgmma takes a multiple of 4 warps along M, not 2.",
    ),
]


@pytest.mark.parametrize(("action", "message"), MESSAGES, ids=range(len(MESSAGES)))
def test_messages(action, message):
    with pytest.raises(LayoutError) as error:
        action()
    assert str(error.value) == message
