"""Below the error of a pass: the passes so far, in what the notebook saves."""

from __future__ import annotations

import pytest
from IPython.utils.capture import capture_output

from tests.magics.notebook import MATMUL, Notebook

LARGE = "-t sim:sm_80 -D M=256 -D N=256 -D K=256 -D BLOCK=128"


def shown(notebook: Notebook, cell: str) -> list[dict[str, str]]:
    """The data of the outputs that a cell displays."""
    with capture_output() as captured:
        notebook.shell.run_cell(cell)
    return [output.data for output in captured.outputs]


def test_the_program_that_the_pass_was_given(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = f"%%tile {LARGE}{MATMUL}"
    assert shown(notebook, cell) == []  # a terminal has the error alone
    monkeypatch.setattr("tileworkbench.viz.model.bundle.in_notebook", lambda: True)
    (data,) = shown(notebook, cell)
    assert data["text/plain"].startswith("matmul for sim:sm_80: pass ")
    assert data["text/plain"].endswith(", plan_shared_memory, failed")
    page = data["text/html"]
    assert page.index("with T.Kernel(2, 2") < page.index("the block needs 262144 bytes")
    assert "<details" in page and "<details open" not in page


def test_a_plain_cell_has_it_too_and_other_errors_do_not(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tileworkbench.viz.model.bundle.in_notebook", lambda: True)
    page = "tw.kernels.matmul(256, 256, 256, 'float16', block_K=64, num_stages=6)"
    notebook.run("import tileworkbench as tw, tileworkbench.kernels")
    (data,) = shown(notebook, f"tw.compile({page}, target='sim:sm_80')")
    assert "plan_shared_memory" in data["text/plain"]
    assert shown(notebook, "1 / 0") == []
    assert shown(notebook, "tw.compile(3)") == []
    notebook.run("%unload_ext tileworkbench")
    assert shown(notebook, f"tw.compile({page}, target='sim:sm_80')") == []
