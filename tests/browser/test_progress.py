"""A bar of progress in a real JupyterLab: nothing of it is saved, and no other output is lost."""

from __future__ import annotations

from collections.abc import Callable

import nbformat
from playwright.sync_api import expect

from tests.browser.lab import LabServer, NotebookPage

SETUP = """\
import numpy as np
import tileworkbench as tw
import tileworkbench.language as T
from tileworkbench.viz.magics import progress
seen = []
show = progress.Bar.show
progress.Bar.show = lambda self, *at: (seen.append(at), show(self, *at))
"""
TUNED = """\
print("before")
@tw.autotune(configs=[{"block": n} for n in (16, 32, 64)], warmup=0, rep=0.1)
@tw.jit
def double(A, block: int = 8):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), T.float32)
    with T.Kernel(T.ceildiv(N, block), threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] * 2
    return B
out = double(np.ones(256, np.float32))
print("after", len(seen), seen[-1])
"""


def test_a_bar_leaves_nothing(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> None:
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(text) for text in (SETUP, TUNED, "double.results")]
    path = lab.root / "bar.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), path)
    notebook = open_notebook("bar.ipynb")
    notebook.page.set_default_timeout(20_000)
    notebook.run_all()
    assert notebook.cell_errors() == []
    expect(notebook.output(1).first).to_contain_text("before")
    expect(notebook.output(2)).to_contain_text("block")
    notebook.execute("docmanager:save")
    saved = nbformat.read(path, as_version=4)
    outputs = saved.cells[1].outputs
    texts = "".join(output.get("text", "") for output in outputs)
    assert "before" in texts and "after 3 (2, 3)" in texts
    assert [dict(output["data"]) for output in outputs if "data" in output] == [{}]
    assert (notebook.errors, notebook.outside) == ([], [])
