"""The view of wrong elements: cells, zoom, the search for the pass, and its static page."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.api.wrong_kernels import cases
from tileworkbench.viz.model import errors
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import view_html, view_model
from tileworkbench.workbench.locating import blank_map

KINDS = {"u1": np.uint8, "u2": np.uint16, "i4": np.int32}


def numbers(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    found = np.frombuffer(b64decode(packed["data"]), KINDS[packed["type"]]).astype(np.int64)
    return np.where(found == packed.get("empty"), -1, found)


def failed(name: str) -> KernelView:
    kernel, reference, inputs = cases()[name]
    made = kernel.with_target("sim:sm_80").compile()
    with pytest.raises(tw.CheckError):
        made.check(reference, *inputs)
    return made.view()


@pytest.fixture(scope="module")
def view() -> KernelView:
    return failed("wrong_warp")


def test_a_small_output_is_shown_element_by_element(view: KernelView) -> None:
    shown = view_model(view, "errors")["window"]
    assert (shown["cells"], shown["step"]) == ([1, 64], 1)
    assert np.flatnonzero(numbers(shown["level"])).tolist() == list(range(48, 64))
    assert numbers(shown["owners"]["lane"])[48:].tolist() == list(range(16, 32))
    assert numbers(shown["owners"]["lane"])[0] == -1
    assert (shown["got"][48], shown["expected"][48], shown["got"][0]) == ("50", "49", "")


def test_the_model_is_json_and_names_the_line(view: KernelView) -> None:
    model = view_model(view, "errors")
    json.dumps(model, allow_nan=False)
    assert model["sentence"].startswith("16 of 64 elements of 'B' are wrong: all in elements 48-63")
    assert [entry["count"] for entry in model["lines"]] == [16]
    assert model["owners"] == ["line", "block", "warp", "lane"]
    assert "48" in view_html(view, "errors") and "data:image/png" in view_html(view, "errors")


def test_a_large_output_is_shown_in_cells_and_zoomed(view: KernelView) -> None:
    want = np.zeros((300, 500))
    got = want.copy()
    got[299, 499], got[0, 0], got[0, 1] = np.nan, 1.0, 5.0
    large = replace(view, errors=blank_map("k", "B", got, want, got != want))
    shown = view_model(large, "errors")["window"]
    assert (shown["step"], shown["cells"]) == (8, [38, 63])
    level, wrong = numbers(shown["level"]), numbers(shown["wrong"])
    assert (wrong[0], wrong[-1], wrong.sum()) == (2, 1, 3)
    assert (numbers(shown["place"])[0], shown["got"][0]) == (1, "5")  # the worst of its elements
    assert level[-1] == 255 and shown["got"][-1] == "nan"
    part = {"top": 292, "left": 490, "rows": 99, "columns": 99}
    near = errors.window_answer(large, part)
    assert (near["rows"], near["columns"], near["step"]) == (8, 10, 1)
    assert numbers(near["place"])[-1] == 300 * 500 - 1


def test_a_vector_is_folded_and_ends_where_it_ends(view: KernelView) -> None:
    got = np.arange(100.0)
    long = replace(view, errors=blank_map("k", "B", got, got * 0, got > 90))
    shown = view_model(long, "errors")["window"]
    assert shown["cells"] == [2, 64]
    assert (numbers(shown["place"]) == -1).sum() == 28


def test_the_search_goes_stage_by_stage(view: KernelView) -> None:
    state = errors.bisect_answer(view, {"start": True})
    total, seen = state["total"], 1
    while not state["said"]:
        assert state["done"] == seen
        state = errors.bisect_answer(view, {})
        seen += 1
    assert (seen, state["said"]) == (total, f"all {total} stages agree")
    again = errors.bisect_answer(view, {})
    assert again["said"] == "the search was not started"
