"""`tw.sweep`: a kernel over all combinations of some constants, as a table and a heat map."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, fields, replace
from itertools import product
from math import isfinite, nan, prod
from typing import Any, Protocol

import numpy as np

from tileworkbench.api import Recipe
from tileworkbench.bench.points import Machine, Point
from tileworkbench.bench.timing import refuse_simulated
from tileworkbench.bench.units import format_bytes, format_percent, format_time
from tileworkbench.compiler.diagnostics import ArgumentError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.tuning.crews import crews_of
from tileworkbench.tuning.facts import Facts, facts_of
from tileworkbench.tuning.measuring import Setting, said
from tileworkbench.tuning.quality import quality_of
from tileworkbench.tuning.sweep_courses import SweepCourse, run_points
from tileworkbench.tuning.table import MARK, text_table
from tileworkbench.viz.model import html
from tileworkbench.viz.model.palette import sequence_colours
from tileworkbench.viz.model.roofline_view import roofline_section
from tileworkbench.viz.model.text import clip
from tileworkbench.workbench.kernel import Kernel
from tileworkbench.workbench.kernel_view import roofline_of
from tileworkbench.workbench.plain import frame_of

MOST_POINTS = 10_000
_MOST_DRAWN = 256


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One combination.

    Attributes:
        config: the constants.
        time_us: median time of a call, NaN where nothing was measured.
        predicted_us: what `Kernel.causes` adds up to, NaN where there is no prediction.
        limit: the cause that has most of it, empty without one.
        shared_bytes: shared memory of a block.
        occupancy: warps held over warps that could be, NaN on a CPU.
        conflicts: wavefronts of shared memory beyond the fewest possible, 0 on a CPU.
        error: why there is no kernel or no time; empty where there is.
        machine: where it was measured, as text; empty for this process.
        kernel: the compiled kernel, None where it was refused, or compiled elsewhere.
        recipe: what it is compiled from, where that is known.
    """

    config: Mapping[str, Any]
    time_us: float = nan
    predicted_us: float = nan
    limit: str = ""
    shared_bytes: int = 0
    occupancy: float = nan
    conflicts: int = 0
    error: str = ""
    machine: str = ""
    kernel: Kernel | None = field(default=None, repr=False, compare=False)
    recipe: Recipe | None = field(default=None, repr=False, compare=False)

    def with_facts(self, facts: Facts) -> SweepPoint:
        """With what is said of its kernel."""
        return replace(self, **{each.name: getattr(facts, each.name) for each in fields(facts)})

    def to_dict(self) -> dict[str, Any]:
        """One flat row: the constants, then what was found."""
        names = ("time_us", "predicted_us", "limit", "shared_bytes", "occupancy", "conflicts")
        facts = {name: getattr(self, name) for name in (*names, "error")}
        return {**self.config, **facts}


