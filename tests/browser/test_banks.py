"""The views of banks, sectors and cache lines in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.viz.tiled import compiled
from tileworkbench.compiler.layout import Layout
from tileworkbench.viz.model.annotated_cell import cell_with
from tileworkbench.viz.model.swizzles import Swizzle, best, measured
from tileworkbench.viz.model.tiles import find_tile
from tileworkbench.viz.model.what_if import alternatives, relowered

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator

SETUP = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.viz.tiled import compiled"""
BANKS, SELECTED, ELEMENT, GLOBAL, CPU, CARD, ENGINES, RAGGED = range(1, 9)
CELLS = [
    SETUP,
    "view = compiled('conflicting').show('banks')\nview",
    "print(view.selection)",
    "view.selection = {'buffer': 'B_shared', 'element': [5, 17]}",
    "compiled('mm').show('global')",
    "compiled('transpose', 'cpu').show('banks')",
    "compiled('conflicting').show('card')",
    "from tileworkbench.kernels import matmul\nimport tileworkbench as tw\n"
    "program = matmul(256, 256, 256, 'float16', num_stages=3)\n"
    "tw.compile(program, target='sim:sm_90a').show('banks')",
    "compiled('ragged').show('banks')",
]


@pytest.fixture
def notebook(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> Iterator[NotebookPage]:
    write_notebook(lab.root / "b.ipynb", *CELLS)
    opened = open_notebook("b.ipynb")
    opened.run_all()
    opened.run_cell(BANKS)
    assert opened.cell_errors() == []
    opened.page.set_default_timeout(WAIT_MS)
    yield opened
    assert (opened.errors, opened.outside) == ([], [])


def test_banks_sectors_and_lines(notebook: NotebookPage) -> None:
    check_conflict(notebook.output(BANKS))
    check_lanes(notebook)
    check_what_if(notebook.output(BANKS))
    check_swizzle(notebook)
    check_apply(notebook)
    check_selection(notebook)
    check_global(notebook.output(GLOBAL))
    check_cpu(notebook.output(CPU))
    check_card(notebook.output(CARD))
    check_engines(notebook.output(ENGINES))
    check_refused(notebook.output(RAGGED))


def check_conflict(view: Locator) -> None:
    """A row-major 128x32 tile of float16 under ldmatrix has degree 4."""
    view.locator(".tw-banks[data-degree='4']").wait_for()
    assert view.locator(".tw-finding").inner_text() == (
        "⚠ Bank conflicts in 1 access. The costliest: ldmatrix.x4 of A_shared on line "
        f"{line_of('T.gemm')} takes 512 wavefronts where 128 would do (4.00×)."
    )
    assert view.locator("tr.tw-conflict .tw-factor").inner_text() == "4.00×"
    assert view.locator(".tw-degree").inner_text() == "degree 4: 4 wavefronts, 1 needed"
    assert "phase 1 of 128 · request 1 of 32" in view.locator(".tw-phase-place").inner_text()
    labels = [c.get_attribute("aria-label") for c in view.locator(".tw-cells").all()]
    assert labels[0] == "lanes by banks: degree 4, 1 needed" and len(labels) == 3
    view.get_by_role("button", name="Next phase").click()
    assert view.locator(".tw-phase-place").inner_text().endswith("lanes 8–15")
    view.get_by_role("button", name="Worst phase").click()
    assert view.locator(".tw-phase-place").inner_text().endswith("lanes 0–7")
    view.get_by_text("What am I looking at?").click()
    assert "672 wavefronts where its bytes need 288" in view.inner_text()


def line_of(text: str) -> int:
    record = compiled("conflicting").record
    lines = record.source.splitlines()
    return record.first_line + next(at for at, line in enumerate(lines) if text in line)


def check_lanes(notebook: NotebookPage) -> None:
    """Pointer, keys and search find lanes; a click pins one."""
    view = notebook.output(BANKS)
    card, memory, tile = view.locator(".tw-cells").all()
    info = view.locator(".tw-info")
    card.focus()
    card.press("ArrowDown")
    assert "lane 0 of warp 0" in info.inner_text()
    card.press("ArrowDown")
    card.press("ArrowDown")
    assert rows(info) == {
        "element": "A_shared[2, 0:8]",
        "bytes": "128–143",
        "banks": "0–3",
        "words": "32–35",
        "register": "A_registers[0:2] of the warp",
        "collides with": "lanes 0, 4, 6",
    }
    card.press("Enter")
    assert info.get_by_role("button", name="unpin").is_visible()
    box = memory.bounding_box()
    assert box is not None
    memory.hover(position={"x": box["width"] * 0.55, "y": 25})  # bank 16 of the first row
    assert "lane 1 of warp 0" in info.inner_text()
    memory.blur()
    notebook.page.mouse.move(0, 0)
    assert "lane 2 of warp 0" in info.inner_text()  # the pinned one
    info.get_by_role("button", name="unpin").click()
    assert "This phase" in info.inner_text()
    search = view.locator(".tw-find-element")
    search.fill("20, 9")
    search.press("Enter")
    assert rows(info)["element"] == "A_shared[20, 8:16]"
    search.fill("200, 9")
    search.press("Enter")
    assert search.evaluate("node => node.validationMessage") == (
        "an element of A_shared has 2 indices below 128, 32"
    )
    tile.click(position={"x": 60, "y": 25})  # an element that no lane of the phase accesses
    notebook.page.mouse.move(0, 0)
    assert "This phase" in info.inner_text()
    view.get_by_role("button", name="Worst phase").click()


def rows(info: Locator) -> dict[str, str]:
    return {
        row.locator("span").inner_text(): row.locator("b").inner_text()
        for row in info.locator(".tw-row").all()
    }


def check_what_if(view: Locator) -> None:
    """Layouts, padding and widths are counted at once, and by the compiler after that."""
    tile = find_tile(compiled("conflicting").view(), "A_shared")
    ranking = alternatives(tile)
    listed = view.locator("[data-choice]")
    assert [row.get_attribute("data-choice") for row in listed.all()] == [a.name for a in ranking]
    for alternative in ranking:
        row = view.locator(f"[data-choice={alternative.name}]")
        if alternative.problem:
            assert alternative.problem in row.inner_text()
        else:
            assert row.locator(".tw-total").inner_text() == str(alternative.wavefronts)
    assert "+0 elements: " in view.locator(".tw-slid").first.inner_text()  # before it is moved
    best = view.locator("[data-choice=swizzle64]")
    best.get_by_role("button", name="64-byte swizzle").click()
    view.locator(".tw-banks[data-degree='1']").wait_for()
    assert "tried out: 64-byte swizzle" in view.inner_text()
    view.get_by_text("✓ Compiled again: 192 wavefronts, 192 needed").wait_for()
    slider = view.get_by_label("Elements behind each row")
    slider.fill("8")
    assert "+8 elements: 256 wavefronts (1.33×), 10224 bytes" in view.inner_text()
    view.get_by_text("✓ Compiled again: 256 wavefronts").wait_for()
    slider.fill("3")
    assert "do not begin at a multiple of 16 bytes" in view.inner_text()
    view.get_by_role("button", name="as compiled").click()
    view.locator(".tw-banks[data-degree='4']").wait_for()


def check_swizzle(notebook: NotebookPage) -> None:
    """B, M and S step by keys; pictures and counts follow, and the line makes a cell."""
    record = compiled("conflicting").record
    tile = find_tile(compiled("conflicting").view(), "A_shared")
    view = notebook.output(BANKS)
    panel, said = view.locator(".tw-swizzle"), view.locator(".tw-swizzle-said")
    steps = panel.locator("input")
    assert [step.input_value() for step in steps.all()] == ["0", "3", "3"]
    for bits in (1, 2):  # an arrow key is a step
        steps.nth(0).press("ArrowUp")
        promised = measured(tile, Swizzle(bits, 3, 3))
        expect(said).to_contain_text(
            f"<{bits}, 3, 3>: {promised.wavefronts} wavefronts, {promised.ideal} needed"
        )
    expect(panel).to_contain_text("4 places are exchanged")
    expect(panel).to_contain_text("8 neighbours (16 bytes) stay together")
    expect(panel).to_contain_text("✓ the vectors of all lanes stay whole")
    expect(panel).to_contain_text("TMA and wgmma know it as their 64-byte swizzle")
    view.locator(".tw-banks[data-degree='1']").wait_for()
    expect(view.locator(".tw-previewed")).to_contain_text("tried out: swizzle <2, 3, 3>")
    view.get_by_text("✓ Compiled again: 192 wavefronts, 192 needed").wait_for()
    steps.nth(1).fill("2")
    expect(panel).to_contain_text("✗ the 16 bytes of a lane (store) are not together")
    expect(panel.get_by_role("button", name="Apply")).to_be_disabled()
    steps.nth(2).fill("1")
    expect(said).to_have_text("<2, 2, 1> is not possible here")
    expect(panel).to_contain_text("✗ <2, 2, 1> is no swizzle")
    panel.get_by_role("button", name="Find the best").click()
    links = panel.locator(".tw-swizzle-found button")
    expect(links).to_have_text([str(each.swizzle) for each in best(tile)])
    assert [step.input_value() for step in steps.all()] == ["2", "3", "3"]
    links.nth(1).click()
    expect(said).to_contain_text(f"{best(tile)[1].wavefronts} wavefronts")
    links.nth(0).click()
    panel.get_by_role("button", name="Apply").click()
    view.get_by_text("The kernel with this line is in a new cell.").wait_for()
    text = "lambda i, j: ((i * 32 + j) ^ (i * 32 + j) // 64 % 4 * 8,)"
    line = f"T.annotate_layout({{A_shared: {text}}})"
    assert taken(notebook) == cell_with(record, tile, line)
    layout = Layout.from_text(f"Layout((128, 32), {text})")
    made = relowered(record, "A_shared", layout)
    assert (made.wavefronts, made.ideal, made.problem) == (192, 192, "")
    view.get_by_role("button", name="as compiled").click()
    view.locator(".tw-banks[data-degree='4']").wait_for()


def check_engines(view: Locator) -> None:
    """TMA and wgmma take three swizzles; with another one threads do their work."""
    panel = view.locator(".tw-swizzle")
    view.get_by_role("button", name="TMA load", exact=True).first.click()
    own = [step.input_value() for step in panel.locator("input").all()]
    expect(view.locator(".tw-swizzle-said")).to_have_text(f"<{', '.join(own)}> is the tile's own")
    panel.get_by_label("Order before the swizzle").select_option("0")
    panel.get_by_label("B: bits XORed").fill("2")
    expect(panel).to_contain_text("✓ TMA load, wgmma: the 64-byte swizzle")
    view.get_by_text("✓ Compiled again: 128 wavefronts, 128 needed").wait_for()
    panel.get_by_label("S: distance").fill("2")
    expect(panel).to_contain_text("✗ TMA load, wgmma take only the swizzles of 32, 64 and 128")
    view.get_by_text(
        "The compiler then chooses other instructions: cp.async, ldmatrix.x4"
    ).wait_for()


def check_refused(view: Locator) -> None:
    """What the compiler refuses cannot be applied: known here, or when it has answered."""
    panel, said = view.locator(".tw-swizzle"), view.locator(".tw-swizzle-said")
    apply_, shift = panel.get_by_role("button", name="Apply"), panel.get_by_label("S: distance")
    problem = Swizzle(1, 3, 3).problem((48, 96), 16)
    panel.get_by_label("B: bits XORed").fill("1")
    expect(said).to_have_text("<1, 3, 3> is not possible here")
    expect(panel).to_contain_text(f"✗ {problem}")
    expect(apply_).to_be_disabled()
    shift.fill("1")
    expect(said).to_contain_text("<1, 3, 1>: ")
    view.get_by_text("✓ Compiled again: ").wait_for()
    expect(apply_).to_be_enabled()
    shift.fill("-1")
    expect(said).to_contain_text("<1, 3, -1>: ")
    expect(panel).to_contain_text("in the number of the group of 16 elements")
    expect(apply_).to_be_enabled()
    links = panel.locator(".tw-swizzle-found button")
    panel.get_by_role("button", name="Find the best").click()
    tile = find_tile(compiled("ragged").view(), "tile")
    expect(links).to_have_text([str(each.swizzle) for each in best(tile)])


def check_apply(notebook: NotebookPage) -> None:
    """The extension puts the kernel into a cell below; the cell is taken away again."""
    record = compiled("conflicting").record
    tile = find_tile(compiled("conflicting").view(), "A_shared")
    view = notebook.output(BANKS)
    best = view.locator("[data-choice=swizzle64]")
    best.get_by_role("button", name="Apply").click()
    view.get_by_text("The kernel with this line is in a new cell.").wait_for()
    assert taken(notebook) == cell_with(record, tile, alternatives(tile)[0].line)


def taken(notebook: NotebookPage) -> str:
    """The text of the cell below the view, which goes away."""
    source: str = notebook.page.evaluate(
        "index => { const { sharedModel } = window.jupyterapp.shell.currentWidget.content.model;"
        " const { source } = sharedModel.getCell(index); sharedModel.deleteCell(index);"
        " return source; }",
        BANKS + 1,
    )
    return source


def check_selection(notebook: NotebookPage) -> None:
    view = notebook.output(BANKS)
    view.get_by_role("button", name="store", exact=True).first.click()
    view.locator(".tw-banks[data-degree='1']").wait_for()
    notebook.run_until(SELECTED, f"'line': {line_of('T.copy(A, ')}")
    view.get_by_label("Vector of this store").select_option("4")
    assert "coalesced_width=2 of the copy asks for it" in view.inner_text()
    assert "tried out: as compiled, 4 bytes" in view.inner_text()
    notebook.run_cell(ELEMENT)  # chosen in Python, or in another view
    view.get_by_text("B_shared[5, 16:24]").wait_for()


def check_global(view: Locator) -> None:
    view.locator(".tw-finding.tw-is-good").wait_for()
    view.get_by_role("button", name="store", exact=True).click()
    assert "A lane accesses 8 bytes at once (2 elements); not more" in view.inner_text()
    assert "the layout of 'C_local' gives a thread no 4 neighbours in a row" in view.inner_text()
    assert view.locator(".tw-degree").inner_text() == "8 sectors, 8 needed"
    lanes = view.locator(".tw-cells").last
    lanes.focus()
    lanes.press("ArrowDown")
    lanes.press("ArrowDown")
    assert rows(view.locator(".tw-info")) == {
        "element": "C[2, 0:2]",
        "bytes": "2048–2055",
        "sectors": "64",
        "line of 128 bytes": "16",
        "register": "C_local[0:2]",
    }


def check_cpu(view: Locator) -> None:
    view.locator(".tw-finding.tw-is-bad").wait_for()
    assert "1 access touches more cache lines than needed" in view.inner_text()
    assert "The lanes are 256 bytes apart" in view.inner_text()
    card = view.locator(".tw-cells").first
    card.focus()
    card.press("ArrowDown")
    assert rows(view.locator(".tw-info"))["element"] == "tile[0, 0]"


def check_card(view: Locator) -> None:
    tab = view.locator("[data-tab=banks]")
    assert tab.locator(".tw-alarm").get_attribute("title") == "1 access with bank conflicts"
    tab.click()
    view.locator(".tw-banks[data-degree='4']").wait_for()


def test_a_saved_page_counts_without_a_kernel(browser: Browser, tmp_path: Path) -> None:
    path = compiled("conflicting").save(tmp_path / "page.html")
    context = browser.new_context(offline=True, viewport={"width": 1200, "height": 1600})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(path.as_uri())
    page.locator("[data-tab=banks]").click()
    page.locator(".tw-banks[data-degree='4']").wait_for()
    page.get_by_role("button", name="64-byte swizzle").click()
    page.locator(".tw-banks[data-degree='1']").wait_for()
    page.locator("[data-choice=swizzle64]").get_by_role("button", name="Apply").click()
    tile = find_tile(compiled("conflicting").view(), "A_shared")
    text = cell_with(compiled("conflicting").record, tile, alternatives(tile)[0].line)
    page.locator(".tw-applied").wait_for()  # no extension is here, and no clipboard
    assert page.locator(".tw-applied").inner_text().strip() == text.strip()
    page.locator("[data-tab=global]").click()
    page.locator(".tw-global .tw-finding").wait_for()
    context.close()
    assert errors == []


def test_an_access_of_a_cpu_opens_at_its_worst_vector(browser: Browser, tmp_path: Path) -> None:
    """Rows of 33 numbers: the first vectors are whole lines, later ones lie across two."""
    kernel = compiled("askew", "cpu")
    (worst,) = (each for each in kernel.requests if each.buffer == "A")
    found = [len(worst.lines_of(vector)) for vector in worst.vectors]
    at = found.index(max(found))
    assert found[0] == 1 and at > 0
    page = browser.new_page(viewport={"width": 1200, "height": 1200})
    page.goto(kernel.save(tmp_path / "page.html").as_uri())
    page.locator("[data-tab=global]").click()
    view = page.locator(".tw-lines")
    view.locator(".tw-finding.tw-is-bad").wait_for()
    place = view.locator(".tw-phase-place").inner_text()
    assert place == f"vector {at + 1} of the first {len(found)} · cache lines: 2, needed: 1"
    assert rows(view.locator(".tw-info"))["cache lines"] == "2"
    assert view.get_by_label("vector", exact=True).input_value() == str(at)
    page.close()
