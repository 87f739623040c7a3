"""CuTe's swizzles of real tiles: the search, and the line that applies one keeps the promise."""

from __future__ import annotations

import itertools
from html import unescape

import pytest

import tileworkbench as tw
from tests.viz.tiled import compiled
from tileworkbench.compiler.layout import Layout
from tileworkbench.compiler.layout.algebra import swizzle
from tileworkbench.viz.model import banks
from tileworkbench.viz.model.swizzles import Swizzle, best, measured
from tileworkbench.viz.model.tiles import find_tile
from tileworkbench.viz.model.what_if import annotation, relowered


def test_it_is_the_swizzle_of_the_algebra() -> None:
    plain = Layout.row_major((512,))
    for bits, base, shift in itertools.product(range(4), range(4), range(-4, 5)):
        if abs(shift) >= bits:
            made = Swizzle(bits, base, shift).layout((16, 32), 16)
            expected = swizzle(plain, bits, base, shift).table().reshape(-1)
            assert (made.table().reshape(-1) == expected).all()
    flat = swizzle(Layout.row_major((512,)), 3, 3, 3).table().reshape(-1)
    assert (Swizzle(3, 3, 3).layout((16, 32), 16).table().reshape(-1) == flat).all()


@pytest.mark.parametrize(("bits", "width"), [(1, 32), (2, 64), (3, 128)])
def test_those_of_the_engines(bits: int, width: int) -> None:
    found = Swizzle(bits, 3, 3, width).layout((2, 24, 192), 16)
    assert (found.table() == Layout.swizzled((2, 24, 192), 16, width).table()).all()


@pytest.mark.parametrize(("name", "buffer"), [("mm", "B_shared"), ("conflicting", "A_shared")])
def test_what_is_counted_is_what_is_compiled(name: str, buffer: str) -> None:
    kernel = compiled(name)
    tile = find_tile(kernel.view(), buffer)
    tried = [each.swizzle for each in best(tile)]
    for each in [*tried, Swizzle(1, 3, 2), Swizzle(2, 4, 3), Swizzle(2, 5, -3)]:
        promised = measured(tile, each)
        layout = each.layout(tile.shape, tile.bits)
        made = relowered(kernel.record, buffer, layout)
        assert made.problem == ""
        assert (made.wavefronts, made.ideal) == (promised.wavefronts, promised.ideal)
        assert annotation(buffer, layout).startswith(f"T.annotate_layout({{{buffer}: lambda i, j: ")


def test_the_best_of_a_row_major_tile_under_ldmatrix() -> None:
    first, *others = compiled("conflicting").swizzles("A_shared")
    assert (first.swizzle, first.wavefronts, first.ideal) == (Swizzle(2, 3, 3), 192, 192)
    assert all(each.wavefronts > 192 for each in others) and len(others) == 2
    text = unescape(banks.section(compiled("conflicting").view(), True))
    assert (
        "A_shared: of CuTe's swizzles <B, M, S> these take the fewest wavefronts, of 192 needed: "
        "<2, 3, 3> 192, "
    ) in text
    assert "CuTe" not in banks.section(compiled("conflicting").view(), False)


def test_what_is_no_swizzle_says_why() -> None:
    tile = find_tile(compiled("mm").view(), "A_shared")
    with pytest.raises(tw.ArgumentError) as caught:
        measured(tile, Swizzle(3, 3, 2))
    assert str(caught.value) == (
        "'A_shared' cannot be swizzled by <3, 3, 2>: <3, 3, 2> is no swizzle: B and M are 0 or "
        "more, and S is B or more, or -B or less"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        measured(tile, Swizzle(2, 2, 3))
    assert str(caught.value) == (
        "'A_shared' cannot be swizzled by <2, 2, 3>: the 16 bytes of a lane (cp.async) are not "
        "together"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        measured(tile, Swizzle(2, 3, 3, 128))
    assert str(caught.value) == (
        "'A_shared' cannot be swizzled by <2, 3, 3> over chunks of 128 bytes: rows of 32 elements "
        "are no multiple of 64"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        compiled("transpose").swizzles("row")
    assert str(caught.value) == (
        "the layout of 'row' cannot be changed: a tile of one dimension has no other layout"
    )


def test_what_no_code_could_compute_is_said_and_not_found() -> None:
    kernel = compiled("ragged")
    tile = find_tile(kernel.view(), "tile")
    for each in best(tile):
        layout = each.swizzle.layout(tile.shape, tile.bits)
        assert relowered(kernel.record, "tile", layout).problem == ""
    refused = Swizzle(1, 3, 3)
    layout = refused.layout(tile.shape, tile.bits)
    assert relowered(kernel.record, "tile", layout).problem == (
        "the layout of 'tile' has no formula that code could compute"
    )
    assert refused.problem(tile.shape, tile.bits) == (
        "no code could compute it: what is XORed must be bits of a row's or a column's number, and "
        "of 48x96 elements only the 5 lowest bits of a place are"
    )
    assert Swizzle(1, 3, 1).problem((48, 96), 16) == Swizzle(1, 4, 2).problem((48, 64), 16) == ""
    assert Swizzle(3, 3, -9).problem((128, 32), 16) == (
        "bit 14 of a place is beyond the 4096 places of the tile"
    )
