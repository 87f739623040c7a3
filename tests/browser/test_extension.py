"""The JupyterLab extension beside cells: colours, completion and help before any cell has run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import LabServer, NotebookPage, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LINE = (
    '%%tile mm -D M=256 --define dtype="a b" -t sim:sm_80,foo --show card,bnaks --frob -a '
    "--check 'lambda x: x'\ndef mm(A: T.Tensor((M, 256), 'float16')):\n    T.copy(A, A)"
)
COMMANDS = "%tile show mm banks\nkernels = %tile list"
FLAG = "%%tile "
TARGET = "%%tile -t sim:sm_8"
IMPORTED = "import tileworkbench.language as T\nT.alloc_f"
KERNEL = """%%tile double
def double(A: T.Tensor((256, 64), "float32"), B: T.Tensor((256, 64), "float32")):
    with T.Kernel(4, threads=128) as bx:
        tile = T.alloc_fragment((64, 64), "float32")
        T.copy(A[bx * 64, 0], tile)
        for i, j in T.Parallel(64, 64):
            tile[i, j] = tile[i, j] * 2.0
        T.copy(tile, B[bx * 64, 0])"""
CELLS = (LINE, COMMANDS, FLAG, TARGET, IMPORTED)


def coloured(cell: Locator, kind: str) -> str:
    """The words of one kind in a cell."""
    return "".join(cell.locator(f".tw-line-{kind}").all_inner_texts())


def completed(notebook: NotebookPage, cell: int) -> list[str]:
    """What Tab offers at the end of a cell."""
    notebook.cell(cell).locator(".cm-content").click()
    notebook.page.keyboard.press("Control+End")
    notebook.page.keyboard.press("Tab")
    offered = notebook.page.locator(".jp-Completer-item .jp-Completer-match")
    expect(offered.first).to_be_visible()
    texts = offered.all_inner_texts()
    notebook.page.keyboard.press("Escape")
    return texts


def check_colours(cell: Locator) -> None:
    assert coloured(cell, "magic") == "%%tile"
    assert coloured(cell, "name") == "mm"
    assert coloured(cell, "flag") == "-D--define-t--show-a--check"
    assert coloured(cell, "value") == "M=256dtype=\"a b\"'lambda x: x'"
    assert coloured(cell, "known") == "sim:sm_80card"
    assert coloured(cell, "wrong") == "foobnaks--frob"


def check_help(notebook: NotebookPage) -> None:
    """Where the pointer rests, and at the cursor; Escape ends it."""
    tip = notebook.page.locator(".tw-tip")
    notebook.cell(0).get_by_text("copy").hover()
    expect(tip).to_contain_text("T.copy(src, dst")
    expect(tip).to_contain_text("Copy elements with a cast to the destination's dtype.")
    notebook.page.mouse.move(1, 1)
    expect(tip).to_have_count(0)
    notebook.cell(0).get_by_text("frob").click()
    notebook.page.mouse.move(1, 1)
    notebook.page.keyboard.press("Alt+h")
    expect(tip).to_contain_text("%%tile has no flag '--frob'.")
    notebook.page.keyboard.press("Escape")
    expect(tip).to_have_count(0)


def check_words(notebook: NotebookPage) -> None:
    check_colours(notebook.cell(0))
    assert coloured(notebook.cell(1), "magic") == "%tile%tile"
    assert {"--show", "-t", "mm", "puzzle"} <= set(completed(notebook, 2))
    assert {"sim:sm_80", "sim:sm_86"} <= set(completed(notebook, 3))
    assert "alloc_fragment" in completed(notebook, 4)
    check_help(notebook)
    assert (notebook.errors, notebook.outside) == ([], [])


def check_inspector(notebook: NotebookPage, cell: int) -> None:
    """It shows the card of the active cell, and keeps it while another cell has none."""
    inspector = notebook.page.locator(".tw-inspector")
    notebook.cell(cell).locator(".jp-InputPrompt").click()
    notebook.execute("tileworkbench:inspector")
    expect(inspector.locator(".tw-card .tw-title")).to_have_text("double")
    inspector.locator("[data-tab=code]").click()
    expect(inspector.locator(".tw-pane-code")).to_contain_text("@double")
    expect(notebook.output(cell).locator(".tw-pane-code")).to_contain_text("@double")
    notebook.cell(0).locator(".jp-InputPrompt").click()
    expect(inspector).to_contain_text("not the active cell, which has no card")
    expect(inspector.locator(".tw-card .tw-title")).to_have_text("double")


def check_badges(notebook: NotebookPage, cell: int) -> None:
    """Beside the lines that cost something, with what became of a line; a changed line has none."""
    badges = notebook.cell(cell).locator(".tw-badge")
    expect(badges).to_have_count(3)
    expect(badges.first).to_contain_text("%")
    expect(badges.first).to_contain_text("64K")
    tip = notebook.page.locator(".tw-tip")
    badges.first.click()
    expect(tip).to_contain_text("line 5")
    expect(tip).to_contain_text("global memory64.0 KiB")
    notebook.page.keyboard.press("Escape")
    expect(tip).to_have_count(0)
    notebook.cell(cell).locator(".cm-line", has_text="T.copy(A[").click()
    notebook.page.mouse.move(1, 1)
    notebook.page.keyboard.press("Alt+c")
    expect(tip).to_contain_text("line 5")
    notebook.page.keyboard.press("Escape")
    notebook.cell(cell).locator(".cm-line", has_text="T.copy(tile").click()
    notebook.page.keyboard.press("End")
    notebook.page.keyboard.type("  # changed")
    expect(badges).to_have_count(2)


def check_ledger(notebook: NotebookPage, cell: int) -> None:
    """The cell's version is listed; after a change there are two, and what differs."""
    notebook.execute("tileworkbench:ledger")
    ledger = notebook.page.locator(".tw-ledger")
    expect(ledger).to_contain_text("double #1")
    notebook.run_cell(cell)  # with the changed line
    expect(ledger).to_contain_text("double #2")
    for version in ("double #1", "double #2"):
        ledger.get_by_label(f"Choose {version}").check()
    ledger.get_by_role("button", name="Compare two").click()
    expect(ledger.locator("pre").first).to_contain_text("+         T.copy(tile, B[bx * 64, 0])")
    expect(ledger.locator(".tw-ledger-result")).to_contain_text("double #2")


