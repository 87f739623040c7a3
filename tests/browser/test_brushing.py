"""A line that is chosen, here in Python, is marked in every view of a card."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELLS = [
    "import tileworkbench as tw\nfrom tileworkbench.kernels import matmul\n"
    "kernel = tw.compile(matmul(256, 256, 256, 'float16', num_stages=3), target='sim:sm_80')\n"
    "lines = [each.line for kind in ('copy', 'product') for each in kernel.pipeline.operations"
    " if each.kind == kind][::2]\n"
    "longest = max(kernel.causes.parts, key=lambda each: bool(each.line) * each.time_us)\n"
    "lines += [lines[0], longest.line]",
    "card = kernel.show()\ncard",
    "card.selection = {'line': lines.pop(0)}",
]


def test_views_of_a_card_share_a_line(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    path = lab.root / "brush.ipynb"
    write_notebook(path, *CELLS)
    notebook = open_notebook("brush.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()  # the line of a copy is chosen before any of these tabs is opened
    assert notebook.cell_errors() == []
    card = notebook.output(1)
    for tab, marks in (("global", ".tw-current"), ("pipeline", ".tw-chosen")):
        card.locator(f"[data-tab={tab}]").click()
        card.locator(f".tw-pane-{tab} {marks}").first.wait_for()
    expect(card.locator(".tw-pane-global .tw-current")).to_contain_text("cp.async")
    card.locator("[data-tab=source]").click()
    source = card.locator(".tw-pane-source .tw-marked")
    expect(source).to_contain_text("T.copy(A[")
    chosen = card.locator(".tw-pane-pipeline .tw-chosen").count()
    notebook.run_cell(2)  # now the line of the product, in views that are there
    expect(source).to_contain_text("T.gemm(")
    assert card.locator(".tw-pane-pipeline .tw-chosen").count() not in (0, chosen)
    card.locator("[data-tab=code]").click()
    card.locator(".tw-pane-code .tw-marked").first.wait_for()

    # Both tiles are operands of the product; a copy fills one of them.
    card.locator("[data-tab=smem]").click()
    boxes = card.locator(".tw-pane-smem g.tw-chosen")
    expect(boxes).to_have_count(2)
    notebook.run_cell(2)
    expect(boxes).to_have_count(1)
    card.locator(".tw-pane-smem g[data-buffer=B_shared]").click()
    expect(boxes).to_have_attribute("data-buffer", "B_shared")
    card.locator("[data-tab=source]").click()
    for text in ("alloc_shared", "T.copy(B[", "T.gemm("):  # all lines that use it
        expect(source.filter(has_text=text)).to_have_count(1)
    expect(source).to_have_count(3)
    card.locator("[data-tab=banks]").click()
    rows = card.locator(".tw-pane-banks tr[data-access]")
    rows.first.wait_for()
    marked = [row.evaluate("row => row.matches('.tw-current')") for row in rows.all()]
    half = len(marked) // 2  # the product reads A_shared too, which was not chosen
    assert marked == [False] * half + [True] * half

    card.locator("[data-tab=roofline]").click()
    bars = card.locator(".tw-pane-roofline .tw-bars")
    expect(bars.locator(".tw-of-line")).to_contain_text(re.compile(r"^Lines \d+, \d+, \d+ have"))
    notebook.run_cell(2)
    expect(bars.locator(".tw-of-line")).to_have_text(re.compile(r"^Line \d+ has [1-9]"))
    bars.locator("[data-line]:not(.tw-chosen)").first.press("Enter")
    line = bars.locator(".tw-chosen").first.get_attribute("data-line")
    expect(bars.locator(".tw-of-line")).to_contain_text(f"Line {line} has")
    assert notebook.errors == []
