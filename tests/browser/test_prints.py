"""What a kernel prints in a real JupyterLab: groups that open, and filters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    f"""\
%load_ext tileworkbench
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.viz.test_prints import ONES, printing
card = printing.with_target("sim:sm_80").compile()
card""",
    'printing.with_target("cpu").compile().with_inputs(ONES).show("prints")',
    "card.show('code')",  # whose styles come behind those of the prints
]


def test_prints_are_grouped_and_filtered(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "p.ipynb", *CELLS)
    notebook = open_notebook("p.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []

    pane = notebook.output(0)
    pane.get_by_role("tab", name="Prints").click()
    pane = pane.locator(".tw-pane-prints")
    pane.get_by_text("Nothing has run yet. It runs").wait_for()
    pane.get_by_role("button", name="Run in the simulator").click()
    pane.get_by_text("10 of 10 lines, on made-up inputs").wait_for()
    row = [pane.get_by_role("button", name="Run in the simulator"), pane.get_by_label("Block")]
    assert row[0].bounding_box()["y"] == row[1].bounding_box()["y"]  # type: ignore[index]
    assert pane.locator(".tw-prints-block").count() == 2

    view = notebook.output(1)
    view.get_by_text("10 of 10 lines, on the inputs that were given.").wait_for()
    rows = view.locator(".tw-prints-thread tbody tr")
    assert rows.count() == 10
    view.get_by_label("Block").select_option("block (1)")
    assert rows.count() == 5
    view.get_by_label("Thread").select_option("thread 63 (warp 1, lane 31)")
    assert rows.count() == 2
    assert rows.first.locator("td").nth(1).inner_text() == "k = 0"
    assert rows.first.locator("td").nth(3).inner_text() == "dtype=float32 value=382"
    view.get_by_label("Text to find").fill("510")
    assert rows.count() == 1 and "1 of 10 lines" in view.inner_text()
    rows.first.get_by_role("button").click()
    assert "tw-current" in (rows.first.get_attribute("class") or "")
    view.get_by_label("Text to find").fill("")
    view.get_by_label("Thread").select_option("every thread")
    view.get_by_label("Block").select_option("every block")
    block = view.locator(".tw-prints-block").first
    block.locator("summary").first.click()  # closes the group
    assert not block.locator("table").first.is_visible()
    assert (notebook.errors, notebook.outside) == ([], [])
