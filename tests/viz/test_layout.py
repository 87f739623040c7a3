"""Layouts and fragments as grids, selections and pictures."""

from __future__ import annotations

import re
import zlib
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.viz.sample import LAYOUTS, block_fragment
from tests.viz.sanitiser import problems
from tests.viz.tiled import compiled
from tileworkbench.compiler.analysis.atoms import Atom, fragment_atoms
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.atoms import WarpGrid, block_c, mfma_c, mma_c, wgmma_block_c
from tileworkbench.kernels import flash_attention
from tileworkbench.viz.model import layout
from tileworkbench.viz.model.layout import (
    badges,
    elements_of,
    layout_figure,
    layout_html,
    layout_line,
    layout_model,
    layout_section,
    locate,
)
from tileworkbench.viz.model.layout_steps import layout_steps
from tileworkbench.viz.model.palette import CATEGORIES, EMPTY, category_colours, sequence_colours
from tileworkbench.viz.model.png import encode_png
from tileworkbench.workbench.results import BufferLayout

ATOM = Fragment((16, 8), lambda i, j: (4 * (i % 8) + j // 2, i // 8 * 2 + j % 2))
REPLICATED = Fragment((4, 4), lambda i, j, rep: (rep * 4 + i, j), replicate=2)


def unpack(packed: dict[str, Any], model: dict[str, Any]) -> np.ndarray:
    """The grid that a browser would read."""
    values = np.frombuffer(packed["data"], f"<{packed['type']}")
    return values.reshape(model["rows"], model["columns"])


def test_fragment_model_holds_threads_and_slots() -> None:
    model = layout_model(BufferLayout("c", ATOM, "fragment"))
    assert {key: model[key] for key in ("kind", "rows", "columns", "threads", "slots")} == {
        "kind": "fragment",
        "rows": 16,
        "columns": 8,
        "threads": 32,
        "slots": 4,
    }
    owners, slots = unpack(model["owners"][0], model), unpack(model["slot"], model)
    for i, j in np.ndindex(16, 8):
        assert owners[i, j] == ATOM.thread_of(i, j)
        assert slots[i, j] == ATOM.slot_of(i, j)


def test_layout_model_holds_addresses() -> None:
    layout = Layout.swizzled((64, 32), 32, 128)
    model = layout_model(BufferLayout("a", layout))
    assert np.array_equal(unpack(model["address"], model), layout.table())
    assert (model["addresses"], model["element_bytes"]) == (2048, 4)


def test_memory_without_banks_is_coloured_by_address() -> None:
    plain, panels = Layout.row_major((32, 128)), Layout.panels((32, 128), 1, 64)
    for banked, place, alike in ((True, "bank", True), (False, "address", False)):
        figures = [
            layout_section([BufferLayout("b", layout, banked=banked)], 10**6)
            for layout in (plain, panels)
        ]
        assert all(f"coloured by {place}" in figure for figure in figures)
        pictures = [figure.split('src="')[1].split('"')[0] for figure in figures]
        assert (pictures[0] == pictures[1]) == alike
        assert layout_model(BufferLayout("b", plain, banked=banked))["banked"] == banked


def test_copies_are_sent_as_distances_and_full_replication_once() -> None:
    model = layout_model(BufferLayout("r", REPLICATED))
    assert (len(model["owners"]), model["offsets"]) == (1, [0, 4])
    assert unpack(model["owners"][0], model)[3, 0] == 3
    everywhere = layout_model(BufferLayout("e", Fragment.fully_replicated((4, 4), 128)))
    assert everywhere["everywhere"]
    assert len(everywhere["owners"]) == 1


def test_copies_that_are_no_distances_come_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    fragment = Fragment((4, 4), lambda i, j, rep: (rep ^ i, j), replicate=16)
    every = layout_model(BufferLayout("x", fragment))
    assert len(every["owners"]) == 16
    monkeypatch.setattr(layout, "COPIES_LIMIT", 64)
    part = layout_model(BufferLayout("x", fragment), copy=9)
    assert (part["copy"], part["copies_at_once"], len(part["owners"])) == (8, 4, 4)
    for at in range(4):
        assert part["owners"][at] == every["owners"][8 + at]


def test_atoms_are_those_of_instructions() -> None:
    found = {
        name: fragment_atoms(fragment)[0]
        for name, fragment in (
            ("wgmma", wgmma_block_c(WarpGrid(128, 64, 4, 1))),
            ("mfma", mfma_c(32).repeat((2, 2))),
            ("mma", block_c(WarpGrid(64, 64, 2, 2), mma_c())),
        )
    }
    assert found == {
        "wgmma": Atom("wgmma.m64n64k16.f16 C", 64, 64, 128, 32),
        "mfma": Atom("mfma.m32n32k8.f16 C", 32, 32, 64, 16),
        "mma": Atom("mma.m16n8k16.f16 A", 16, 16, 32, 8),
    }
    assert fragment_atoms(Fragment((16, 8), lambda i, j: (i, j))) == ()


def test_atoms_of_a_kernel_are_those_of_its_code() -> None:
    atoms = {buffer.name: buffer.fitting_atoms for buffer in compiled("mm").view().layouts}
    assert atoms == {
        "A_shared": (Atom("ldmatrix.x4: one matrix", 8, 8),),
        "B_shared": (Atom("ldmatrix.x4.trans: one matrix", 8, 8),),
        "C_local": (Atom("mma.m16n8k16 C", 16, 8, 32, 4),),
    }
    assert all(buffer.fitting_atoms == () for buffer in compiled("mm", "cpu").view().layouts)


def test_atoms_of_mfma_are_as_wide_as_what_is_done_at_once() -> None:
    """Several along K; one across, for rows of V are turned before they are stored."""
    page = flash_attention(1, 1, 128, 128, 64, "float16")
    buffers = tw.compile(page, target="sim:gfx942").view().layouts
    atoms = {each.name: each.fitting_atoms for each in buffers if each.fitting_atoms}
    said = 'AMD Instinct MI300 ISA (CDNA3), "Matrix Arithmetic Instructions"'
    assert atoms == {
        "S_local": (Atom("mfma.m32n32k16 (2 instructions) C", 32, 32, 64, 16, said),),
        "P_local": (Atom("mfma.m32n32k8 A", 32, 8, 64, 4, said),),
        "O_local": (Atom("mfma.m32n32k8 C", 32, 32, 64, 16, said),),
    }
    figure = layout_figure(next(each for each in buffers if each.name == "S_local"))
    assert "lanes: AMD Instinct MI300 ISA (CDNA3)" in figure


def test_steps_say_who_wanted_what() -> None:
    steps = layout_steps(compiled("mm").view().record)
    assert [(step["said"], step["text"]) for step in steps] == [
        ("set", "T.gemm · C_local: holds the result of a matrix product"),
        ("set", "T.gemm · A_shared: is operand A of a matrix product"),
        ("set", "T.gemm · B_shared: is operand B of a matrix product"),
    ]
    assert {step["code"] for step in steps} == {"T.gemm(A_shared, B_shared, C_local)"}
    assert layout_steps(compiled("transpose", "cpu").view().record)


def test_steps_on_a_cpu_tell_who_yielded_and_who_agreed() -> None:
    steps = layout_steps(compiled("mm", "cpu").view().record)
    assert [(step["verdict"], step["operator"], step["buffer"]) for step in steps] == [
        ("set", "T.fill", "C_local"),
        ("yielded", "T.copy", "A_shared"),
        ("yielded", "T.copy", "B_shared"),
        ("set", "T.gemm", "A_shared"),
        ("set", "T.gemm", "B_shared"),
        ("agreed", "T.gemm", "C_local"),
        ("agreed", "T.copy", "C_local"),
    ]


def test_badges_have_bytes() -> None:
    assert badges(ATOM, 2) == [
        "32 threads × 4 slots",
        "8 B per thread",
        "2 contiguous",
        "vectors of 4 B",
        "bijective",
    ]
    assert "4 copies" in badges(Fragment((8,), lambda i, rep: (rep * 8 + i, 0), replicate=4))


def test_leading_dimensions_are_sliced() -> None:
    layout = Layout.row_major((3, 4, 5))
    model = layout_model(BufferLayout("v", layout), [2])
    assert model["lead"] == [2]
    assert unpack(model["address"], model)[0, 0] == 40
    assert layout_model(BufferLayout("v", layout), [99])["lead"] == [2]
    assert layout_model(BufferLayout("v", layout))["lead"] == [0]


def test_a_fragment_is_sliced_like_a_layout() -> None:
    fragment = Fragment((2, 4, 4), lambda v, i, j: (v * 16 + i * 4 + j, v))
    model = layout_model(BufferLayout("f", fragment), [1])
    assert unpack(model["owners"][0], model)[3, 3] == 31
    assert unpack(model["slot"], model)[0, 0] == 1


def test_one_dimension_is_wrapped_and_its_end_marked_empty() -> None:
    model = layout_model(BufferLayout("x", Layout.row_major((40,))))
    assert (model["rows"], model["columns"], model["wrapped"]) == (2, 32, True)
    grid = unpack(model["address"], model)
    assert model["address"]["empty"] == 255
    assert grid.reshape(-1).tolist() == [*range(40), *[255] * 24]


@pytest.mark.parametrize(("size", "kind"), [(16, "u1"), (17, "u2"), (256, "u2"), (257, "i4")])
def test_tables_take_the_smallest_type(size: int, kind: str) -> None:
    model = layout_model(BufferLayout("a", Layout.row_major((size, size))))
    assert model["address"]["type"] == kind
    assert unpack(model["address"], model)[-1, -1] == size * size - 1


def test_a_128x128_slice_is_small() -> None:
    model = layout_model(BufferLayout("c", block_fragment().repeat((2, 2), on_thread=True)))
    assert sum(len(packed["data"]) for packed in (*model["owners"], model["slot"])) <= 3 * 2**14


def test_elements_of_a_thread_come_slot_by_slot() -> None:
    assert elements_of(ATOM, 5) == [[1, 2], [1, 3], [9, 2], [9, 3]]
    assert elements_of(ATOM, 99) == []
    assert elements_of(Layout.row_major((4, 4)), 6) == [[1, 2]]
    assert elements_of(Layout.padded((4, 4), 5), 4) == []


def test_locate() -> None:
    assert locate(REPLICATED, (3, 1)) == {"threads": [3, 7], "slot": 1}
    assert locate(Layout.padded((4, 4), 5), (1, 2)) == {"address": 7}


def test_plain_lines() -> None:
    assert layout_line("C_local", ATOM) == (
        "<Fragment C_local 16x8 | 32 threads x 4 slots, 2 contiguous, bijective>"
    )
    assert layout_line("", Layout.padded((4, 4), 5)) == ("<Layout 4x4 | 4 contiguous, injective>")
    assert layout_line("r", REPLICATED).endswith(
        "8 threads x 4 slots, 2 copies, 4 contiguous, bijective>"
    )


def test_html_is_safe_and_deterministic() -> None:
    page = layout_html(ATOM, "<script>")
    assert problems(page) == []
    assert page == layout_html(ATOM, "<script>")
    assert "<script" not in page


def test_a_section_names_what_it_has_no_room_for() -> None:
    page = layout_section(LAYOUTS, 12_000)
    assert len(page) < 13_000
    assert "Not drawn here: C_local, row" in page
    assert problems(page) == []


def test_png_bytes_are_these() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    pixels[0, 1] = (255, 128, 0)
    image = encode_png(pixels)
    assert image == encode_png(pixels.copy())
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    assert image[12:29] == b"IHDR\0\0\0\x02\0\0\0\x02\x08\x02\0\0\0"
    size = int.from_bytes(image[33:37], "big")
    rows = zlib.decompress(image[41 : 41 + size])
    assert rows == b"\0\0\0\0\xff\x80\0" + b"\0" * 7


def test_png_refuses_other_arrays() -> None:
    with pytest.raises(ValueError) as caught:
        encode_png(np.zeros((2, 2, 4), np.uint8))
    assert str(caught.value) == "an image is uint8 (height, width, 3), not uint8 (2, 2, 4)"


def test_a_picture_has_numbered_axes_and_a_legend() -> None:
    address = layout_html(ATOM).split('src="data:image/svg+xml;base64,')[1].split('"')[0]
    drawing = b64decode(address).decode()
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    assert {"column →", "row ↓", "thread:", "then again, lighter, to 31"} <= set(texts)
    assert texts.count("7") >= 2  # of an axis and of the legend
    assert "black frames: mma.m16n8k8.f16 A, 16×8" in texts
    assert b64decode(drawing.split("data:image/png;base64,")[1].split('"')[0])[:4] == b"\x89PNG"


def test_palettes() -> None:
    values = np.array([[0, 7], [8, -1]])
    colours = category_colours(values)
    assert tuple(colours[0, 0]) == CATEGORIES[0]
    assert tuple(colours[1, 1]) == EMPTY
    assert (colours[1, 0] > colours[0, 0]).all()  # the next group of eight is lighter
    assert (sequence_colours(values, 8)[0, 0] != sequence_colours(values, 8)[1, 0]).any()


def test_dark_text_is_readable_on_every_colour() -> None:
    """Contrast of at least 4.5 to 1 against #141414 (WCAG 2.1, 1.4.3)."""

    def luminance(colour: np.ndarray) -> float:
        share = np.asarray(colour, float) / 255
        linear = np.where(share <= 0.03928, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    every = [*category_colours(np.arange(32)), *sequence_colours(np.arange(32), 31)]
    text = luminance(np.array([20, 20, 20]))
    worst = min((luminance(colour) + 0.05) / (text + 0.05) for colour in every)
    assert worst >= 4.5
