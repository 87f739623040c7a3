"""The card of `%%tile torch` in a real JupyterLab: live, opened as cells, and reopened."""

from __future__ import annotations

from collections.abc import Callable

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.audit import AUDIT, THEMES, faults, reached_by_tab, use_theme
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

pytestmark = pytest.mark.slow
CELLS = [
    "%load_ext tileworkbench\n"
    "import torch, torch.nn.functional as F\n"
    "x, w = torch.randn(128, 128), torch.randn(256, 128)",
    "%%tile torch --args x,w --bench 5 --keep-slower\n"
    "def layer(x, w):\n"
    "    h = F.gelu(F.linear(x, w))\n"
    "    return torch.softmax(h, -1).sort(-1).values\n",
]


@pytest.fixture
def notebook(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> NotebookPage:
    write_notebook(lab.root / "t.ipynb", *CELLS)
    made = open_notebook("t.ipynb")
    made.page.evaluate(AUDIT)
    made.run_all()
    made.page.set_default_timeout(WAIT_MS)
    return made


def test_operations_kernels_and_a_kernel_as_a_cell(notebook: NotebookPage) -> None:
    page, view = notebook.page, notebook.output(1).locator(".tw-function")
    rows = view.locator("tbody tr")
    assert rows.count() == 4
    assert rows.nth(0).locator("td").all_inner_texts() == [
        *("3", "h = F.gelu(F.linear(x, w))", "aten.mm.default", "mm_gelu")
    ]
    assert rows.nth(1).locator("td").all_inner_texts()[:2] == ["", ""]
    code = rows.nth(0).locator(".tw-text")
    code.evaluate("cell => { cell.firstChild.textContent = 'torch.softmax(y, -1) + '.repeat(4); }")
    assert code.evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    table, name = (view.locator(each).bounding_box() for each in ("table", ".tw-title"))
    assert table is not None and name is not None and table["x"] == name["x"]
    reason = "torch: sorting and searching is torch's own"
    assert rows.nth(3).locator("td").last.inner_text() == reason
    assert "agrees with torch in 1 result: " in view.inner_text()
    assert "times as fast as torch" in view.inner_text()
    rows.nth(1).get_by_role("button", name="mm_gelu").click()
    pane = view.locator(".tw-pane-mm_gelu")
    expect(pane.get_by_text("def mm_gelu(")).to_be_visible()
    pane.get_by_role("button", name="Open as cell").click()
    expect(pane.get_by_text("In a new cell, with its check against torch.")).to_be_visible()
    notebook.run_cell(2)
    card = notebook.output(2).locator(".tw-card")
    card.wait_for()
    assert "check ok" in card.inner_text()
    found = {}
    for theme in THEMES:
        use_theme(page, theme)
        found[theme] = faults(view, "contrast")
    found["names"] = [*faults(view, "names", "keys", "focus"), *reached_by_tab(page, view)]
    assert {name: each for name, each in found.items() if each} == {}
    use_theme(page, THEMES[0])
    assert (notebook.errors, notebook.outside, notebook.cell_errors()) == ([], [], [])


def test_the_saved_card_has_the_programs(
    notebook: NotebookPage, lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    notebook.page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
    path = lab.root / "t.ipynb"
    notebook.page.wait_for_function("!document.querySelector('.jp-mod-dirty')")
    outputs = nbformat.read(path, as_version=4).cells[1].outputs
    text = next(each.data["text/html"] for each in outputs if "data" in each)
    assert "Kernel mm_gelu" in text and "T.gemm(" in text and "sorting and searching is" in text
    assert "times as fast" not in text  # what was measured changes with every run
