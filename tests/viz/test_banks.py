"""The views of banks, sectors and cache lines: their data and what readers without a kernel see."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tileworkbench as tw
import tileworkbench.language as T
from tests.viz.sample import full_view
from tests.viz.sanitiser import problems
from tests.viz.tiled import compiled
from tileworkbench.compiler.sim.threads.requests import Phase
from tileworkbench.kernels import flash_attention_backward, matmul
from tileworkbench.viz.model import banks, cache_lines, sectors
from tileworkbench.viz.model.card import HTML_LIMIT, card_html, card_model
from tileworkbench.viz.model.views import view_html, view_model


def unpack(packed: dict[str, Any]) -> np.ndarray:
    values = np.frombuffer(b64decode(packed["data"]), f"<{packed['type']}").astype(np.int64)
    return np.where(values == packed.get("empty", -1), -1, values)


def test_requests_travel_as_patterns_and_places() -> None:
    kernel = compiled("mm")
    made = view_model(kernel.view(), "banks")
    threads = made["patterns"]["threads"]
    patterns = unpack(made["patterns"]).reshape(-1, threads)
    shared = [each for each in kernel.requests if each.count.scope == "shared"]
    assert len(patterns) < sum(len(each.requests) for each in shared)
    by_place = {(a["buffer"], a["kind"]): a for a in made["accesses"]}
    for each in shared:
        columns = by_place[each.count.buffer, each.count.kind]["requests"]
        for at, request in enumerate(each.requests):
            row = patterns[columns["pattern"][at]]
            found = np.where(row < 0, -1, columns["base"][at] + row)
            assert (found == np.where(request.active, request.addresses, -1)).all()
            assert columns["register"][at] == request.register
    json.dumps(made)


def test_both_sides_of_a_tile_stand_together() -> None:
    made = view_model(compiled("mm").view(), "banks")
    assert [(a["tile"], a["side"], a["kind"], a["degree"]) for a in made["accesses"]] == [
        ("A_shared", "write", "cp.async", 1),
        ("A_shared", "read", "ldmatrix.x4", 1),
        ("B_shared", "write", "cp.async", 1),
        ("B_shared", "read", "ldmatrix.x4.trans", 1),
    ]
    tile = made["tiles"][0]
    assert (tile["versions"], tile["base"], tile["shape"]) == (3, 0, [64, 32])
    assert {choice["name"]: choice["pitch"] for choice in tile["choices"]}["padding"] == 40


def test_a_conflict_is_told_in_numbers_and_words() -> None:
    view = compiled("conflicting").view()
    assert banks.note(view) == "CONFLICTS: 1 access conflicts, up to 4 words of one bank"
    assert banks.about(view).endswith(
        "A block of this kernel takes 672 wavefronts where its bytes need 288. The worst phase is "
        "in 'load (ldmatrix.x4) 4.00x' of 'A_shared': 4 words of one bank. Counted for one "
        "iteration of each loop."
    )
    page = view_html(view, "banks")
    assert problems(page) == []
    assert "4.00x CONFLICT" in page and "4 wavefronts" in page
    assert "A_shared: 192 wavefronts instead of 576 with T.annotate_layout({A_shared:" in page
    assert page.count("<img") == 1
    assert "A_shared: store 1.00x, load (ldmatrix.x4) 4.00x CONFLICT" in view.accesses
    assert card_model(view)["alarms"] == {"banks": [1, "1 access with bank conflicts"]}
    card = card_html(view)
    assert "CONFLICTS: 1 access" in card and len(card) < HTML_LIMIT


def test_without_a_conflict_there_is_no_alarm() -> None:
    view = compiled("mm").view()
    assert banks.note(view) == "no bank conflicts"
    assert card_model(view)["alarms"] == {}
    page = view_html(view, "banks")
    assert "CONFLICT" not in page and "<img" not in page
    assert "takes 320 wavefronts where its bytes need 320: no lane waits" in page


def test_a_punch_card_is_red_where_lanes_wait() -> None:
    phase = Phase(0, 0, 0, (4, 7), (0, 256), 4)
    pixels = banks.punch_card(phase)
    assert pixels.shape == (24, 384, 3)
    red, free = pixels[3, 3].tolist(), pixels[3, 15].tolist()
    assert red[0] > 150 > red[1] and free[0] == free[1] == free[2]
    apart = banks.punch_card(Phase(0, 0, 0, (4, 7), (0, 260), 4))
    assert apart[3, 3].tolist() != red


def test_the_section_of_a_large_kernel_is_short() -> None:
    page = flash_attention_backward(1, 2, 64, 64, 64, "float16")
    view = tw.compile(page, target="sim:sm_80").view()
    for made in (banks, sectors):
        assert len(made.section(view)) < 10_000
        assert " more</span>" in made.section(view)
        assert " more</span>" not in made.section(view, True)


@pytest.mark.parametrize("target", ["sim:sm_80", "sim:sm_90a", "sim:sm_75"])
def test_gpus(target: str) -> None:
    for name in ("banks", "global"):
        made = view_model(compiled("mm", target).view(), name)
        assert made["target"] == target and len(made["accesses"]) >= 3


def test_sectors_say_why_no_wider() -> None:
    view = compiled("mm").view()
    made = view_model(view, "global")
    found = {access["buffer"]: access for access in made["accesses"]}
    assert found["C"]["why"] == (
        "A lane accesses 8 bytes at once (2 elements); not more, because the layout of 'C_local' "
        "gives a thread no 4 neighbours in a row"
    )
    assert found["A"]["why"].endswith("because a thread accesses at most 16 bytes at once")
    assert made["tensors"][2] == {
        **{"name": "C", "dtype": "float32", "bits": 32, "shape": [256, 256], "dense": True}
    }
    page = view_html(view, "global")
    assert problems(page) == [] and "every sector is used whole" in page
    assert "no 4 neighbours in a row" in page


def test_what_no_loop_chose_and_what_is_moved_for_nothing() -> None:
    @tw.jit(target="sim:sm_80")
    def strided(A):
        A: T.Tensor((1024,), "float32")
        with T.Kernel(1, threads=128) as _:
            t = T.get_thread_binding()
            A[t * 8] = 1.0

    view = strided.compile().view()
    (access,) = view_model(view, "global")["accesses"]
    assert (access["sectors"], access["ideal"], access["side"]) == (128, 16, "write")
    assert access["why"] == (
        "A lane accesses 4 bytes at once (1 element); the statement says so, no copy or parallel "
        "loop chose it"
    )
    assert "8.00x the sectors that its bytes need" in view_html(view, "global")
    assert banks.missing(view) == "the kernel has no tile in shared memory"


def test_cache_lines_of_a_cpu() -> None:
    view = compiled("transpose", "cpu").view()
    made = view_model(view, "banks")
    assert made["unit"] == "line"
    loads = [a for a in made["accesses"] if (a["tile"], a["kind"]) == ("tile", "load")]
    worst = max(loads, key=lambda each: each["factor"])
    assert worst["pattern"] == "scattered" and worst["factor"] == worst["lanes"]
    assert worst["why"] == (
        "the lanes are 256 bytes apart, so each is loaded or stored by itself"
    )
    rows = unpack(worst["vectors"]).reshape(worst["vectors"]["rows"], -1)
    assert (np.diff(rows, axis=1) == 256).all()
    tiles = {tile["name"]: tile for tile in made["tiles"]}
    assert tiles["tile"]["shape"] == [64, 64] and tiles["tile"]["layout"]["size"] == 4096
    tensors = view_model(view, "global")
    sides = [(a["buffer"], a["side"]) for a in tensors["accesses"]]
    assert sides == [("A", "read"), ("B", "write")]
    assert {tile["name"] for tile in tensors["tiles"]} == {"A", "B"}
    page = view_html(view, "banks")
    assert problems(page) == [] and "load, scattered" in page
    assert banks.section(view) == sectors.section(view) == ""  # vectors are the host's


def test_a_tile_that_a_pass_made_larger_is_drawn_as_it_is() -> None:
    kernel = tw.compile(matmul(256, 256, 256), target="cpu", disable=["read_in_place"])
    view = kernel.view()
    drawn = {tile["name"]: tuple(tile["shape"]) for tile in view_model(view, "banks")["tiles"]}
    layouts = {each.name: each.layout.shape for each in view.layouts}
    assert drawn["A_shared"] == layouts["A_shared"] == (128, 256)  # 128 x 32 as written


def test_amds_words() -> None:
    view = tw.compile(matmul(128, 128, 64, "float16"), target="sim:gfx942").view()
    made = view_model(view, "banks")
    assert (made["memory"]["called"], made["memory"]["warp"]) == ("wave", 64)
    assert "A wavefront is one pass over the banks here, not a wave of 64 lanes." in made["about"]
    assert view_model(view, "global")["memory"]["warp"] == 64


def test_routines_of_products_on_a_cpu() -> None:
    made = view_model(compiled("mm", "cpu").view(), "banks")
    assert any("A_shared, B_shared, C_local: its micro-kernel" in text for text in made["routines"])


def test_uniform_and_scalar_accesses_of_a_cpu_say_what_they_are() -> None:
    assert {
        cache_lines.why_narrow(each): each.pattern
        for each in compiled("transpose", "cpu").requests
        if each.pattern == "contiguous"
    } == {"": "contiguous"}


def test_a_view_without_requests_says_so() -> None:
    for name in ("banks", "global"):
        assert view_model(full_view(), name) == {"missing": "the kernel was not lowered"}
    gpu = replace(full_view(), record=replace(full_view().record, target="sim:sm_80"))
    for name in ("banks", "global"):
        assert view_model(gpu, name) == {"missing": "the kernel was not lowered"}
