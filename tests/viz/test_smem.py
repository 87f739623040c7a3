"""The view of shared memory: what it says, and its drawing."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest

import tileworkbench as tw
from tests.sim.pipelines import launched_twice
from tests.viz.sanitiser import problems
from tileworkbench.kernels import flash_attention, matmul
from tileworkbench.viz.model import smem
from tileworkbench.viz.model.smem_svg import smem_svg
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import view_html, view_model


@pytest.fixture(scope="module")
def view() -> KernelView:
    # Of a size that no other test builds: of what ptxas has seen the registers are known, too.
    return tw.compile(matmul(256, 256, 416, "float16", num_stages=3), target="sim:sm_80").view()


def test_sentences_name_stages_and_occupancy(view: KernelView) -> None:
    assert smem.sentences(view, view.shared[0]) == [
        "num_stages = 2 would need 32.0 KiB.",
        "num_stages = 4 would need 64.0 KiB.",
        "It takes 29 % of the 163.0 KiB that a block may have on sm_80.",
        "On sm_80 a multiprocessor holds 3 blocks at once, 12 of 64 warps (19 %); the limit is "
        "shared memory.",
        "4 blocks fit with at most 40960 bytes of shared memory each.",
    ]


def test_on_a_cpu_the_tiles_are_memory_of_a_worker() -> None:
    view = tw.compile(matmul(256, 256, 256), target="cpu").view()
    assert smem.sentences(view, view.shared[0]) == [
        "On this target the tiles of a block are ordinary memory of a worker (32.0 KiB as "
        "written; with what the compiler adds, see 'scratch' on the card). They are fast while "
        "they fit its L1 and L2 caches."
    ]


def test_the_drawing_has_a_box_per_buffer_in_its_place(view: KernelView) -> None:
    root = ElementTree.fromstring(smem_svg(view.shared[0], smem.limits()))
    groups = root.iter("{http://www.w3.org/2000/svg}g")
    boxes = {name: g for g in groups if (name := g.get("data-buffer"))}
    assert set(boxes) == {"A_shared", "B_shared"}
    rects = {name: g.find("{http://www.w3.org/2000/svg}rect") for name, g in boxes.items()}
    below, above = (rects[name] for name in ("A_shared", "B_shared"))
    assert below is not None and above is not None
    end = float(above.get("y", 0)) + float(above.get("height", 0))
    assert abs(end - float(below.get("y", 0))) < 0.2  # one begins where the other ends
    assert "stage 2" in "".join(root.itertext())


def test_limits_are_those_of_the_targets() -> None:
    assert smem.limits()["166912"] == ["sm_80"]


def test_the_static_view_is_safe_and_says_what_is_drawn(view: KernelView) -> None:
    page = view_html(view, "smem")
    assert problems(page) == []
    assert "A_shared 24.0 KiB, B_shared 24.0 KiB" in page
    assert view_model(view, "smem")["bytes_"] == 49152


def test_launches_are_chosen_among() -> None:
    view = launched_twice().view()
    data = view_model(view, "smem")
    assert data["launch"] == 1 and len(data["choices"]) == 2
    assert [buffer["name"] for buffer in data["buffers"]] == ["A_shared", "B_shared"]
    other = smem.launch_answer(view, {"launch": 2})
    assert [buffer["name"] for buffer in other["buffers"]] == ["T_shared"]
    assert "num_stages = 3 would need 48.0 KiB." in other["sentences"]
    assert other["occupancy"]["warps"] == 8  # four blocks of 64 threads
    page = view_html(view, "smem")
    assert page.count("<img") == 2 and "launch 2 of 2" in page and problems(page) == []
    rows = launched_twice().to_dict("smem")
    assert [(row["launch"], row["name"]) for row in rows] == [
        *((1, "A_shared"), (1, "B_shared"), (2, "T_shared"))
    ]


def test_texts_of_limits_do_not_touch() -> None:
    """160 and 163 KiB are 3 pixels apart."""
    kernel = tw.compile(flash_attention(1, 2, 128, 128, 128, "float32"), target="sim:sm_90a")
    drawn = ElementTree.fromstring(smem_svg(kernel.view().shared[0], smem.limits()))
    texts = drawn.iter("{http://www.w3.org/2000/svg}text")
    placed = [float(each.get("y", "")) for each in texts if float(each.get("x", "")) == 567]
    assert len(placed) == 10  # a size and who has it, of five limits
    assert all(below - above > 11 for above, below in pairwise(sorted(placed)))


def test_numbers_of_lines_do_not_touch() -> None:
    kernel = tw.compile(flash_attention(1, 2, 128, 128, 64, "float32"), target="cpu")
    drawn = ElementTree.fromstring(smem_svg(kernel.view().shared[0], smem.limits()))
    groups = drawn.iter("{http://www.w3.org/2000/svg}g")
    (group,) = (group for group in groups if group.get("text-anchor") == "middle")
    places = [(float(text.get("x", "")), 3.4 * len(text.text or "")) for text in group]
    assert len(places) > 10
    assert all(x + w < y - v for (x, w), (y, v) in pairwise(places))
