"""Zoom of the layout explorer: it keeps what is pinned in sight, and outlives themes and resizes;
the copies of a fragment, layouts of a `ptx:` kernel, and a kernel without any.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import expect

from tests.browser.audit import THEMES, use_theme
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, eventually, write_notebook
from tests.capability import require
from tileworkbench.compiler.device.nvidia.nvrtc import missing_nvrtc

if TYPE_CHECKING:
    from playwright.sync_api import Locator

VIEW, COPIES, PTX, NOTHING, ALL, WGMMA, MFMA = 1, 2, 3, 4, 5, 6, 7
CELLS = [
    f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.viz.tiled import askew, compiled
from tileworkbench.compiler.layout import Fragment
from tileworkbench.compiler.layout.atoms import WarpGrid, mfma_c, wgmma_block_c
from tileworkbench.viz.model import layout
from tileworkbench.viz.widgets.layouts import layout_widget""",
    "view = compiled('mm').show('layouts:C_local')\nview",
    "layout.COPIES_LIMIT = 64\n"
    "layout_widget(Fragment((4, 4), lambda i, j, rep: (rep ^ i, j), replicate=16), 'copied')",
    "compiled('mm', 'ptx:sm_80').show('layouts:A_shared')",
    "compiled('askew', 'cpu').show('layouts')",
    "compiled('askew', 'cpu').show('all')",
    "layout_widget(wgmma_block_c(WarpGrid(128, 64, 4, 1)), 'result')",
    "layout_widget(mfma_c(32).repeat((2, 2)), 'result')",
]
EDGE = (34, 20)  # of the row and column numbers
WIDE, NARROW = {"width": 1400, "height": 1800}, {"width": 900, "height": 1800}
READABLE = 14  # pixels of a cell: its label has at least 8