@dataclass(frozen=True, slots=True)
class Sweep:
    """The points of a sweep, in the order they were tried.

    `axes` are the constants and their values; `interrupted` says that Ctrl-C ended it early,
    `total` how many points were planned (0: every combination), `left_out` how many of `points`
    were not measured, since they are predicted to be slower. ``tw.roofline(sweep)`` draws them.
    """

    name: str
    target: str
    axes: Mapping[str, tuple[Any, ...]]
    points: tuple[SweepPoint, ...]
    interrupted: bool = False
    total: int = 0
    left_out: int = 0

    @property
    def best(self) -> SweepPoint | None:
        """The fastest measured point; without measurements the one predicted to be."""
        for name in ("time_us", "predicted_us"):
            measured = [point for point in self.points if isfinite(getattr(point, name))]
            if measured:
                return min(measured, key=lambda point: float(getattr(point, name)))
        return None

    def to_dict(self) -> list[dict[str, Any]]:
        """A row per point as plain data."""
        return [point.to_dict() for point in self.points]

    def to_frame(self) -> Any:
        """A ``pandas.DataFrame`` with a row per point. Raises `UnsupportedError` without pandas."""
        return frame_of(self.to_dict())

    def roofline(self) -> tuple[Machine | None, tuple[Point, ...]]:
        """The roofs and a point per combination that compiled, measured where it was. Those that
        other processes have measured are compiled for it.
        """
        machine, points = None, []
        for point in self.points:
            kernel = point.kernel
            if kernel is None and point.recipe is not None and isfinite(point.time_us):
                kernel = point.recipe.compile()
            if kernel is None:
                continue
            machine, measured = roofline_of(kernel, True)
            name = " ".join(f"{name}={value}" for name, value in point.config.items())
            for each in measured:
                timed = replace(each, time_us=point.time_us, predicted=False)
                points.append(replace(timed if isfinite(point.time_us) else each, name=name))
        return machine, tuple(points)

    def __str__(self) -> str:
        return "\n".join([*text_table(*self._table()), *self._notes()])

    def __repr__(self) -> str:
        failed = sum(bool(point.error) for point in self.points)
        failures = f", {failed} failed" if failed else ""
        axes = " ".join(f"{name}={','.join(map(str, v))}" for name, v in self.axes.items())
        count = f"{len(self.points)} points{failures}"
        return f"<sweep of {self.name} {self.target} | {axes} | {count}>"

    def _repr_html_(self) -> str:
        heads, rows = self._table()
        best = self.best
        cells = []
        for point, row in zip(self.points, rows, strict=True):
            style = f"{html.tone(html.GOOD)};font-weight:bold" if point is best else ""
            short = [html.tag("span", f"{style};white-space:nowrap", html.text(c)) for c in row]
            cells.append([*short[:-1], html.text(row[-1])] if point.error else short)
        parts = [html.tag("b", html.MONO, html.text(f"{self.name} {self.target}"))]
        parts += [self._heat_map(), html.table(cells, heads), self._roofline()]
        parts += [html.tag("div", html.FAINT, html.text(note)) for note in self._notes()]
        return html.panel(*parts)

    def _roofline(self) -> str:
        """The points under their roofs, where they have any and are few enough to be told apart."""
        kernels = [point.kernel for point in self.points if not point.error]
        if None in kernels or not 0 < len(kernels) <= _MOST_DRAWN:
            return ""  # `roofline` would compile them
        machine, points = self.roofline()
        if machine is None or not points:
            return ""
        return html.details("Roofline", roofline_section(points, machine))

    def _table(self) -> tuple[list[str], list[list[str]]]:
        """Heads and rows of those columns in which there is something; the best row is marked."""
        columns: list[tuple[str, Callable[[SweepPoint], str]]] = [
            (name, lambda point, name=name: str(point.config[name]))  # type: ignore[misc]
            for name in self.axes
        ]
        if any(isfinite(point.time_us) for point in self.points):
            columns.append(("time", lambda point: _time(point.time_us)))
        if any(isfinite(point.predicted_us) for point in self.points):
            columns.append(("predicted", lambda point: _time(point.predicted_us)))
        if any(point.limit for point in self.points):
            columns.append(("most time", lambda point: point.limit))
        if any(point.shared_bytes for point in self.points):
            columns.append(("shared", _shared))
        if any(isfinite(point.occupancy) for point in self.points):
            columns.append(("occupancy", _occupancy))
            columns.append(("conflicts", lambda point: "" if point.error else str(point.conflicts)))
        if len({point.machine for point in self.points}) > 1:
            columns.append(("machine", lambda point: point.machine))
        if any(point.error for point in self.points):
            columns.append(("", lambda point: clip(point.error.partition("\n")[0], 90)))
        columns.insert(0, ("", lambda point, best=self.best: MARK if point is best else ""))  # type: ignore[misc]
        heads = [head for head, _ in columns]
        return heads, [[write(point) for _, write in columns] for point in self.points]

    def _notes(self) -> list[str]:
        total = self.total or prod(len(values) for values in self.axes.values())
        measured = sum(isfinite(point.time_us) for point in self.points)
        done = "points" if len(self.points) < total else f"points, {measured} of them measured"
        notes = [f"interrupted after {len(self.points)} of {total} {done}"]
        notes = notes if self.interrupted else []
        if self.left_out:
            notes.append(
                f"{self.left_out} of {len(self.points)} were not measured: they are predicted to "
                "be slower"
            )
        quality = self.quality
        if quality is not None:
            error, rank = quality
            notes.append(
                f"the prediction is {format_percent(error)} off (median); rank correlation with "
                f"what was measured {rank:.2f}"
            )
        return notes

    @property
    def quality(self) -> tuple[float, float] | None:
        """How good the predictions were: the median error as a part of the measured time, and
        Spearman's rank correlation (NaN where all are equal). None for fewer than three points
        that have both.
        """
        quality = quality_of((point.predicted_us, point.time_us) for point in self.points)
        return None if quality is None else (quality.error, quality.rank)

    def _heat_map(self) -> str:
        """Two constants as rows and columns, the better the lighter; empty for other numbers."""
        if len(self.axes) != 2:
            return ""
        (down, rows), (across, columns) = self.axes.items()
        value = "time_us" if self.best and isfinite(self.best.time_us) else "predicted_us"
        at = {(p.config[down], p.config[across]): p for p in self.points}
        values = [v for p in self.points if isfinite(v := getattr(p, value))]
        if not values:
            return ""
        low, high = np.log(min(values)), np.log(max(values))
        shown = []
        for row in rows:
            cells = [html.tag("b", "", html.text(f"{down}={row}"))]
            for column in columns:
                point = at.get((row, column))
                time = nan if point is None else float(getattr(point, value))
                failed = point is not None and bool(point.error)
                cells.append(html.text("failed") if failed else _heat(time, low, high))
            shown.append(cells)
        caption = "measured" if value == "time_us" else "predicted"
        heads = [f"{caption} time", *(f"{across}={column}" for column in columns)]
        return html.table(shown, heads)


