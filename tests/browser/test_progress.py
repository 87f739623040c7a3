"""A bar of progress in a real JupyterLab: nothing of it is saved, and no other output is lost."""

from __future__ import annotations

import re
from collections.abc import Callable

import nbformat
from playwright.sync_api import expect

from tests.browser.lab import WAIT_MS, LabServer, NotebookPage, write_notebook

SETUP = """\
%load_ext tileworkbench
import numpy as np
import tileworkbench as tw
import tileworkbench.language as T
"""
SWEPT = """\
%%tile -o swept --sweep block=16,32,64 size=256,512
def add(A, block: int = 8, size: int = 256):
    A: T.Tensor((size,), "float32")
    B = T.empty((size,), "float32")
    with T.Kernel(size // block, threads=32) as bx:
        for i in T.Parallel(block):
            B[bx * block + i] = A[bx * block + i] + 1
    return B
"""
# What bars said, and below which cell.
WATCH = """() => {
  window.said = [];
  new MutationObserver(() => {
    for (const bar of document.querySelectorAll(".tw-progress")) {
      const cells = [...document.querySelectorAll(".jp-Notebook .jp-Cell")];
      const text = `${cells.indexOf(bar.closest(".jp-Cell"))}: ${bar.innerText.trim()}`;
      if (window.said.at(-1) !== text) window.said.push(text);
    }
  }).observe(document.body, { childList: true, subtree: true, characterData: true });
}"""
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
print("after")
"""

BISECT = """\
from tileworkbench.kernels import softmax
one = tw.compile(softmax(8, 32), target="sim:sm_80")
%tile bisect one"""


def test_a_bar_leaves_nothing(lab: LabServer, open_notebook: Callable[[str], NotebookPage]) -> None:
    path = lab.root / "bar.ipynb"
    write_notebook(path, SETUP, TUNED, SWEPT, "double.results", BISECT)
    notebook = open_notebook("bar.ipynb")
    notebook.page.set_default_timeout(WAIT_MS)
    notebook.page.evaluate(WATCH)
    notebook.run_all()
    assert notebook.cell_errors() == []
    expect(notebook.output(1).first).to_contain_text("before")
    expect(notebook.output(2)).to_contain_text("block")
    expect(notebook.page.locator(".tw-progress")).to_have_count(0)
    said = notebook.page.evaluate("window.said")
    assert {"1: 2 of 3", "2: 5 of 6"} <= set(said)
    numbers = [[int(number) for number in re.findall(r"\d+", each)] for each in said]
    assert numbers == sorted(numbers)
    stages = len(re.findall(r" of (\d+)", " ".join(each for each in said if each[0] == "4")))
    assert stages > 2  # of the search for the pass that breaks a result
    expect(notebook.output(4)).to_contain_text("stages agree")
    notebook.execute("docmanager:save")
    tuned, swept = nbformat.read(path, as_version=4).cells[1:3]
    assert {output.output_type for output in tuned.outputs} == {"stream"}
    assert "".join(output.text for output in tuned.outputs) == "before\nafter\n"
    assert [output.output_type for output in swept.outputs] == ["execute_result"]
    assert (notebook.errors, notebook.outside) == ([], [])
