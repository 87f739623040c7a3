"""The points of a sweep, in processes of their own or on an executor's machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileworkbench.api import Recipe
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.tuning.crews import Crew, Task, label_of, run_courses
from tileworkbench.tuning.measuring import (
    Job,
    Outcome,
    describe_configuration,
    measure_configuration,
    said,
)
from tileworkbench.workbench.inputs import make_inputs

if TYPE_CHECKING:
    from tileworkbench.tuning.sweep import SweepPoint


class SweepCourse:
    """The points of a sweep of a kernel as one kind of machine compiles and measures them.

    Points that were compiled already are measured only. `rounds` is as for a `Job`, None to measure
    nothing.
    """

    def __init__(
        self,
        kernel: str,
        crew: Crew,
        points: Sequence[SweepPoint],
        inputs: Sequence[Any] | None,
        rounds: int | None,
    ) -> None:
        self.crew, self.points = crew, [replace(point, machine=crew.name) for point in points]
        self._kernel, self._rounds = kernel, rounds
        self._inputs = None if inputs is None else tuple(inputs)
        self._left = [place for place, point in enumerate(points) if not point.error]

    def next_task(self) -> tuple[int, Task] | None:
        """The next point that has a program."""
        while self._left:
            place = self._left.pop(0)
            kernel, recipe, inputs = (
                self.points[place].kernel,
                self.points[place].recipe,
                self._inputs,
            )
            if kernel is not None:
                recipe = Recipe.of(kernel)
            assert recipe is not None
            if self._rounds is None:
                return place, (describe_configuration, (recipe, self.crew.setting))
            try:
                inputs = tuple(make_inputs(recipe.program)) if inputs is None else inputs
            except ArgumentError as error:
                self.take(place, Outcome(error=said(error)))
                continue
            setting, rounds = self.crew.setting, self._rounds
            job = Job(recipe, inputs, setting, rounds=rounds, is_described=kernel is None)
            return place, (measure_configuration, (job,))
        return None

    def label(self, number: int) -> str:
        """What is done with a point."""
        verb = "compile" if self._rounds is None else "measure"
        return label_of(verb, self._kernel, self.points[number].config)

    def wants(self, number: int) -> bool:
        """All are wanted."""
        return True

    def take(self, place: int, outcome: Outcome) -> None:
        """Note what came of a point."""
        made = replace(self.points[place], time_us=1e3 * outcome.latency, error=outcome.error)
        self.points[place] = made if outcome.facts is None else made.with_facts(outcome.facts)


def run_points(
    courses: Sequence[SweepCourse], before: int, progress: Callable[[int, int], None] | None
) -> bool:
    """Do what courses have to do, after so many steps; whether Ctrl-C ended that."""
    total = sum(len(course.points) for course in courses)
    try:
        with closing(run_courses(courses)) as outcomes:
            for done, (at, place, outcome) in enumerate(outcomes):
                courses[at].take(place, outcome)
                if progress is not None:
                    progress(before + done + 1, before + total)
    except KeyboardInterrupt:
        return True
    finally:
        for course in courses:
            course.crew.stop()
    return False
