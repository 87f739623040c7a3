"""The roofline in a real JupyterLab: the line to look at, time by cause, levels, and the trail."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import nbformat
from playwright.sync_api import Browser, expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook
from tests.browser.scripts import call
from tests.viz.rooflines import crowded
from tileworkbench.bench.points import relevant_ceilings
from tileworkbench.viz.model.labels import is_apart
from tileworkbench.viz.model.roofline_svg import HEIGHT, WIDTH, roofline_svg

CELL = """%%tile add -t sim:sm_80 -D block={block}
def add(A, N: int = 1048576, block: int = 64):
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[(bx * block + i) * 33 % N] + 1.0
    return B
"""
# As a new session: no version is known, and those that the notebook kept are another's.
FORGET = """\
from tileworkbench.viz.widgets import roofline
roofline._SESSION = "tomorrow"
del get_ipython()._tile_ledger
"""


def test_a_trail_is_drawn_kept_and_goes_on(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    cells = ["%load_ext tileworkbench", *(CELL.format(block=block) for block in (32, 64))]
    path = lab.root / "trail.ipynb"
    write_notebook(path, *cells)
    notebook = open_notebook("trail.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []

    view = notebook.output(2)
    view.get_by_role("tab", name="Roofline").click()
    step = view.locator("svg g[data-step]")
    expect(step).to_have_count(1)
    assert "1: " in (step.locator("title").text_content() or "")
    rows = view.locator(".tw-trail tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("- -D block=32")
    expect(rows.last).to_contain_text("+ -D block=64")
    assert view.locator("rect[data-cause='L2']").count() == 1
    verdict = view.locator(".tw-verdict")
    expect(verdict).to_contain_text("Look at line 7: it reads 'A' in ")
    verdict.get_by_role("button", name="show line 7").click()
    expect(view.get_by_role("tab", name="Source")).to_have_attribute("aria-selected", "true")

    # What the notebook kept of the other session comes before this one's.
    assert run_in_kernel(notebook, FORGET) == "ok"
    notebook.run_all()
    view.get_by_role("tab", name="Roofline").click()
    rows = view.locator(".tw-trail tbody tr")
    expect(rows).to_have_count(4)
    expect(view.locator("svg g[data-step]")).to_have_count(3)
    notebook.execute("docmanager:save")
    saved = nbformat.read(path, as_version=4)
    kept = saved.metadata["tileworkbench"]["trail"]["add"]
    assert [step["number"] for step in kept] == [1, 2, 3, 4]
    assert kept[1]["change"] == ["- -D block=32", "+ -D block=64"]
    assert [step["session"] == "tomorrow" for step in kept] == [False, False, True, True]
    [output] = saved.cells[2].outputs
    assert "- -D block=32" in output["data"]["text/html"]
    assert (notebook.errors, notebook.outside) == ([], [])

    # Reopened, the output still has its trail.
    notebook.close()
    notebook.load("trail.ipynb")
    shown = notebook.output(2)
    shown.get_by_role("tab", name="Roofline").click()
    expect(shown.locator("svg g[data-step]")).to_have_count(3)
    expect(shown.locator(".tw-trail tbody tr")).to_have_count(4)


def run_in_kernel(notebook: NotebookPage, code: str) -> str:
    """The status of `code`, executed without a cell."""
    status: str = notebook.page.evaluate(
        "code => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel"
        ".requestExecute({code}).done.then(reply => reply.content.status)",
        code,
    )
    return status


GEOMETRY = """\
document.body.innerHTML = data;
const at = (element, x, y) => {
  const point = new DOMPoint(x, y).matrixTransform(element.getCTM());
  return [point.x, point.y];
};
const names = [...document.querySelectorAll("svg > g[stroke-width='3'] > text")].map((text) => {
  const { x, y, width, height } = text.getBBox();
  const corners = [[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
  return [text.textContent, corners.map((corner) => at(text, ...corner))];
});
const value = (line, name) => line[name].baseVal.value;
const lines = [...document.querySelectorAll("svg > line")]
  .filter((line) => line.querySelector("title") || line.getAttribute("stroke-dasharray"))
  .map((line) => [at(line, value(line, "x1"), value(line, "y1")),
    at(line, value(line, "x2"), value(line, "y2"))]);
const marks = [...document.querySelectorAll("svg circle, svg path")].map((mark) => {
  const { x, y, width, height } = mark.getBBox();
  return [[x, y], [x + width, y], [x + width, y + height], [x, y + height]];
});
return { names, lines, marks };
"""


def test_names_lie_on_no_line_on_no_mark_and_on_no_other(browser: Browser) -> None:
    """By the boxes that this browser's font has."""
    for name, (points, machine) in crowded().items():
        found = call(browser, (), GEOMETRY, roofline_svg(points, machine))
        roofs = len(relevant_ceilings(points, machine).ceilings)
        assert len(found["lines"]) >= roofs and len(found["names"]) >= 2
        names = [(text, tuple(map(tuple, corners))) for text, corners in found["names"]]
        for (one, shape), (other, second) in combinations(names, 2):
            assert is_apart(shape, second), (name, one, other)
        for kind in ("lines", "marks"):
            for each in found[kind]:
                for text, shape in names:
                    assert is_apart(shape, tuple(map(tuple, each))), (name, text, each)
        for text, shape in names:
            assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in shape), (name, text)


MADE_UP = """\
import tileworkbench as tw
from tileworkbench import kernels
from tileworkbench.bench import ceilings
from tileworkbench.bench.points import Ceiling, Machine
from tileworkbench.compiler.device.host.processor import machine_name
# Above what any core reaches: a time measured here may not lie above its roof.
levels = [Ceiling(name, 1e4, "GB/s", 1) for name in ("L1", "L2", "L3", "DRAM")]
# Named as this host: a version measured before its roofs are known is kept under that name.
made_up = Machine(machine_name(), (*levels, Ceiling("float32", 1e4, "GFLOP/s", 1)))
ceilings.machine = lambda measure=False: made_up
ceilings.known_machine = lambda: None
"""
LAZY = f"""{MADE_UP}\
k = tw.compile(kernels.softmax(128, 512), target="cpu")
k"""


def test_the_card_of_a_kernel_nobody_ran_says_what_bounds_it(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "bound.ipynb", LAZY, "k.show('roofline')")
    notebook = open_notebook("bound.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []
    bound = notebook.output(0).locator(".tw-bound")
    bound.get_by_role("button", name="Measure").click()
    notebook.output(0).locator(".tw-bound[data-told=true]").wait_for()
    assert "(predicted; " in bound.inner_text()
    # With that it has a place under the roofs. The tab takes the focus of the button that is gone.
    expect(notebook.output(0).get_by_role("tab", name="Card")).to_be_focused()
    assert "Roofline" not in notebook.output(0).locator(".tw-absent").inner_text()
    notebook.output(0).get_by_role("tab", name="Roofline").click()
    notebook.output(0).locator(".tw-pane-roofline .tw-verdict").wait_for()
    notebook.output(0).get_by_role("tab", name="Card").click()
    bound.get_by_role("button", name="show line").click()
    notebook.output(0).locator(".tw-pane-source").wait_for()
    alone = notebook.output(1)
    alone.locator(".tw-roof-columns").wait_for()
    assert alone.locator(".tw-about-view").count() == 1


def test_bytes_of_levels_are_counted_beside_the_model(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    small = CELL.format(block=64).replace("1048576", "4096")
    cells = ["%load_ext tileworkbench", small, "%tile show add roofline"]
    write_notebook(lab.root / "counted.ipynb", *cells)
    notebook = open_notebook("counted.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []
    view = notebook.output(2)
    rows = view.locator(".tw-traffic tbody tr")
    expect(rows).to_have_count(2)
    assert [row.get_attribute("data-level") for row in rows.all()] == ["L2", "DRAM"]
    # Elements of a line of their own each: a sector for four bytes, written four at a time.
    expect(rows.first).to_contain_text("128.0 KiB")
    told = view.inner_text()
    assert told.count("counted by simulating threads and the L2 of A100") == 1


def test_cold_caches_are_said_in_the_card_and_in_the_trail(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    small = CELL.format(block=64).replace("1048576", "4096").replace("sim:sm_80", "cpu")
    flags = ("--bench 2 --roofline --cold", "--bench 2 --roofline")
    measured = [small.replace("=64\n", f"=64 {each}\n", 1) for each in flags]
    cells = [f"{MADE_UP}%load_ext tileworkbench", *measured]
    path = lab.root / "cold.ipynb"
    write_notebook(path, *cells)
    notebook = open_notebook("cold.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []
    notebook.page.set_default_timeout(WAIT_MS)
    cold, warm = (notebook.output(at) for at in (1, 2))
    expect(cold.locator(".tw-bench").first).to_contain_text("cold caches")
    expect(warm.locator(".tw-bench").first).to_contain_text("warm caches")
    warm.get_by_role("tab", name="Roofline").click()
    rows = warm.locator(".tw-trail tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text(", cold caches")
    expect(rows.last).not_to_contain_text("cold caches")
    expect(rows.last).to_contain_text("--cold")
    title = warm.locator("svg g[data-step] title")
    assert "(cold caches)" in (title.text_content() or "")
    assert (notebook.errors, notebook.outside) == ([], [])


def test_what_is_said_below_several_points_has_their_names(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    made = f"{MADE_UP}import tileworkbench as tw\nfrom tileworkbench.kernels import matmul\n"
    both = "tw.roofline([tw.compile(matmul(256, 256, 256, 'float16', block_M=size), target="
    write_notebook(lab.root / "two.ipynb", f"{made}{both}'sim:sm_80') for size in (64, 128)])")
    notebook = open_notebook("two.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []
    titles = notebook.output(0).locator(".tw-plot > .tw-panel-title")
    expect(titles).to_have_text(["matmul #1", "matmul #2"])
    axis = notebook.output(0).locator(".tw-plot > svg").first
    assert "TFLOP/s" in axis.locator("text[transform]").first.inner_html()
