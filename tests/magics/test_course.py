"""`%tile course`: the list of chapters, and a copy of them beside the notebook."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.magics.notebook import Notebook
from tileworkbench.viz.magics import course
from tileworkbench.viz.model.chapters import CHAPTERS, pointer
from tileworkbench.viz.model.views import VIEWS

CHECKOUT = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_chapters_are_listed(notebook: Notebook) -> None:
    lines = notebook.run("%tile course").out.splitlines()
    assert lines[0].startswith(" 1  A first kernel  ")
    assert len(lines) == len(CHAPTERS) + 1
    assert lines[-1] == "'%tile course 7' puts chapter 7 beside your notebook"


def test_every_view_has_its_chapter() -> None:
    explained = [view for chapter in CHAPTERS for view in chapter.views]
    assert sorted(explained) == sorted(VIEWS)
    assert pointer("banks") == (
        "Chapter 7 of the course explains this, 'Shared memory, swizzles and banks': %tile course 7"
    )


@pytest.mark.parametrize("word", ["1", "quickstart", "01_quickstart", "passes"])
def test_a_chapter_is_put_beside_the_notebook(notebook: Notebook, here: Path, word: str) -> None:
    done = notebook.run(f"%tile course {word}")
    assert done.text.endswith("chapter 1, 'A first kernel': course/01_quickstart.ipynb")
    assert 'href="course/01_quickstart.ipynb"' in done.value._repr_html_()
    copied = {path.name for path in (here / "course").iterdir()}
    assert copied == {path.name for path in CHECKOUT.glob("*.ipynb")}


def test_what_the_reader_has_written_stays(notebook: Notebook, here: Path) -> None:
    notebook.run("%tile course 1")
    mine = here / "course" / "01_quickstart.ipynb"
    mine.write_text("mine")
    notebook.run("%tile course 2")
    assert mine.read_text() == "mine"


def test_in_a_folder_with_the_course_nothing_is_copied(notebook: Notebook, here: Path) -> None:
    notebook.run("%tile course 1")
    os.chdir(here / "course")
    assert notebook.run("%tile course 2").text.endswith("'Layouts': 02_layouts.ipynb")
    assert not (here / "course" / "course").exists()


def test_what_cannot_be_done_is_said(
    notebook: Notebook, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert notebook.run("%tile course bank").text == (
        "UsageError: there is no chapter 'bank'; did you mean 'banks'?"
    )
    assert notebook.run("%tile course 99").text.startswith(
        "UsageError: there is no chapter '99'; one of quickstart, passes, layouts, roofline, gpu_"
    )
    assert notebook.run("%tile course 1 2").text == "UsageError: one chapter at a time, not '1 2'"
    (here / "course").write_text("a file")
    assert notebook.run("%tile course 1").text == (
        f"UsageError: the course cannot be copied to '{here / 'course'}' (File exists): "
        "'%cd' to a folder that you may write to"
    )
    monkeypatch.setattr(course, "_PACKAGE", here / "package")
    assert notebook.run("%tile course 1").text == (
        f"UsageError: the course is not in '{here / 'package'}': install tileworkbench again"
    )
