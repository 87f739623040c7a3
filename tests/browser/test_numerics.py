"""Rounding errors in a real JupyterLab: from the tab of a card, and as a view of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    f"""\
%load_ext tileworkbench
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import numpy as np
from tests.viz.test_numerics import accumulated, counted
from tests.sim.test_numerics import softmax
kernel = accumulated.with_target("cpu").compile()
tenths = np.full((64, 256), 0.1, np.float16)
kernel""",
    """\
large = np.full((4, 64), 12, np.float16)
softmax.with_target("sim:sm_80").compile().with_inputs(large).show("numerics")""",
    """\
lone = accumulated.with_target("cpu").compile()
lone""",
    "%tile show lone numerics tenths",
    'counted.with_target("cpu").compile().show("numerics")',
    "print(lone.last_numerics.block)",
]


def test_where_a_kernel_loses_digits(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "n.ipynb", *CELLS)
    notebook = open_notebook("n.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []

    # In a card nothing runs until it is asked for.
    card = notebook.output(0)
    card.get_by_role("tab", name="Numerics").click()
    pane = card.locator(".tw-pane-numerics")
    pane.get_by_text("Nothing has run yet. The first block").wait_for()
    assert pane.locator("svg").count() == 0
    pane.get_by_role("button", name="Run beside float64").click()
    pane.locator("svg").wait_for()
    assert "made-up inputs" in pane.inner_text()

    # One that stands alone has run, on the inputs that the line names.
    view = notebook.output(3)
    assert "on the inputs that were given" in view.inner_text()
    assert "Exact throughout: tile." in view.inner_text()
    picture = view.locator(".tw-numerics svg")
    box = picture.bounding_box()
    assert box is not None
    picture.hover(position={"x": box["width"] * 0.8, "y": box["height"] / 2})
    info = view.locator(".tw-numerics-info")
    assert "ulp of the largest element" in info.inner_text()
    assert "k = 15, j = " in info.inner_text() and "float64 has 2" in info.inner_text()
    view.get_by_role("group", name="Errors over executed statements").focus()
    notebook.page.keyboard.press("ArrowRight")
    assert "writes 32 elements of total (float16)" in info.inner_text()
    view.get_by_role("button", name="relative").click()
    assert "relative error" in (view.locator(".tw-numerics svg").text_content() or "")
    row = view.locator(".tw-numerics-lines tbody tr").nth(2)
    row.get_by_role("button").click()
    assert "tw-current" in (row.get_attribute("class") or "")
    view.get_by_label("Block, indices x first").fill("1")
    view.get_by_role("button", name="Run beside float64").click()
    view.get_by_text("Block (1), on the inputs").wait_for()
    view.get_by_label("Block, indices x first").fill("7")
    view.get_by_role("button", name="Run beside float64").click()
    view.get_by_text("has no block (7,): its grid is 2").wait_for()
    assert "Block (1), on the inputs" in view.inner_text()  # what was there stays
    notebook.run_cell(5)
    assert "(1,)" in notebook.output(5).inner_text()

    # The first infinity and the first NaN, each with its line.
    wrong = notebook.output(1)
    findings = wrong.locator(".tw-finding")
    assert "makes the first infinity: tile[0, 0] = inf" in findings.nth(0).inner_text()
    assert "makes the first NaN: B[0, 0] = nan" in findings.nth(1).inner_text()
    findings.nth(1).get_by_role("button").click()
    assert wrong.locator("tr.tw-current td").nth(1).inner_text() == "B"
    assert "so nothing is rounded" in notebook.output(4).inner_text()
    assert (notebook.errors, notebook.outside) == ([], [])
