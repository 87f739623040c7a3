"""What `test_looks.py` asks of views, asked of the outputs that are no view of one kernel: the
playground, sliders, sweeps and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.audit import AUDIT, THEMES, faults, reached_by_tab, use_theme
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Locator

ADD = """\
def add(A, N: int = 256, block: int = 64):
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        tile = T.alloc_shared((block,), T.float32)
        T.copy(A[bx * block], tile)
        for i in T.Parallel(block):
            B[bx * block + i] = tile[i] + 1.0
    return B
"""
OUTPUTS = {
    "playground": "tw.playground('(4,(2,2)):(2,(1,8))')",
    "swizzle": "tw.playground('Sw<3,3,3> o (8,64):(64,1)')",
    "registers": "tw.playground('mma.m16n8k16.f16 A')",
    "sliders": f"%%tile -t sim:sm_80 --slide block=64,128,65536\n{ADD}",
    "sweep": f"%%tile -t sim:sm_80 --sweep block=64,128,65536 N=256,512\n{ADD}",
    "swept": "tw.sweep(add, {'block': [64, 128], 'N': [256]})",
    "targets": f"%%tile -t cpu,sim:sm_80\n{ADD}",
    "compared": "tw.compare(add.compile(block=64), add.compile(block=128))",
}
KINDS = {"targets": ".tw-comparison", "compared": ".tw-comparison"}
LIVE = ("playground", "swizzle", "registers", "sliders", "targets", "compared")


@pytest.fixture
def notebook(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> Iterator[NotebookPage]:
    first = "%load_ext tileworkbench\nimport tileworkbench as tw"
    write_notebook(lab.root / "outputs.ipynb", first, *OUTPUTS.values())
    page = open_notebook("outputs.ipynb")
    page.page.evaluate(AUDIT)
    page.run_all()
    page.page.set_default_timeout(WAIT_MS)
    assert page.cell_errors() == []
    yield page
    page.page.emulate_media(forced_colors="none", contrast="no-preference")
    use_theme(page.page, THEMES[0])


def outputs(notebook: NotebookPage) -> dict[str, Locator]:
    """The outputs by name, with everything unfolded."""
    found = {
        name: notebook.output(number).filter(
            has=notebook.page.locator(KINDS.get(name, ".tw-view" if name in LIVE else "table"))
        )
        for number, name in enumerate(OUTPUTS, 1)
    }
    for name, view in found.items():
        view.wait_for()
        view.evaluate("node => node.querySelectorAll('details').forEach(each => each.open = true)")
    found["swizzle"].get_by_label("Layout A").fill("(4,8:1")
    found["swizzle"].get_by_role("alert").filter(has_text="should stand").wait_for()
    slider = found["sliders"].get_by_role("slider", name="block")
    slider.focus()
    for _ in range(2):  # the last value does not compile
        notebook.page.keyboard.press("ArrowRight")
    found["sliders"].get_by_role("alert").filter(has_text="262144 bytes").wait_for()
    return found


def test_outputs_are_readable_and_named(notebook: NotebookPage) -> None:
    page, views, found = notebook.page, outputs(notebook), {}
    for theme in THEMES:
        use_theme(page, theme)
        found[theme] = {name: faults(view, "contrast") for name, view in views.items()}
    use_theme(page, THEMES[0])
    for wanted in ({"contrast": "more"}, {"forced_colors": "active"}):
        page.emulate_media(**wanted)
        found[str(wanted)] = {name: faults(view, "contrast") for name, view in views.items()}
        page.emulate_media(contrast="no-preference", forced_colors="none")
    for name, view in views.items():
        kinds = ("names", "keys", "focus") if name in LIVE else ("names",)
        found.setdefault("names and keys", {})[name] = faults(view, *kinds)
        if name in LIVE:
            found.setdefault("reached", {})[name] = reached_by_tab(page, view)
    assert [(kind, *each) for kind, all in found.items() for each in all.items() if each[1]] == []
    assert (notebook.errors, notebook.outside) == ([], [])
