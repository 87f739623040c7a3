"""The extension in other places: Notebook 7, read-only folders, kernels of another version, off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.audit import AUDIT, THEMES, faults, use_theme
from tests.browser.lab import LabServer, NotebookPage, write_notebook
from tests.browser.test_extension import (
    KERNEL,
    LINE,
    check_badges,
    check_inspector,
    check_ledger,
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow
LOAD = "%load_ext tileworkbench"
CONFLICT = """%%tile turn -t sim:sm_80
def turn(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=32) as bx:
        tile = T.alloc_shared((32, 32), "float32")
        T.annotate_layout({tile: T.Layout((32, 32), lambda i, j: i * 32 + j)})
        T.copy(A, tile)
        for i, j in T.Parallel(32, 32):
            B[i, j] = tile[j, i]"""


@pytest.fixture
def page_of(lab: LabServer, browser: Browser) -> Iterator[Callable[..., NotebookPage]]:
    """Pages of their own, for what a shared page would keep."""
    contexts = []

    def open_(notebook: str, **options: object) -> NotebookPage:
        contexts.append(browser.new_context(viewport={"width": 1400, "height": 1800}))
        made = NotebookPage(contexts[-1].new_page(), lab, **options)  # type: ignore[arg-type]
        made.load(notebook)
        return made

    yield open_
    for context in contexts:
        context.close()
    lab.stop_kernels()


def test_notebook_7_has_inspector_badges_and_ledger(
    lab: LabServer, page_of: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "seven_panels.ipynb", LINE, LOAD, KERNEL)
    notebook = page_of("seven_panels.ipynb", app="notebooks")
    notebook.errors.clear()  # Notebook 7.6 has one of its own while it starts
    notebook.run_cell(1)
    notebook.run_cell(2)
    check_inspector(notebook, 2)
    check_badges(notebook, 2)
    check_ledger(notebook, 2)
    assert (notebook.errors, notebook.outside) == ([], [])


def test_everything_in_a_notebook_works_without_it(
    lab: LabServer, page_of: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "off.ipynb", LOAD, KERNEL, "%tile course banks", "%tile puzzle 01")
    notebook = page_of("off.ipynb", extension=False)
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = notebook.output(1).locator(".tw-card")
    expect(card.locator(".tw-title")).to_have_text("double")
    card.locator("[data-tab=code]").click()
    expect(card.locator(".tw-pane-code")).to_contain_text("define")
    notebook.run_cell(2)
    expect(notebook.output(2)).to_contain_text("Shared memory, swizzles and banks")
    notebook.run_cell(3)
    assert notebook.cell_errors() == []
    assert notebook.page.locator("[class^=tw-line-], .tw-badge, .tw-machine").count() == 0
    names: list[str] = notebook.page.evaluate("() => window.jupyterapp.commands.listCommands()")
    assert [name for name in names if name.startswith("tileworkbench:")] == []
    assert (notebook.errors, notebook.outside) == ([], [])


def test_a_kernel_with_another_version(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    """Its answers are not those that the panels ask for: they say so, and the cells still run."""
    older = "import tileworkbench.viz.magics.lab as lab\ndel lab.kernels, lab.state"
    write_notebook(lab.root / "version.ipynb", LOAD, older, KERNEL)
    notebook = open_notebook("version.ipynb")
    notebook.execute("tileworkbench:ledger")
    notebook.run_cell(0)
    expect(notebook.page.locator(".tw-ledger")).to_contain_text("No %%tile cell has run yet.")
    notebook.run_cell(1)
    said = "The kernel's tileworkbench is another version: restart it, or install this one there."
    expect(notebook.page.locator(".tw-ledger")).to_contain_text(said)
    machine = notebook.page.locator(".tw-machine")
    expect(machine).to_have_text("Tile: no answer")
    expect(machine).to_have_attribute("title", said)
    notebook.run_cell(2)
    expect(notebook.output(2).locator(".tw-card .tw-title")).to_have_text("double")
    assert (notebook.errors, notebook.outside) == ([], [])


def test_a_kernel_that_dies_with_the_inspector_open(
    lab: LabServer, page_of: Callable[..., NotebookPage]
) -> None:
    """The card stays to be read, and the next kernel's takes its place."""
    write_notebook(lab.root / "dies.ipynb", LINE, LOAD, KERNEL, "import os\nos._exit(1)")
    notebook = page_of("dies.ipynb")
    notebook.run_cell(1)
    notebook.run_cell(2)
    check_inspector(notebook, 2)
    notebook.cell(3).locator(".jp-InputPrompt").click()
    notebook.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    notebook.page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()
    expect(notebook.page.locator(".tw-machine")).to_have_text("Tile: not loaded", timeout=60_000)
    title = notebook.page.locator(".tw-inspector .tw-card .tw-title")
    expect(title).to_have_text("double")
    notebook.run_cell(1)
    notebook.run_cell(2)
    expect(title).to_have_text("double")
    notebook.page.locator(".tw-inspector [data-tab=passes]").click()
    expect(notebook.page.locator(".tw-inspector .tw-pane-passes")).to_contain_text("front end")
    assert (notebook.errors, notebook.outside) == ([], [])


