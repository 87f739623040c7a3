"""`python -m tileworkbench.demo`: what it prints and writes, and what it says when it cannot."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from tileworkbench import demo

SMALL = (
    "%load_ext tileworkbench\nimport torch",
    """\
%%tile product -t cpu --check torch.matmul -o kernel
def product(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32")):
    C = T.empty((64, 64), "float32")
    with T.Kernel(2, 2, threads=128) as (bx, by):
        C_local = T.alloc_fragment((32, 32), "float32")
        A_shared = T.alloc_shared((32, 64), "float32")
        B_shared = T.alloc_shared((64, 32), "float32")
        T.clear(C_local)
        T.copy(A[by * 32, 0], A_shared)
        T.copy(B[0, bx * 32], B_shared)
        T.gemm(A_shared, B_shared, C_local)
        T.copy(C_local, C[by * 32, bx * 32])
    return C""",
    "from tileworkbench.bench.timing import BenchResult\n"
    "ours = BenchResult('product', (0.5, 0.25, 1.0), flops=2.0e6)\n"
    "torch_ms = 0.25",
)


def write(path: Path, *sources: str) -> Path:
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_the_quickstart_defines_what_the_report_needs() -> None:
    notebook = nbformat.read(demo.QUICKSTART, as_version=4)
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assigned = {
        target.id
        for source in sources
        if not source.startswith("%")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert {"ours", "torch_ms"} <= assigned
    magic = next(source for source in sources if source.startswith("%%tile"))
    assert "--check torch.matmul -o kernel" in magic.splitlines()[0]


def test_runs_a_notebook_and_reports(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notebook, page = write(tmp_path / "small.ipynb", *SMALL), tmp_path / "page.html"

    status = demo.main([str(page), "--notebook", str(notebook)])

    output, progress = capfd.readouterr()
    lines = output.splitlines()
    assert status == 0, progress
    assert len(lines) == 4
    assert lines[0].startswith("<TileKernel product cpu grid=2x2 threads=128 smem=16.0KiB | ")
    assert lines[0].endswith("check ok>")
    assert lines[1].startswith("check: largest error ") and " against torch, tolerance " in lines[1]
    assert lines[2] == "speed: 4 GFLOP/s, torch 8 GFLOP/s (0.50 times torch)"
    assert lines[3] == f"page:  {page}"
    assert "<title>product" in page.read_text(encoding="utf-8")
    assert progress.splitlines() == [
        "cell 1: %load_ext tileworkbench",
        "cell 2: %%tile product -t cpu --check torch.matmul -o kernel",
        "cell 3: from tileworkbench.bench.timing import BenchResult",
    ]
    assert nbformat.read(notebook, as_version=4).cells[0].outputs == []  # the notebook stays as is


def test_says_which_cell_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    notebook = write(tmp_path / "bad.ipynb", "good = 1", "good / 0")
    assert demo.main([str(tmp_path / "page.html"), "--notebook", str(notebook)]) == 1
    output, problem = capfd.readouterr()
    assert output == ""
    assert "\nerror: cell 2 failed\n" in problem
    assert "ZeroDivisionError" in problem and "nbclient" not in problem
    assert not (tmp_path / "page.html").exists()


def test_says_that_the_kernel_died(tmp_path: Path) -> None:
    notebook = write(tmp_path / "dies.ipynb", "import os\nos._exit(3)")
    with pytest.raises(demo.DemoError) as error:
        demo.run_notebook(notebook, tmp_path / "page.html")
    assert str(error.value) == "the kernel process died in cell 1"


def test_says_that_a_cell_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "CELL_SECONDS", 1)
    notebook = write(tmp_path / "long.ipynb", "import time\ntime.sleep(60)")
    with pytest.raises(demo.DemoError) as error:
        demo.run_notebook(notebook, tmp_path / "page.html")
    assert str(error.value) == "cell 1 took more than 1 s"


def test_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(demo.DemoError) as error:
        demo.run_notebook(tmp_path / "none.ipynb", tmp_path / "page.html")
    assert str(error.value) == (
        f"there is no notebook '{tmp_path / 'none.ipynb'}': run the demo in a checkout"
    )
    notebook = write(tmp_path / "small.ipynb", "1")
    with pytest.raises(demo.DemoError) as error:
        demo.run_notebook(notebook, tmp_path / "nowhere" / "page.html")
    assert str(error.value) == (f"there is no folder '{tmp_path / 'nowhere'}' to write the page to")
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    with pytest.raises(demo.DemoError) as error:
        demo.run_notebook(notebook, tmp_path / "page.html")
    assert str(error.value) == (
        "'ipykernel' is not installed; try pip install 'tileworkbench[lab]'"
    )


@pytest.mark.slow
def test_the_quickstart_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tileworkbench.demo", "page.html"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("check ok>")
    assert (tmp_path / "page.html").stat().st_size > 10_000
