"""A puzzle as it stands in its file under `tasks/`."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass

Array = np.ndarray[Any, Any]
Shape = Mapping[str, int]

FOLDER = Path(__file__).parent / "tasks"
HINTS = 3
_RANDOM_SHAPES = 2


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """The solution with `old` replaced by `new`: what is wrong, the line of the cell (the magic's
    is 1) that the judge must name, and words that it must say.
    """

    name: str
    old: str
    new: str
    line: int
    says: str


@dataclass(frozen=True)
class Task:
    """One puzzle.

    `spec` is Python that defines `spec`, numpy arrays to the expected results; `inputs` defines
    `inputs(rng, N, ...)`, a shape to the arrays of a call. `edges` are shapes that are always
    tried, `random` bounds of others: lowest, highest, and what it is a multiple of. `expects` are
    conditions of `Kernel.expect`, and `view` is what shows that one does not hold.
    """

    number: str
    title: str
    text: str
    target: str
    spec: str
    inputs: str
    edges: tuple[Shape, ...]
    random: Mapping[str, Sequence[int]]
    expects: tuple[str, ...]
    view: str
    skeleton: str
    hints: tuple[str, ...]
    solution: str
    why: str
    wrong: tuple[WrongAnswer, ...]

    @property
    def head(self) -> str:
        """The first line of a cell that answers it."""
        return f"%%tile puzzle {self.number}"

    @functools.cached_property
    def reference(self) -> Callable[..., Any]:
        """The specification as a function."""
        return self._function(self.spec, "spec")

    def cases(self) -> Iterator[tuple[Shape, tuple[Array, ...]]]:
        """(shape, arrays) of each call that an answer is judged by; the same ones every time."""
        make, random = self._function(self.inputs, "inputs"), np.random.default_rng(7)
        for shape in (*self.edges, *(self._random_shape(random) for _ in range(_RANDOM_SHAPES))):
            yield shape, tuple(make(random, **shape))

    def _random_shape(self, random: np.random.Generator) -> Shape:
        return {
            name: int(random.integers(low // step, high // step + 1)) * step
            for name, (low, high, step) in self.random.items()
        }

    def _function(self, text: str, name: str) -> Callable[..., Any]:
        names: dict[str, Any] = {"np": np}
        exec(compile(text, f"<{name} of puzzle {self.number}>", "exec"), names)
        function: Callable[..., Any] = names[name]
        return function

    def wrong_answer(self, wrong: WrongAnswer) -> str:
        """The text of a wrong answer, without the magic's line."""
        return self.solution.replace(wrong.old, wrong.new)


@functools.cache
def all_tasks() -> Mapping[str, Task]:
    """The puzzles by number, in order."""
    return {path.stem[:2]: _read(path) for path in sorted(FOLDER.glob("*.toml"))}


def find_task(number: str) -> Task:
    """The puzzle of that number; "3" is "03". Raises `ArgumentError`."""
    tasks = all_tasks()
    task = tasks.get(number.zfill(2))
    if task is None:
        first, *_, last = tasks
        raise ArgumentError(
            f"there is no puzzle '{number}'; they are {first} to {last}: '%tile puzzle' lists them"
        )
    return task


def _read(path: Path) -> Task:
    fields = tomllib.loads(path.read_text(encoding="utf-8"))
    shapes = fields.pop("shapes")
    return Task(
        number=path.stem[:2],
        edges=tuple(shapes["edges"]),
        random=shapes["random"],
        expects=tuple(fields.pop("expects", ())),
        hints=tuple(fields.pop("hints")),
        wrong=tuple(WrongAnswer(**each) for each in fields.pop("wrong")),
        target=fields.pop("target", "cpu"),
        view=fields.pop("view", ""),
        **fields,
    )
