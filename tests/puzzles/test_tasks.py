"""Every puzzle can be solved, and refuses the wrong answers that stand in its file."""

from __future__ import annotations

import re

import pytest

from tests.magics.notebook import Notebook
from tileworkbench.puzzles.task import HINTS, Task, WrongAnswer, all_tasks

TASKS = all_tasks()
# One with a race, one with a mask, one that is judged by its code.
SHOWN = ("05", "07", "14")


def test_there_are_enough_puzzles_and_each_is_complete() -> None:
    assert len(TASKS) >= 16 and list(TASKS) == [f"{n:02}" for n in range(1, len(TASKS) + 1)]
    for task in TASKS.values():
        assert len(task.hints) == HINTS and all(map(str.strip, task.hints))
        assert len(task.wrong) >= 3 and task.title and task.text.strip() and task.why.strip()
        assert task.skeleton.partition("\n")[0] == task.solution.partition("\n")[0]
        for wrong in task.wrong:
            assert task.solution.count(wrong.old) == 1, (task.number, wrong.name)


def test_shapes_are_the_same_every_time_and_hold_edges() -> None:
    for task in TASKS.values():
        first, again = ([shape for shape, _ in task.cases()] for _ in range(2))
        assert first == again and first[: len(task.edges)] == list(task.edges)
        assert len(first) == len(task.edges) + 2
        assert any(1 in shape.values() for shape in first)  # the smallest


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_solution_solves_it(notebook: Notebook, task: Task) -> None:
    done = notebook.run(f"{task.head}\n{task.solution}")
    assert done.error is None, done.text
    assert f"puzzle {task.number} solved: {task.title}" in done.text


def refused(notebook: Notebook, task: Task, wrong: WrongAnswer) -> None:
    done = notebook.run(f"{task.head}\n{task.wrong_answer(wrong)}")
    assert done.error is not None, "it was taken for right"
    assert f"puzzle {task.number}, " in done.text and wrong.says in done.text, done.text
    assert re.search(rf"\blines? (\d+(,| and) )*{wrong.line}\b", done.text), done.text


@pytest.mark.parametrize("number", SHOWN)
def test_wrong_answers_are_refused_with_their_line(notebook: Notebook, number: str) -> None:
    for wrong in TASKS[number].wrong:
        refused(notebook, TASKS[number], wrong)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_every_wrong_answer_is_refused_with_its_line(notebook: Notebook, task: Task) -> None:
    for wrong in task.wrong:
        refused(notebook, task, wrong)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_a_skeleton_is_no_answer(notebook: Notebook, task: Task) -> None:
    done = notebook.run(f"{task.head}\n{task.skeleton}")
    assert done.error is not None and f"puzzle {task.number}, " in done.text
