"""The list, the tasks, hints and solutions; progress from session to session."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.magics.notebook import Notebook
from tileworkbench.puzzles.pages import PuzzleList
from tileworkbench.puzzles.progress import load_progress
from tileworkbench.puzzles.task import all_tasks, find_task

ADD = find_task("01")


def solve(notebook: Notebook) -> None:
    assert notebook.run(f"{ADD.head}\n{ADD.solution}").error is None


def shown(notebook: Notebook, line: str) -> Any:
    done = notebook.run(line)
    assert done.error is None
    return done.value


def inserted(notebook: Notebook) -> str:
    payload = notebook.shell.payload_manager.read_payload()
    return str(payload[-1]["text"] if payload else notebook.shell.rl_next_input)


def test_the_list_shows_what_is_solved(notebook: Notebook) -> None:
    notebook.run(f"{ADD.head}\n{ADD.skeleton}")
    first, *rows = repr(shown(notebook, "%tile puzzle")).splitlines()
    assert first == f"0 of {len(all_tasks())} puzzles solved"
    assert rows[0] == "… 01  Vector add" and rows[1] == "  02  Rows and columns"
    solve(notebook)
    listed = shown(notebook, "%tile puzzle")
    assert repr(listed).splitlines()[1] == "✓ 01  Vector add"
    html = listed._repr_html_()
    assert "solved" in html and "2 attempts" in html and "<style" not in html


def test_a_task_is_shown_and_makes_a_cell(notebook: Notebook) -> None:
    text = shown(notebook, "%tile puzzle 14")._repr_markdown_()
    task = find_task("14")
    assert text.startswith("### Puzzle 14: Find the bank conflict\n\n")
    assert task.spec.strip() in text and "M=33, N=64" in text
    assert "the code must have `conflicts==0` on `sim:sm_80`" in text
    assert inserted(notebook) == f"%%tile puzzle 14\n{task.skeleton.rstrip()}"


def test_hints_come_one_after_the_other(notebook: Notebook) -> None:
    for level in (1, 2, 3, 3):
        text = repr(shown(notebook, "%tile hint 3"))
        assert text.startswith(f"**Hint {level} of 3**, puzzle 03: ")
        assert ("Another: `%tile hint 03`" in text) == (level < 3)
    assert repr(shown(notebook, "%tile hint 03 1")).startswith("**Hint 1 of 3**")
    assert load_progress().of("03").hints == 3


def test_a_solution_is_shown_and_makes_a_cell(notebook: Notebook) -> None:
    text = repr(shown(notebook, "%tile solution 03"))
    assert text.startswith("**Solution of puzzle 03**, in the cell below: a mask is about places")
    assert inserted(notebook) == f"%%tile puzzle 03\n{find_task('03').solution.rstrip()}"
    assert load_progress().of("03").shown


def test_a_right_answer_says_what_was_tried_and_what_is_next(notebook: Notebook) -> None:
    done = notebook.run(f"{ADD.head}\n{ADD.solution}").value
    head, tried, following = repr(done).splitlines()
    assert head == "puzzle 01 solved: Vector add"
    assert tried.startswith("right for N=128; N=1; N=129; N=1000; N=")
    assert tried.endswith("; every block simulated: no race, nothing outside a tile")
    assert following == "next: '%tile puzzle 02', Rows and columns"
    assert head in done._repr_html_()


def test_progress_is_kept_in_a_file_that_people_can_read(notebook: Notebook, kept: Path) -> None:
    notebook.run(f"{ADD.head}\n{ADD.skeleton}")
    solve(notebook)
    entry = json.loads(kept.read_text())["01"]
    assert entry["attempts"] == 2 and entry["hints"] == 0 and not entry["shown"]
    assert len(entry["solved"]) == len("2026-01-31") and "def add(A, B):" in entry["answer"]
    notebook.run(f"{ADD.head}\n{ADD.skeleton}")  # a later wrong answer takes nothing away
    assert json.loads(kept.read_text())["01"] == entry | {"attempts": 3}
    assert [path.name for path in kept.parent.iterdir()] == ["puzzles.json"]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "it holds no object"),
        ('{"01": 5}', "'01' is no object"),
        ('{"01": {"attempts": "many"}}', "'attempts' of '01' is not understood"),
        ('{"01": {"points": 3}}', "'points' of '01' is not understood"),
    ],
)
def test_a_broken_file_is_a_clear_line(
    notebook: Notebook, kept: Path, text: str, what: str
) -> None:
    kept.write_text(text)
    done = notebook.run(f"{ADD.head}\n{ADD.solution}")
    assert done.error is None and done.out.splitlines()[0] == (
        f"progress is not kept: '{kept}' is broken ({what}); mend or delete it"
    )
    assert kept.read_text() == text  # whatever it is, it stays
    assert repr(PuzzleList(load_progress())).startswith("1 of ")  # in this session


def test_a_folder_that_cannot_be_written_is_a_clear_line(
    notebook: Notebook, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = kept.parent / "a file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWORKBENCH_DATA_DIR", str(blocked / "below"))
    done = notebook.run(f"{ADD.head}\n{ADD.solution}")
    path = blocked / "below" / "puzzles.json"
    assert done.error is None and done.out.splitlines()[0] == (
        f"progress is not kept: '{path}' cannot be read: Not a directory"
    )
    assert "1 of " in notebook.run("%tile puzzle").text


def test_a_read_only_folder_is_a_clear_line(
    notebook: Notebook, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("tempfile.mkstemp", refuse)  # root writes wherever it likes
    done = notebook.run(f"{ADD.head}\n{ADD.solution}")
    assert done.error is None and done.out.splitlines()[0] == (
        f"progress is not kept: '{kept}' cannot be written: Permission denied"
    )
    assert not kept.exists() and load_progress().of("01").solved