def check_machine(notebook: NotebookPage) -> None:
    """The status bar, and commands for the course."""
    machine = notebook.page.locator(".tw-machine")
    expect(machine).to_contain_text("Tile CPU")
    names = notebook.page.evaluate(
        "() => window.jupyterapp.commands.listCommands().filter(name => name.startsWith('tilew'))"
    )
    assert {"tileworkbench:course", "tileworkbench:puzzle"} <= set(names)


def test_the_whole(lab: LabServer, open_notebook: Callable[..., NotebookPage]) -> None:
    write_notebook(lab.root / "whole.ipynb", LINE, "%load_ext tileworkbench", KERNEL)
    notebook = open_notebook("whole.ipynb")
    check_colours(notebook.cell(0))
    notebook.run_cell(1)
    notebook.run_cell(2)
    check_inspector(notebook, 2)
    check_badges(notebook, 2)
    check_ledger(notebook, 2)
    check_machine(notebook)
    assert (notebook.errors, notebook.outside) == ([], [])


@pytest.mark.slow
def test_cells_are_coloured_completed_and_explained_before_they_run(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write_notebook(lab.root / "words.ipynb", *CELLS)
    check_words(open_notebook("words.ipynb"))


@pytest.mark.slow
def test_notebook_7_has_the_same(lab: LabServer, browser: Browser) -> None:
    write_notebook(lab.root / "seven_words.ipynb", *CELLS)
    context = browser.new_context(viewport={"width": 1400, "height": 1800})
    notebook = NotebookPage(context.new_page(), lab, app="notebooks")
    notebook.load("seven_words.ipynb")
    notebook.errors.clear()  # Notebook 7.6 has one of its own while it starts
    check_words(notebook)
    context.close()
    lab.stop_kernels()


@pytest.mark.slow
def test_a_t_of_another_package_is_left_alone(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    write_notebook(
        lab.root / "other.ipynb",
        "%load_ext tileworkbench\nimport torchvision.transforms as T\nT.copy",
        "# %%tile -a",
    )
    notebook = open_notebook("other.ipynb")
    notebook.cell(0).get_by_text("copy").click()
    notebook.page.keyboard.press("Alt+h")
    expect(notebook.page.locator(".tw-tip")).to_have_count(0)
    expect(notebook.page.locator("[class^=tw-line-]")).to_have_count(0)
    assert (notebook.errors, notebook.outside) == ([], [])


@pytest.mark.slow
def test_a_kernel_without_the_package_dies_and_restarts(
    lab: LabServer, open_notebook: Callable[..., NotebookPage]
) -> None:
    """Nothing is imported behind the user's back, and every panel says what to do."""
    hidden = "import sys\nsys.modules['tileworkbench'] = None"
    write_notebook(lab.root / "without.ipynb", LINE, hidden, "import os\nos._exit(1)", "1 + 1")
    notebook = open_notebook("without.ipynb")
    notebook.execute("tileworkbench:ledger")
    ledger = notebook.page.locator(".tw-ledger")
    expect(ledger).to_contain_text("run %load_ext tileworkbench")
    expect(notebook.page.locator(".tw-machine")).to_have_text("Tile: not loaded")
    notebook.run_cell(1)
    expect(ledger).to_contain_text("The kernel's tileworkbench is another version")
    check_colours(notebook.cell(0))
    notebook.cell(2).locator(".jp-InputPrompt").click()
    notebook.page.evaluate("() => void window.jupyterapp.commands.execute('notebook:run-cell')")
    notebook.page.locator(".jp-Dialog").get_by_role("button", name="Ok").click()
    expect(ledger).to_contain_text("run %load_ext tileworkbench", timeout=60_000)
    assert notebook.outside == []


@pytest.mark.slow
def test_the_course_is_opened(lab: LabServer, open_notebook: Callable[..., NotebookPage]) -> None:
    write_notebook(lab.root / "start.ipynb", "1")
    notebook = open_notebook("start.ipynb")
    notebook.execute("tileworkbench:course")
    path = notebook.page.evaluate("() => window.jupyterapp.shell.currentWidget.context.path")
    assert path == "course/00_index.ipynb"
    assert (lab.root / path).exists()
