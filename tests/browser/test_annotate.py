"""`%%tile -a` in a real JupyterLab: lines shaded by cost, a line opens on what became of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.viz.tiled import compiled
from tileworkbench.bench.units import format_bytes

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CELL = """%%tile -a -t sim:sm_80
def transpose(A: T.Tensor((32, 32), "float32"), B: T.Tensor((32, 32), "float32")):
    with T.Kernel(1, threads=32):
        tile = T.alloc_shared((32, 32), "float32")
        tx = T.get_thread_binding()
        for i in T.serial(32):
            tile[i, tx] = A[i, tx]
        for i in T.serial(32):
            B[i, tx] = tile[tx, i]
"""

COPY = """%%tile
def copy(A: T.Tensor((65536,), "float32"), B: T.Tensor((65536,), "float32")):
    with T.Kernel(64, threads=128) as bx:
        for j in T.Parallel(1024):
            i = bx * 1024 + j
            B[i] = A[i]
"""


def test_lines_show_their_costs_and_open(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "a.ipynb", "%load_ext tileworkbench", CELL)
    notebook = open_notebook("a.ipynb")
    notebook.run_all()
    assert notebook.cell_errors() == []
    notebook.page.set_default_timeout(WAIT_MS)
    view = notebook.output(1)
    assert view.get_by_role("tab", name="Source").get_attribute("aria-selected") == "true"
    view.get_by_label("Shade by").select_option("conflicts")
    costs = [cell.inner_text() for cell in view.locator(".tw-cost").all()]
    assert [cost for cost in costs if cost] == ["1.00x", "32.00x"]
    view.locator(".tw-line", has_text="B[i, tx] = tile[tx, i]").first.click()
    detail = view.locator(".tw-line-detail")
    detail.get_by_text("32.00x").first.wait_for()
    assert "tile: load" in detail.inner_text() and "T.const" not in detail.inner_text()
    form = detail.get_by_label("What became of the line")
    assert form.input_value() == "code"
    form.select_option("0")
    assert "B[i_1, tx] = tile[tx, i_1]" in detail.locator(".tw-form").inner_text()
    assert (notebook.errors, notebook.outside) == ([], [])


def test_counted_bytes_stand_beside_the_model(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    counted = COPY.replace("%%tile", "%%tile --count -t cpu")
    simulated = COPY.replace("%%tile", "%%tile --count -t sim:sm_80")
    write_notebook(lab.root / "c.ipynb", "%load_ext tileworkbench", counted, simulated)
    notebook = open_notebook("c.ipynb")
    notebook.run_all()
    assert notebook.cell_errors() == []
    view = notebook.output(1)
    table = view.get_by_role("table", name="Counted by line")
    heads = table.locator("thead tr").first.inner_text().split()
    assert heads == ["L1", "L2", "L3", "DRAM"]
    row = table.locator("tbody tr", has_text="B[i] = A[i]")
    assert row.locator("td").nth(1).inner_text() == "512.0 KiB"  # 256 KiB read, as many written
    row.click()
    view.locator(".tw-line-detail").get_by_text("generated code").first.wait_for(state="attached")
    assert "tw-current" in (row.get_attribute("class") or "")
    assert "tw-marked" in (
        view.locator(".tw-line", has_text="B[i] = A[i]").first.get_attribute("class") or ""
    )
    there = notebook.output(2).get_by_role("table", name="Counted by line")
    cells = there.locator("tbody tr", has_text="B[i] = A[i]").locator("td").all_inner_texts()
    assert cells[1:4] == ["512.0 KiB"] * 3
    assert cells[-2:] == ["16.4 k", "16.4 k"]  # sectors of 32 bytes
    assert (notebook.errors, notebook.outside) == ([], [])


def test_on_a_cpu_lines_have_bytes_of_caches(browser: Browser, tmp_path: Path) -> None:
    kernel = compiled("transpose", "cpu")
    page = browser.new_page(viewport={"width": 1200, "height": 1200})
    page.goto(kernel.save(tmp_path / "page.html").as_uri())
    page.locator("[data-tab=source]").click()
    page.get_by_label("Shade by").select_option("l1")
    shown = [cell.inner_text() for cell in page.locator(".tw-cost").all()]
    costs = {cost.line: cost for cost in kernel.line_costs if cost.l1_bytes}
    copy = max(costs, key=lambda line: costs[line].l1_bytes)
    assert len([text for text in shown if text]) == len(costs) > 2
    assert format_bytes(costs[copy].l1_bytes) in shown
    assert "estimated from the sizes of this machine's caches" in (page.text_content("body") or "")
    page.close()
