"""The view of footprints: pictures of all blocks and of one, zoom, tables, and its static page."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.viz.sanitiser import problems
from tests.viz.tiled import compiled
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.viz.model import footprint
from tileworkbench.viz.model.card import card_html
from tileworkbench.viz.model.page import page_html
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import available, view_html, view_model

KINDS = {"u1": np.uint8, "u2": np.uint16, "i4": np.int32}


def numbers(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    found = np.frombuffer(b64decode(packed["data"]), KINDS[packed["type"]]).astype(np.int64)
    return np.where(found == packed.get("empty"), -1, found)


@pytest.fixture(scope="module")
def view() -> KernelView:
    """A product of 256x256 by blocks of 64x64, recorded."""
    kernel = tw.Kernel(compiled("mm").compiled)
    kernel.footprint()
    return kernel.view()


def whole(model: dict[str, Any]) -> list[list[int]]:
    return [[0, 0, each["rows"], each["columns"]] for each in model["figures"]]


def test_a_view_that_was_not_recorded_offers_it_and_leaves_nothing() -> None:
    kernel = tw.Kernel(compiled("mm").compiled)
    view = kernel.view()
    assert view_model(view, "footprint")["recorded"] == ""
    assert view_model(view, "footprint")["about"].startswith("Which elements of each tensor")
    assert footprint.section(view, False) == "" and "Footprint" in page_html(view)
    assert footprint.record_answer(view, {})["recorded"] == "all 16 blocks"
    assert view_model(view, "footprint")["recorded"] == "all 16 blocks"


def test_the_model_has_a_picture_for_each_side_of_each_tensor(view: KernelView) -> None:
    model = view_model(view, "footprint")
    json.dumps(model, allow_nan=False)
    assert [(each["tensor"], each["side"]) for each in model["figures"]] == [
        ("A", "loads"), ("B", "loads"), ("C", "stores")
    ]  # fmt: skip
    assert (model["grids"], model["blocks"], model["program"]) == ([[4, 4]], 16, "lowered")
    shown = model["figures"][2]["window"]
    assert (shown["step"], shown["cells"]) == (4, [64, 64])
    rows, columns = np.indices((64, 64)) // 16
    np.testing.assert_array_equal(numbers(shown["block"]), (4 * rows + columns).reshape(-1))
    assert set(numbers(model["figures"][0]["window"]["blocks"])) == {4}
    assert model["warp"] == 32
    assert [each["tensor"] for each in model["tensors"]] == ["A", "B", "C"]
    assert [each["masked"] for each in model["lines"]] == [0.0, 0.0, 0.0]
    assert [each["tile"] for each in model["tiles"]] == ["A_shared", "B_shared"]


def test_a_block_lights_its_elements_and_the_pictures_go_there(view: KernelView) -> None:
    model = view_model(view, "footprint")
    found = footprint.windows_answer(view, {"windows": whole(model), "block": 6})
    assert (found["at"], found["threads"]) == ([2, 1], True)
    a, b, c = (numbers(each["mine"]).reshape(each["cells"]) > 0 for each in found["windows"])
    assert a[16:32].all() and a.sum() == 16 * 64
    assert b[:, 32:48].all() and b.sum() == 16 * 64
    assert c[16:32, 32:48].all() and c.sum() == 16 * 16
    near = footprint.windows_answer(view, {"windows": whole(model), "block": 6, "fit": True})
    places = [[each[key] for key in ("top", "left", "rows", "columns")] for each in near["windows"]]
    assert places == [[64, 0, 64, 256], [0, 128, 256, 64], [64, 128, 64, 64]]
    threads = numbers(near["windows"][2]["thread"])
    assert set(threads) == set(range(128)) and set(numbers(near["windows"][2]["threads"])) == {1}
    back = footprint.windows_answer(view, {"windows": places})
    assert "mine" not in back["windows"][0] and back["windows"][2]["step"] == 1


def test_windows_are_kept_inside(view: KernelView) -> None:
    asked = [[-5, 250, 999, 999]] * 3
    found = footprint.windows_answer(view, {"windows": asked})["windows"][0]
    assert [found[key] for key in ("top", "left", "rows", "columns")] == [0, 250, 256, 6]


def test_a_block_that_is_not_there_is_told(view: KernelView) -> None:
    with pytest.raises(ArgumentError, match="block 16 of 'mm' does not exist"):
        footprint.windows_answer(view, {"windows": whole(view_model(view, "footprint")),
                                        "block": 16})  # fmt: skip


def test_a_vector_is_folded_and_a_large_tensor_is_in_runs(view: KernelView) -> None:
    assert view.footprint is not None
    found = view.footprint(None, False)
    assert found is not None
    a = found.tensor("A")
    vector = replace(a, shape=(256 * 256,))
    assert footprint._extent(vector) == (1024, 64)
    assert footprint._extent(replace(a, cell=4)) == (256, 64)
    small = replace(found, tensors=(replace(a, shape=(256 * 256,)),))
    shown = view_model(replace(view, footprint=lambda block, records: small), "footprint")
    assert shown["figures"][0]["window"]["cells"] == [64, 4]


def test_readers_without_a_kernel_see_pictures_and_tables(view: KernelView) -> None:
    page = view_html(view, "footprint")
    assert problems(page) == []
    assert page.count("data:image/png") == 3 and "all 16 blocks" in page and "0.0 %" in page
    assert "coloured by the first block" in card_html(view, limit=1 << 20)


def test_why_there_is_nothing(view: KernelView) -> None:
    nobody = replace(view, footprint=None)
    assert footprint.missing(nobody) == "no kernel is at hand whose call could be simulated"
    program = replace(view.record.program, params=(), returns=())
    bare = replace(view, record=replace(view.record, program=program))
    assert footprint.missing(bare) == "the kernel has no tensors"
    assert "footprint" not in available(bare) and "footprint" in available(view)


def test_a_kernel_that_touches_nothing_has_no_pictures(view: KernelView) -> None:
    assert view.footprint is not None
    found = view.footprint(None, False)
    assert found is not None
    empty = replace(found, tensors=(), lines=(), launches=(), blocks=0, total=0)
    shown = view_model(replace(view, footprint=lambda block, records: empty), "footprint")
    assert (shown["figures"], shown["recorded"], shown["blocks"]) == ([], "all 0 blocks", 0)


def test_a_comparison_says_what_differs(view: KernelView) -> None:
    rows = footprint.rows(view, live=False)
    assert rows["recorded"] == "all 16 blocks"
    assert rows["elements of A"] == "65536 loaded 4 times each, 0 stored, 0 never touched"
    (line,) = (name for name in rows if "store C" in name)
    assert line.startswith("lanes of 'store C' that are masked, line") and rows[line] == "0.0 %"
    fresh = tw.Kernel(compiled("mm").compiled).view()
    assert footprint.rows(fresh, live=False) == {
        "recorded": "not yet: kernel.footprint() simulates a call"
    }


def test_a_picture_of_a_tall_tensor_is_no_larger_than_the_tensor() -> None:
    grouped = footprint._grouped(np.ones((70_000, 2), np.int32), 1094, -1)
    assert grouped.shape == (64, 1, 2 * 1094)
    assert (grouped == 1).sum() == 140_000
