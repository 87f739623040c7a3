"""The quickstart in a real JupyterLab: every cell runs, every view renders, reacts and reaches the
kernel, and what is saved reads without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from playwright.sync_api import Locator, expect

from tests.browser.lab import LabServer, NotebookPage

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"
CARD, PASSES, LAYOUTS = "%%tile matmul", 'show("passes")', 'show("layouts'
MISTAKE, ROOFLINE, ASK = "def scores", 'show("roofline")', "print(passes.selected_pass"
ASK_SOURCE = (
    f"{ASK}, passes.passes['entries'][passes.selected_pass]['name'], layouts.layout_name,"
    " layouts.selected_element, layouts.selected_thread, layouts.thread_elements)"
)
TELL = "layouts.layout_name = 'C_local'\nlayouts.selected_thread = 129\npasses.selected_pass = 0"


@dataclass
class Quickstart:
    """The open notebook, its cells found by a piece of their source."""

    notebook: NotebookPage
    content: nbformat.NotebookNode

    def index(self, piece: str) -> int:
        """The only cell that holds `piece`."""
        (found,) = [n for n, cell in enumerate(self.content.cells) if piece in cell.source]
        return found

    def output(self, piece: str) -> Locator:
        """The output area of that cell."""
        return self.notebook.output(self.index(piece))


@pytest.fixture
def live(lab: LabServer, open_notebook: Callable[..., NotebookPage]) -> Quickstart:
    """The quickstart without outputs and with a last cell that prints traits, all of it run."""
    content = nbformat.read(QUICKSTART, as_version=4)
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    content.cells.append(nbformat.v4.new_code_cell(ASK_SOURCE))
    nbformat.write(content, lab.root / "quickstart.ipynb")
    notebook = open_notebook("quickstart.ipynb")
    notebook.run_all()
    return Quickstart(notebook, content)


def test_every_view_works_live_and_saved(
    lab: LabServer, live: Quickstart, open_notebook: Callable[..., NotebookPage]
) -> None:
    """One run of the notebook for both, as it takes a kernel many seconds."""
    check_live(live)
    check_saved(lab, live, open_notebook)


def check_live(live: Quickstart) -> None:
    """Every view renders, reacts and reaches the kernel."""
    notebook = live.notebook
    (mistake,) = notebook.cell_errors()
    assert "T.gemm K shape check failed: K is 64 and 128 in A and B" in mistake
    check_card(live.output(CARD))
    check_passes(live.output(PASSES))
    check_layouts(live.output(LAYOUTS))
    check_roofline(live.output(ROOFLINE))

    notebook.run_cell(live.index(ASK))
    reply = live.output(ASK).inner_text().strip()
    chosen = live.output(PASSES).locator(".tw-passes").get_attribute("data-shown")
    assert reply == f"{chosen} infer_layouts B_shared [0, 1] 1 [[0, 1]]"

    run_in_kernel(notebook, TELL)
    expect(live.output(PASSES).locator(".tw-passes")).to_have_attribute("data-shown", "0")
    expect(live.output(LAYOUTS).locator("select").first).to_have_value("C_local")
    expect(live.output(LAYOUTS).locator(".tw-pinned")).to_contain_text("(1, 1)")
    assert notebook.errors == []
    assert notebook.outside == []


def check_card(card: Locator) -> None:
    expect(card.locator(".tw-title")).to_have_text("matmul")
    expect(card.locator(".tw-chip").get_by_text("check ok")).to_be_visible()
    labels = card.locator(".tw-fact-label").all_inner_texts()
    facts = dict(zip(labels, card.locator(".tw-fact-value").all_inner_texts(), strict=True))
    assert (facts["grid"], facts["threads"], facts["flops"]) == ("8x8", "128", "2.15 G")
    card.locator("[data-tab=source]").click()
    expect(card.locator(".tw-pane-source .tw-line").nth(1)).to_contain_text("def matmul")
    card.locator("[data-tab=code]").click()  # the code is fetched from the kernel
    expect(card.locator(".tw-pane-code")).to_contain_text("define ")
    card.locator("[data-tab=card]").click()


def check_passes(output: Locator) -> None:
    view = output.locator(".tw-passes")
    names = view.locator(".tw-pass")
    count = names.count()
    view.locator(".tw-pass", has_text="infer_layouts").click()
    expect(view.locator(".tw-about b")).to_have_text("infer_layouts")
    chosen = int(view.get_attribute("data-shown") or -1)
    expect(names.nth(chosen)).to_have_attribute("aria-selected", "true")
    assert "Layout(" in view.locator(".tw-diff td.tw-new").all_inner_texts()[-1]
    view.focus()
    view.press("j")
    expect(view).to_have_attribute("data-shown", str(chosen + 1))
    view.press("k")
    expect(view).to_have_attribute("data-shown", str(chosen))
    view.press("/")
    search = view.locator("input[type=search]")
    expect(search).to_be_focused()
    search.type("B_shared")
    expect(view.locator(".tw-found")).to_contain_text(" lines in ")
    search.press("Escape")
    expect(search).to_have_value("")
    view.locator(".tw-check input").check()
    assert 1 < names.count() < count
    view.locator(".tw-check input").uncheck()
    assert names.count() == count


def check_layouts(output: Locator) -> None:
    view = output.locator(".tw-layouts[data-painted=true]")
    buffers = view.locator("select").first
    expect(buffers).to_have_value("B_shared")
    rows, columns = buffers.locator("option:checked").inner_text().split()[1].split("×")
    canvas = view.locator("canvas").first
    place = middle_of(canvas, 0, 1, int(rows), int(columns))
    canvas.hover(position=place)
    expect(view.locator(".tw-hovered")).to_contain_text("B_shared[0, 1]")
    canvas.click(position=place)
    expect(view.locator(".tw-pinned")).to_contain_text("Address 1")
    expect(view.locator(".tw-pinned")).to_contain_text("1 element")


def middle_of(canvas: Locator, row: int, column: int, rows: int, columns: int) -> dict[str, float]:
    """The middle of an element of a grid that is wide or tall enough to fill its canvas."""
    box = canvas.bounding_box()
    assert box is not None
    left, top = 34, 20  # as in grid.js
    scale = min((box["width"] - left - 2) / columns, (box["height"] - top - 2) / rows)
    return {"x": left + (column + 0.5) * scale, "y": top + (row + 0.5) * scale}


def check_roofline(output: Locator) -> None:
    view = output.locator(".tw-roofline")
    expect(view.locator("svg circle[data-point=matmul]")).to_be_visible()
    expect(view.locator(".tw-verdict")).to_have_count(1)
    sentence = view.locator(".tw-verdict").inner_text()
    assert "-bound region" in sentence and "FLOP/B" in sentence, sentence
    view.locator("summary").get_by_text("Ceilings").click()
    ceilings = view.locator(".tw-ceilings").inner_text()
    assert all(name in ceilings for name in ("L1", "DRAM", "float32")), ceilings


def run_in_kernel(notebook: NotebookPage, code: str) -> None:
    """Execute `code` without a cell."""
    status = notebook.page.evaluate(
        "code => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({code}).done.then(reply => reply.content.status)",
        code,
    )
    assert status == "ok"


def check_saved(
    lab: LabServer, live: Quickstart, open_notebook: Callable[..., NotebookPage]
) -> None:
    """Saved by JupyterLab, then opened by someone who does not trust it and has no widgets."""
    live.notebook.execute("docmanager:save")
    saved = nbformat.read(lab.root / "quickstart.ipynb", as_version=4)
    assert "widgets" not in saved.metadata
    saved.metadata["title"] = "another content, so no longer one that this server has signed"
    nbformat.write(saved, lab.root / "received.ipynb")

    received = Quickstart(open_notebook("received.ipynb", extension=False), saved)
    for piece, name in ((CARD, "Passes"), (PASSES, "Passes"), (LAYOUTS, "Layouts")):
        output = received.output(piece)
        assert output.locator(".tw-view").count() == 0
        output.locator("summary").get_by_text(name, exact=True).click()
    expect(received.output(CARD)).to_contain_text("check ok")
    expect(received.output(PASSES)).to_contain_text("infer_layouts")
    pictures = received.output(LAYOUTS).locator("img")
    assert pictures.count() == 2  # elements and memory of the tile that was asked for
    roofline = received.output(ROOFLINE).last  # below what the cell prints
    for picture in (*pictures.all(), *roofline.locator("img").all()):
        assert picture.evaluate("image => image.naturalWidth") > 0
    expect(roofline).to_contain_text("-bound region")
    assert received.notebook.errors == []
    assert received.notebook.outside == []