def _heat(time_us: float, low: float, high: float) -> str:
    """A cell of the heat map: dark text on a colour of the palette, lightest for the fastest."""
    if not isfinite(time_us):
        return html.tag("span", html.FAINT, "–")
    part = 1 - (np.log(time_us) - low) / (high - low) if high > low else 1.0
    red, green, blue = sequence_colours(np.array([round(part * 100)]), 100)[0]
    style = f"background-color:rgb({red},{green},{blue});color:#141414;padding:2px 8px"
    return html.tag("span", f"display:inline-block;{style}", _time(time_us))


def _time(time_us: float) -> str:
    return format_time(time_us) if isfinite(time_us) else ""


def _shared(point: SweepPoint) -> str:
    return "" if point.error else format_bytes(point.shared_bytes)


def _occupancy(point: SweepPoint) -> str:
    return format_percent(point.occupancy) if isfinite(point.occupancy) else ""


class Variable(Protocol):
    """A function whose compile-time arguments vary: `tw.jit` makes one."""

    fn: Callable[..., Any]

    def constants(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]: ...
    def compile(self, **used: Any) -> Kernel: ...
    def recipe(self, **used: Any) -> tuple[Recipe, Any]: ...


def sweep(
    jit: Variable,
    axes: Mapping[str, Sequence[Any]],
    *,
    constants: Mapping[str, Any] | None = None,
    bench: Callable[[Kernel], float] | bool | int | None = None,
    inputs: Sequence[Any] | None = None,
    timeout: float = 100,
    executor: Any = None,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Compile a `tw.jit` function for every combination of values, and measure each if asked.

    Args:
        axes: compile-time arguments or `T.const` names to lists of values; one that is there twice
            counts once.
        constants: the other names that a compilation needs.
        bench: True measures each combination in a process of its own, as `tw.autotune` does; a
            number, so many rounds, as `Kernel.bench` does. A function gives the median time of a
            kernel in microseconds, in this process. None measures nothing.
        inputs: what kernels are called with; None makes tensors up.
        timeout: seconds after which a combination is given up.
        executor: who compiles, and measures, instead of this machine, see `tw.autotune`. Each kind
            of machine makes a point of each combination, with a `recipe` instead of a kernel.
        progress: called with (points done, points in all).

    A combination that is refused, or that fails when it is measured, is a point with an error.
    Ctrl-C ends the sweep and keeps what was found.

    Raises:
        ArgumentError: a name that the function does not have, no values, no list, or too many
            points.
    """
    values = {name: _values(name, given) for name, given in axes.items()}
    given = dict(constants or {})
    _check_axes(jit, values, given)
    total = prod(len(each) for each in values.values())
    here = bench if callable(bench) else None
    is_measured = here is None and bool(bench)
    is_elsewhere = executor is not None and here is None
    points: list[SweepPoint] = []
    interrupted = False
    try:
        for combination in product(*values.values()):
            if progress is not None:
                progress(len(points), total * (1 + (is_measured or is_elsewhere)))
            config = dict(zip(values, combination, strict=True))
            constants = {**given, **config}
            points.append(
                _traced(jit, config, constants)
                if is_elsewhere
                else _point(jit, config, constants, here)
            )
    except KeyboardInterrupt:
        interrupted = True
    name = jit.fn.__name__
    made = (each for point in points if (each := point.kernel or point.recipe) is not None)
    target = next((each.target for each in made), "")
    if (is_measured or is_elsewhere) and target and not interrupted:
        rounds = None
        if is_measured:
            refuse_simulated(name, target)
            rounds = bench if isinstance(bench, int) and bench is not True else 0
        crews = crews_of(executor, target, Setting.here(timeout, isolated=True))
        courses = [SweepCourse(name, crew, points, inputs, rounds) for crew in crews]
        interrupted = run_points(courses, len(points), progress)
        points = [point for course in courses for point in course.points]
        total *= len(crews)
    return Sweep(name, target, values, tuple(points), interrupted, total)


def _values(name: str, given: Any) -> tuple[Any, ...]:
    """The values of an axis, each once."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentError(
            f"'{name}' has {given!r} for its values, which is no list",
            hint=f"such as {{'{name}': [{given!r}]}}",
        )
    values: list[Any] = []
    for value in given:
        if not any(type(value) is type(each) and value == each for each in values):
            values.append(value)
    return tuple(values)


