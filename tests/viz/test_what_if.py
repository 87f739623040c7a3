"""Other layouts of a tile: what is promised is what the compiler then does."""

from __future__ import annotations

import linecache
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.tiled import compiled
from tileworkbench.compiler.layout import Layout
from tileworkbench.viz.magics.grammar import LAYOUTS
from tileworkbench.viz.model.annotated_cell import cell_with
from tileworkbench.viz.model.tiles import MisfitError, bytes_of, find_tile, rearranged, shared_tiles
from tileworkbench.viz.model.what_if import (
    NAMES,
    Alternative,
    alternatives,
    annotation,
    choose,
    compiled_alternatives,
    relowered,
)


def costs(found: tuple[Alternative, ...]) -> list[tuple[Any, ...]]:
    return [
        (
            each.name,
            each.problem,
            each.tile_bytes,
            [replace(a.count, site=0, span=None) for a in each.accesses],
        )
        for each in found
    ]


def test_tiles_of_a_pipeline() -> None:
    a, b = shared_tiles(compiled("mm").view())
    assert (a.name, a.dtype, a.shape, a.bits, a.versions, a.base) == (
        *("A_shared", "float16", (64, 32), 16, 3, 0),
    )
    assert (b.base, b.bytes_, b.fixed, b.annotated) == (12288, 12288, "", False)
    source = compiled("mm").record.source.splitlines()
    assert "A_shared = " in source[a.line - compiled("mm").record.first_line]
    assert [x.count.kind for x in b.accesses] == ["cp.async", "ldmatrix.x4.trans"]
    assert a.elements[a.layout.offset(5, 9)] == 5 * 32 + 9


