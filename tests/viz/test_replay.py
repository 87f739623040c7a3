"""The replay view: what the browser gets is what was recorded, and what readers see of it."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.api.test_replay import checked, double, outside
from tests.sim.test_replay import recorded
from tests.viz.sanitiser import problems
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.viz.model import replay as views
from tileworkbench.viz.model.views import VIEWS, view_html, view_model


def ints(text: str) -> np.ndarray[Any, Any]:
    return np.frombuffer(b64decode(text), "<i4")


def values(packed: dict[str, Any]) -> np.ndarray[Any, Any]:
    if packed["type"] == "text":
        return np.array(packed["data"])
    return np.frombuffer(b64decode(packed["data"]), f"<{packed['type']}")


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_pages_lead_to_the_recorded_memory(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "PAGE_ELEMENTS", 5000)
    replay, *_ = recorded("product", target, "lowered")
    step, pages = replay.first, 0
    while step <= replay.last:
        page = views.page(replay, step)
        assert page == views.page(replay, page["to"]) and page["from"] == step
        held = [values(each["values"]).copy() for each in page["before"]]
        writers = [ints(each["writers"]).copy() for each in page["before"]]
        for at, sent in enumerate(page["steps"], page["from"]):
            for change in sent["changes"]:
                held[change["buffer"]][ints(change["places"])] = values(change["new"])
                writer = at if change["defines"] else -1
                writers[change["buffer"]][ints(change["places"])] = writer
            data, wrote = replay.memory(at)
            for number in range(len(replay.buffers)):
                np.testing.assert_array_equal(held[number], data[number].astype(held[number].dtype))
                np.testing.assert_array_equal(writers[number], wrote[number])
        step, pages = page["to"] + 1, pages + 1
    assert pages > 2


@tw.jit
def late(A):
    N = T.const("N")
    A: T.Tensor[[N, 64], T.float32]
    B = T.empty((N, 64), T.float32)
    with T.Kernel(1, threads=64):
        tile = T.alloc_shared((64, 64), T.float32)
        for k in T.serial(N // 64):
            T.copy(A[k * 64, 0], tile)
            T.copy(tile, B[k * 64, 0])
            if k == 78:
                T.breakpoint()
    return B


def test_a_large_tensor_is_shown_where_it_is_touched() -> None:
    kernel = late.with_target("sim:sm_80").compile(N=8192)
    kernel.with_inputs(np.ones((8192, 64), np.float32))
    made = views.record_answer(kernel.view(), {"stage": "tile"})
    parts = made["page"]["parts"]
    names = [each["name"] for each in made["buffers"]]
    (at,) = (number for number, name in enumerate(names) if name == "B")
    shown = parts[str(at)]
    assert shown["part"] == "The part [4928:5952, 0:64] of 8192×64."
    assert shown["origin"] == [4928, 0] and shown["shape"] == [1024, 64]
    assert shown["start"] == 4928 * 64 and shown["rows"] * shown["columns"] == 1 << 16
    replay = kernel.view().replays.last_replay
    page = views.page(replay, replay.first)
    assert page["parts"].get(str(at), shown)["origin"][0] < 5000


@pytest.mark.parametrize("seed", range(20))
def test_parts_are_boxes_around_a_place(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "SHOWN", 200)
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.integers(1, 30, random.integers(1, 5)))
    place = int(random.integers(np.prod(shape)))
    part = views._part(shape, place)
    box = tuple(slice(o, o + n) for o, n in zip(part.origin, part.shape, strict=True))
    places = np.arange(np.prod(shape)).reshape(shape)[box].reshape(-1)
    assert np.array_equal(places, np.arange(part.start, part.start + part.count))
    assert place in places and part.count <= max(200, 1)
    assert part.count == np.prod(shape) or part.count > 200 // max(shape) // 2
    inside = part.inside(np.array([place, part.start - 1, part.start + part.count]))
    assert inside.tolist() == [place - part.start]


@pytest.mark.parametrize("target", ["cpu", "sim:sm_80"])
def test_pages_of_parts_lead_to_the_recorded_memory(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "PAGE_ELEMENTS", 5000)
    monkeypatch.setattr(views, "SHOWN", 96)
    replay, *_ = recorded("product", target, "lowered")
    step, moved = replay.first, set()
    while step <= replay.last:
        page = views.page(replay, step)
        held = [values(each["values"]).copy() for each in page["before"]]
        starts = [0] * len(held)
        for number, part in page["parts"].items():
            starts[int(number)] = part["start"]
            moved.add((number, part["start"]))
        for sent in page["steps"]:
            for change in sent["changes"]:
                held[change["buffer"]][ints(change["places"])] = values(change["new"])
        data, _ = replay.memory(page["to"])
        for found, whole, start in zip(held, data, starts, strict=True):
            wanted = whole[start : start + found.size].astype(found.dtype)
            np.testing.assert_array_equal(found, wanted)
        step = page["to"] + 1
    assert len(moved) > len({number for number, _ in moved})  # another part on another page


def test_numbers_that_a_browser_cannot_hold_are_texts() -> None:
    large = np.array([2**62 + 1, -1], np.int64)
    assert views._values(large) == {"type": "text", "data": ["4611686018427387905", "-1"]}
    assert views._values(np.array([5], np.int64))["type"] == "f8"
    for kind in ("float16", "float32", "int16", "uint8", "bool"):
        assert values(views._values(np.array([1], kind)))[0] == 1


def test_nothing_runs_before_the_browser_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = double.compile()
    monkeypatch.setattr(kernel, "_replayed", None)  # other tests have the same kernel
    view = kernel.view()
    data = view_model(view, "replay")
    assert data["recorded"] is False and data["stages"][0] == "tile"
    assert VIEWS["replay"].section(view, True) == "" and kernel.last_replay is None
    answer = views.record_answer(view, {"block": "3", "stage": ""})
    assert answer["blocks"] == [[3]] and json.dumps(answer)
    assert view_model(view, "replay")["recorded"] is True


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("x", "'x' is no block: write its indices, such as 0, 1"),
        ("9", "'double' has no block (9,): its grid is 8"),
    ],
)
def test_a_block_that_cannot_be_is_said(block: str, said: str) -> None:
    assert views.record_answer(double.compile().view(), {"block": block}) == {"error": said}


def test_questions_about_a_replay_that_is_gone() -> None:
    kernel = double.compile()
    view = kernel.view()
    token = views.record_answer(view, {})["token"]
    assert views.page_answer(view, {"token": token, "step": 0})["from"] == 0
    with pytest.raises(ArgumentError) as error:
        views.page_answer(view, {"token": token + 1, "step": 0})
    assert str(error.value) == "the kernel was replayed anew since: record once more"


def test_writes_of_an_element_are_found_both_ways() -> None:
    kernel = double.compile()
    view = kernel.view()
    made = views.record_answer(view, {})
    tile = [each["name"] for each in made["buffers"]].index("tile")
    ask = {"token": made["token"], "buffer": tile, "place": 5}
    assert views.next_write_answer(view, {**ask, "step": 0}) == {"step": 1}
    assert views.next_write_answer(view, {**ask, "step": 1}) == {"step": 2}
    assert views.next_write_answer(view, {**ask, "step": 2}) == {"step": -1}
    assert views.next_write_answer(view, {**ask, "step": 3, "back": True}) == {"step": 2}
    writer = views.writer_answer(view, {**ask, "step": 2})
    assert writer["line"] == made["steps"][2][0] and writer["thread"] == -1


def test_readers_without_a_kernel_see_the_moment() -> None:
    kernel = checked("missing_barrier", "sim:sm_80")
    kernel.replay()
    page = view_html(kernel.view(), "replay")
    assert problems(page) == [] and "data:image/png" in page
    assert "race: &#x27;tile[0, 0]&#x27; in block (0), threads 128 and 0" in page
    assert "put T.sync_threads() between the two accesses" in page
    rows = VIEWS["replay"].rows(kernel.view(), False)
    assert rows["finding 1"].startswith("race at step 5: 'tile[0, 0]' in block (0), threads 128")


def test_a_kernel_whose_inputs_are_not_known_says_what_to_do() -> None:
    kernel = outside.with_target("sim:sm_80").compile()
    assert VIEWS["replay"].missing(kernel.view()) == (
        "no input can be made up for 'N': kernel.with_inputs(...) before, or "
        "%tile show KERNEL replay A B"
    )
    kernel.with_inputs(np.ones(64, np.float32), 1)
    assert VIEWS["replay"].missing(kernel.view()) == ""
    assert kernel.replay().moments[0].kind == "out of bounds"
