"""The roofline drawn as SVG: one drawing for the widget, the static card and the saved page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from html import escape

from tileworkbench.bench.points import (
    BANDWIDTH,
    FEW,
    PEAK,
    Ceiling,
    Machine,
    Point,
    Verdict,
    format_rate,
    judge,
    relevant_ceilings,
)
from tileworkbench.bench.units import rate_unit
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model.roofline_marks import draw_levels, draw_trail, places
from tileworkbench.viz.model.svg import FONT, PAPER, Colours, as_image, draw_line, draw_text, still

WIDTH, HEIGHT = 680, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 14, 44
_CHARACTER = 6.4  # pixels of a letter of a name
_LABEL_GAP = 13.0  # pixels between two labels' base lines
_NEAR, _FAR = 4, 100  # lines that a name may move away from those of roofs, and from others


@dataclass(slots=True)
class _Axes:
    """Log-log axes over whole decades, in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]
    labels: list[tuple[float, float]] = field(default_factory=list)
    names: list[tuple[float, float, float]] = field(default_factory=list)  # left, right, base line
    roofs: list[tuple[float, float, float]] = field(
        default_factory=list
    )  # the same of roofs' names

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return (
            _LEFT + across * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM),
        )

    def free(self, x: float, y: float) -> bool:
        """Whether a label fits at a place; if so the place is taken."""
        taken = any(abs(y - v) < _LABEL_GAP and abs(x - u) < 150 for u, v in self.labels)
        if not taken:
            self.labels.append((x, y))
        return not taken

    def keep(self, x: float, y: float, letters: int, angle: float) -> None:
        """Take the room of a text that begins at (x, y) and is turned by `angle` degrees."""
        across, down = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        for at in range(letters):
            left = x + at * _CHARACTER * across
            base = y + at * _CHARACTER * down
            self.roofs.append((left, left + _CHARACTER * across, base))

    def room(self, left: float, right: float, y: float, step: float) -> float:
        """The base line from `y` on, `step` by `step`, on which a name lies on no other; it is
        taken. Where that is far for the names of roofs, it lies on one of these.
        """
        ways = [y + step * count for count in range(_FAR)]
        clear = [way for way in ways if not _lies_on(self.names, left, right, way)] or [ways[-1]]
        best = [way for way in clear[:_NEAR] if not _lies_on(self.roofs, left, right, way)]
        base = (best or clear)[0]
        self.names.append((left, right, base))
        return base


def _lies_on(
    names: Sequence[tuple[float, float, float]], left: float, right: float, y: float
) -> bool:
    return any(
        abs(y - base) < _LABEL_GAP and left < end and start < right for start, end, base in names
    )


def roofline_svg(points: Sequence[Point], machine: Machine, colours: Colours = PAPER) -> str:
    """A complete ``<svg>`` element; all names in it are escaped."""
    machine = relevant_ceilings(points, machine)
    drawn = [point for point in points if point.flops and math.isfinite(point.intensity)]
    judged = [(point, judge(point, machine)) for point in drawn]
    fastest = min(drawn, key=lambda point: point.time_us, default=None)
    named = [point for point in drawn if len(drawn) <= FEW or point is fastest]
    axes = _axes(drawn, machine)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="{FONT}" font-size="11" '
        f'paint-order="stroke" stroke-linejoin="round">',
        f"<title>Roofline of {escape(machine.name)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colours["ground"]}"/>',
        *_grid(axes, rate_unit([point.dtype for point in drawn]), colours),
        *_roofs(axes, machine, drawn, colours),
        *(
            mark
            for point in named
            for mark in draw_levels(
                axes.at,
                axes.room if len(named) < 3 or point is fastest else None,
                point,
                machine,
                colours,
            )
        ),
        *(
            mark
            for point in named
            for mark in draw_trail(axes.at, axes.names.append, point, colours)
        ),
        *(
            _point(axes, point, verdict, colours, point in named)
            for point, verdict in sorted(judged, key=lambda each: -each[0].time_us)
        ),
        "</svg>",
    ]
    return "".join(parts)


def roofline_image(points: Sequence[Point], machine: Machine) -> str:
    """The drawing as a ``data:`` address for an ``<img>``."""
    return as_image(still(roofline_svg(points, machine, PAPER)))


