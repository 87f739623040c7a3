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
    Step,
    Verdict,
    format_rate,
    judge,
    levels_of,
    relevant_ceilings,
)
from tileworkbench.bench.units import rate_unit
from tileworkbench.viz.model.roofline_marks import apart, shown_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
_NAME_WIDTH = 0.08  # of a level's name, as a part of the axis
_BADGE = 13.0  # points that the number of a version takes
_WRONG, _ROOF = "#d3302f", "#444444"
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
    _draw_roofs(axes, machine, shown)
    fastest = min(shown, key=lambda point: point.time_us, default=None)
    for number, point in enumerate(shown):
        verdict = judge(point, machine)
        colour = _WRONG if verdict.wrong else _COLOURS[number % len(_COLOURS)]
        named = len(shown) <= FEW or point is fastest
        if named:
            _draw_marks(axes, point, machine, colour)
        inner = "white" if point.predicted else colour
        place = point.intensity, point.gflops
        axes.plot(*place, "o", color=colour, markerfacecolor=inner, zorder=4)
        if named:
            _name(axes, point, verdict, colour)
    return figure


def _name(axes: Axes, point: Point, verdict: Verdict, colour: str) -> None:
    """The point's name and rate beside it, on the side of the drawing that has room."""
    percent = f", {verdict.fraction * 100:.0f} %" if verdict.attainable else ""
    low, high = np.log(axes.get_xlim())
    left = np.log(point.intensity) < (low + high) / 2
    axes.annotate(
        f"{point.name}: {format_rate(point.gflops, rate_unit([point.dtype]))}"
        + (", predicted" if point.predicted else percent),
        (point.intensity, point.gflops),
        # Below the point are the versions before it, above it the names of its levels.
        xytext=(7 if left else -7, 20 if shown_steps(point) else -14),
        textcoords="offset points",
        ha="left" if left else "right",
        color=colour,
        bbox=_GROUND,
    )


def _draw_marks(axes: Axes, point: Point, machine: Machine, colour: str) -> None:
    """The memory levels and the trail of a point."""
    levels = levels_of(point, machine)
    if len(levels) > 1:
        places = [level.intensity for level in levels]
        heights = [point.gflops] * len(places)
        axes.plot(places, heights, "-D", color=colour, markerfacecolor="white", linewidth=0.8)
        for intensity, name in _named_together(axes, levels):
            axes.annotate(
                name,
                (intensity, point.gflops),
                xytext=(0, 7),
                textcoords="offset points",
                ha="center",
                fontsize="x-small",
                color=colour,
            )
    steps = shown_steps(point)
    if steps:
        xs = [*(step.intensity for step in steps), point.intensity]
        ys = [*(step.gflops for step in steps), point.gflops]
        axes.plot(xs, ys, "--", color=colour, linewidth=0.9, zorder=3)
        _draw_numbers(axes, point, steps, colour)


def _draw_numbers(axes: Axes, point: Point, steps: Sequence[Step], colour: str) -> None:
    """The number of each version at its place, or with a line to it where another stands there."""
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


def _named_together(axes: Axes, levels: Sequence[Level]) -> list[tuple[float, str]]:
    """Where the names of levels stand; those of levels that lie close stand at the first."""
    low, high = np.log(axes.get_xlim())
    named: list[tuple[float, list[str]]] = []
    for level in levels:
        if named and abs(np.log(level.intensity / named[-1][0])) < _NAME_WIDTH * (high - low):
            named[-1][1].append(level.name)
        else:
            named.append((level.intensity, [level.name]))
    return [(intensity, ", ".join(names)) for intensity, names in named]


def _draw_roofs(axes: Axes, machine: Machine, points: Sequence[Point]) -> None:
    """Each peak with each bandwidth of as many threads, labelled at its end."""
    places = [point.intensity for point in points] or [1.0]
    peaks = [ceiling for ceiling in machine.ceilings if ceiling.unit == PEAK]
    bandwidths = [ceiling for ceiling in machine.ceilings if ceiling.unit == BANDWIDTH]
    ridges = [peak.value / roof.value for peak in peaks for roof in bandwidths]
    low, high = min(places + ridges) / 4, max(places + ridges) * 8
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
            end = -1 if ceiling.unit == PEAK else 0
            text = f"{ceiling.name} {format_rate(ceiling.value, ceiling.shown_unit)}"
            side = "right" if ceiling.unit == PEAK else "left"
            axes.annotate(
                text, (x[end], y[end]), ha=side, va="bottom", fontsize="small", bbox=_GROUND
            )
