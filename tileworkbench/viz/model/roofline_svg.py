"""The roofline drawn as SVG: one drawing for the widget, the static card and the saved page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import chain

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
from tileworkbench.viz.model.labels import BESIDE, Room, Spot, along, around, beside, box
from tileworkbench.viz.model.roofline_marks import (
    draw_level_names,
    draw_levels,
    draw_trail,
    places,
)
from tileworkbench.viz.model.svg import (
    FONT,
    PAPER,
    TEXT_HEIGHT,
    Colours,
    as_image,
    draw_line,
    draw_name,
    draw_text,
    still,
    text_width,
)
from tileworkbench.viz.model.text import clip

WIDTH, HEIGHT = 680, 400
NAME_LETTERS = 40  # of a kernel's name that are shown
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 20, 14, 44
_POINT = 7.0  # half of the room that a point takes
_FAR = 160.0  # pixels that the name of a point may move away from it


@dataclass(slots=True)
class _Axes:
    """Log-log axes over whole decades, in pixels."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, intensity: float, rate: float) -> tuple[float, float]:
        across = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        up = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return (
            _LEFT + across * (WIDTH - _LEFT - _RIGHT),
            HEIGHT - _BOTTOM - up * (HEIGHT - _TOP - _BOTTOM),
        )


def roofline_svg(points: Sequence[Point], machine: Machine, colours: Colours = PAPER) -> str:
    """A complete ``<svg>`` element; all names in it are escaped."""
    machine = relevant_ceilings(points, machine)
    drawn = [point for point in points if point.flops and math.isfinite(point.intensity)]
    judged = [(point, judge(point, machine)) for point in drawn]
    fastest = min(drawn, key=lambda point: point.time_us, default=None)
    named = [point for point in drawn if len(drawn) <= FEW or point is fastest]
    axes = _axes(drawn, machine)
    room = Room((_LEFT, WIDTH - 2, _TOP, HEIGHT - _BOTTOM), gap=1.5)
    roofs = _roofs(axes, machine, drawn)
    for roof in roofs:
        room.take(roof.line)
    levels = [(point, draw_levels(axes.at, room, point, machine, colours)) for point in named]
    trails = [mark for point in named for mark in draw_trail(axes.at, room, point, colours)]
    circles = [
        _point(axes, room, point, verdict, colours, point in named)
        for point, verdict in sorted(judged, key=lambda each: -each[0].time_us)
    ]
    halo = f'<g stroke="{colours["halo"]}" stroke-width="3">'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="{FONT}" font-size="11" '
        f'paint-order="stroke" stroke-linejoin="round">',
        f"<title>Roofline of {escape(machine.name)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colours["ground"]}"/>',
        *_grid(axes, rate_unit([point.dtype for point in drawn]), colours),
        *(_roof(roof, machine, colours) for roof in reversed(roofs)),
        halo,
        # What is scarce first: the places beside a roof, then those around a point.
        *(_roof_name(room, roof, colours) for roof in roofs if roof.strong),
        *(_point_name(axes, room, *each, colours) for each in judged if each[0] in named),
        *(
            name
            for point in named
            if len(named) < 3 or point is fastest
            for name in draw_level_names(axes.at, room, point, machine, colours)
        ),
        *(_roof_name(room, roof, colours) for roof in roofs if not roof.strong),
        "</g>",
        *(mark for _, marks in levels for mark in marks),
        *trails,
        *circles,
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
    tera = 3 if sum(axes.y) >= 2 * 3 else 0  # of the prefix in which most ticks are short
    for decade in range(int(axes.x[0]), int(axes.x[1]) + 1):
        x = axes.at(10.0**decade, 10 ** axes.y[0])[0]
        parts.append(draw_line(x, _TOP, x, bottom, colours["grid"], 1))
        parts.append(draw_text(x, bottom + 15, _power(decade), colours["faint"], "middle"))
    for decade in range(int(axes.y[0]), int(axes.y[1]) + 1):
        y = axes.at(10 ** axes.x[0], 10.0**decade)[1]
        parts.append(draw_line(left, y, WIDTH - _RIGHT, y, colours["grid"], 1))
        parts.append(draw_text(left - 7, y + 4, _power(decade - tera), colours["faint"], "end"))
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    intensity = f"arithmetic intensity ({unit[1:-2]}/B)"
    parts.append(draw_text(middle, HEIGHT - 8, intensity, colours["text"], "middle"))
    middle = (HEIGHT - _BOTTOM + _TOP) / 2
    turn = f' transform="rotate(-90 14 {middle:.0f})"'
    rate = f"T{unit[1:]}" if tera else unit
    parts.append(draw_text(14, middle, rate, colours["text"], "middle", turn))
    return parts


def _power(decade: int) -> str:
    return f"{10.0**decade:g}" if -3 <= decade < 6 else f"1e{decade}"


@dataclass(frozen=True, slots=True)
class _Roof:
    """A ceiling as a line in pixels; `strong` where some point is held against it."""

    ceiling: Ceiling
    line: tuple[Spot, Spot]
    strong: bool