def _axes(points: Sequence[Point], machine: Machine) -> _Axes:
    """Whole decades around every ridge and every point."""
    bandwidths = [c.value for c in machine.ceilings if c.unit == BANDWIDTH]
    peaks = [c.value for c in machine.ceilings if c.unit == PEAK]
    marks = [place for point in points for place in places(point, machine)]
    xs = [point.intensity for point in points] + [x for x, _ in marks] or [1.0]
    ys = [point.gflops for point in points] + [y for _, y in marks] + peaks or [1.0]
    if bandwidths and peaks:
        xs += [min(peaks) / max(bandwidths), max(peaks) / min(bandwidths)]
    low_x, high_x = _decades(min(xs) / 2, max(xs) * 4)
    low_y, high_y = _decades(min(ys) / 2, max(ys) * 1.5)
    if bandwidths:
        # The slowest roof enters on the left edge, or the bottom is one decade below the points.
        low_y = max(low_y - 1, math.floor(math.log10(min(bandwidths)) + low_x))
        low_y = min(low_y, math.floor(math.log10(min(ys) / 1.5)))
    return _Axes((low_x, high_x), (low_y, high_y))


def _decades(low: float, high: float) -> tuple[int, int]:
    start, stop = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return start, max(stop, start + 1)


def _grid(axes: _Axes, unit: str, colours: Colours) -> list[str]:
    bottom, left = HEIGHT - _BOTTOM, _LEFT
    parts = []
    for decade in range(int(axes.x[0]), int(axes.x[1]) + 1):
        x = axes.at(10.0**decade, 10 ** axes.y[0])[0]
        parts.append(draw_line(x, _TOP, x, bottom, colours["grid"], 1))
        parts.append(draw_text(x, bottom + 15, _power(decade), colours["faint"], "middle"))
    for decade in range(int(axes.y[0]), int(axes.y[1]) + 1):
        y = axes.at(10 ** axes.x[0], 10.0**decade)[1]
        parts.append(draw_line(left, y, WIDTH - _RIGHT, y, colours["grid"], 1))
        parts.append(draw_text(left - 7, y + 4, _power(decade), colours["faint"], "end"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    intensity = f"arithmetic intensity ({unit[1:-2]}/B)"
    parts.append(draw_text(middle, HEIGHT - 8, intensity, colours["text"], "middle"))
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    turn = f' transform="rotate(-90 14 {middle:.0f})"'
    parts.append(draw_text(14, middle, unit, colours["text"], "middle", turn))
    return parts


def _power(decade: int) -> str:
    if decade < -3:
        return f"1e{decade}"
    if decade <= 3:
        return f"{10.0**decade:g}"
    return f"{10 ** (decade % 3)}{'kMG'[decade // 3 - 1]}"


def _roofs(axes: _Axes, machine: Machine, points: Sequence[Point], colours: Colours) -> list[str]:
    """All ceilings; those that some point is held against stand out and are labelled first."""
    used = {
        ceiling
        for point in points
        for ceiling in (
            machine.find(point.level, BANDWIDTH, point.threads),
            machine.find(point.dtype, PEAK, point.threads),
        )
    }
    order = sorted(machine.ceilings, key=lambda c: (c not in used, -c.threads, -c.value))
    lines, labels = [], []
    for ceiling in order:
        strong = ceiling in used or not points
        draw = _slope if ceiling.unit == BANDWIDTH else _flat
        line, label = draw(axes, machine, ceiling, colours["roof" if strong else "other"])
        lines.append(line)
        labels.append(label)
    halo = f'<g stroke="{colours["halo"]}" stroke-width="3">'
    return [*lines[::-1], halo, *labels, "</g>"]


def _name(ceiling: Ceiling) -> str:
    rate = format_rate(ceiling.value, ceiling.shown_unit)
    if not ceiling.threads:  # a published number
        return f"{ceiling.name} {rate}"
    threads = "1 thread" if ceiling.threads == 1 else f"{ceiling.threads} threads"
    return f"{ceiling.name} {rate}, {threads}"


def _style(machine: Machine, ceiling: Ceiling) -> str:
    return "" if ceiling.threads == machine.threads else ' stroke-dasharray="5 4" opacity="0.6"'


def _slope(axes: _Axes, machine: Machine, ceiling: Ceiling, colour: str) -> tuple[str, str]:
    """A bandwidth: from the left or bottom edge up to the highest peak of as many threads."""
    peaks = [c.value for c in machine.ceilings if c.unit == PEAK and c.threads == ceiling.threads]
    top = max(peaks, default=10.0 ** axes.y[1])
    start = max(10.0 ** axes.x[0], 10.0 ** axes.y[0] / ceiling.value)
    stop = min(10.0 ** axes.x[1], top / ceiling.value)
    x1, y1 = axes.at(start, start * ceiling.value)
    x2, y2 = axes.at(stop, stop * ceiling.value)
    style, title = _style(machine, ceiling), f"<title>{escape(_name(ceiling))}</title>"
    line = draw_line(x1, y1, x2, y2, colour, 1.6, style, title)
    angle = math.degrees(math.atan2(y2 - y1, x2 - x1))
    x, y = x1 + 0.06 * (x2 - x1), y1 + 0.06 * (y2 - y1)
    # Labels of parallel slopes are compared by their distance from the diagonal.
    across = (y - x * math.tan(math.radians(angle))) * math.cos(math.radians(angle))
    if x2 - x1 < 60 or not axes.free(-1e4, across):
        return line, ""
    axes.keep(x + 6, y - 5, len(_name(ceiling)), angle)
    turn = f' transform="rotate({angle:.1f} {x:.1f} {y:.1f}) translate(6 -5)"'
    return line, draw_text(x, y, _name(ceiling), colour, "start", turn)


def _flat(axes: _Axes, machine: Machine, ceiling: Ceiling, colour: str) -> tuple[str, str]:
    """A peak: from the fastest roof of as many threads to the right edge."""
    roofs = [c for c in machine.ceilings if c.unit == BANDWIDTH and c.threads == ceiling.threads]
    fastest = max((c.value for c in roofs), default=ceiling.value / 10 ** axes.x[0])
    start = max(10.0 ** axes.x[0], ceiling.value / fastest)
    x1, y = axes.at(start, ceiling.value)
    x2 = float(WIDTH - _RIGHT)
    style, title = _style(machine, ceiling), f"<title>{escape(_name(ceiling))}</title>"
    line = draw_line(x1, y, x2, y, colour, 1.6, style, title)
    if not axes.free(x2, y):
        return line, ""
    axes.keep(x2 - 4 - len(_name(ceiling)) * _CHARACTER, y - 5, len(_name(ceiling)), 0.0)
    return line, draw_text(x2 - 4, y - 5, _name(ceiling), colour, "end")


def _point(axes: _Axes, point: Point, verdict: Verdict, colours: Colours, named: bool) -> str:
    x, y = axes.at(point.intensity, point.gflops)
    colour = colours["wrong" if verdict.wrong else "point"]
    label = f"{point.name}: {format_rate(point.gflops, rate_unit([point.dtype]))}"
    if point.predicted:
        label += ", predicted"
    elif verdict.attainable:
        label += f", {verdict.fraction * 100:.0f} %"
    if point.cold:
        label += ", cold caches"
    title = f"<title>{escape(f'{label} of attainable. {verdict.sentence}')}</title>"
    parts = []
    if verdict.attainable and named:
        roof = axes.at(point.intensity, verdict.attainable)[1]
        parts.append(draw_line(x, y, x, roof, colour, 1, ' stroke-dasharray="2 3"'))
    hollow = f'fill="{colours["halo"]}" stroke="{colour}" stroke-width="2.5"'
    filled = f'fill="{colour}" stroke="#ffffff" stroke-width="1.5"'
    parts.append(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" {hollow if point.predicted else filled} '
        f'data-point="{escape(point.name)}">{title}</circle>'
    )
    if not named:
        return "".join(parts)
    width = len(label) * _CHARACTER
    right = x + 10 + width > WIDTH
    left = max(x - 10 - width, 2.0) if right else x + 10
    below = 24 if right and point.traffic else 14  # marks of memory levels are on the left
    base = axes.room(left, left + width, y + below, _LABEL_GAP)
    halo = f' font-weight="600" stroke="{colours["halo"]}" stroke-width="3"'
    parts.append(draw_text(left, base, label, colour, "start", halo))
    return "".join(parts)
