"""Notebook 7: live views, saved cards and the extension, as in JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab import LabServer, NotebookPage
from tests.browser.test_saved import CARD, check_live, check_still, restart_kernel, write

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ASK = """async (address) => {
  const { insertCell } = await import(address);
  return insertCell("answer = 42", document.querySelector(".tw-card"));
}"""


def test_views_are_live_and_saved(lab: LabServer, browser: Browser) -> None:
    write(lab.root / "seven.ipynb")
    context = browser.new_context(viewport={"width": 1400, "height": 1800})
    notebook = NotebookPage(context.new_page(), lab, app="notebooks")
    notebook.load("seven.ipynb")
    notebook.errors.clear()  # Notebook 7.6 has one of its own while it starts
    notebook.run_all()
    check_live(notebook)
    notebook.output(CARD).locator("[data-tab=code]").click()
    expect(notebook.output(CARD).locator(".tw-pane-code")).to_contain_text("define void @mm")
    common = "/lab/extensions/@tileworkbench/labext/static/views/common.js"
    assert notebook.page.evaluate(ASK, common)
    expect(notebook.cell(1)).to_contain_text("answer = 42")
    notebook.page.evaluate(
        "() => { const { sharedModel } = window.jupyterapp.shell.currentWidget.content.model;"
        " sharedModel.deleteCell(1); }"
    )
    restart_kernel(notebook)
    check_still(notebook)
    assert notebook.errors == []
    assert notebook.outside == []
    context.close()
    lab.stop_kernels()
