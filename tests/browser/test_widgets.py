"""Each widget in a real JupyterLab: it renders, it reacts, and Python hears of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.viz.sample import full_view
from tileworkbench.viz.model.page import save_html

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SETUP = f"""\
import sys
from dataclasses import replace
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.viz.sample import full_view
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.viz.display import show
from tileworkbench.viz.widgets.bench import BenchWidget
from tileworkbench.viz.widgets.layouts import layout_widget
view = replace(
    full_view(),
    masked=(("A, line 7, 1 of 4096 elements", False), ("B, line 9, 4096 of 4096", True)),
)"""
CARD, PASSES, LAYOUT, ROOFLINE, BENCH, STATE, STATIC = 1, 2, 3, 4, 5, 6, 7
CELLS = {
    0: SETUP,
    CARD: "card = show(view)\ncard",
    PASSES: "passes = show(view, 'passes')\npasses",
    LAYOUT: (
        "grid = layout_widget(Fragment((128, 128), lambda i, j: (i % 8 * 4 + j % 8 // 2, "
        "i // 8 * 32 + j // 8 * 2 + j % 2)), 'grid')\ngrid"
    ),
    ROOFLINE: "roof = show(view, 'roofline')\nroof",
    BENCH: "BenchWidget(view.bench)",
    STATE: (
        "print(passes.selected_pass, grid.selected_thread, list(grid.selected_element),"
        " card.tab, card.layout_name, 0 < grid.first_paint_ms)"
    ),
    STATIC: ("import os\nos.environ['TILEWORKBENCH_STATIC'] = '1'\ncard"),
}


@pytest.fixture
def notebook(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> Iterator[NotebookPage]:
    """A notebook with every widget, all cells run."""
    write_notebook(lab.root / "widgets.ipynb", *CELLS.values())
    opened = open_notebook("widgets.ipynb")
    opened.run_all()
    assert opened.cell_errors() == []
    opened.page.set_default_timeout(WAIT_MS)
    yield opened
    assert opened.errors == []
    assert opened.outside == []


def test_widgets_render_react_and_reach_the_kernel(notebook: NotebookPage) -> None:
    check_card(notebook)
    check_passes(notebook)
    check_layout(notebook)
    check_roofline(notebook)
    check_bench(notebook)
    notebook.run_until(STATE, "3 0 [0, 0] layouts C_local True")
    check_static(notebook)


def check_card(notebook: NotebookPage) -> None:
    card = notebook.output(CARD)
    card.locator(".tw-title").get_by_text("mm", exact=True).wait_for()
    assert card.locator(".tw-fact-value").first.inner_text() == "4x4"
    for masked in ("masked: A, line 7, 1 of 4096 elements", "masked: B, line 9, 4096 of 4096"):
        assert card.get_by_text(masked).is_visible()
    card.locator(".tw-bound[data-told=true]").get_by_text("bound by compute. At ").wait_for()
    card.locator("[data-tab=code]").click()
    card.locator(".tw-pane-code .tw-line").first.wait_for()  # fetched from the kernel
    assert "define void @mm" in card.locator(".tw-pane-code").inner_text()
    card.locator("[data-tab=layouts]").click()
    card.locator(".tw-layouts[data-painted=true]").wait_for()
    card.locator(".tw-layouts select").first.select_option("C_local")
    card.locator(".tw-badges").get_by_text("128 threads × 32 slots").wait_for()


def check_passes(notebook: NotebookPage) -> None:
    view = notebook.output(PASSES).locator(".tw-passes")
    view.locator(".tw-diff .tw-added, .tw-diff .tw-removed").first.wait_for()
    view.locator(".tw-about b").click()
    assert active_cell(notebook) == PASSES
    view.press("j")
    view.and_(notebook.page.locator("[data-shown='3']")).wait_for()  # a difference, on request
    assert "lower_copy" in view.locator(".tw-about").inner_text()
    line = view.locator("td[data-source='14']").last
    line.hover()
    assert "T.copy(A[" in view.locator(".tw-marked").inner_text()
    view.press("/")
    view.locator("input[type=search]").type("vectorized")
    view.locator(".tw-found").get_by_text("3 lines in 1 passes").wait_for()
    view.locator("input[type=search]").press("Escape")
    view.press("?")
    view.locator(".tw-help").wait_for(state="visible")
    view.press("Escape")
    view.locator(".tw-help").wait_for(state="hidden")
    view.locator(".tw-check input").check()
    assert view.locator(".tw-pass").count() == 4
    assert active_cell(notebook) == PASSES  # JupyterLab's own j and k stayed out of it


def active_cell(notebook: NotebookPage) -> int:
    """The cell that JupyterLab's keys act on."""
    script = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    return int(notebook.page.evaluate(script))


def check_layout(notebook: NotebookPage) -> None:
    view = notebook.output(LAYOUT).locator(".tw-layouts[data-painted=true]")
    view.wait_for()
    view.locator("canvas").first.click(position={"x": 36, "y": 22})
    view.locator(".tw-pinned").get_by_text("512 elements, slot by slot").wait_for()
    assert view.locator(".tw-elements").inner_text().startswith("(0, 0) (0, 1) (0, 8) (0, 9)")


def check_roofline(notebook: NotebookPage) -> None:
    view = notebook.output(ROOFLINE).locator(".tw-roofline")
    view.locator("svg circle[data-point=mm]").wait_for()
    assert "in the compute-bound region" in view.locator(".tw-verdict").inner_text()


def check_bench(notebook: NotebookPage) -> None:
    line = notebook.output(BENCH).locator(".tw-bench")
    line.wait_for()
    shown = notebook.output(CARD).locator(".tw-bench").text_content() or ""
    assert (line.text_content() or "?") in shown and "GFLOP/s" in shown


def check_static(notebook: NotebookPage) -> None:
    output = notebook.output(STATIC)
    assert output.locator(".tw-card").count() == 0
    output.locator("summary").get_by_text("Passes").click()
    assert "lower_fill" in output.inner_text()


def test_a_saved_page_works_offline(browser: Browser, tmp_path: Path) -> None:
    path = save_html(full_view(), tmp_path / "mm.html")
    context = browser.new_context(offline=True)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.locator("[data-tab=passes]").click()
    page.locator(".tw-passes").press("j")
    page.locator(".tw-passes[data-shown='3']").wait_for(timeout=WAIT_MS)
    page.locator(".tw-passes input[type=search]").fill("vectorized")
    page.locator(".tw-found").get_by_text("3 lines in 1 passes").wait_for(timeout=WAIT_MS)
    page.locator("[data-tab=layouts]").click()
    page.locator(".tw-layouts select").first.select_option("C_local")
    page.locator(".tw-owner[type=number]").last.fill("5")
    page.locator(".tw-owner[type=number]").last.press("Enter")
    page.locator(".tw-pinned").get_by_text("32 elements").wait_for(timeout=WAIT_MS)
    assert page.locator(".tw-elements").inner_text().startswith("(1, 2) (1, 3) (9, 2) (9, 3)")
    page.locator("[data-tab=code]").click()
    assert "define void @mm" in page.locator(".tw-pane-code").inner_text()
    page.locator("[data-tab=roofline]").click()
    assert page.locator(".tw-plot circle").count() == 1
    context.close()
    assert errors == []
