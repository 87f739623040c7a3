"""The playground in a real JupyterLab: typed, operated on, pointed at, copied, saved."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import nbformat
import numpy as np
from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.browser.scripts import call
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.algebra import first_fastest
from tileworkbench.compiler.layout.atoms import mma_a
from tileworkbench.compiler.layout.cute import parse_cute
from tileworkbench.viz.model.playground import Sheet, cell_of, sheet_model

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

CELLS = [
    "%load_ext tileworkbench\nimport tileworkbench as tw\nimport tileworkbench.language as T",
    "tw.playground('(4,(2,2)):(2,(1,8))')",
    "mine = T.Layout((4, 8), lambda i, j: 8 * i + j)",
]
PLAY, MINE = 1, 2
_ROW, _COLUMN = 20, 34  # pixels of the grid's heads


def test_the_playground(lab: LabServer, open_notebook: Callable[..., NotebookPage]) -> None:
    write_notebook(lab.root / "p.ipynb", *CELLS)
    notebook = open_notebook("p.ipynb")
    notebook.run_all()
    assert notebook.cell_errors() == []
    notebook.page.set_default_timeout(WAIT_MS)
    view = notebook.output(PLAY)
    check_hover(view)
    check_typing(view)
    check_operations(view)
    check_errors(view)
    check_code(notebook)
    check_saved(lab, notebook)
    assert (notebook.errors, notebook.outside) == ([], [])


def sheet(view: Locator, number: int) -> Locator:
    return view.locator(".tw-sheet:not([hidden])").nth(number)


def point(view: Locator, number: int, row: int, column: int) -> None:
    """Move the mouse onto an element of a grid of cells of 40 pixels."""
    canvas = sheet(view, number).locator("canvas")
    canvas.hover(position={"x": _COLUMN + 40 * column + 20, "y": _ROW + 40 * row + 20})


def check_hover(view: Locator) -> None:
    view.locator(".tw-playground[data-state=good]").wait_for()
    expect(view.locator(".tw-sheet:visible")).to_have_count(1)
    point(view, 0, 1, 2)
    said = sheet(view, 0).locator(".tw-sheet-place")
    expect(said).to_have_text("[1, 2] offset 10 byte · bank 20 · 5")
    view.get_by_label("Elements of").select_option("4")
    expect(said).to_contain_text("Point at an element")
    point(view, 0, 3, 3)
    expect(said).to_have_text("[3, 3] offset 15 byte · bank 60 · 15")
    sheet(view, 0).locator("canvas").press("ArrowLeft")
    expect(said).to_have_text("[3, 2] offset 14 byte · bank 56 · 14")
    expect(sheet(view, 0).locator(".tw-legend")).to_have_text("offset 015")
    view.get_by_label("Elements of").select_option("16")
    view.get_by_label("Colour layouts by").select_option("bank")
    expect(sheet(view, 0).locator(".tw-legend")).to_have_text("bank 031")
    canvas = sheet(view, 0).locator("canvas")
    canvas.hover(position={"x": _COLUMN + 50, "y": _ROW + 10})
    expect(said).to_contain_text("[0, 1]")
    canvas.hover(position={"x": _COLUMN + 1, "y": _ROW + 1})
    view.page.keyboard.down("Control")
    for _ in range(3):
        view.page.mouse.wheel(0, -100)
    view.page.keyboard.up("Control")
    canvas.hover(position={"x": _COLUMN + 50, "y": _ROW + 10})
    expect(said).to_contain_text("[0, 0]")


def check_typing(view: Locator) -> None:
    """The picture follows, with names that came after it."""
    view.get_by_label("Layout A").press_sequentially(" ")
    view.get_by_label("Layout A").fill("mine")
    expect(sheet(view, 0).locator(".tw-sheet-texts")).to_contain_text("(4,8):(8,1)")
    view.get_by_label("Layout A").fill("mma.m16n8k16.f16 A")
    expect(sheet(view, 0).locator(".tw-badges")).to_contain_text("32 threads × 8 slots")
    expect(view.get_by_label("Colour fragments by")).to_be_visible()
    view.get_by_label("Layout A").fill("mma.m16n8k16")  # the type and the operand left out
    expect(sheet(view, 0).locator(".tw-sheet-texts")).to_contain_text("read as mma.m16n8k16.f16 A")
    expect(view.get_by_label("Colour layouts by")).to_be_hidden()
    view.get_by_label("Layout A").fill("mine")
    expect(sheet(view, 0).locator(".tw-badges")).to_contain_text("8 contiguous")


def check_operations(view: Locator) -> None:
    view.get_by_label("Operation").select_option("compose")
    second = view.get_by_label("Second input")
    expect(second).to_have_value("8:1")
    second.fill("(2,4):(4,8)")
    result = sheet(view, 2)
    expect(result.locator(".tw-panel-title")).to_have_text("compose(A, B)")
    expect(result.locator(".tw-sheet-code")).to_have_text(
        "T.Layout((2, 4), lambda i, j: (2*j + i,))"
    )
    point(view, 2, 1, 3)  # B(1, 3) = 28, and A counts its rows first
    expect(sheet(view, 1).locator(".tw-sheet-place")).to_contain_text("[1, 3] offset 28")
    expect(sheet(view, 0).locator(".tw-sheet-place")).to_contain_text("[0, 7] offset 7")
    expect(result.locator(".tw-sheet-place")).to_contain_text("[1, 3] offset 7")
    view.get_by_label("Operation").select_option("swizzle")
    second.fill("<2,0,3>")
    expect(sheet(view, 1).locator(".tw-sheet-texts")).to_contain_text("Sw<2,0,3> o (4,8):(8,1)")
    expect(view.locator(".tw-sheet:visible")).to_have_count(2)
    point(view, 1, 1, 0)  # before and after, at one index
    expect(sheet(view, 0).locator(".tw-sheet-place")).to_contain_text("[1, 0] offset 8")
    expect(sheet(view, 1).locator(".tw-sheet-place")).to_contain_text("[1, 0] offset 9")


def check_errors(view: Locator) -> None:
    """What is wrong stands in its place, and the last good pictures stay."""
    view.get_by_label("Operation").select_option("right_inverse")
    expect(view.get_by_label("Second input")).to_be_hidden()
    expect(sheet(view, 1).locator(".tw-panel-title")).to_have_text("right_inverse(A)")
    view.get_by_label("Layout A").fill("(4,8:1")
    alert = view.get_by_role("alert")
    expect(alert).to_have_text("(4,8:1\n    ^Here ',' or ')' should stand.", use_inner_text=False)
    expect(view.locator(".tw-stale:visible")).to_have_count(2)
    assert view.locator(".tw-playground").get_attribute("data-state") == "wrong"
    view.get_by_label("Layout A").fill("T.Layout((4,), lambda i: i + 1)")
    expect(alert).to_have_text("The layout has no right inverse: no element is at offset 0.")
    expect(view.locator(".tw-stale:visible")).to_have_count(1)
    view.get_by_label("Layout A").fill("<img src=x onerror=alert(1)>")
    expect(alert).to_contain_text("A swizzle has three numbers: <bits, base, shift>.")
    view.get_by_label("Layout A").fill("(9000,9000)")
    expect(alert).to_contain_text("This has 81000000 elements, and at most 65536 are shown.")
    view.get_by_label("Layout A").fill("mine")
    expect(alert).to_have_count(0)
    expect(view.locator(".tw-stale")).to_have_count(0)


def check_code(notebook: NotebookPage) -> None:
    """Into a new cell through the extension, or copied."""
    view = notebook.output(PLAY)
    result = Sheet("right_inverse(A)", parse_cute("(8,4):(4,1)"))
    view.get_by_label("Layout A").fill("(8,4):(4,1)")
    view.get_by_label("Operation").select_option("")
    expect(sheet(view, 0).locator(".tw-sheet-code")).to_have_text(result.code)
    sheet(view, 0).get_by_role("button", name="New cell").click()
    expect(sheet(view, 0).get_by_text("In a new cell.")).to_be_visible()
    source = notebook.page.evaluate(
        "index => { const { sharedModel } = window.jupyterapp.shell.currentWidget.content.model;"
        " const { source } = sharedModel.getCell(index); sharedModel.deleteCell(index);"
        " return source; }",
        PLAY + 1,
    )
    assert source == cell_of(result)
    context = notebook.page.context
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    sheet(view, 0).get_by_role("button", name="Copy").click()
    expect(sheet(view, 0).get_by_text("Copied.")).to_be_visible()
    assert notebook.page.evaluate("() => navigator.clipboard.readText()") == result.code
    notebook.page.evaluate(  # as where no extension is
        "() => window.addEventListener('tileworkbench:insert-cell',"
        " event => event.stopImmediatePropagation(), { capture: true, once: true })"
    )
    sheet(view, 0).get_by_role("button", name="New cell").click()
    expect(sheet(view, 0).get_by_text("Copied: paste it into a cell.")).to_be_visible()
    assert notebook.page.evaluate("() => navigator.clipboard.readText()") == cell_of(result)
    context.clear_permissions()


def check_saved(lab: LabServer, notebook: NotebookPage) -> None:
    """The file holds pictures and code, and shows them when the kernel is gone."""
    notebook.execute("docmanager:save")
    saved = nbformat.read(lab.root / "p.ipynb", as_version=4)
    output = saved.cells[PLAY].outputs[0].data
    assert set(output) == {"text/plain", "text/html"}
    assert output["text/plain"] == "<Layout A 4x4 | 2 contiguous, bijective>"
    lab.stop_kernels()
    notebook.close()
    notebook.load("p.ipynb")
    view = notebook.output(PLAY)
    expect(view.locator("img")).to_have_count(1)
    expect(view).to_contain_text("T.Layout((4, 4), lambda i, j: (8*(j//2) + 2*i + j%2,))")
    expect(view.locator(".tw-view")).to_have_count(0)


PLACES = """
const { LayoutSlice } = $slices;
return data.map((sheet) => {
  const slice = new LayoutSlice(sheet);
  return Array.from({ length: slice.cells }, (_, cell) => $sheet.place(slice, cell));
});
"""
INDICES = "return data.map(([shape, position]) => $sheet.firstFastest(shape, position));"


def random_layouts() -> list[Layout | Fragment]:
    generator = np.random.default_rng(5)
    found: list[Layout | Fragment] = [mma_a(16), mma_a(16).replicated(3)]
    found.append(Fragment.fully_replicated((4, 4), 64))
    for _ in range(20):
        shape = tuple(int(e) for e in generator.integers(1, 9, 2))
        table = generator.integers(0, 500, (*shape, int(generator.integers(1, 4))))
        found.append(Layout.from_table(table))
    return found


def test_the_page_computes_what_python_does(browser: Browser) -> None:
    layouts = random_layouts()
    for element_bytes in (1, 2, 8):
        sheets = [sheet_model(Sheet("A", layout), element_bytes) for layout in layouts]
        places = call(browser, ("slices", "sheet"), PLACES, sheets)
        for layout, shown in zip(layouts, places, strict=True):
            expected = [expected_place(layout, i, element_bytes) for i in np.ndindex(layout.shape)]
            assert [dict(cell) for cell in shown] == expected
    cases = [(layout.shape, k) for layout in layouts for k in range(layout.size)]
    found = call(browser, ("sheet",), INDICES, cases)
    assert [tuple(index) for index in found] == [first_fastest(*case) for case in cases]


def expected_place(layout: Layout | Fragment, index: Any, element_bytes: int) -> dict[str, str]:
    if isinstance(layout, Layout):
        offset = layout.offset(*index)
        bank = offset * element_bytes // 4 % 32
        several = len(layout.output_shape) > 1
        return {
            **({"index": str(layout(*index))} if several else {}),
            "offset": str(offset),
            "byte · bank": f"{offset * element_bytes} · {bank}",
        }
    threads = [layout.thread_of(*index, rep=rep) for rep in range(layout.replicate)]
    slot = {"slot": str(layout.slot_of(*index))}
    if layout.is_fully_replicated:
        return {"thread": f"all {layout.threads}", **slot}
    label = "threads" if len(threads) > 1 else "thread"
    lane = f"{threads[0] // 32} · {threads[0] % 32}"
    return {label: ", ".join(map(str, threads)), **slot, "warp · lane": lane}
