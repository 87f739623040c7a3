"""The passes of a kernel in a real JupyterLab: trees, names, switches, and a pass that fails."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.magics.notebook import MATMUL, SCALE

if TYPE_CHECKING:
    from playwright.sync_api import Locator

SHAPES = "-t sim:sm_80 -D M=64 -D N=64 -D K=64 -D BLOCK=32"
LARGE = "-t sim:sm_80 -D M=256 -D N=256 -D K=256 -D BLOCK=128"
CELLS = (
    "%load_ext tileworkbench",
    f"%%tile matmul {SHAPES}{MATMUL}",
    f"%%tile scale{SCALE}",
    f"%%tile large {LARGE}{MATMUL.replace('matmul', 'large')}",
    "import json\nprint(json.dumps(matmul.passes['flatten_buffers'].to_dict()))",
    "print(json.dumps(matmul.passes['insert_barriers'].to_dict()))",
)
# Where a word of the IR stands on the page: the middle of its first letter.
PLACE = """(view, word) => {
  const texts = document.createTreeWalker(view, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const at = node.data.indexOf(word);
    if (at < 0) continue;
    const range = document.createRange();
    range.setStart(node, at);
    range.setEnd(node, at + 1);
    const { x, y, width, height } = range.getBoundingClientRect();
    return [x + width / 2, y + height / 2];
  }
}"""


def test_passes(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> None:
    write_notebook(lab.root / "ps.ipynb", *CELLS)
    notebook = open_notebook("ps.ipynb")
    notebook.run_all()
    notebook.page.set_default_timeout(WAIT_MS)
    view = notebook.output(1)
    view.locator("[data-tab=passes]").click()
    check_tree(view)
    check_names(notebook, view)
    check_rules(notebook, view)
    check_switches(view)
    check_brushing(view)
    check_native_code(notebook.output(2))
    check_stopped(notebook)
    check_editing(notebook, view)
    assert (notebook.errors, notebook.outside) == ([], [])


def open_pass(view: Locator, name: str) -> None:
    view.get_by_role("option", name=name).first.click()
    expect(view.locator(".tw-about b")).to_have_text(name)


def check_tree(view: Locator) -> None:
    open_pass(view, "insert_barriers")
    expect(view.locator(".tw-rewrites")).to_have_text("statements: 1 added")
    expect(view.locator(".tw-nodes")).to_have_text(re.compile(r"nodes \d+ → \d+"))
    view.get_by_role("button", name="Tree").click()
    expect(view.locator(".tw-tree-added")).to_have_count(1)
    expect(view.locator(".tw-tree-added").first).to_contain_text("T.sync_threads()")
    expect(view.locator(".tw-tree-same").first).to_contain_text("unchanged")
    open_pass(view, "plan_pipelines")
    changed = view.locator(".tw-tree-changed")
    expect(changed.locator(".tw-tree-field").first).to_have_text("order() → (0, 1, 2)")
    view.get_by_role("button", name="Side by side").click()
    expect(view.locator(".tw-split")).to_be_visible()


def check_names(notebook: NotebookPage, view: Locator) -> None:
    open_pass(view, "infer_thread_layouts")
    expect(view.locator(".tw-diff .tw-new").first).to_be_visible()
    place = view.locator(".tw-diff td.tw-new >> nth=1").evaluate(PLACE, "A_shared")
    notebook.page.mouse.move(*place)
    card = view.locator(".tw-name-card")
    expect(card).to_contain_text("layoutLayout((32, 32), lambda i, j:")
    expect(card).to_contain_text("shape32 × 32")
    card.get_by_role("button").last.hover()  # the card stays while the pointer is in it
    card.get_by_role("button").last.click()
    expect(view.locator(".tw-gone-to")).to_contain_text("A_shared")
    notebook.page.mouse.move(2, 2)
    expect(card).to_be_hidden()
    view.locator(".tw-diff td.tw-t[data-source]", has_text="A_shared").last.click()
    notebook.page.mouse.move(2, 2)
    expect(card).to_be_hidden()
    told = set()
    for _ in range(2):  # by keys: each press tells the next name of the marked line
        view.locator(".tw-diff td.tw-t[data-source]", has_text="A_shared").last.hover()
        notebook.page.mouse.move(2, 2)
        view.locator(".tw-passes").press("n")
        expect(card.locator(".tw-panel-title")).not_to_have_text("|".join(told) or "-")
        notebook.page.wait_for_timeout(400)  # a pointer that has just left hides no such card
        expect(card).to_be_visible()
        told.add(card.locator(".tw-panel-title").inner_text())
    assert len(told) == 2
    view.locator(".tw-passes").press("Escape")
    expect(card).to_be_hidden()


def check_rules(notebook: NotebookPage, view: Locator) -> None:
    """Rules with counts as Python has them, opened to single rewrites, stepped through."""
    notebook.run_cell(4)
    expect(notebook.output(4)).to_contain_text("flatten_buffer")
    rewrites = json.loads(notebook.output(4).inner_text())
    open_pass(view, "flatten_buffers")
    panel = view.locator(".tw-rules")
    panel.locator("summary").first.click()
    expect(panel).to_have_attribute("data-total", str(len(rewrites)))
    counts = Counter(each["rule"] for each in rewrites)
    for name, count in counts.items():
        expect(panel.locator(f"[data-rule={name}] summary")).to_contain_text(f"{count}×")
    expect(panel.locator(".tw-rule")).to_have_count(len(counts))
    row = panel.locator("[data-rule=flatten_address]")
    row.locator("summary").click()
    mine = [each for each in rewrites if each["rule"] == "flatten_address"]
    expect(row.locator("li")).to_have_count(len(mine))
    expect(row.locator("li").first).to_contain_text(f"{mine[0]['before']} → {mine[0]['after']}")
    row.locator("li button").first.click()
    expect(panel).to_have_attribute("data-at", str(mine[0]["number"]))
    expect(panel.locator(".tw-rewrite-now")).to_contain_text("flatten_address")
    expect(view.locator(".tw-diff tr").filter(has_text=mine[0]["before"]).first).to_be_in_viewport()
    expect(view.locator(".tw-source .tw-marked")).to_have_count(1)
    at = mine[0]["number"]
    for key, by in (("]", 1), ("]", 2), ("[", 1)):
        view.locator(".tw-passes").press(key)
        expect(panel).to_have_attribute("data-at", str(at + by))
    check_whole(notebook, view, panel)
    panel.locator("summary").first.click()
    open_pass(view, "infer_thread_layouts")


def check_whole(notebook: NotebookPage, view: Locator, panel: Locator) -> None:
    """A pass without rules says what it did to statements, and steps through that."""
    notebook.run_cell(5)
    expect(notebook.output(5)).to_contain_text("add Barrier")
    changes = json.loads(notebook.output(5).inner_text())
    open_pass(view, "insert_barriers")
    expect(panel).to_have_attribute("data-total", str(len(changes)))
    count = sum(each["rule"] == "add Barrier" for each in changes)
    expect(panel).to_contain_text("This pass works on the whole kernel: it ")
    expect(panel.locator(".tw-whole")).to_contain_text(f"adds {count} Barrier")
    expect(panel.locator("[data-rule='add Barrier'] summary")).to_contain_text(f"{count}×")
    first = next(each for each in changes if each["rule"] == "add Barrier")
    for _ in range(first["number"]):
        view.locator(".tw-passes").press("]")
    expect(panel.locator(".tw-rewrite-now")).to_contain_text(first["after"])
    expect(panel.locator(".tw-rewrite-now .tw-arrow")).to_have_count(0)  # nothing was there
    added = view.locator(".tw-diff tr").filter(has_text=first["after"].strip())
    expect(added.first).to_be_in_viewport()


def check_switches(view: Locator) -> None:
    assert view.locator("input[data-pass=flatten_buffers]").count() == 0  # it must run
    box = view.locator("input[data-pass=plan_pipelines]")
    box.uncheck()
    strip = view.locator(".tw-without")
    expect(strip).to_contain_text("--disable plan_pipelines would change it: +")
    expect(view.locator(".tw-diff .tw-removed, .tw-diff .tw-changed").first).to_be_attached()
    view.get_by_role("button", name="back to the kernel").click()
    expect(strip).to_be_hidden()
    expect(box).to_be_checked()
    expect(view.locator(".tw-about b")).to_have_text("infer_thread_layouts")


def check_brushing(view: Locator) -> None:
    """A line that is chosen in one view is marked in the others."""
    open_pass(view, "front end")
    view.locator(".tw-source .tw-line").filter(has_text="T.gemm").click()
    expect(view.locator(".tw-diff .tw-linked")).to_contain_text("T.gemm(")
    view.locator("[data-tab=code]").click()
    expect(view.locator(".tw-generated .tw-marked").first).to_contain_text("T.gemm(A_shared")
    view.locator("[data-tab=source]").click()
    expect(view.locator(".tw-annotated .tw-marked")).to_contain_text("T.gemm")
    view.locator(".tw-annotated .tw-line").filter(has_text="T.clear").click()
    view.locator("[data-tab=passes]").click()
    expect(view.locator(".tw-diff .tw-linked")).to_contain_text("T.fill(C_local, 0.0)")
    line = view.locator(".tw-diff td").filter(has_text="T.copy(C_local")
    line.click(position={"x": 3, "y": 5})
    expect(view.locator(".tw-source .tw-marked")).to_contain_text("T.copy(C_local")
    view.locator("[data-tab=source]").click()
    expect(view.locator(".tw-annotated .tw-marked")).to_contain_text("T.copy(C_local")


def check_native_code(view: Locator) -> None:
    """LLVM IR opens at the kernel, and its lines are linked too."""
    view.locator("[data-tab=code]").click()
    expect(view.locator(".tw-generated .tw-line").first).to_contain_text("define ")
    view.locator(".tw-generated .tw-line").filter(has_text="fmul").first.click()
    view.locator("[data-tab=source]").click()
    expect(view.locator(".tw-annotated .tw-marked")).to_contain_text("* 2.0")
    view.locator("[data-tab=passes]").click()
    expect(view.locator(".tw-source .tw-marked")).to_contain_text("* 2.0")


def check_stopped(notebook: NotebookPage) -> None:
    """The error, and below it the passes so far: the IR and what went wrong at its place."""
    (error,) = notebook.cell_errors()
    assert error.startswith("ResourceError: the block needs 262144 bytes of shared memory")
    shown = notebook.page.locator("details.tw-stopped")
    expect(shown.locator("summary")).to_contain_text("plan_shared_memory, failed")
    shown.locator("summary").click()
    expect(shown.get_by_role("option", name="plan_shared_memory")).to_contain_text("failed")
    wrong = shown.locator(".tw-wrong")
    expect(wrong).to_contain_text("with T.Kernel(")
    expect(wrong.locator("xpath=following-sibling::tr[1]")).to_contain_text(
        "the block needs 262144"
    )


def check_editing(notebook: NotebookPage, view: Locator) -> None:
    """The IR goes into a new cell, which compiles what was edited from there on."""
    view.locator("[data-tab=passes]").click()
    open_pass(view, "plan_pipelines")
    view.get_by_role("button", name="Edit in a cell").click()
    first = "%%tile ir matmul --after plan_pipelines"
    source = "window.jupyterapp.shell.currentWidget.content.model.sharedModel.cells[2]"
    notebook.page.wait_for_function(f"{source}?.source.startsWith({json.dumps(first)})")
    edit = f"{source}.setSource({source}.source.replace('C_local, 0.0', 'C_local, 1.0'))"
    notebook.page.evaluate(edit)
    notebook.run_cell(2)
    made = notebook.output(2)
    expect(made.locator(".tw-chip.tw-warn")).to_have_text("IR edited after plan_pipelines")
    made.locator("[data-tab=passes]").click()
    made.get_by_role("option", name="edited").click()
    expect(made.locator(".tw-diff .tw-changed .tw-new")).to_contain_text("T.fill(C_local, 1.0)")
