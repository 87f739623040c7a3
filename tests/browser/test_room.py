"""Views in the width that a card has in JupyterLab beside its file browser: no room is wasted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

import tileworkbench as tw
from tests.browser.lab import WAIT_MS
from tests.viz.tiled import compiled
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.views import view_html

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Locator, Page

CARD = 968  # pixels of a card in a window of 1400


@pytest.fixture(params=["sim:gfx942", "sim:sm_90a"])
def page(browser: Browser, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Page]:
    kernel = tw.compile(matmul(256, 256, 256, "float16"), target=request.param)
    opened = browser.new_page(viewport={"width": CARD + 40, "height": 1200})
    opened.goto(kernel.save(tmp_path / "page.html").as_uri())
    opened.locator(".tw-card").evaluate(f"card => card.style.width = '{CARD}px'")
    yield opened
    opened.close()


# How many lines each part of a row has.
LINES = """row => [...row.children].map(part => {
  const range = document.createRange();
  range.selectNodeContents(part);
  return range.getClientRects().length;
})"""


def top(part: Locator) -> float:
    box = part.bounding_box()
    assert box is not None
    return box["y"]


def test_a_narrow_card_is_readable(page: Page) -> None:
    """Half of a screen beside JupyterLab's file browser, however wide the window is."""
    card = page.locator(".tw-card")
    card.evaluate("card => card.style.width = '460px'")
    page.locator("[data-tab=passes]").click()
    main, passes = page.locator(".tw-main"), page.locator(".tw-pass-list")
    main.wait_for()
    assert main.evaluate("node => node.clientWidth") > 400
    assert top(main) > top(passes) + 200
    page.locator("[data-tab=global]").click()
    rows = page.locator(".tw-global tr[data-access]")
    rows.first.wait_for()
    assert rows.evaluate_all("all => Math.max(...all.map(each => each.offsetHeight))") < 30
    for name in ("roofline", "smem"):  # texts of 11 in the drawing, on the screen
        page.locator(f"[data-tab={name}]").click()
        drawing = page.locator(f".tw-pane-{name} svg").first
        drawing.wait_for()
        scale = drawing.evaluate("svg => svg.getScreenCTM().a")
        assert 11 * scale >= 9, name


def test_pictures_of_a_narrow_page_keep_their_shape(browser: Browser) -> None:
    kernel = tw.compile(matmul(256, 256, 256, "float16"), target="sim:sm_80")
    opened = browser.new_page(viewport={"width": 420, "height": 900})
    opened.set_content(view_html(kernel.view(), "layouts"))
    shapes = opened.locator("img").evaluate_all(
        "all => all.map(each => [each.clientWidth, each.clientHeight,"
        " each.naturalWidth, each.naturalHeight])"
    )
    assert any(width < natural for width, _, natural, _ in shapes)
    for width, height, *natural in shapes:
        assert height == pytest.approx(width * natural[1] / natural[0], abs=1)
    opened.close()


def test_threads_have_one_name_and_counts_say_of_what(page: Page) -> None:
    page.locator("[data-tab=pipeline]").click()
    view = page.locator(".tw-pipeline")
    view.get_by_text("iterations 0 to ", exact=False).first.wait_for()
    names = view.locator("svg").text_content() or ""
    assert "role" not in names
    assert "threads 0-" in names


def test_tabs_stand_in_one_row_whichever_is_open(page: Page) -> None:
    tabs = page.locator(".tw-tabs button")
    for at in range(tabs.count()):
        tabs.nth(at).click()
        assert tabs.evaluate_all("all => new Set(all.map(each => each.offsetTop)).size") == 1
        assert tabs.evaluate_all("all => Math.max(...all.map(each => each.offsetHeight))") < 36


def test_pictures_stand_beside_each_other(page: Page) -> None:
    page.locator("[data-tab=banks]").click()
    view = page.locator(".tw-banks[data-degree]")
    view.wait_for()
    card, memory, tile = (view.locator(".tw-figure").nth(at) for at in range(3))
    assert top(card) == top(view.locator(".tw-info"))
    assert top(memory) == top(tile) > top(card)
    page.locator("[data-tab=global]").click()
    view = page.locator(".tw-global")
    assert top(view.locator(".tw-figure").first) == top(view.locator(".tw-info"))