def _roofs(axes: _Axes, machine: Machine, points: Sequence[Point]) -> list[_Roof]:
    """All ceilings; first those that some point is held against."""
    used = {
        ceiling
        for point in points
        for ceiling in (
            machine.find(point.level, BANDWIDTH, point.threads),
            machine.find(point.dtype, PEAK, point.threads),
        )
    }
    order = sorted(machine.ceilings, key=lambda c: (c not in used, -c.threads, -c.value))
    return [
        _Roof(each, _line_of(axes, machine, each), each in used or not points) for each in order
    ]


def _line_of(axes: _Axes, machine: Machine, ceiling: Ceiling) -> tuple[Spot, Spot]:
    """A bandwidth from the left or bottom edge up to the highest peak of as many threads; a peak
    from the right edge to the fastest roof of as many threads.
    """
    others = [
        c.value for c in machine.ceilings if c.unit != ceiling.unit and c.threads == ceiling.threads
    ]
    left, right = (10.0**decade for decade in axes.x)
    if ceiling.unit == BANDWIDTH:
        top = max(others, default=10.0 ** axes.y[1])
        start = max(left, 10.0 ** axes.y[0] / ceiling.value)
        stop = min(right, top / ceiling.value)
        return axes.at(start, start * ceiling.value), axes.at(stop, stop * ceiling.value)
    fastest = max(others, default=ceiling.value / left)
    return axes.at(right, ceiling.value), axes.at(max(left, ceiling.value / fastest), ceiling.value)


def _name(ceiling: Ceiling) -> str:
    rate = format_rate(ceiling.value, ceiling.shown_unit)
    if not ceiling.threads:  # a published number
        return f"{ceiling.name} {rate}"
    threads = "1 thread" if ceiling.threads == 1 else f"{ceiling.threads} threads"
    return f"{ceiling.name} {rate}, {threads}"


def _roof(roof: _Roof, machine: Machine, colours: Colours) -> str:
    full = roof.ceiling.threads == machine.threads
    style = "" if full else ' stroke-dasharray="5 4" opacity="0.6"'
    title = f"<title>{escape(_name(roof.ceiling))}</title>"
    (x1, y1), (x2, y2) = sorted(roof.line)
    return draw_line(x1, y1, x2, y2, _colour(roof, colours), 1.6, style, title)


def _colour(roof: _Roof, colours: Colours) -> str:
    return colours["roof" if roof.strong else "other"]


def _roof_name(room: Room, roof: _Roof, colours: Colours) -> str:
    """The name along its roof; nothing where there is no room: the roof's title has it."""
    text = _name(roof.ceiling)
    ways = along(*roof.line, text_width(text), TEXT_HEIGHT, up=-1)
    if roof.strong:
        ways = chain(ways, beside(*roof.line, text_width(text), TEXT_HEIGHT, -1, _FAR))
    place = room.find(ways)
    return draw_name(place, text, _colour(roof, colours)) if place else ""


def _point_text(point: Point, verdict: Verdict) -> str:
    label = (
        f"{clip(point.name, NAME_LETTERS)}: {format_rate(point.gflops, rate_unit([point.dtype]))}"
    )
    if point.predicted:
        label += ", predicted"
    elif verdict.attainable:
        label += f", {verdict.fraction * 100:.0f} %"
    return f"{label}, cold caches" if point.cold else label


def _point(
    axes: _Axes, room: Room, point: Point, verdict: Verdict, colours: Colours, named: bool
) -> str:
    x, y = axes.at(point.intensity, point.gflops)
    room.take(box(x, y, _POINT, _POINT))
    colour = colours["wrong" if verdict.wrong else "point"]
    told = f"{_point_text(point, verdict)} of attainable. {verdict.sentence}"
    parts = []
    if verdict.attainable and named:
        roof = axes.at(point.intensity, verdict.attainable)[1]
        room.take(((x, y), (x, roof)))
        parts.append(draw_line(x, y, x, roof, colour, 1, ' stroke-dasharray="2 3"'))
    hollow = f'fill="{colours["halo"]}" stroke="{colour}" stroke-width="2.5"'
    filled = f'fill="{colour}" stroke="#ffffff" stroke-width="1.5"'
    parts.append(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5" {hollow if point.predicted else filled} '
        f'data-point="{escape(point.name)}"><title>{escape(told)}</title></circle>'
    )
    return "".join(parts)


def _point_name(axes: _Axes, room: Room, point: Point, verdict: Verdict, colours: Colours) -> str:
    spot = axes.at(point.intensity, point.gflops)
    text = _point_text(point, verdict)
    width = text_width(text, bold=True)
    place = room.find(around(spot, width, TEXT_HEIGHT, -1, _FAR, BESIDE))
    if place is None:
        return ""
    colour = colours["wrong" if verdict.wrong else "point"]
    return draw_name(place, text, colour, ' font-weight="600"')