def test_a_notebook_in_a_folder_that_is_read_only(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    """Cells run, cards are live, a cell is inserted; only saving fails, and JupyterLab says it."""
    folder = lab.root / "locked"
    folder.mkdir()
    write_notebook(folder / "locked.ipynb", LOAD, KERNEL)
    notebook = open_notebook("locked/locked.ipynb")
    refuse_saving(notebook)
    notebook.run_cell(0)
    notebook.run_cell(1)
    card = notebook.output(1).locator(".tw-card")
    expect(card.locator(".tw-title")).to_have_text("double")
    check_inspector(notebook, 1)
    notebook.page.evaluate("() => void window.jupyterapp.commands.execute('docmanager:save')")
    dialog = notebook.page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("File Save Error")
    dialog.get_by_role("button").last.click()
    expect(card.locator(".tw-title")).to_have_text("double")
    assert nbformat.read(folder / "locked.ipynb", as_version=4).cells[1].outputs == []
    assert set(notebook.errors) <= {"Permission denied: locked.ipynb"}  # JupyterLab's own
    notebook.page.unroute_all()  # the page is the next test's, too
    assert notebook.outside == []


def refuse_saving(notebook: NotebookPage) -> None:
    """Answer as a server does whose folder is read-only; root may write everywhere."""

    def answer(route: object) -> None:
        request = route.request  # type: ignore[attr-defined]
        if request.method in ("PUT", "PATCH", "POST"):
            route.fulfill(  # type: ignore[attr-defined]
                status=403, json={"message": "Permission denied: locked.ipynb", "reason": None}
            )
        else:
            route.continue_()  # type: ignore[attr-defined]

    notebook.page.route("**/api/contents/**", answer)


def test_the_launcher_opens_course_and_puzzles(
    lab: LabServer, page_of: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "tiles.ipynb", "1")
    notebook = page_of("tiles.ipynb")
    for title, chapter in (("Tile Course", "00_index"), ("Tile Puzzles", "23_puzzles")):
        notebook.execute("launcher:create")
        tile = notebook.page.locator(".jp-LauncherCard:visible", has_text=title)
        tile.click()
        notebook.page.wait_for_function(
            "name => window.jupyterapp.shell.currentWidget?.context?.path?.endsWith(name)",
            arg=f"{chapter}.ipynb",
            timeout=60_000,
        )
    assert (lab.root / "course" / "23_puzzles.ipynb").exists()
    assert (notebook.errors, notebook.outside) == ([], [])


def test_a_puzzle_is_put_below_the_active_cell(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "puzzle.ipynb", LOAD, "1 + 1")
    notebook = open_notebook("puzzle.ipynb")
    notebook.run_cell(0)
    notebook.cell(0).locator(".jp-InputPrompt").click()
    notebook.page.evaluate(
        "() => window.jupyterapp.commands.execute('tileworkbench:puzzle', {number: '03'})"
    )
    expect(notebook.cell(1)).to_contain_text("%tile puzzle 03")
    notebook.run_cell(1)
    expect(notebook.cell(2)).to_contain_text("%%tile puzzle 03")
    assert (notebook.cell_errors(), notebook.errors, notebook.outside) == ([], [], [])


@pytest.mark.parametrize("theme", THEMES)
def test_panels_are_readable(
    theme: str, lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "panels.ipynb", LINE, LOAD, KERNEL, CONFLICT)
    notebook = open_notebook("panels.ipynb")
    notebook.page.evaluate(AUDIT)
    notebook.run_cell(1)
    notebook.run_cell(2)
    check_ledger_has(notebook)
    use_theme(notebook.page, theme)
    shown = notebook.page.locator(".tw-ledger")
    wrong = faults(shown, "contrast", "names")
    notebook.cell(2).locator(".jp-InputPrompt").click()
    notebook.execute("tileworkbench:inspector")
    notebook.page.locator(".tw-inspector .tw-card").wait_for()
    wrong += faults(notebook.page.locator(".tw-inspector"), "contrast", "names")
    notebook.run_cell(3)
    lost = notebook.cell(3).locator(".tw-badge-lost")
    expect(lost).to_contain_text("⚠ 256 wf")
    for badge in [*notebook.cell(2).locator(".tw-badge").all(), lost]:
        wrong += faults(badge, "contrast", "names")
    use_theme(notebook.page, THEMES[0])
    assert wrong == []


def check_ledger_has(notebook: NotebookPage) -> None:
    notebook.execute("tileworkbench:ledger")
    expect(notebook.page.locator(".tw-ledger")).to_contain_text("double #1")
