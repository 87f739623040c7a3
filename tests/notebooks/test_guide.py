"""The committed notebooks: their shape here, their outputs by nbval in `make test`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELLS = 15
MEGABYTE = 1 << 20
WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> nbformat.NotebookNode:
    return nbformat.read(request.param, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def bundles(notebook: nbformat.NotebookNode) -> Iterator[nbformat.NotebookNode]:
    for cell in code_cells(notebook):
        for output in cell.outputs:
            if "data" in output:
                yield output.data


def test_is_valid_and_short(notebook: nbformat.NotebookNode) -> None:
    nbformat.validate(notebook)
    assert len(notebook.cells) <= CELLS
    assert len(nbformat.writes(notebook)) < MEGABYTE


def test_second_cell_runs_code(notebook: nbformat.NotebookNode) -> None:
    assert [cell.cell_type for cell in notebook.cells[:2]] == ["markdown", "code"]


def test_was_run_from_top_to_bottom(notebook: nbformat.NotebookNode) -> None:
    counts = [cell.execution_count for cell in code_cells(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert notebook.metadata.kernelspec.name == "python3"


def test_reads_without_a_kernel(notebook: nbformat.NotebookNode) -> None:
    """Widgets and their stored state would hide the HTML in exports."""
    assert "widgets" not in notebook.metadata
    for data in bundles(notebook):
        assert "text/plain" in data
        assert WIDGET not in data
        for stripped in ("<script", "<style", "<svg", "<iframe", "http://", "https://"):
            assert stripped not in data.get("text/html", "")


def test_names_no_path_of_the_machine_that_ran_it(notebook: nbformat.NotebookNode) -> None:
    text = "\n".join(str(cell.outputs) for cell in code_cells(notebook))
    assert [place for place in ("/home/", "/root/", "/tmp/", "/work/") if place in text] == []


def test_holds_nothing_that_changes_with_every_run(notebook: nbformat.NotebookNode) -> None:
    assert [cell.id for cell in notebook.cells if "execution" in cell.metadata] == []


def test_the_readme_shows_the_quickstart() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    quickstart = nbformat.read(ROOT / "notebooks" / "01_quickstart.ipynb", as_version=4)
    kernel = next(cell.source for cell in code_cells(quickstart) if "%%tile" in cell.source)
    assert blocks[1].split("\n", 1)[1].rstrip() == kernel.split("\n", 1)[1]
    picture = re.search(r"!\[.*?\]\((.*?)\)", readme)
    assert picture is not None
    assert (ROOT / picture[1]).read_bytes().startswith(b"\x89PNG")
    assert (ROOT / picture[1]).stat().st_size < 300_000


KERNEL = """%%tile --bench 1
def scale(A: T.Tensor((64, 32), "float32")):
    B = T.empty((64, 32), "float32")
    with T.Kernel(2, threads=32) as block:
        for i, j in T.Parallel(32, 32):
            B[block * 32 + i, j] = A[block * 32 + i, j] * 2.0
    return B"""
SOURCES = ("%load_ext tileworkbench", KERNEL, "%tile bench scale", "print(2 + 2)")


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A notebook that measures, with its outputs; the last of them made wrong."""
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    cells = [nbformat.v4.new_code_cell(source) for source in SOURCES]
    content = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbclient.NotebookClient(content, timeout=120).execute()
    content.cells[-1].outputs[0].text = "5\n"
    file = tmp_path_factory.mktemp("executed") / "measures.ipynb"
    nbformat.write(content, file)
    return file


@pytest.mark.parametrize("sanitized", [pytest.param(True, marks=pytest.mark.slow), False])
def test_nbval_finds_a_wrong_output_and_no_other(executed: Path, sanitized: bool) -> None:
    """A strict run, as `make test` makes it and without the file: measurements leave no trace."""
    sanitize = ROOT / "tileworkbench" / "nbval_sanitize.cfg"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval"),
            *("--nbval-current-env", str(executed)),
            *(("--nbval-sanitize-with", str(sanitize)) if sanitized else ()),
        ],
        cwd=executed.parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 3 passed" in done.stdout, done.stdout
    assert "::Cell 3 " in done.stdout
