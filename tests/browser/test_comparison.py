"""Kernels side by side in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tileworkbench.viz.model.views import VIEWS

CELLS = [
    "%load_ext tileworkbench\nimport tileworkbench as tw\n"
    "from tileworkbench.kernels import matmul\n"
    "two, three = (\n"
    "    tw.compile(matmul(256, 256, 256, 'float16', num_stages=n), target='sim:sm_80')\n"
    "    for n in (2, 3)\n"
    ")",
    "tw.compare(two, three)",
    "%%tile -t cpu,sim:sm_80,sim:sm_90a\n"
    "def add(A: T.Tensor((256,), 'float32'), B: T.Tensor((256,), 'float32')):\n"
    "    with T.Kernel(4, threads=32) as bx:\n"
    "        for i in T.Parallel(64):\n"
    "            B[bx * 64 + i] = A[bx * 64 + i] + 1.0\n",
]


@pytest.fixture
def notebook(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> NotebookPage:
    write_notebook(lab.root / "c.ipynb", *CELLS)
    made = open_notebook("c.ipynb")
    made.page.set_default_timeout(WAIT_MS)
    return made


def test_only_what_differs_is_loud_and_each_view_is_there(notebook: NotebookPage) -> None:
    notebook.run_cell(0)
    notebook.run_cell(1)
    view = notebook.output(1).locator(".tw-comparison")
    loud = view.locator(".tw-pane-card tr.tw-differs th")
    assert loud.all_inner_texts() == [
        "shared",
        "occupancy",
        "instructions",
        "wavefronts",
        "sectors",
        "bound by",
    ]
    assert view.locator(".tw-pane-card tr:not(.tw-differs) th[scope=row]").count() > 6
    label = view.locator(".tw-pane-card th[scope=row]").first
    label.evaluate("label => { label.textContent = 'T.gemm(A_shared, B_shared, '.repeat(4); }")
    assert label.evaluate("label => label.scrollWidth <= label.clientWidth")
    title = view.locator(".tw-title").first
    title.evaluate("title => { title.textContent = 'block_M=128,'.repeat(20); }")
    card, name = view.bounding_box(), title.bounding_box()
    assert card is not None and name is not None and name["width"] <= card["width"]
    tabs = view.get_by_role("tab")
    titles = [text.rstrip("0123456789").strip() for text in tabs.all_inner_texts()]
    shown = [each.title for each in VIEWS.values() if each.title in titles]
    assert titles == ["Card", *shown]
    assert {"Source", "Layouts", "Banks", "Shared memory", "Pipeline", "Code"} <= set(shown)
    # A view that does not differ says so and marks nothing.
    view.get_by_role("tab", name="Layouts").click()
    pane = view.locator(".tw-pane-layouts")
    pane.get_by_text("no difference", exact=True).wait_for()
    assert pane.locator(".tw-differs").count() == 0
    view.get_by_role("tab", name="Global memory").click()
    expect(view.get_by_text("No difference in 1 row", exact=True)).to_be_visible()
    # The views themselves stand beside each other, and answer.
    view.get_by_role("tab", name="Pipeline").click()
    sides = view.locator(".tw-pane-pipeline .tw-side")
    sides.nth(1).locator("g[data-event]").first.wait_for()
    assert sides.count() == 2
    assert sides.nth(0).locator("text=A_shared stage 2").count() == 0
    assert sides.nth(1).locator("text=A_shared stage 2").count() == 1
    # A line that is chosen in one is chosen in the other: they have one text.
    sides.nth(0).locator("g[data-style=product]").first.click()
    sides.nth(1).locator("g[data-style=product].tw-chosen").first.wait_for()
    # Every point on one roofline.
    view.get_by_role("tab", name="Roofline").click()
    pane = view.locator(".tw-pane-roofline")
    assert "times as fast as matmul #1" in pane.inner_text()
    assert pane.locator(":scope > .tw-still img").count() == 1
    view.get_by_role("tab", name="Passes").click()
    view.locator(".tw-pane-passes .tw-side").nth(1).get_by_text("expand_pipelines").first.wait_for()
    view.get_by_role("tab", name="Banks").click()
    view.locator(".tw-pane-banks .tw-side canvas").nth(1).wait_for()
    assert (notebook.errors, notebook.outside) == ([], [])


def test_one_cell_for_three_targets(notebook: NotebookPage) -> None:
    notebook.run_cell(0)
    notebook.run_cell(2)
    view = notebook.output(2).locator(".tw-comparison")
    heads = view.locator(".tw-pane-card th[scope=col]")
    assert heads.all_inner_texts() == ["fact", "add cpu", "add sim:sm_80", "add sim:sm_90a"]
    row = view.locator(".tw-pane-card tr").filter(has_text="occupancy").first
    assert row.locator("td.tw-none").count() == 1  # a CPU has none, which is not loud
    view.get_by_role("tab", name="Source").click()
    source = view.locator(".tw-pane-source > .tw-still")
    assert source.get_by_text("for i in T.Parallel(64):").count() == 1  # one text, three costs
    view.get_by_role("tab", name="Code").click()
    sides = view.locator(".tw-pane-code .tw-side")
    sides.nth(0).get_by_text("define").first.wait_for()
    sides.nth(2).get_by_text("__global__").first.wait_for()
    assert (notebook.errors, notebook.outside) == ([], [])
