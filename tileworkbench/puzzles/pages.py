"""What puzzles show: the list, a task, a hint, a solution, a right answer; text, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.puzzles.judge import Verdict
from tileworkbench.puzzles.progress import Progress
from tileworkbench.puzzles.task import HINTS, Task, all_tasks
from tileworkbench.viz.model.html import FAINT, GOOD, panel, table, tag, text, tone

_STATES = {"solved": "✓", "tried": "…", "open": " "}


@dataclass(frozen=True, slots=True, repr=False)
class PuzzleList:
    """Every puzzle with its state."""

    progress: Progress

    def _states(self) -> list[tuple[Task, str]]:
        entries = ((task, self.progress.of(task.number)) for task in all_tasks().values())
        return [
            (task, "solved" if entry.solved else "tried" if entry.attempts else "open")
            for task, entry in entries
        ]

    def __repr__(self) -> str:
        states = self._states()
        rows = [f"{_STATES[state]} {task.number}  {task.title}" for task, state in states]
        return "\n".join([self._head(states), *rows, _WAYS])

    def _head(self, states: list[tuple[Task, str]]) -> str:
        solved = sum(state == "solved" for _, state in states)
        return f"{solved} of {len(states)} puzzles solved"

    def _repr_html_(self) -> str:
        states = self._states()
        rows = [
            (text(task.number), text(task.title), _chip(state), text(_tried(self.progress, task)))
            for task, state in states
        ]
        ways = tag("div", f"{FAINT};margin-top:6px", text(_WAYS))
        return panel(tag("b", "", text(self._head(states))), table(rows), ways)


_WAYS = "'%tile puzzle 01' shows a task and makes a cell for it; '%tile hint 01' gives hints"


def _chip(state: str) -> str:
    style = "border-radius:9px;padding:0 7px"
    return tag("span", f"{style};{tone(GOOD)}" if state == "solved" else FAINT, text(state))


def _tried(progress: Progress, task: Task) -> str:
    entry = progress.of(task.number)
    said = []
    if entry.attempts:
        said.append("1 attempt" if entry.attempts == 1 else f"{entry.attempts} attempts")
    if entry.hints:
        said.append(f"{entry.hints} of {HINTS} hints")
    if entry.shown:
        said.append("solution seen")
    return ", ".join(said)


@dataclass(frozen=True, slots=True, repr=False)
class _Page:
    """A page of Markdown, which notebooks draw and terminals print."""

    task: Task

    def _markdown(self) -> str:
        raise NotImplementedError

    def _repr_markdown_(self) -> str:
        return self._markdown()

    def __repr__(self) -> str:
        return self._markdown().strip()


class Statement(_Page):
    """What a puzzle asks for."""

    __slots__ = ()

    def _markdown(self) -> str:
        task = self.task
        edges = "; ".join(_shape(shape) for shape in task.edges)
        judged = f"Judged for {edges}, and for random shapes"
        if task.expects:
            judged += f"; the code must have {', '.join(f'`{each}`' for each in task.expects)}"
        where = f" on `{task.target}`" if task.target != "cpu" else ""
        return (
            f"### Puzzle {task.number}: {task.title}\n\n{task.text.strip()}\n\n"
            f"```python\n{task.spec.strip()}\n```\n\n{judged}{where}. The cell below is yours to "
            f"complete; `%tile hint {task.number}` helps."
        )


@dataclass(frozen=True, slots=True, repr=False)
class Hint(_Page):
    """One of the hints of a puzzle."""

    level: int

    def _markdown(self) -> str:
        more = f" Another: `%tile hint {self.task.number}`." if self.level < HINTS else ""
        text = self.task.hints[self.level - 1].strip()
        return f"**Hint {self.level} of {HINTS}**, puzzle {self.task.number}: {text}{more}"


class Solution(_Page):
    """Why the solution is as it is; the code is in the cell that is made below."""

    __slots__ = ()

    def _markdown(self) -> str:
        number, why = self.task.number, self.task.why.strip()
        return f"**Solution of puzzle {number}**, in the cell below: {why}"


@dataclass(frozen=True, slots=True, repr=False)
class Solved:
    """What a right answer gets to see."""

    verdict: Verdict
    progress: Progress

    def __repr__(self) -> str:
        return "\n".join([self._head(), self._tried(), *self._rest()])

    def _head(self) -> str:
        task = self.verdict.task
        return f"puzzle {task.number} solved: {task.title}"

    def _tried(self) -> str:
        shapes = "; ".join(map(_shape, self.verdict.shapes))
        return f"right for {shapes}; every block simulated: no race, nothing outside a tile"

    def _rest(self) -> list[str]:
        return [*self.verdict.facts, self._next()]

    def _next(self) -> str:
        later = [task for task in all_tasks().values() if not self.progress.of(task.number).solved]
        after = [task for task in later if task.number > self.verdict.task.number]
        if not later:
            return "all puzzles are solved"
        task = (after or later)[0]
        return f"next: '%tile puzzle {task.number}', {task.title}"

    def _repr_html_(self) -> str:
        head = tag("b", f"{tone(GOOD)};border-radius:9px;padding:1px 8px", text(self._head()))
        return panel(head, *_lines([self._tried(), *self._rest()]))


def _lines(texts: Iterable[str]) -> list[str]:
    return [tag("div", "margin-top:4px", text(each)) for each in texts]


def _shape(shape: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in shape.items())