def _check_axes(
    jit: Variable, axes: Mapping[str, tuple[Any, ...]], constants: Mapping[str, Any]
) -> None:
    name = jit.fn.__name__
    if not axes or not all(axes.values()):
        raise ArgumentError("a sweep needs names with values", "such as block_M=64,128")
    total = prod(len(values) for values in axes.values())
    if total > MOST_POINTS:
        raise ArgumentError(f"a sweep of {total} points is too large: at most {MOST_POINTS}")
    first = {**constants, **{axis: values[0] for axis, values in axes.items()}}
    used, missing = jit.constants(first)
    unknown = [given for given in (*axes, *constants) if given not in used]
    if unknown and not (missing and unknown[0] in constants):
        raise ArgumentError(f"'{unknown[0]}' is no compile-time argument of '{name}'")
    if missing:
        raise ArgumentError(f"'{name}' still needs {', '.join(missing)}")


def _point(
    jit: Variable,
    config: Mapping[str, Any],
    constants: Mapping[str, Any],
    bench: Callable[[Kernel], float] | None,
) -> SweepPoint:
    kernel = None
    try:
        kernel = jit.compile(**jit.constants(constants)[0])
        facts = facts_of(kernel)
        time_us = nan if bench is None else bench(kernel)
        return SweepPoint(config, time_us, kernel=kernel).with_facts(facts)
    except KeyboardInterrupt:
        raise
    except Exception as error:  # whatever one combination does, the others are still of interest
        return SweepPoint(config, error=said(error), kernel=kernel)


def _traced(jit: Variable, config: Mapping[str, Any], constants: Mapping[str, Any]) -> SweepPoint:
    """A combination that is still to be compiled."""
    try:
        return SweepPoint(config, recipe=jit.recipe(**jit.constants(constants)[0])[0])
    except Exception as error:
        return SweepPoint(config, error=said(error))