def test_numbers_are_explained_where_they_are_written(page: Page) -> None:
    page.locator("[data-tab=banks]").click()
    page.locator(".tw-banks[data-degree]").wait_for()
    notes = page.locator(".tw-banks .tw-figure-note").all_inner_texts()
    assert notes[0].startswith("The number is the 128-byte row of the word. Below:")
    assert notes[1].startswith("The number is the lane. Free cells:")
    page.locator(".tw-card").evaluate("card => card.style.width = '300px'")
    lanes = page.locator(".tw-banks .tw-figure-note").nth(1)
    lanes.filter(has_text=re.compile("^Free cells:")).wait_for(timeout=WAIT_MS)


def test_every_lane_of_a_wave_is_drawn(page: Page) -> None:
    page.locator("[data-tab=global]").click()
    view = page.locator(".tw-global")
    amd = "gfx942" in page.locator(".tw-card").inner_text()
    lanes, word = (64, "wave") if amd else (32, "warp")
    view.get_by_text(f"The {lanes} lanes and the first byte of each").wait_for()
    assert f"· {word} " in view.locator(".tw-phase-place").inner_text()
    if amd:  # whose loads are whole instructions of a wave
        view.get_by_text("lanes that take part").locator("xpath=..").get_by_text("64").wait_for()


def test_a_request_has_the_number_of_the_table(page: Page) -> None:
    """`phase 1 of 64, done 2 times · request 1 of 8`: together as many as the table counts."""
    page.locator("[data-tab=banks]").click()
    view = page.locator(".tw-banks[data-degree]")
    words = view.locator(".tw-phase-place").inner_text().replace(",", "").split()
    times = int(words[words.index("done") + 1]) if "done" in words else 1
    requests = int(words[words.index("request") + 3])
    cells = view.locator("tr[aria-selected=true] td").all_inner_texts()
    assert times * requests == int(cells[4])


def test_what_is_not_shown_is_told(browser: Browser, tmp_path: Path) -> None:
    """Of many words the first, of a large tile the first rows; and the panel keeps its width."""
    opened = browser.new_page(viewport={"width": CARD + 40, "height": 1200})
    opened.goto(compiled("transpose").save(tmp_path / "gpu.html").as_uri())
    opened.locator("[data-tab=banks]").click()
    opened.get_by_text("32.00×").first.click()
    opened.locator(".tw-banks[data-degree='32']").wait_for()
    many = opened.locator(".tw-banks .tw-info .tw-row").filter(has_text="and 24 more")
    lines = many.evaluate(LINES)
    assert lines[0] == 1 < lines[1]  # the value has several lines, its label one
    kernel = tw.compile(matmul(256, 256, 256, block_M=128), target="cpu")
    opened.goto(kernel.save(tmp_path / "cpu.html").as_uri())
    opened.locator("[data-tab=banks]").click()
    opened.get_by_text("Framed, with a number").filter(has_text="Shown from C_local[").wait_for()
    opened.locator("[data-tab=global]").click()
    view = opened.locator(".tw-pane-global .tw-lines")
    panel, cells = view.locator(".tw-info"), view.locator("canvas").first
    before = panel.bounding_box()
    cells.hover(position={"x": 80, "y": 30})
    panel.filter(has_text="lane 0").wait_for()
    after = panel.bounding_box()
    assert before is not None and after is not None and before["width"] == after["width"] > 300
    opened.close()


def test_a_saved_card_is_silent_about_what_the_kernel_alone_knows(
    browser: Browser, tmp_path: Path
) -> None:
    saved = tw.compile(matmul(64, 64, 64), target="cpu").save(tmp_path / "cpu.html")
    page = browser.new_page()
    page.goto(saved.as_uri())
    page.locator(".tw-facts").wait_for()
    expect(page.locator(".tw-bound")).to_have_count(0)
    page.close()
