"""Measuring the points of a sweep, in processes of their own or on an executor's machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tileworkbench.api import Recipe
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.tuning.crews import Crew, Task, run_courses
from tileworkbench.tuning.measuring import Job, Outcome, measure_configuration, said
from tileworkbench.workbench.inputs import make_inputs

if TYPE_CHECKING:
    from tileworkbench.tuning.sweep import SweepPoint


class SweepCourse:
    """The points of a sweep as one kind of machine measures them."""

    def __init__(
        self, crew: Crew, points: Sequence[SweepPoint], inputs: Sequence[Any] | None, rounds: int
    ) -> None:
        self.crew, self.points = crew, [replace(point, machine=crew.name) for point in points]
        self._inputs = None if inputs is None else tuple(inputs)
        self._rounds = rounds
        self._left = [place for place, point in enumerate(points) if not point.error]

    def next_task(self) -> tuple[int, Task] | None:
        """The next point that has a kernel."""
        while self._left:
            place = self._left.pop(0)
            kernel, inputs = self.points[place].kernel, self._inputs
            assert kernel is not None
            try:
                inputs = tuple(make_inputs(kernel.program)) if inputs is None else inputs
            except ArgumentError as error:
                self.take(place, Outcome(error=said(error)))
                continue
            job = Job(Recipe.of(kernel), inputs, self.crew.setting, rounds=self._rounds)
            return place, (measure_configuration, (job,))
        return None

    def wants(self, number: int) -> bool:
        """All are to be measured."""
        return True

    def take(self, place: int, outcome: Outcome) -> None:
        """Note what came of a point."""
        time_us, error = 1e3 * outcome.latency, outcome.error
        self.points[place] = replace(self.points[place], time_us=time_us, error=error)


def measure_points(
    courses: Sequence[SweepCourse], progress: Callable[[int, int], None] | None
) -> bool:
    """Measure the points of a sweep; whether Ctrl-C ended that."""
    total = sum(len(course.points) for course in courses)
    points = len(courses[0].points)
    try:
        with closing(run_courses(courses)) as outcomes:
            for done, (at, place, outcome) in enumerate(outcomes):
                courses[at].take(place, outcome)
                if progress is not None:
                    progress(points + done + 1, points + total)
    except KeyboardInterrupt:
        return True
    finally:
        for course in courses:
            course.crew.stop()
    return False
