"""Errors over executed statements as SVG: a line per buffer, the error on a logarithmic scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf, log10

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.numerics.result import Step
from tileworkbench.viz.model.svg import FONT, PAPER, Colours, draw_line, draw_text, round_step
from tileworkbench.viz.model.text import clip

WIDTH, HEIGHT = 860, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 148, 14, 40
_EXACT = 16  # the band of errors of zero, below the scale
_ROOM = 13  # between two labels

# Each has 3:1 on white and on the dark grounds of Jupyter; from the eighth on they are dashed.
HUES = ("#0072b2", "#c4560a", "#009e73", "#b5559c", "#8a7a00", "#5b6fd6", "#c1443c")
METRICS = {
    "scaled": "error in ulp of the largest element",
    "ulp": "error in ulp of the element itself",
    "relative": "relative error",
    "absolute": "absolute error",
}


@dataclass(frozen=True, slots=True)
class Curve:
    """The steps of one buffer that are drawn, by their places in the list of all steps."""

    buffer: str
    steps: tuple[tuple[int, Step], ...]


def style_of(number: int) -> tuple[str, str]:
    """Colour and dashes of the line of a curve."""
    return HUES[number % len(HUES)], "" if number < len(HUES) else "5 3"


class _Axes:
    def __init__(self, curves: Sequence[Curve], metric: str) -> None:
        steps = [step for curve in curves for _, step in curve.steps]
        self.metric = metric
        self.first, self.last = steps[0].number, steps[0].number
        for step in steps:
            self.first, self.last = min(self.first, step.number), max(self.last, step.number)
        values = [value for step in steps if 0 < (value := self.error(step)) < inf]
        self.low = floor(log10(min(values, default=1.0)))
        self.high = max(ceil(log10(max(values, default=1.0))), self.low + 1)
        self.infinite = any(self.error(step) == inf for step in steps)
        self.exact = any(self.error(step) == 0 for step in steps)
        self.top = _TOP + (_EXACT if self.infinite else 0)
        self.base = HEIGHT - _BOTTOM
        self.zero = self.base - (_EXACT if self.exact else 0)

    def error(self, step: Step) -> float:
        value: float = getattr(step, self.metric)
        return value

    def x(self, number: float) -> float:
        span = max(self.last - self.first, 1)
        return _LEFT + (number - self.first) / span * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        if value == 0:
            return self.base - 4
        if value == inf:
            return _TOP + 4
        part = (log10(value) - self.low) / (self.high - self.low)
        return self.zero - part * (self.zero - self.top)


def numerics_svg(
    curves: Sequence[Curve], metric: str, colours: Colours = PAPER, live: bool = False
) -> str:
    """A complete ``<svg>`` element of at least one curve with at least one step. Points of a `live`
    drawing carry ``data-step``: the place of the step in the list of all.
    """
    axes = _Axes(curves, metric)
    return "".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="{FONT}" font-size="11">',
            f"<title>{METRICS[metric]} over executed statements</title>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colours["ground"]}"/>',
            *_scales(axes, colours),
            *_lines(curves, axes, live),
            *_labels(curves, axes, colours),
            "</svg>",
        ]
    )


def _scales(axes: _Axes, colours: Colours) -> list[str]:
    right = WIDTH - _RIGHT
    parts = []
    powers = range(axes.low, axes.high + 1)
    every = max(1, ceil(len(powers) / 8))
    for power in powers:
        if (power - axes.low) % every == 0:
            y = axes.y(10.0**power)
            parts.append(draw_line(_LEFT, y, right, y, colours["grid"], 1))
            text = f"{10.0**power:g}" if -4 <= power <= 4 else f"1e{power}"
            parts.append(draw_text(_LEFT - 6, y + 4, text, colours["faint"], "end"))
    if axes.infinite:
        parts.append(draw_text(_LEFT - 6, _TOP + 8, "inf, NaN", colours["faint"], "end"))
    if axes.exact:
        parts.append(draw_text(_LEFT - 6, axes.base, "exact", colours["faint"], "end"))
    parts.append(draw_line(_LEFT, axes.base, right, axes.base, colours["faint"], 1))
    span = axes.last - axes.first
    step = round_step(span)
    number = -(-axes.first // step) * step
    while number <= axes.last:
        x = axes.x(number)
        parts.append(draw_line(x, axes.base, x, axes.base + 4, colours["faint"], 1))
        parts.append(draw_text(x, axes.base + 15, str(number), colours["faint"], "middle"))
        number += step
    middle = (_LEFT + right) / 2
    label = f"executed statement; upwards: {METRICS[axes.metric]} (logarithm)"
    parts.append(draw_text(middle, axes.base + 31, label, colours["faint"], "middle"))
    return parts


def _lines(curves: Sequence[Curve], axes: _Axes, live: bool) -> list[str]:
    parts = []
    for number, curve in enumerate(curves):
        colour, dashes = style_of(number)
        places = [(axes.x(step.number), axes.y(axes.error(step)), at) for at, step in curve.steps]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in places)
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashed}/>'
        )
        radius = 2.4 if len(places) < 120 else 1.4
        # A still picture needs no points to choose; those of a line are bytes that nobody sees.
        for x, y, at in places if live or len(places) == 1 else ():
            mark = f' data-step="{at}"' if live else ""
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"{mark}/>')
    return parts


def _labels(curves: Sequence[Curve], axes: _Axes, colours: Colours) -> list[str]:
    """The names of the buffers at the ends of their lines, moved apart."""
    ends = sorted(
        (axes.y(axes.error(curve.steps[-1][1])), number) for number, curve in enumerate(curves)
    )
    parts = []
    lowest = HEIGHT - _ROOM * len(ends)
    y = 0.0
    for at, (wanted, number) in enumerate(ends):
        y = max(min(wanted, lowest + at * _ROOM), y + _ROOM if at else _TOP)
        colour, dashes = style_of(number)
        right = WIDTH - _RIGHT + 6
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        parts.append(draw_line(right, y, right + 16, y, colour, 2, dashed))
        name = clip(curves[number].buffer, 18)
        parts.append(draw_text(right + 21, y + 4, name, colours["text"], "start"))
    return parts
