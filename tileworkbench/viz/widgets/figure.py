"""The roofline as a matplotlib figure, for papers and slides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tileworkbench.viz.model.roofline import (
    BANDWIDTH,
    PEAK,
    Machine,
    Point,
    format_rate,
    judge,
    relevant_ceilings,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUND = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.8}
_POINT, _WRONG, _ROOF = "#0f7fbf", "#d3302f", "#444444"


def roofline_figure(points: Sequence[Point], machine: Machine) -> Figure:
    """Points under the machine's roofs, log-log, in FLOP per byte and GFLOP/s.

    Ceilings of fewer than all threads are dashed. The figure belongs to no pyplot window; save it
    with ``savefig``.
    """
    from matplotlib.figure import Figure

    machine = relevant_ceilings(points, machine)
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity (FLOP/B)", ylabel=PEAK)
    axes.set_title(machine.name, fontsize="medium")
    axes.grid(color="#e4e4e4")
    axes.set_axisbelow(True)
    shown = [point for point in points if point.flops and np.isfinite(point.intensity)]
    _draw_roofs(axes, machine, shown)
    for point in shown:
        verdict = judge(point, machine)
        colour = _WRONG if verdict.wrong else _POINT
        axes.plot(point.intensity, point.gflops, "o", color=colour, zorder=3)
        percent = f", {verdict.fraction * 100:.0f} %" if verdict.attainable else ""
        label = f"{point.name}: {format_rate(point.gflops, PEAK)}{percent}"
        axes.annotate(
            label,
            (point.intensity, point.gflops),
            xytext=(-7, -14),
            textcoords="offset points",
            ha="right",
            color=colour,
            bbox=_GROUND,
        )
    return figure


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
            text = f"{ceiling.name} {format_rate(ceiling.value, ceiling.unit)}"
            side = "right" if ceiling.unit == PEAK else "left"
            axes.annotate(
                text, (x[end], y[end]), ha=side, va="bottom", fontsize="small", bbox=_GROUND
            )
