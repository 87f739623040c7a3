"""A puzzle in a real JupyterLab: its cell appears, is refused with a picture, and then solved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tileworkbench.puzzles.task import find_task

MASK = find_task("03")
STORE = "B[row, column] = A[row, column]  # change this line"
RIGHT = "B[row, column] = T.if_then_else(row >= column, A[row, column], 0.0)"
ENDLESS = f"""\
kept = 41
try:
    get_ipython().run_cell_magic("tile", "puzzle 03", {MASK.solution!r} + "while True: pass\\n")
except Exception as error:
    print(type(error).__name__, error.message)
print(kept + 1)"""


def test_a_puzzle_is_refused_and_then_solved(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    cells = ("%load_ext tileworkbench", "%tile puzzle 03", "%tile puzzle")
    write_notebook(lab.root / "puzzle.ipynb", *cells)
    notebook = open_notebook("puzzle.ipynb")
    notebook.run_all()
    notebook.page.set_default_timeout(WAIT_MS)
    task = notebook.output(1)
    assert task.locator("h3").inner_text().startswith("Puzzle 03: A mask")
    assert "np.tril(A)" in task.inner_text()

    answer = notebook.cell(2)  # it was not there before
    assert STORE in answer.locator(".cm-content").inner_text()
    notebook.run_cell(2)
    notebook.page.set_default_timeout(WAIT_MS)
    said = answer.locator(".tw-errors .tw-finding")
    said.wait_for()
    assert "496 of 1024 elements of 'B' are wrong" in said.inner_text()
    assert answer.locator(".tw-errors canvas").count() == 1
    assert "line 9" in answer.inner_text() and "'%tile hint 03' has a hint" in answer.inner_text()

    answer.locator(".cm-line", has_text=STORE).click()
    notebook.page.keyboard.press("Home")  # behind the blanks
    notebook.page.keyboard.press("Shift+End")
    notebook.page.keyboard.insert_text(RIGHT)
    notebook.run_cell(2)
    notebook.page.set_default_timeout(WAIT_MS)
    solved = notebook.output(2).get_by_text("puzzle 03 solved: A mask")
    solved.wait_for()
    notebook.run_cell(3)
    notebook.page.set_default_timeout(WAIT_MS)
    row = notebook.output(3).locator("tr", has_text="A mask")
    assert row.locator("td").nth(2).inner_text() == "solved" and "2 attempts" in row.inner_text()
    assert notebook.errors == [] and notebook.outside == []


@pytest.mark.slow
def test_code_that_is_not_as_it_should_be_is_shown(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    task = find_task("14")
    puzzle = f"{task.head}\n{task.skeleton.strip()}"
    write_notebook(lab.root / "banks.ipynb", "%load_ext tileworkbench", puzzle)
    notebook = open_notebook("banks.ipynb")
    notebook.run_all()
    notebook.page.set_default_timeout(WAIT_MS)
    cell = notebook.cell(1)
    cell.get_by_text("FAILED  conflicts==0").wait_for()
    cell.get_by_text("load of tile on line 11 takes 1024 wavefronts where 32 would do").wait_for()


@pytest.mark.slow
def test_an_answer_that_never_ends_leaves_the_kernel_alive(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "endless.ipynb", "%load_ext tileworkbench", ENDLESS)
    notebook = open_notebook("endless.ipynb")
    notebook.run_all()
    assert notebook.output(1).inner_text().splitlines() == [
        "RunError this did not end within 5 s, and was stopped",
        "42",
    ]
