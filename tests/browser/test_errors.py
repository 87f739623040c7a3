"""A failed check in a real JupyterLab: where the wrong elements are, below the error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    "%load_ext tileworkbench",
    """\
%%tile --check 'lambda A: A' --target sim:sm_80 --show none
def masked(A: T.Tensor((64, 64), "float32")):
    B = T.empty((64, 64), "float32")
    with T.Kernel(1, threads=32):
        for i, j in T.Parallel(64, 64):
            if j < 60:
                B[i, j] = A[i, j]
            else:
                B[i, j] = 0.0
    return B
""",
    f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from tests.api.wrong_kernels import cases
kernel, reference, inputs = cases()["stale_accumulator"]
kernel = kernel.with_target("cpu").compile()
try:
    kernel.check(reference, *inputs)
except AssertionError:
    pass
view = kernel.show("errors")
view""",
    "print(view.selection)",
    "kernel",
]


def test_two_wrong_kernels_show_where(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "e.ipynb", *CELLS, raising=1)
    notebook = open_notebook("e.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    cell = notebook.cell(1)
    said = cell.locator(".tw-errors .tw-finding")
    said.wait_for()
    assert "all in columns 60-63" in said.inner_text() and "all are 0" in said.inner_text()
    assert "written at line 9" in said.inner_text()
    cell.get_by_label("Colour by").select_option("lane")
    grid = cell.locator(".tw-errors canvas")
    grid.focus()
    notebook.page.keyboard.press("ArrowRight")
    assert "masked" not in cell.locator(".tw-info").inner_text()
    assert "B[0, 0]" in cell.locator(".tw-info").inner_text()
    cell.get_by_role("button", name="Find the first wrong pass").click()
    cell.get_by_text("stages agree").first.wait_for()
    assert "; wrong as written: all " in said.inner_text()

    view = notebook.output(2)
    assert "all in rows 32-63" in view.locator(".tw-finding").inner_text()
    view.get_by_role("button", name="line").first.click()
    notebook.run_until(3, "'line':")
    grid = view.locator("canvas")
    box = grid.bounding_box()
    assert box is not None
    grid.hover(position={"x": box["width"] / 2, "y": box["height"] - 6})
    info = view.locator(".tw-info").inner_text()
    assert "expected" in info and "block" in info

    # The card says so before a tab is opened.
    card = notebook.output(4).locator(".tw-card")
    wrong = view.locator(".tw-finding").inner_text().split()[1]
    assert card.get_by_role("tab", name="Errors").inner_text().split() == ["Errors", wrong]
    assert "check FAILED" in card.locator(".tw-chip.tw-bad").inner_text()
    assert "Check failed: largest error" in card.locator(".tw-failed").inner_text()

    # Opened again without its kernel: the still map, its pattern and the first wrong elements.
    notebook.execute("docmanager:save")
    lab.stop_kernels()
    notebook.close()
    notebook.load("e.ipynb")
    for index, pattern in ((1, "all in columns 60-63"), (2, "all in rows 32-63")):
        still = notebook.cell(index)
        picture = still.get_by_role("img", name="where the wrong elements are; right ones are grey")
        picture.wait_for()
        assert picture.evaluate("image => image.naturalWidth") >= 64
        assert pattern in still.inner_text() and "expected" in still.inner_text()
        assert still.locator(".tw-view").count() == 0
    assert (notebook.errors, notebook.outside) == ([], [])
