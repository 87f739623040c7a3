"""Footprints in a real JupyterLab: a block that is clicked lights its elements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator

CELLS = [
    f"""\
%load_ext tileworkbench
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import tileworkbench as tw
from tests.viz.tiled import compiled
kernel = tw.Kernel(compiled("mm").compiled)""",
    'tw.Kernel(compiled("mm").compiled)',
    # Recorded first, without a limit: a view records for a second, too short on a busy machine.
    "kernel.footprint(seconds=None)\n%tile show kernel footprint",
    """\
%%tile --target cpu --args 'torch.zeros(100)' --show footprint
import torch
def scale(A: T.Tensor((100,), "float32")):
    B = T.empty((100,), "float32")
    with T.Kernel(2, threads=64) as bx:
        for i in T.Parallel(64):
            if bx * 64 + i < 100:
                B[bx * 64 + i] = A[bx * 64 + i] * 2.0
    return B
""",
]


def label(view: Locator, index: int) -> str:
    return view.locator("canvas").nth(index).get_attribute("aria-label") or ""


def test_a_block_lights_its_elements(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "f.ipynb", *CELLS)
    notebook = open_notebook("f.ipynb")
    notebook.run_all()
    notebook.page.set_default_timeout(WAIT_MS)
    assert notebook.cell_errors() == []

    view = notebook.output(2).locator(".tw-footprint")
    view.locator(".tw-finding").wait_for()
    assert view.locator(".tw-finding").inner_text() == "Recorded all 16 blocks"
    blocks = view.locator("canvas").first
    box = blocks.bounding_box()
    assert box is not None
    blocks.click(position={"x": box["width"] - 10, "y": box["height"] - 8})
    view.get_by_text("block (3, 3) loads").first.wait_for()
    assert label(view, 0).endswith("block 15 is chosen")
    assert label(view, 1).endswith("of block 15 alone: 1024 cells")
    assert label(view, 3).endswith("of block 15 alone: 256 cells")
    view.get_by_role("button", name="Zoom to the block").click()
    view.get_by_text("C 256×256: stores", exact=True).wait_for()  # a cell is one element
    view.get_by_label("Colour").select_option("warp")
    assert "the warp of block (3, 3) that stores it" in view.inner_text()
    view.get_by_label("Colour").select_option("thread")
    assert "the thread of block (3, 3) that stores it" in view.inner_text()
    picture = view.locator("canvas").nth(3)
    picture.focus()
    notebook.page.keyboard.press("ArrowRight")
    told = view.locator("figure").nth(3).locator(".tw-cell-told")  # below the picture itself
    assert told.inner_text() == (
        "C[192, 192]: 1 store of one · 1 block, the first is 15 · by block (3, 3): 1 · thread 0"
    )
    assert [each.inner_text() for each in view.locator(".tw-cell-told").all()[:2]] == ["", ""]
    view.get_by_role("button", name="All blocks").click()
    view.get_by_text("the first block that loads it").first.wait_for()
    view.get_by_role("button", name="Whole tensors").click()
    view.get_by_text("a cell is 4×4 elements").first.wait_for()
    picture.click(position={"x": 60, "y": 60})  # what is told of the cell stays
    expect(told).to_contain_text("16 elements touched · at most 1 store of one · 1 block")
    expect(told).to_contain_text("by block (0, 0): 1")

    card = notebook.output(1).locator(".tw-card")
    card.get_by_role("tab", name="Footprint").click()
    pane = card.locator(".tw-pane-footprint")
    pane.get_by_role("button", name="Record").click()
    pane.get_by_text("Recorded all 16 blocks").wait_for()
    pane.get_by_role("button", name="line").first.click()
    assert pane.locator("figure.tw-linked").count() == 1

    small = notebook.output(3).locator(".tw-footprint")
    small.get_by_text("Recorded all 2 blocks").wait_for()
    assert "21.9 %" in small.inner_text()
    assert (notebook.errors, notebook.outside) == ([], [])
