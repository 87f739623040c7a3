"""What is kept of a card where no kernel is."""

from __future__ import annotations

import json
import re
import zlib
from base64 import b64decode
from importlib.metadata import version
from itertools import accumulate
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.viz.sample import full_view
from tests.viz.tiled import compiled
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.viz.model.assets import read_static
from tileworkbench.viz.model.bundle import OUTPUT_BYTES
from tileworkbench.viz.model.card import BESIDE_LIMIT, card_html
from tileworkbench.viz.model.saved import STRIDE, pack, saved_card, saved_lines, saved_parts


def unpack(text: str) -> Any:
    """The inverse of `pack`, element by element, as `extensions/labext/static/saved.js` has it."""
    content = zlib.decompress(b64decode(text))
    end = 4 + int.from_bytes(content[:4], "little")

    def table(value: dict[str, Any]) -> Any:
        if "$bytes" not in value:
            return value
        start, count = value["$bytes"]
        packed = content[end + start : end + start + count]
        found = bytearray(count)
        for lane in range(STRIDE):
            sums = accumulate(packed[lane::STRIDE])
            found[lane::STRIDE] = bytes(total % 256 for total in sums)
        return bytes(found)

    return json.loads(content[4:end], object_hook=table)


@pytest.mark.parametrize(
    "value",
    [
        {},
        [1, "\u2028 <b>", {"data": b""}],
        {"one": b"\x01", "odd": b"\xff\x00\x80\x7f\x01", "rows": np.arange(999, dtype="i4")},
    ],
)
def test_packing_is_undone(value: Any) -> None:
    if "rows" in value:
        value["rows"] = value["rows"].tobytes()
    assert unpack(pack(value)) == value


def test_tables_of_rows_take_little_room() -> None:
    assert len(pack({"data": np.arange(100_000, dtype="i4").tobytes()})) < 3_000


def test_what_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(TypeError) as caught:
        pack({"data": {1, 2}})
    assert str(caught.value) == "cannot save a set"


def test_a_card_is_kept_whole_where_there_is_room() -> None:
    card = saved_card(full_view(), 60_000)
    assert card is not None
    assert card["version"] == version("tileworkbench")
    assert {"common", "card", "passes"} <= set(card["styles"])
    assert all(read_static(f"{name}.css") for name in card["styles"])
    state, answers = unpack(card["packed"])
    wanted_state, wanted = saved_parts(full_view())
    assert state.keys() == wanted_state.keys()
    assert state["layout_data"] == wanted_state["layout_data"]
    assert answers["layouts"] == wanted["layouts"]
    assert answers["views"].keys() == wanted["views"].keys()


def test_what_became_of_each_line_is_kept() -> None:
    """With its IR after each pass that changed something, and the costs that are shaded."""
    kernel = compiled("conflicting").with_costs()
    state, answers = unpack(saved_card(kernel.view(), 100_000)["packed"])  # type: ignore[index]
    assert state["tab"] == "source" and saved_parts(full_view())[0]["tab"] == "card"
    lines = kernel.record.source.splitlines()
    number = kernel.record.first_line + next(at for at, x in enumerate(lines) if "T.gemm" in x)
    gemm = answers["lines"][str(number)]
    assert gemm["passes"][0]["name"] == "front end"
    assert any("ldmatrix" in text for text in gemm["code"])
    assert "lines" not in unpack(saved_card(kernel.view(), 30_000)["packed"])[1]  # type: ignore[index]


def left_out(html: str) -> list[str]:
    """The views that a card had no room for; the sentence agrees with their number."""
    said = re.search(r"Too large for a saved card: ([^<]*)\. Run the cell to see (it|them)\.", html)
    assert said is not None
    names = said[1].split(", ")
    assert said[2] == ("it" if len(names) == 1 else "them")
    return names


def test_an_ordinary_gpu_card_is_kept_beside_its_html() -> None:
    """The extension draws it from what the output has room for besides the picture."""
    attention = flash_attention(1, 2, 256, 256, 64, dtype="float16")
    for program in (matmul(256, 256, 256, "float16"), attention):
        view = tw.compile(program, target="sim:sm_90a").view()
        html = card_html(view, BESIDE_LIMIT)
        assert "Layouts" in left_out(html)
        room = OUTPUT_BYTES - len(html.encode())
        saved = saved_card(view, room - len(saved_lines(view)["lines"]))
        assert saved is not None
        state, answers = unpack(saved["packed"])
        assert state["card"]["name"] == view.record.name and "source" in answers["views"]
        assert len(left_out(card_html(view, 10_000))) > 1


def test_the_largest_views_give_way_to_the_limit() -> None:
    whole = saved_card(full_view(), 60_000)
    assert whole is not None
    _, without_trees = saved_parts(full_view())
    del without_trees["trees"]
    less = saved_card(full_view(), len(whole["packed"]) - 1)
    assert less is not None
    assert unpack(less["packed"])[1].keys() == without_trees.keys()
    del without_trees["lines"]
    less = saved_card(full_view(), len(less["packed"]) - 1)
    assert less is not None
    assert unpack(less["packed"])[1].keys() == without_trees.keys()
    views = without_trees["views"]
    parts = {**views, "diffs": without_trees["diffs"]}
    largest = sorted(parts, key=lambda name: -len(pack(parts[name])))
    for count in (1, 2):
        less = saved_card(full_view(), len(less["packed"]) - 1)
        assert less is not None
        kept = unpack(less["packed"])[1]
        assert kept["views"].keys() == views.keys() - {*largest[:count]}
        assert ("diffs" in kept) == ("diffs" not in largest[:count])
    assert saved_card(full_view(), 1_000) is None
