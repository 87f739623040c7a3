"""The layout explorer: its arithmetic is Python's, and both its views answer the pointer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import tileworkbench as tw
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.browser.scripts import call
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.kernels import matmul
from tileworkbench.viz.model.layout import layout_model
from tileworkbench.viz.model.layout_tables import hardware_grid
from tileworkbench.viz.model.packing import as_text
from tileworkbench.viz.model.palette import CATEGORIES, SEQUENCE
from tileworkbench.workbench.results import BufferLayout

if TYPE_CHECKING:
    from playwright.sync_api import Browser

SETUP = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.viz.tiled import compiled"""
VIEW, STATE, TELL = 1, 2, 3
CELLS = [
    SETUP,
    "view = compiled('mm').show('layouts:C_local')\nview",
    "print(view.selected_thread, view.selected_element, view.selection)",
    "view.selection = {'line': 7, 'buffer': 'A_shared'}",
]
PLACES = """
return data.map((raw) => {
  const slice = new $slices.LayoutSlice(raw);
  const hardware = new $slices.HardwareSlice(slice);
  const cells = [...Array(slice.cells).keys()].filter((cell) => !slice.isEmpty(cell));
  return {
    held: [...hardware.held],
    columns: hardware.columns,
    back: cells.every((cell) => slice.cellOf(slice.indexOf(cell)) === cell
      && hardware.placesOf(cell).every((place) => hardware.held[place] === cell)),
    owners: cells.map((cell) => slice.all(cell)),
  };
});
"""
CONTRAST = """
const light = (colour) => colour.map((part) => part / 255)
  .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
  .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
const contrast = (a, b) => {
  const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
return Object.values($grid.FADED).flatMap((theme) => data.map((colour) =>
  contrast(theme.letters, $grid.fadedColour(colour, theme))));
"""


def random_layouts() -> Iterator[Layout | Fragment]:
    random = np.random.default_rng(1)
    for _ in range(20):
        rows, columns = (int(random.choice([1, 3, 4, 8, 12])) for _ in range(2))
        order = random.permutation(rows * columns).reshape(rows, columns, 1)
        yield Layout.from_table(order)
        yield Layout.padded((rows, columns), columns + int(random.integers(0, 5)))
        slots = int(random.choice([d for d in (1, 2, 4) if rows * columns % d == 0]))
        table = np.concatenate([order // slots, order % slots], -1)
        place = Layout.from_table(table)
        fragment = Fragment((rows, columns), lambda i, j, p=place: p.evaluate(i, j))
        yield fragment
        yield fragment.replicated(int(random.integers(2, 20)))
        yield fragment.repeat((2, 3), on_thread=bool(random.integers(2)))
    yield Fragment((16, 4), lambda i, j, rep: (rep ^ i, i * 4 + j), replicate=16)
    yield Fragment((40,), lambda i: (i % 8, i // 8))


def test_arithmetic_is_that_of_python(browser: Browser) -> None:
    layouts = list(random_layouts())
    models: list[Any] = [as_text(layout_model(BufferLayout("x", each))) for each in layouts]
    found = call(browser, ("slices",), PLACES, models)
    for layout, made in zip(layouts, found, strict=True):
        held = hardware_grid(layout).reshape(-1)
        assert made["back"]
        assert made["held"][: held.size] == held.tolist()
        assert set(made["held"][held.size :]) <= {-1}
        if isinstance(layout, Fragment):
            assert made["owners"] == layout.table()[0].reshape(-1, layout.replicate).tolist()
        else:
            assert made["owners"] == layout.table().reshape(-1, 1).tolist()


def test_cache_lines_of_a_large_tile_stand_side_by_side(browser: Browser) -> None:
    """One below the other they would be a thread; banks stay one row of all banks."""
    tiles = [
        BufferLayout("x", Layout.padded((rows, 256), 256), banked=banked)
        for rows, banked in ((1, False), (128, False), (128, True))
    ]
    models: list[Any] = [as_text(layout_model(each)) for each in tiles]
    found = call(browser, ("slices",), PLACES, models)
    assert [made["columns"] for made in found] == [16, 128, 32]
    for tile, made in zip(tiles, found, strict=True):
        count = tile.layout.shape[0] * 256
        assert made["back"] and made["held"] == list(range(count))


def test_letters_below_the_veil_are_readable(browser: Browser) -> None:
    """Contrast of at least 4.5 to 1 in both themes."""
    found = call(browser, ("grid",), CONTRAST, [list(c) for c in (*CATEGORIES, *SEQUENCE)])
    assert len(found) == 28 and min(found) >= 4.5


def test_an_element_is_found_by_its_indices(browser: Browser, tmp_path: Path) -> None:
    kernel = tw.compile(matmul(64, 64, 64, "float16"), target="sim:sm_80")
    layout = kernel.layouts["C_local"]
    page = browser.new_page()
    page.goto(kernel.save(tmp_path / "page.html").as_uri())
    page.locator("[data-tab=layouts]").click()
    view = page.locator(".tw-layouts[data-painted=true]")
    view.get_by_label("Buffer").select_option("C_local")
    found = view.get_by_label("Find an element")
    rows, columns = layout.shape
    limit = f"an element of C_local has 2 indices below {rows}, {columns}"
    for typed, problem in ((f"{rows}, 0", limit), ("", "")):
        found.fill(typed)
        found.press("Enter")
        assert found.evaluate("each => each.validationMessage") == problem
    found.fill("(9, 17)")
    found.press("Enter")
    owner = int(layout.evaluate(9, 17)[0])
    page.locator(f".tw-layouts[data-pinned='[{owner},[9,17]]']").wait_for(timeout=WAIT_MS)
    page.close()


@pytest.fixture
def notebook(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> Iterator[NotebookPage]:
    write_notebook(lab.root / "y.ipynb", *CELLS)
    opened = open_notebook("y.ipynb")
    for cell in (0, VIEW):
        opened.run_cell(cell)
    assert opened.cell_errors() == []
    opened.page.set_default_timeout(WAIT_MS)
    yield opened
    assert (opened.errors, opened.outside) == ([], [])


def test_both_views_follow_the_pointer(notebook: NotebookPage) -> None:
    view = notebook.output(VIEW).locator(".tw-layouts[data-painted=true]")
    tensor, hardware = view.locator("canvas").all()
    tensor.hover(position={"x": 36, "y": 22})  # the first element
    assert json.loads(view.get_attribute("data-hovered") or "[]") == [[0, 0], [0]]
    hardware.hover(position={"x": 36, "y": 22})  # thread 0, slot 0
    assert json.loads(view.get_attribute("data-hovered") or "[]") == [[0, 0], [0]]
    hardware.click(position={"x": 36, "y": 22})
    view.locator(".tw-pinned").get_by_text("32 elements, slot by slot").wait_for()
    notebook.run_until(STATE, "0 [0, 0] {'buffer': 'C_local', 'element': [0, 0]}")
    box = view.get_by_label("mma.m16n8k16 C 16×8")
    assert box.is_checked()
    before = tensor.screenshot()
    box.uncheck()
    assert tensor.screenshot() != before
    view.get_by_role("button", name="line").first.click()
    view.locator(".tw-steps li.tw-current").first.wait_for()
    notebook.run_cell(TELL)
    view.locator(".tw-badges").get_by_text("vectors of 16 B").wait_for()
    assert view.locator("select").first.input_value() == "A_shared"
