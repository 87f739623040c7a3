"""A notebook on its ways: run, saved, opened again, with and without its kernel, executed without
a browser, exported. Whoever opens it sees the live view or the still card, and never an error."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbconvert
import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import LabServer, NotebookPage, write_notebook
from tests.viz.sample import full_view
from tileworkbench.viz.model.bundle import SAVED

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[2]
CARD, PASSES, BOX = 0, 1, 2
CELLS = (
    f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    "from tests.viz.sample import full_view\n"
    "from tileworkbench.viz.display import show\n"
    "card = show(full_view())\ncard",
    "show(full_view(), 'passes')",
)
CONTAINER = "import ipywidgets\nipywidgets.VBox([card])"


def write(path: Path, cells: tuple[str, ...] = CELLS) -> None:
    """A notebook without outputs."""
    write_notebook(path, *cells)


def outputs(path: Path) -> list[dict[str, Any]]:
    """What the cells of a notebook file show, by media type."""
    cells = nbformat.read(path, as_version=4).cells
    return [output.data for cell in cells for output in cell.outputs]


def check_live(notebook: NotebookPage) -> None:
    expect(notebook.output(CARD).locator(".tw-status")).to_have_text("compiled in 36.7 ms")
    expect(notebook.output(PASSES).locator(".tw-passes")).to_be_visible()
    assert notebook.output(CARD).locator("details:not(.tw-about-view, .tw-absent)").count() == 0


def check_still(notebook: NotebookPage) -> None:
    """No live view: the HTML, or the card that the extension draws from its data."""
    if notebook.extension:
        status = notebook.output(CARD).locator(".tw-status")
        expect(status).to_have_text("saved, compiled in 36.7 ms")
    for cell in (PASSES,) if notebook.extension else (CARD, PASSES):
        expect(notebook.output(cell).locator("summary").get_by_text("Passes")).to_be_visible()
        expect(notebook.output(cell).locator(".tw-view")).to_have_count(0)
        assert "widget" not in notebook.output(cell).inner_text().lower()


@pytest.mark.parametrize(
    "extension", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["bare", "extension"]
)
def test_a_notebook_is_run_saved_and_opened_again(
    extension: bool, lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write(lab.root / "mine.ipynb", (*CELLS, CONTAINER))
    notebook = open_notebook("mine.ipynb", extension)
    notebook.run_all()
    check_live(notebook)
    expect(notebook.output(BOX).locator(".tw-card .tw-title")).to_have_text("mm")
    notebook.output(CARD).locator("[data-tab=code]").click()
    expect(notebook.output(CARD).locator(".tw-pane-code")).to_contain_text("define void @mm")
    notebook.execute("docmanager:save")
    saved = nbformat.read(lab.root / "mine.ipynb", as_version=4)
    assert "widgets" not in saved.metadata
    card, passes, _ = outputs(lab.root / "mine.ipynb")  # the container's is ipywidgets' own
    assert set(card) == {"text/plain", "text/html", SAVED}
    assert set(passes) == {"text/plain", "text/html"}

    notebook.load("mine.ipynb", anew=True)  # its kernel is alive: as the reader left it
    check_live(notebook)
    expect(notebook.output(CARD).locator(".tw-pane-code")).to_contain_text("define void @mm")

    restart_kernel(notebook)
    check_still(notebook)
    notebook.load("mine.ipynb", anew=True)
    check_still(notebook)
    notebook.run_all()
    check_live(notebook)

    notebook.execute("docmanager:save")
    lab.stop_kernels()
    notebook.close()
    notebook.load("mine.ipynb")  # trusted, and its kernel is gone
    check_still(notebook)
    saved.metadata["title"] = "another content, so no longer one that this server has signed"
    nbformat.write(saved, lab.root / "received.ipynb")
    notebook.close()
    notebook.load("received.ipynb")
    check_still(notebook)
    if not extension:
        check_sanitised(notebook)
    assert notebook.errors == []
    assert notebook.outside == []


def check_executed(notebook: NotebookPage) -> None:
    for cell in (CARD, PASSES):
        expect(notebook.output(cell).locator("summary").get_by_text("Passes")).to_be_visible()


def check_sanitised(notebook: NotebookPage) -> None:
    """What JupyterLab leaves of the HTML of others looks as it should."""
    shown = notebook.output(CARD)
    shown.locator("summary").get_by_text("Layouts", exact=True).click()
    pictures = shown.locator("img").evaluate_all("all => all.map(i => i.naturalWidth)")
    assert len(pictures) == len(full_view().layouts) + 1
    assert min(pictures) > 0
    chip = shown.locator("span").get_by_text("check ok")
    assert chip.evaluate("node => getComputedStyle(node).borderRadius") == "9px"


def restart_kernel(notebook: NotebookPage) -> None:
    """Without the dialogue that asks."""
    notebook.page.evaluate(
        "async () => {"
        " await window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart(); }"
    )


@pytest.mark.parametrize(
    "command",
    [
        "nbconvert --to notebook --execute source.ipynb --output",
        pytest.param(
            "papermill --log-level=ERROR --no-progress-bar source.ipynb", marks=pytest.mark.slow
        ),
    ],
    ids=["nbconvert", "papermill"],
)
def test_executed_without_a_browser_it_is_read_everywhere(
    lab: LabServer,
    browser: Browser,
    open_notebook: Callable[..., NotebookPage],
    tmp_path: Path,
    command: str,
) -> None:
    """With the tools' defaults, which store the state of every widget."""
    write(tmp_path / "source.ipynb")
    path = lab.root / "executed.ipynb"
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), str(path)],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    executed = nbformat.read(path, as_version=4)
    assert "widgets" not in executed.metadata
    assert [set(data) for data in outputs(path)] == [{"text/plain", "text/html"}] * 2

    empty = nbformat.v4.new_notebook()
    template_asks = open_offline(browser, nbconvert.HTMLExporter().from_notebook_node(empty)[0])
    page = nbconvert.HTMLExporter().from_filename(str(path))[0]
    assert open_offline(browser, page, "3 of 5 changed something") == template_asks

    notebook = open_notebook("executed.ipynb")
    check_executed(notebook)
    assert notebook.errors == []
    assert notebook.outside == []


def open_offline(browser: Browser, page: str, text: str = "") -> list[str]:
    """Open an exported page without a network; returns what it asked for, and checks `text`."""
    context = browser.new_context(offline=True)
    asked: list[str] = []
    opened = context.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.set_content(page)
    if text:
        expect(opened.get_by_text(text).first).to_be_visible()
    context.close()
    return sorted(asked)