def test_the_explorer(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> None:
    write_notebook(lab.root / "z.ipynb", *CELLS)
    notebook = open_notebook("z.ipynb")
    notebook.run_cell(0)
    check_copies_that_are_sent_in_parts(notebook)
    check_a_kernel_without_tiles_says_so_in_a_line(notebook)
    for case in ATOMS:
        check_atoms_of_large_instructions(notebook, *case)
    check_zoom_through_themes_and_resizes(notebook)
    require("nvrtc", missing_nvrtc())
    check_a_ptx_kernel_has_layouts(notebook)
    assert (notebook.cell_errors(), notebook.errors, notebook.outside) == ([], [], [])


def shown(notebook: NotebookPage, cell: int) -> Locator:
    """The explorer that a cell shows, once it is drawn."""
    notebook.run_cell(cell)
    notebook.page.set_default_timeout(WAIT_MS)
    view = notebook.output(cell).locator(".tw-layouts[data-painted=true]")
    view.wait_for()
    return view


def hovered(view: Locator) -> list[int]:
    """The element below the pointer."""
    index: list[int] = json.loads(view.get_attribute("data-hovered") or "[[]]")[0]
    return index


class Sight:
    """What of a tile of rows and columns the tensor view shows now."""

    def __init__(self, view: Locator) -> None:
        tensor = view.locator(".tw-stage-tensor canvas")
        box = tensor.bounding_box()
        assert box is not None
        self.width, self.height = box["width"], box["height"]
        tensor.hover(position={"x": EDGE[0] + 1, "y": EDGE[1] + 1})
        self.first = hovered(view)
        tensor.hover(position={"x": self.width - 4, "y": EDGE[1] + 1})
        right = hovered(view)[1]
        tensor.hover(position={"x": EDGE[0] + 1, "y": self.height - 4})
        self.last = [hovered(view)[0], right]

    @property
    def cell(self) -> float:
        """Pixels of a column."""
        return (self.width - EDGE[0]) / (self.last[1] - self.first[1] + 1)

    def has(self, element: list[int]) -> bool:
        return all(
            low <= at <= high for low, at, high in zip(self.first, element, self.last, strict=True)
        )


def check_zoom_through_themes_and_resizes(notebook: NotebookPage) -> None:
    view = shown(notebook, VIEW)
    tensor = view.locator(".tw-stage-tensor canvas")
    whole = Sight(view)
    assert (whole.first, whole.last) == ([0, 0], [63, 63]) and whole.cell < READABLE
    tensor.click(position={"x": whole.width * 0.8, "y": whole.height * 0.7})
    pinned = json.loads(view.get_attribute("data-pinned") or "[]")[1]
    assert pinned[0] > 32 and pinned[1] > 32
    closer = view.locator(".tw-stage-tensor").get_by_role("button", name="+", exact=True)
    for _ in range(5):
        closer.click()
        assert Sight(view).has(pinned)
    near = Sight(view)
    assert near.cell >= READABLE

    def is_where_it_was() -> None:
        seen = Sight(view)
        assert seen.has(pinned) and abs(seen.cell - near.cell) < 0.25 * near.cell

    for theme in (THEMES[1], THEMES[0]):
        before = tensor.screenshot()

        def is_drawn_in_other_colours() -> None:
            assert tensor.screenshot() != before  # noqa: B023

        use_theme(notebook.page, theme)
        eventually(notebook.page, is_drawn_in_other_colours)
        again = Sight(view)
        assert (again.first, again.last) == (near.first, near.last)
    for size in (NARROW, WIDE):
        notebook.page.set_viewport_size(size)
        notebook.page.wait_for_timeout(500)  # it is drawn again for the new size
        eventually(notebook.page, is_where_it_was)
    assert json.loads(view.get_attribute("data-pinned") or "[]")[1] == pinned
    tensor.press("Escape")
    view.locator(".tw-stage-tensor").get_by_role("button", name="Fit").click()
    fitted = Sight(view)
    assert (fitted.first, fitted.last) == ([0, 0], [63, 63])


def check_copies_that_are_sent_in_parts(notebook: NotebookPage) -> None:
    view = shown(notebook, COPIES)
    bar = view.locator(".tw-bar").first
    expect(bar).to_contain_text("copies 0–3 of 16")
    back, on = (bar.get_by_role("button", name=name) for name in ("‹", "›"))
    expect(back).to_be_disabled()
    tensor = view.locator(".tw-stage-tensor canvas")
    tensor.hover(position={"x": 40, "y": 26})
    expect(view.locator(".tw-hovered")).to_contain_text("0, 1, 2, 3")
    for part in ("4–7", "8–11", "12–15"):
        on.click()
        expect(bar).to_contain_text(f"copies {part} of 16")
    expect(on).to_be_disabled()
    tensor.hover(position={"x": 80, "y": 26})
    tensor.hover(position={"x": 40, "y": 26})
    expect(view.locator(".tw-hovered")).to_contain_text("12, 13, 14, 15")


def check_a_ptx_kernel_has_layouts(notebook: NotebookPage) -> None:
    view = shown(notebook, PTX)
    expect(view.locator("select").first).to_have_value("A_shared")
    expect(view.locator(".tw-badges")).to_contain_text("vectors of 16 B")
    view.get_by_label("ldmatrix.x4: one matrix 8×8").wait_for()
    expect(view.locator(".tw-steps li").first).to_contain_text("T.gemm · C_local")


def check_a_kernel_without_tiles_says_so_in_a_line(notebook: NotebookPage) -> None:
    notebook.run_cell(NOTHING)
    notebook.page.set_default_timeout(WAIT_MS)
    expect(notebook.output(NOTHING)).to_contain_text("the kernel has no tile with a layout")
    assert len(notebook.output(NOTHING).inner_text().splitlines()) == 2  # with the kernel's name
    notebook.run_cell(ALL)
    card = notebook.output(ALL)
    absent = card.locator(".tw-absent")
    expect(absent.locator("summary")).to_contain_text("Nothing to show in Layouts, Banks, ")
    absent.locator("summary").click()
    expect(absent).to_contain_text("Layouts: the kernel has no tile with a layout")
    card.get_by_role("tab", name="Code", exact=True).click()
    card.locator(".tw-pane-code .tw-line").first.wait_for()


PIXEL = """(canvas, [x, y]) => {
  const ratio = window.devicePixelRatio;
  return [...canvas.getContext("2d").getImageData(x * ratio, y * ratio, 1, 1).data];
}"""


# A cell, its largest atom and a smaller one, and where a border of the largest is.
ATOMS = (
    (WGMMA, ("wgmma.m64n64k16.f16 C 64×64", "wgmma.m64n256k16.f16 A 64×16"), 64 / 128),
    (MFMA, ("mfma.m32n32k8.f16 C 32×32", "mfma.m32n32k8.f16 A 32×8"), 32 / 64),
)


def check_atoms_of_large_instructions(
    notebook: NotebookPage, cell: int, atoms: tuple[str, ...], border: float
) -> None:
    """The largest one alone at first; with the smaller ones its frame still lies on top."""
    view = shown(notebook, cell)
    largest, smaller = (view.get_by_label(atom, exact=True) for atom in atoms)
    assert largest.is_checked() and not smaller.is_checked()
    tensor = view.locator(".tw-stage-tensor canvas")
    box = tensor.bounding_box()
    assert box is not None
    at = [EDGE[0] + 20, EDGE[1] + border * (box["height"] - EDGE[1] - 2)]
    black = [17, 17, 17, 255]
    assert tensor.evaluate(PIXEL, at) == black
    before = tensor.screenshot()
    smaller.check()
    assert tensor.evaluate(PIXEL, at) == black
    assert tensor.screenshot() != before
    largest.uncheck()
    assert tensor.evaluate(PIXEL, at) != black
