"""What holds for every chapter of the course; that its outputs are today's, nbval checks."""

from __future__ import annotations

import ast
import difflib
import re

import nbformat
import pytest

from tests.notebooks.index import NOTEBOOKS, contents
from tileworkbench.viz.model.chapters import CHAPTERS, INDEX, Chapter

PRESENT = [chapter for chapter in CHAPTERS if (NOTEBOOKS / chapter.file).exists()]
# Chapters show what users write, so they import what users import.
PUBLIC = ("tileworkbench", "tileworkbench.language", "tileworkbench.kernels")
LINK = re.compile(r"\]\(([^)#]+?)(?:#[^)]*)?\)")


@pytest.fixture(params=PRESENT, ids=lambda chapter: chapter.name)
def chapter(request: pytest.FixtureRequest) -> Chapter:
    return request.param


@pytest.fixture
def cells(chapter: Chapter) -> list[nbformat.NotebookNode]:
    return nbformat.read(NOTEBOOKS / chapter.file, as_version=4).cells


def tagged(cells: list[nbformat.NotebookNode], tag: str) -> nbformat.NotebookNode:
    (found,) = [cell for cell in cells if tag in cell.metadata.get("tags", [])]
    return found


def failed(cell: nbformat.NotebookNode) -> bool:
    return any(output.output_type == "error" for output in cell.outputs)


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line for line in lines if line[0] in "-+"]


def test_every_notebook_is_in_the_table() -> None:
    files = {path.name for path in NOTEBOOKS.glob("*.ipynb")} - {INDEX}
    assert files - {chapter.file for chapter in CHAPTERS} == set()
    assert [each.number for each in CHAPTERS] == list(range(1, len(CHAPTERS) + 1))


def test_the_index_lists_the_chapters() -> None:
    index = nbformat.read(NOTEBOOKS / INDEX, as_version=4)
    assert contents() in [cell.source for cell in index.cells], (
        "the list of chapters has changed: python -m tests.notebooks.index"
    )


def test_title_is_that_of_the_contents(
    chapter: Chapter, cells: list[nbformat.NotebookNode]
) -> None:
    assert cells[0].source.splitlines()[0] == f"# {chapter.title}"


def test_imports_are_public(cells: list[nbformat.NotebookNode]) -> None:
    found = set()
    for cell in cells:
        text = "\n".join(re.findall(r"^\s*(?:import|from) .*$", cell.source, re.M))
        if cell.cell_type != "code":
            continue
        for node in ast.walk(ast.parse("\n".join(map(str.strip, text.splitlines())))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
    ours = {name for name in found if name.startswith("tileworkbench")}
    assert ours - set(PUBLIC) == set()


def test_the_question_fails_and_one_line_answers_it(cells: list[nbformat.NotebookNode]) -> None:
    """Saved outputs are those of a run: nbval compares them."""
    question, answer = tagged(cells, "question"), tagged(cells, "answer")
    assert "raises-exception" in question.metadata.tags and failed(question)
    assert "raises-exception" not in answer.metadata.tags and not failed(answer)
    assert answer.metadata.jupyter.source_hidden
    removed, added = changed_lines(question.source, answer.source)
    assert (removed[0], added[0]) == ("-", "+")
    place = cells.index(question)
    assert cells[place + 1] is answer
    assert cells[place - 1].source.startswith("### Your turn\n")


def test_nothing_else_fails(cells: list[nbformat.NotebookNode]) -> None:
    code = [cell for cell in cells if cell.cell_type == "code"]
    expected = [cell for cell in code if "raises-exception" in cell.metadata.get("tags", [])]
    assert [cell for cell in code if failed(cell)] == expected
    assert cells[1].cell_type == "code" and not failed(cells[1])


def test_ends_on_a_figure(cells: list[nbformat.NotebookNode]) -> None:
    last = [cell for cell in cells if cell.cell_type == "code"][-1]
    assert len(cells) - cells.index(last) <= 2, "a caption may follow, no more"
    data = [output.data for output in last.outputs if "data" in output]
    assert any("image/png" in each or "text/html" in each for each in data)


def test_links_lead_somewhere(cells: list[nbformat.NotebookNode]) -> None:
    links = {m for c in cells if c.cell_type == "markdown" for m in LINK.findall(c.source)}
    local = {link for link in links if not link.startswith("http")}
    assert INDEX in local
    chapters = {chapter.file for chapter in CHAPTERS}
    assert {link for link in local - chapters if not (NOTEBOOKS / link).exists()} == set()


def test_shows_the_views_that_send_readers_here(
    chapter: Chapter, cells: list[nbformat.NotebookNode]
) -> None:
    """A view names its chapter (see `chapters.pointer`), and the chapter shows the view."""
    text = "\n".join(cell.source for cell in cells)
    shown = re.compile(r"""show\(["'](\w+)|--show[= ](\S+)|%tile show \w+ (\w+)""")
    names = {name for found in shown.findall(text) for name in ",".join(found).split(",")}
    if re.search(r"^%%tile .*(-a\b|--annotate)", text, re.M):
        names.add("source")
    assert set(chapter.views) - names == set()
