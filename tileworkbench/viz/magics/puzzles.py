"""`%%tile puzzle` judges a cell; `%tile puzzle`, `hint` and `solution` show the rest."""

from __future__ import annotations

import functools
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.api import Jit, jit
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.puzzles import judge as judging
from tileworkbench.puzzles import pages as shown
from tileworkbench.puzzles.limit import time_limit
from tileworkbench.puzzles.progress import Progress, load_progress
from tileworkbench.puzzles.task import HINTS, Task, find_task
from tileworkbench.viz.magics.errors import shown_from
from tileworkbench.viz.magics.source import bound_names, execute, read_cell


def run_puzzle(shell: InteractiveShell, line: str, cell: str, number: str) -> Any:
    """Judge the kernel of a cell; returns what says that it is right, and raises what is wrong."""
    task, progress = _task(number), load_progress()
    if not cell.strip():
        raise UsageError(
            f"the cell is empty: '%tile puzzle {task.number}' makes one with the skeleton"
        )
    solved = False
    try:
        with shown_from(shell):
            source = read_cell(shell, line, cell)
        with shown_from(shell, source.file), time_limit(judging.SECONDS, source.file):
            execute(shell, source, {}, functools.partial(jit, target=task.target), shell.user_ns)
        with shown_from(shell, source.file):
            verdict = judging.judge(task, _answer(shell, source.tree, task))
        solved = True
    finally:
        progress.note_attempt(task.number, cell, solved)
        _say_trouble(progress)
    return shown.Solved(verdict, progress)


def _answer(shell: InteractiveShell, tree: Any, task: Task) -> Jit:
    """The last kernel of the cell, for the puzzle's target whatever decorates it."""
    namespace = shell.user_ns
    names = [name for name in bound_names(tree) if isinstance(namespace.get(name), Jit)]
    if not names:
        raise UsageError("the cell defines no kernel: a function that uses T.Kernel")
    answer: Jit = namespace[names[-1]]
    if answer.target != task.target:
        answer = namespace[names[-1]] = answer.with_target(task.target)
    return answer


def show_puzzle(shell: InteractiveShell, words: list[str]) -> Any:
    """`%tile puzzle`: the list; `%tile puzzle 03`: the task, and a cell with its skeleton."""
    progress = load_progress()
    _say_trouble(progress)
    if not words:
        return shown.PuzzleList(progress)
    task = _task(_one(words, "puzzle"))
    shell.set_next_input(f"{task.head}\n{task.skeleton.rstrip()}")
    return shown.Statement(task)


def show_hint(shell: InteractiveShell, words: list[str]) -> Any:
    """`%tile hint 03`: the next hint; `%tile hint 03 2`: the second."""
    task, progress = _task(_one(words[:1], "hint")), load_progress()
    level = min(progress.of(task.number).hints + 1, HINTS)
    if len(words) > 1:
        if words[1:] not in (["1"], ["2"], ["3"]):
            raise UsageError(f"there are hints 1 to {HINTS}, not '{' '.join(words[1:])}'")
        level = int(words[1])
    progress.note(task.number, hints=max(level, progress.of(task.number).hints))
    _say_trouble(progress)
    return shown.Hint(task, level)


def show_solution(shell: InteractiveShell, words: list[str]) -> Any:
    """`%tile solution 03`: why it is so, and a cell with it."""
    task, progress = _task(_one(words, "solution")), load_progress()
    progress.note(task.number, shown=True)
    _say_trouble(progress)
    shell.set_next_input(f"{task.head}\n{task.solution.rstrip()}")
    return shown.Solution(task)


def _one(words: list[str], command: str) -> str:
    if len(words) != 1:
        raise UsageError(f"which puzzle? '%tile {command} 03'; '%tile puzzle' lists them")
    return words[0]


def _task(number: str) -> Task:
    try:
        return find_task(number)
    except ArgumentError as error:
        raise UsageError(error.message) from None


def _say_trouble(progress: Progress) -> None:
    if progress.trouble:
        print(progress.trouble)
