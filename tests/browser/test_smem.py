"""The view of shared memory in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    "import tileworkbench as tw\nfrom tileworkbench.kernels import matmul\n"
    "kernel = tw.compile(matmul(256, 256, 256, 'float16', num_stages=3), target='sim:sm_80')",
    "view = kernel.show('smem')\nview",
    "print(view.selection)",
]


def test_a_buffer_that_is_chosen_is_marked_and_python_hears_of_it(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "s.ipynb", *CELLS)
    notebook = open_notebook("s.ipynb")
    notebook.run_all()
    assert notebook.cell_errors() == []
    view = notebook.output(1)
    box = view.locator("g[data-buffer=B_shared]")
    notebook.page.set_default_timeout(WAIT_MS)
    box.click()
    assert "tw-chosen" in (box.get_attribute("class") or "")
    assert view.locator("tr.tw-current").first.inner_text().startswith("B_shared")
    notebook.run_until(2, "'buffer': 'B_shared'")
    view.get_by_text("Other numbers of stages").click()
    assert "num_stages = 4" in view.inner_text() and "65536 bytes" in view.inner_text()
    assert (notebook.errors, notebook.outside) == ([], [])
