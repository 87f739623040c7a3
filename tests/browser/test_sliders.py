"""Sliders over a kernel's constants in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

CELL = """%%tile -t sim:sm_80 --slide block=64,128,65536
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


def test_a_move_compiles_anew_and_a_refusal_leaves_the_card(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    write_notebook(lab.root / "sl.ipynb", "%load_ext tileworkbench", CELL)
    notebook = open_notebook("sl.ipynb")
    notebook.run_all()
    assert notebook.cell_errors() == []
    notebook.page.set_default_timeout(WAIT_MS)
    view = notebook.output(1)
    view.get_by_role("tab", name="Shared memory").click()
    slider = view.get_by_role("slider", name="block")
    slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    view.get_by_text("block=128").wait_for()
    view.get_by_text("tile 512 B").wait_for()  # the open view follows
    slider.focus()
    notebook.page.keyboard.press("ArrowRight")
    message = view.get_by_role("alert").filter(has_text="the block needs 262144 bytes")
    message.wait_for()
    assert view.get_by_text("block=128").is_visible()
    assert (notebook.errors, notebook.outside) == ([], [])
