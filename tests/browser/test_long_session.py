"""A session that goes on for days keeps the last of what it made, and no more."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    "import tileworkbench as tw\nfrom tileworkbench.kernels import matmul\n"
    "from tileworkbench.viz.widgets import base\nbase.MOST_LIVE = 1\n"
    "kernel = tw.compile(matmul(64, 64, 64), target='cpu')",
    "kernel.show('passes')",
    "kernel.show('code')",
]
KEEP = """() => {
  const node = document.querySelector(".jp-OutputArea");
  for (let number = 0; number < 70; number++)
    node.dispatchEvent(new CustomEvent("tileworkbench:keep-trail", {
      detail: { name: `k${number}`, points: Array(200).fill({ number }) },
      bubbles: true, cancelable: true, composed: true }));
  const { trail } = window.jupyterapp.shell.currentWidget.content.model
    .getMetadata("tileworkbench");
  return [Object.keys(trail).length, Object.keys(trail)[0], trail.k69.length];
}"""


def test_old_views_show_their_pictures_and_trails_are_few(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    path = lab.root / "long.ipynb"
    write_notebook(path, *CELLS)
    notebook = open_notebook("long.ipynb")
    notebook.run_cell(0)
    notebook.run_cell(1)
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.output(1).locator(".tw-view").first.wait_for()
    notebook.run_cell(2)
    notebook.output(2).locator(".tw-view").first.wait_for()
    expect(notebook.output(1).locator(".tw-view")).to_have_count(0)
    expect(notebook.output(1)).to_contain_text("matmul")  # as a picture
    assert notebook.page.evaluate(KEEP) == [64, "k6", 100]
    assert (notebook.cell_errors(), notebook.errors, notebook.outside) == ([], [], [])
