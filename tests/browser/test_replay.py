"""Time travel in a real JupyterLab: three planted bugs, steps back and forth, values on hover."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator

SETUP = f"""\
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
import tileworkbench as tw
from tests.api import wrong_kernels, wrong_synchronisation
cases = wrong_kernels.cases() | wrong_synchronisation.cases()
def wrong(name, target="sim:sm_80"):
    kernel, reference, inputs = cases[name]
    kernel = kernel.with_target(target).compile()
    try:
        kernel.check(reference, *inputs)
    except tw.TileError:
        pass
    return kernel"""
CELLS = [
    SETUP,
    "race = wrong('missing_barrier').show('replay')\nrace",
    "wrong('divergent_barrier').show('replay')",
    "wrong('use_before_wait', 'cpu').show('replay')",
    "print(race.selection)",
    """\
%load_ext tileworkbench
kernel, reference, inputs = cases["split_k_without_atomic"]
kernel.with_target("cpu").compile().check(reference, *inputs)""",
    """\
%%tile --show replay
def stops(A: T.Tensor((64,), "float32")):
    B = T.empty((64,), "float32")
    with T.Kernel(2, threads=32) as bx:
        tile = T.alloc_fragment((32,), "float32")
        T.copy(A[bx * 32], tile)
        for k in T.serial(3):
            for i in T.Parallel(32):
                tile[i] = tile[i] + 1.0
            T.breakpoint()
        T.copy(tile, B[bx * 32])
    return B
""",
    """\
import numpy as np
from tests.viz.test_replay import late
large = late.with_target("cpu").compile(N=8192)
large.with_inputs(np.arange(8192 * 64, dtype=np.float32).reshape(8192, 64))
large.show("replay")""",
]


def point(view: Locator, buffer: str, across: float, down: float) -> str:
    """Point at a cell of a buffer; what is said of it."""
    grid = view.locator(f"figure[data-buffer='{buffer}'] canvas")
    grid.scroll_into_view_if_needed()
    box = grid.bounding_box()
    assert box is not None
    grid.hover(position={"x": box["width"] * across, "y": box["height"] * down})
    return view.locator(".tw-replay-info").inner_text()


# The legend's colour of what holds nothing, and that of such a cell, as pixels.
COLOURS = """view => {
  const pen = document.createElement("canvas").getContext("2d");
  pen.fillStyle = getComputedStyle(view.querySelector(".tw-replay-none")).backgroundColor;
  pen.fillRect(0, 0, 1, 1);
  const cells = view.querySelector("figure[data-buffer='tile'] canvas");
  const [x, y] = [cells.width / 2, cells.height / 2];
  return [pen.getImageData(0, 0, 1, 1), cells.getContext("2d").getImageData(x, y, 1, 1)]
    .map(({ data }) => [...data].map(value => Math.round(value / 4)));
}"""


def test_three_planted_bugs_open_at_their_moment(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "replay.ipynb", *CELLS, raising=5)
    notebook = open_notebook("replay.ipynb")
    page = notebook.page
    notebook.run_all()
    page.set_default_timeout(WAIT_MS)
    assert [error.partition(":")[0] for error in notebook.cell_errors()] == ["RaceError"]

    race = notebook.output(1)
    where = race.locator(".tw-replay-where")
    where.get_by_text("Step 5 of 5").wait_for()
    assert "threads 128 and 0" in race.locator(".tw-finding").inner_text()
    assert "put T.sync_threads() between the two accesses" in race.inner_text()
    marked = race.locator(".tw-marked")
    assert "T.copy(tile, B)  # BUG" in marked.inner_text()

    # To the other access and, by keys, back and forth.
    race.get_by_role("button", name="The other access, step 3").click()
    where.get_by_text("Step 3 of 5").wait_for()
    assert "T.copy(A, tile)" in marked.inner_text()
    tile = race.locator("figure[data-buffer='tile']")
    assert "4096 written by this step" in tile.inner_text()
    assert "line 24, step 3" in settled(race, "tile", 0.5, 0.5)
    page.keyboard.press("ArrowLeft")
    where.get_by_text("Step 2 of 5").wait_for()
    assert "written by this step" not in tile.inner_text()
    assert "nothing yet" in point(race, "tile", 0.52, 0.52)
    legend, empty = race.evaluate(COLOURS)
    assert legend == empty
    race.get_by_role("button", name="Step on").click()
    where.get_by_text("Step 3 of 5").wait_for()
    view = race.locator(".tw-replay")
    view.evaluate("view => { view.style.width = '460px'; }")
    source = race.locator(".tw-replay-source")
    assert 400 < source.evaluate("node => node.clientWidth") <= 460
    view.evaluate("view => { view.style.width = ''; }")
    value = re.search(r"value\s+([\d.]+)", settled(race, "tile", 0.5, 0.5))
    assert value is not None and 1 <= float(value[1]) < 2  # as the inputs are
    race.get_by_label("Step", exact=True).fill("5")
    where.get_by_text("Step 5 of 5").wait_for()

    # An element that is chosen is followed: its next and last write.
    tile.locator("canvas").click(position={"x": 60, "y": 60})
    race.get_by_role("button", name="◀ write").click()
    where.get_by_text("Step 3 of 5").wait_for()
    race.get_by_role("button", name="write ▶").click()
    race.get_by_text("No later step writes tile").wait_for()
    notebook.run_until(4, "'buffer': 'tile'")

    # A line of the source goes to its next step; another stage is recorded anew.
    race.locator(".tw-replay-source .tw-line", has_text="T.copy(A, tile)").click()
    where.get_by_text("Step 3 of 5").wait_for()
    race.get_by_label("Stage").select_option("infer_thread_layouts")
    race.get_by_label("Colour by").last.select_option("thread")

    lock = notebook.output(2)
    assert "deadlock" in lock.locator(".tw-finding").inner_text()
    waiting = lock.locator(".tw-replay-event").inner_text()
    assert "threads 0-31 wait at barrier 0, where 32 of 64 threads have arrived" in waiting
    assert waiting.endswith("for ever")

    copy = notebook.output(3)
    assert "read before the wait for the asynchronous copy" in copy.inner_text()
    assert "64 elements of tiles under way since step 3" in copy.inner_text()
    assert "under way" in point(copy, "tiles", 0.5, 0.8)

    below = notebook.cell(5).locator(".tw-replay")  # the error of a check
    below.locator(".tw-replay-where", has_text="race").wait_for()
    assert "behind T.sync_grid()" in below.inner_text()

    stops = notebook.cell(6).locator(".tw-replay")
    at = stops.locator(".tw-replay-where")
    at.get_by_text("Step 3 of 8").wait_for()
    assert "breakpoint" in at.inner_text() and "k = 0" in at.inner_text()
    stops.get_by_role("button", name="breakpoint ▶").click()
    at.get_by_text("k = 1").wait_for()
    stops.get_by_role("button", name="iteration ▶", exact=True).click()
    at.get_by_text("k = 2").wait_for()

    # Of a large tensor the part around the step is shown, and steps far away show another.
    large = notebook.output(7)
    large.locator(".tw-replay-where", has_text="breakpoint").wait_for()
    whole = large.locator("figure[data-buffer='B']")
    assert "The part [4928:5952, 0:64] of 8192×64." in whole.inner_text()
    said = settled(large, "B", 0.5, 0.05)  # below the numbers of columns
    element = re.search(r"B\[(\d+), (\d+)\]", said)
    value = re.search(r"value\s+([\d.]+)", said)
    assert element is not None and value is not None
    assert float(value[1]) == int(element[1]) * 64 + int(element[2])
    assert (notebook.errors, notebook.outside) == ([], [])


def settled(view: Locator, buffer: str, across: float, down: float) -> str:
    """The same once the kernel has said who wrote the element."""
    point(view, buffer, across, down)
    view.locator(".tw-replay-info", has_text="line").wait_for()
    return view.locator(".tw-replay-info").inner_text()


PRODUCT = """\
%%tile -t {target} --quiet -o {name}
def {name}(A: T.Tensor((128, 192), "float16"), B: T.Tensor((192, 64), "float16")):
    C = T.empty((128, 64), "float16")
    with T.Kernel(2, threads=128) as bx:
        a = T.alloc_shared((64, 32), "float16")
        b = T.alloc_shared((32, 64), "float16")
        c = T.alloc_fragment((64, 64), "float32")
        T.clear(c)
        for k in T.Pipelined(6, num_stages=3):
            T.copy(A[bx * 64, k * 32], a)
            T.copy(B[k * 32, 0], b)
            T.gemm(a, b, c)
        T.copy(c, C[bx * 64, 0])
    return C
