"""Kernels for AMD's GPUs in the views of layouts, pipelines and code, in a real JupyterLab."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.browser.conftest import ARTEFACTS
from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

LAYOUTS, PIPELINE, CODE = 1, 2, 3
CELLS = [
    "import tileworkbench as tw\n"
    "from tileworkbench.kernels import matmul\n"
    "page = matmul(256, 256, 256, 'float16', trans_B=True, num_stages=2)\n"
    "kernel = tw.compile(page, target='sim:gfx942')",
    "kernel.show('layouts:C_local')",
    "kernel.show('pipeline')",
    "kernel.show('code')",
]


@pytest.mark.slow
def test_views_of_a_kernel_for_amd(
    lab: LabServer, open_notebook: Callable[[str], NotebookPage]
) -> None:
    """C_local is drawn by lanes of a wave of 64 with the MFMA outlined; loads wait in registers."""
    write_notebook(lab.root / "amd.ipynb", *CELLS)
    notebook = open_notebook("amd.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.run_all()
    assert notebook.cell_errors() == []
    layouts = notebook.output(LAYOUTS).locator(".tw-layouts[data-painted=true]")
    assert layouts.get_by_label("mfma.m32n32k16 (2 instructions) C 32×32").is_checked()
    layouts.get_by_text("128 threads × 128 slots").wait_for()
    chart = notebook.output(PIPELINE).locator("svg").first
    for text in ("A_ahead", "B_ahead", "copy under way", "waiting"):
        chart.get_by_text(text, exact=True).first.wait_for()
    notebook.output(CODE).get_by_text("mfma_32x32x16_f16").first.wait_for()
    notebook.screenshot(ARTEFACTS / "amd-views.png")
    assert (notebook.errors, notebook.outside) == ([], [])
