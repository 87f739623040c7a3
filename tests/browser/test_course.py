"""Every chapter of the course, run once in a real JupyterLab; pictures are kept, in each theme."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from tests.browser.audit import AUDIT, THEMES, faults, use_theme
from tests.browser.conftest import ARTEFACTS
from tests.browser.lab import RUN_MS, LabServer, NotebookPage
from tests.notebooks.index import NOTEBOOKS

CHAPTERS = sorted(path for path in NOTEBOOKS.glob("*.ipynb"))
PICTURES = ARTEFACTS / "course"
WIDTH, HEIGHT, TALLEST = 1400, 1800, 16_000

# After an error that is expected the rest runs by itself: every cell gets a number. A cell that a
# command has put into the notebook gets none.
_RAN = """count => window.jupyterapp.shell.currentWidget.content.model.toJSON().cells
  .filter(cell => cell.execution_count).length >= count"""
# How tall the page has to be to show the whole notebook.
_CONTENT = """() => 200 + Math.ceil([...document.querySelectorAll('.jp-Notebook .jp-Cell')]
  .reduce((sum, cell) => sum + cell.getBoundingClientRect().height, 0))"""


@pytest.mark.slow
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_a_chapter_runs(
    path: Path, lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    """The question fails, nothing else does, all is readable in every theme, and no page looks
    outside for anything."""
    content = nbformat.read(path, as_version=4)
    code = [cell for cell in content.cells if cell.cell_type == "code"]
    for cell in code:
        cell.outputs, cell.execution_count = [], None
    questions = [cell for cell in code if "raises-exception" in cell.metadata.get("tags", [])]
    name = f"course-{path.stem}.ipynb"
    nbformat.write(content, lab.root / name)
    notebook = open_notebook(name)
    notebook.run_all()
    notebook.page.wait_for_function(_RAN, arg=len(code), timeout=RUN_MS)
    notebook.wait_idle()
    for _ in range(2):  # cells that were never in sight are drawn, and measured, the second time
        tall = notebook.page.evaluate(_CONTENT)
        notebook.page.set_viewport_size({"width": WIDTH, "height": min(tall, TALLEST)})
        notebook.cell(0).scroll_into_view_if_needed()
        notebook.page.wait_for_timeout(500)  # views draw again for the new size
    notebook.page.evaluate(AUDIT)
    unreadable = {}
    for theme in THEMES:
        use_theme(notebook.page, theme)
        notebook.screenshot(PICTURES / f"{path.stem}-{theme.split(maxsplit=1)[1].lower()}.png")
        views = notebook.page.locator(".jp-OutputArea-output.jp-RenderedHTMLCommon").all()
        unreadable[theme] = [fault for view in views for fault in faults(view, "contrast")]
    use_theme(notebook.page, THEMES[0])
    notebook.page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    assert unreadable == {theme: [] for theme in THEMES}
    assert len(notebook.cell_errors()) == len(questions), notebook.cell_errors()
    assert (notebook.errors, notebook.outside) == ([], [])