def test_tiles_that_keep_their_layout() -> None:
    tiles = {tile.name: tile for tile in shared_tiles(compiled("transpose").view())}
    assert tiles["row"].fixed == "a tile of one dimension has no other layout"
    assert tiles["tile"].annotated and not tiles["tile"].fixed
    with pytest.raises(tw.ArgumentError) as caught:
        compiled("transpose").what_if("row")
    assert str(caught.value) == (
        "the layout of 'row' cannot be changed: a tile of one dimension has no other layout"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        compiled("transpose").what_if("rows")
    assert str(caught.value) == (
        "'transpose' accesses no tile 'rows' in shared memory\nhint: one of tile, row"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        compiled("transpose", "cpu").what_if("tile")
    assert str(caught.value) == (
        "'transpose' accesses no tile 'tile' in shared memory\n"
        "hint: it has no tiles in banked memory"
    )


@pytest.mark.parametrize("name", ["mm", "transpose", "conflicting"])
def test_moved_addresses_cost_what_the_compiled_kernel_costs(name: str) -> None:
    kernel = compiled(name)
    for tile in shared_tiles(kernel.view()):
        if tile.fixed:
            continue
        moved = alternatives(tile)
        again = {each.name: each for each in compiled_alternatives(kernel.record, tile)}
        for each in moved:
            if not each.problem:
                assert costs((each,)) == costs((again[each.name],)), each.name
        assert moved[0].wavefronts <= min(e.wavefronts for e in moved if not e.problem)
        assert sum(each.chosen for each in moved) >= 1


def test_the_ranking_of_a_row_major_tile_under_ldmatrix() -> None:
    found = compiled("conflicting").what_if("A_shared")
    assert found[0].name == "swizzle64" and found[0].wavefronts == found[0].ideal
    assert [each.name for each in found if each.chosen] == ["none"]
    none = next(each for each in found if each.chosen)
    assert {access.degree for access in none.accesses} == {1, 4}
    assert found[-1].name == "swizzle128" and found[-1].layout is None
    assert found[-1].problem == (
        "A 128-byte swizzle of 16-bit elements takes rows of a multiple of 64 elements, not 32."
    )
    assert [str(each) for each in found][::3] == [
        "swizzle64: 1.00x, 192 wavefronts, 8192 bytes",
        "none, now: 3.00x, 576 wavefronts, 8192 bytes",
    ]
    assert str(found[-1]).startswith("swizzle128: A 128-byte swizzle of 16-bit elements takes rows")
    made = found[0].to_dict()
    assert made["shared_bytes"] == 12288 and made["accesses"][0]["kind"] == "store"


def test_what_does_not_fit_says_why() -> None:
    tile = find_tile(compiled("mm").view(), "A_shared")
    copied, loaded = tile.accesses
    with pytest.raises(MisfitError) as caught:
        rearranged(tile, copied, Layout.padded(tile.shape, 36))
    assert str(caught.value) == (
        "the 16 bytes of a lane (cp.async) do not begin at a multiple of 16 bytes"
    )
    with pytest.raises(MisfitError) as caught:
        rearranged(tile, loaded, Layout.column_major(tile.shape))
    assert str(caught.value) == "the 16 bytes of a lane (ldmatrix.x4) are not together"
    padded = replace(tile, layout=Layout.padded(tile.shape, 40))
    with pytest.raises(MisfitError) as caught:
        rearranged(padded, copied, Layout.row_major(tile.shape))
    assert str(caught.value) == "'store (cp.async) 1.00x' reads what lies between the elements"
    wide = find_tile(compiled("mm").view(), "B_shared")
    holes = Layout.padded(wide.shape, 72)
    moved = rearranged(wide, wide.accesses[0], holes)
    assert moved.places == 3 * bytes_of(holes, 16) // 2


def test_a_layout_that_the_compiler_refuses_says_so() -> None:
    record = compiled("mm").record
    made = relowered(record, "A_shared", Layout((64, 32), lambda i, j: (i * 4096 + j,)))
    assert made.problem.startswith("the block needs ") and made.accesses == ()
    with pytest.raises(tw.ArgumentError) as caught:
        relowered(record, "A", Layout.row_major((64, 32)))
    assert str(caught.value) == "'A' is no tile in shared memory of 'mm'"


def test_a_layout_by_its_name() -> None:
    tile = find_tile(compiled("mm").view(), "A_shared")
    assert choose(tile, "padding").layout == Layout.padded((64, 32), 40)
    with pytest.raises(tw.ArgumentError) as caught:
        choose(tile, "best")
    assert str(caught.value) == (
        "'best' is not a layout\n"
        "hint: choose one of none, padding, swizzle32, swizzle64, swizzle128"
    )
    with pytest.raises(tw.ArgumentError) as caught:
        choose(tile, "swizzle128")
    assert str(caught.value) == (
        "'A_shared' cannot have the layout 'swizzle128': A 128-byte swizzle of 16-bit elements "
        "takes rows of a multiple of 64 elements, not 32."
    )
    with pytest.raises(tw.ArgumentError) as caught:
        choose(find_tile(compiled("transpose").view(), "row"), "none")
    assert str(caught.value) == (
        "the layout of 'row' cannot be changed: a tile of one dimension has no other layout"
    )


def test_the_magics_know_every_layout() -> None:
    assert NAMES == LAYOUTS


def test_a_table_has_no_line() -> None:
    mixed = [[5], [0], [3], [7], [1], [6], [2], [4]]
    assert annotation("S", Layout.from_table([mixed])) == ""
    assert annotation("S", Layout.row_major((4, 8))) == (
        "T.annotate_layout({S: lambda i, j: (8*i + j,)})"
    )


@pytest.mark.parametrize(("name", "buffer"), [("mm", "B_shared"), ("transpose", "tile")])
def test_the_cell_compiles_and_keeps_the_promise(name: str, buffer: str, tmp_path: Path) -> None:
    """The new cell, as a file of its own; in `transpose` it takes the place of an annotation."""
    kernel = compiled(name)
    tile = find_tile(kernel.view(), buffer)
    for each in alternatives(tile):
        if each.problem:
            continue
        text = cell_with(kernel.record, tile, each.line)
        lines = kernel.record.source.rstrip().count("\n") + 1
        assert text.count("\n") == lines + (name == "mm")
        path = tmp_path / f"{name}_{each.name}.py"
        path.write_text(text)
        namespace: dict[str, Any] = {"tw": tw, "T": T, "__name__": path.stem}
        linecache.checkcache(str(path))  # where `inspect` finds the source of what is executed
        exec(compile(text, str(path), "exec"), namespace)
        constants = {"M": 256, "N": 256, "K": 256} if name == "mm" else {}
        made = namespace[name].compile(**constants)
        (again,) = [t for t in shared_tiles(made.view()) if t.name == buffer]
        assert again.layout == each.layout
        found = [(a.count.kind, a.count.wavefronts, a.count.ideal) for a in again.accesses]
        assert found == [(a.count.kind, a.count.wavefronts, a.count.ideal) for a in each.accesses]


@pytest.mark.parametrize(
    ("said", "made"),
    [
        ("T.annotate_layout({A_shared: f(1)})", "NEW"),
        (
            "T.annotate_layout({A_shared: f(1), B_shared: g})",
            "T.annotate_layout({B_shared: g})\n{}NEW",
        ),
        (
            "T.annotate_layout({B_shared: g, A_shared: f(1)})",
            "T.annotate_layout({B_shared: g})\n{}NEW",
        ),
        (
            "T.annotate_layout({B_shared: 'ж', A_shared: f, tile: h})  # ж",
            "T.annotate_layout({B_shared: 'ж', tile: h})\n{}NEW  # ж",
        ),
        (
            "T.annotate_layout({A_shared: f})\n{}T.clear(x); T.annotate_layout({A_shared: f})",
            "T.annotate_layout({A_shared: f})\n{}T.clear(x); NEW",
        ),
        ("x.update({A_shared: f})", None),
        ("T.annotate_layout(layouts)", None),
    ],
)
def test_the_line_takes_the_place_of_the_old_one(said: str, made: str | None) -> None:
    """{} is where a statement begins; without an entry for the tile the line is inserted."""
    record, tile = compiled("mm").record, find_tile(compiled("mm").view(), "A_shared")
    lines = record.source.splitlines()
    at = next(n for n, line in enumerate(lines) if "T.clear(" in line)
    own = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    said = own + said.replace("\n{}", f"\n{own}")
    with_it = replace(record, source="\n".join([*lines[:at], said, *lines[at:]]))
    text = cell_with(with_it, tile, "NEW")
    if made is None:
        assert f"\n{said}\n" in text and text.count("NEW") == 1
    else:
        expected = own + made.replace("\n{}", f"\n{own}")
        assert text == "\n".join([*lines[:at], expected, *lines[at:]]) + "\n"


def test_a_cell_for_the_magic_and_for_a_function_inside_another() -> None:
    record = compiled("mm").record
    tile = find_tile(compiled("mm").view(), "A_shared")
    body = "\n".join(record.source.splitlines()[1:]) + "\n"
    plain = replace(record, source=body, first_line=record.first_line + 1)
    text = cell_with(plain, tile, "T.line()")
    head, *lines = text.splitlines()
    defines = " ".join(f"-D {key}={value}" for key, value in record.constants)
    assert head == f"%%tile mm {defines} -t sim:sm_80"
    at = lines.index("        T.line()")
    assert lines[at - 1].startswith("        A_shared = ")
    indented = replace(record, source="    " + record.source)
    assert cell_with(indented, tile, "T.line()") == (
        f"# for the kernel behind line {tile.line} of 'mm'\nT.line()\n"
    )
