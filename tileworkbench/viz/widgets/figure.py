"""The roofline as a matplotlib figure, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tileworkbench.bench.points import (
    BANDWIDTH,
    FEW,
    PEAK,
    Level,
    Machine,
    Point,
    Verdict,
    format_rate,
    judge,
    levels_of,
    relevant_ceilings,
)
from tileworkbench.bench.units import rate_unit
from tileworkbench.viz.model.labels import BESIDE, Spot
from tileworkbench.viz.model.roofline_marks import apart, named_together, shown_steps
from tileworkbench.viz.model.roofline_svg import NAME_LETTERS
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.widgets.figure_names import FigureNames

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_CLOSE = 0.03  # of the axis: levels whose names stand together
_BADGE = 13.0  # points that the number of a version takes
_WRONG, _ROOF = "#d3302f", "#444444"
Roof = tuple[str, tuple[Spot, Spot]]
# Okabe and Ito's colours for any colour vision, without the palest.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#000000")


def roofline_figure(points: Sequence[Point], machine: Machine) -> Figure:
    """Points under the machine's roofs, log-log, in FLOP per byte and GFLOP/s: a colour for each
    kernel, diamonds at its memory levels, its versions before as numbers on a dashed line; hollow
    where it is predicted.

    Ceilings of fewer than all threads are dashed. The figure belongs to no pyplot window; save it
    with ``savefig``.
    """
    from matplotlib.figure import Figure

    machine = relevant_ceilings(points, machine)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set_title(machine.caption, fontsize="medium", wrap=True)
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    shown = [point for point in points if point.flops and np.isfinite(point.intensity)]
    unit = rate_unit([point.dtype for point in shown])
    intensity = f"arithmetic intensity ({unit[1:-2]}/B)"
    axes.set(xscale="log", yscale="log", xlabel=intensity, ylabel=unit)
    axes.margins(y=0.1)  # the highest roof has its name above it
    roofs = _draw_roofs(axes, machine, shown)
    fastest = min(shown, key=lambda point: point.time_us, default=None)
    named: list[tuple[Point, Verdict, str]] = []
    for number, point in enumerate(shown):
        verdict = judge(point, machine)
        colour = _WRONG if verdict.wrong else _COLOURS[number % len(_COLOURS)]
        if len(shown) <= FEW or point is fastest:
            named.append((point, verdict, colour))
            _draw_marks(axes, point, machine, colour)
        inner = "white" if point.predicted else colour
        place = point.intensity, point.gflops
        axes.plot(*place, "o", color=colour, markerfacecolor=inner, zorder=4)
    figure.draw_without_rendering()  # from here on places in pixels are known
    for point, _, colour in named:
        _draw_numbers(axes, point, colour)
    names = FigureNames(axes)
    for text, line in roofs:
        names.along(text, *line, _ROOF)
    for point, verdict, colour in named:
        names.at(_point_text(point, verdict), (point.intensity, point.gflops), colour, BESIDE)
    for point, _, colour in named:
        for at, level in _level_names(axes, levels_of(point, machine)):
            names.at(level, (at, point.gflops), colour, fontsize="x-small")
    return figure


def _point_text(point: Point, verdict: Verdict) -> str:
    text = (
        f"{clip(point.name, NAME_LETTERS)}: {format_rate(point.gflops, rate_unit([point.dtype]))}"
    )
    if point.predicted:
        return f"{text}, predicted"
    return f"{text}, {verdict.fraction * 100:.0f} %" if verdict.attainable else text


def _level_names(axes: Axes, levels: Sequence[Level]) -> list[tuple[float, str]]:
    """Where the names of levels stand; those of levels that lie close stand at the first."""
    if len(levels) < 2:
        return []
    low, high = np.log(axes.get_xlim())
    places = [float(np.log(level.intensity)) for level in levels]
    together = named_together(places, [each.name for each in levels], _CLOSE * float(high - low))
    return [(float(np.exp(place)), text) for place, text in together]


def _draw_marks(axes: Axes, point: Point, machine: Machine, colour: str) -> None:
    """The memory levels and the trail of a point."""
    levels = levels_of(point, machine)
    if len(levels) > 1:
        places = [level.intensity for level in levels]
        heights = [point.gflops] * len(places)
        axes.plot(places, heights, "-D", color=colour, markerfacecolor="white", linewidth=0.8)
    steps = shown_steps(point)
    if steps:
        xs = [*(step.intensity for step in steps), point.intensity]
        ys = [*(step.gflops for step in steps), point.gflops]
        axes.plot(xs, ys, "--", color=colour, linewidth=0.9, zorder=3)


def _draw_numbers(axes: Axes, point: Point, colour: str) -> None:
    """The number of each version at its place, or with a line to it where another stands there."""
    steps = shown_steps(point)
    scale = 72 / axes.figure.dpi  # points of a pixel
    places = [(step.intensity, step.gflops) for step in steps]
    places.append((point.intensity, point.gflops))
    *spots, own = [(x * scale, y * scale) for x, y in axes.transData.transform(places)]
    for step, (x, y), spot in zip(steps, apart(spots, own, _BADGE), spots, strict=True):
        there = x - spot[0], y - spot[1]
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6}
        axes.annotate(
            str(step.number),
            (step.intensity, step.gflops),
            xytext=there,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize="x-small",
            color=colour,
            bbox={"boxstyle": "circle,pad=0.25", "facecolor": "white", "edgecolor": colour},
            arrowprops=line if any(there) else None,
            zorder=3,
        )


def _draw_roofs(axes: Axes, machine: Machine, points: Sequence[Point]) -> list[Roof]:
    """Each peak with each bandwidth of as many threads; those of all threads are to be named."""
    places = [point.intensity for point in points] or [1.0]
    peaks = [ceiling for ceiling in machine.ceilings if ceiling.unit == PEAK]
    bandwidths = [ceiling for ceiling in machine.ceilings if ceiling.unit == BANDWIDTH]
    ridges = [peak.value / roof.value for peak in peaks for roof in bandwidths]
    low, high = min(places + ridges) / 4, max(places + ridges) * 8
    named = []
    for ceiling in machine.ceilings:
        style = "-" if ceiling.threads == machine.threads else "--"
        others = [c.value for c in machine.ceilings if c.threads == ceiling.threads]
        if ceiling.unit == BANDWIDTH:
            top = max((c.value for c in peaks if c.threads == ceiling.threads), default=max(others))
            x = np.array([low, top / ceiling.value])
            y = x * ceiling.value
        else:
            fastest = max(
                (c.value for c in bandwidths if c.threads == ceiling.threads), default=1.0
            )
            x = np.array([ceiling.value / fastest, high])
            y = np.array([ceiling.value, ceiling.value])
        axes.plot(x, y, style, color=_ROOF, linewidth=1.1)
        if style == "-":
            text = f"{ceiling.name} {format_rate(ceiling.value, ceiling.shown_unit)}"
            ends = [(float(u), float(v)) for u, v in zip(x, y, strict=True)]
            if ceiling.unit == PEAK:
                ends.reverse()  # named from its right end on
            named.append((text, (ends[0], ends[1])))
    return named