"""


@pytest.mark.slow
def test_roles_of_a_hopper_and_waves_of_amd(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    texts = [
        "%load_ext tileworkbench",
        PRODUCT.format(target="sim:sm_90a", name="roles"),
        "roles.show('replay')",
        PRODUCT.format(target="sim:gfx942", name="waves"),
        "waves.show('replay')",
    ]
    write_notebook(lab.root / "roles.ipynb", *texts)
    notebook = open_notebook("roles.ipynb")
    notebook.run_all()
    notebook.page.set_default_timeout(WAIT_MS)
    assert notebook.cell_errors() == []

    roles = notebook.output(2)
    where = roles.locator(".tw-replay-where")
    where.get_by_text(re.compile(r"of \d\d$")).wait_for()  # as written it is short
    roles.get_by_label("Stage").select_option("specialize_warps")
    where.get_by_text(re.compile(r"of \d\d\d$")).wait_for()
    step, events = roles.get_by_label("Step", exact=True), roles.locator(".tw-replay-event")
    last = int(step.get_attribute("max") or 0)
    wanted = (
        r"wgmma\s+.*elements of c under way .*by consumer 0 \(threads 0-127\); they land in step",
        r"waits\s+producer \(thread 128\) waits for parity \d of 'emptied\[\d\]'",
    )
    for number in range(last // 2, last):  # copies are made long before: the producer waits
        step.fill(str(number))
        where.get_by_text(f"Step {number} of {last}").wait_for()
        said = " ".join(events.all_inner_texts())
        if all(re.search(each, said) for each in wanted):
            break
    else:
        raise AssertionError(said)
    assert "(threads 0-127)" in where.inner_text()

    waves = notebook.output(4)
    waves.get_by_label("Stage").select_option("flatten_buffers")
    waves.locator(".tw-replay-where").get_by_text(re.compile(r"of \d\d\d$")).wait_for()
    step = waves.get_by_label("Step", exact=True)
    step.fill(step.get_attribute("max") or "")
    waves.locator("figure[data-buffer='a_registers']").wait_for()  # copies pass through them
    assert "value" in point(waves, "C", 0.5, 0.5)
    assert (notebook.errors, notebook.outside) == ([], [])
