"""What a roofline shows of a point beside its place: its memory levels, and the trail behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import pairwise
from math import dist, hypot, isfinite

from tileworkbench.bench.points import (
    BANDWIDTH,
    Machine,
    Point,
    Step,
    format_rate,
    levels_of,
)
from tileworkbench.bench.units import format_percent, format_time
from tileworkbench.viz.model.labels import Room, around, box
from tileworkbench.viz.model.svg import (
    TEXT_HEIGHT,
    Colours,
    draw_line,
    draw_name,
    draw_text,
    text_width,
)

_NAME = 20.0  # pixels between diamonds whose names stand together
_DIAMOND = 6.0  # half of the room that one takes
LEVEL_FAR = 40.0  # pixels that the name of a level may move away from it
_FAR = 12
_BADGE = 17.0  # pixels that the number of a version takes
# Steps to where a mark may stand, nearest first; of equally near ones above, then on the right.
_AROUND = sorted(
    ((x, y) for x in range(-_FAR, _FAR + 1) for y in range(-_FAR, _FAR + 1)),
    key=lambda step: (hypot(*step), step[1], -step[0]),
)

At = Callable[[float, float], tuple[float, float]]
"""Intensity and GFLOP/s to pixels."""


def shown_steps(point: Point) -> tuple[Step, ...]:
    """The steps of a point's trail that have a place in the drawing."""
    return tuple(step for step in point.trail.before if step.flops and isfinite(step.intensity))


def places(point: Point, machine: Machine) -> Iterator[tuple[float, float]]:
    """Intensity and GFLOP/s of everything that the marks of a point need room for."""
    for level in levels_of(point, machine):
        yield level.intensity, point.gflops
    for step in shown_steps(point):
        yield step.intensity, step.gflops


def draw_levels(at: At, room: Room, point: Point, machine: Machine, colours: Colours) -> list[str]:
    """A diamond for each memory level, as high as the point and on one line with it."""
    levels = levels_of(point, machine)
    if len(levels) < 2:
        return []
    spots = [(*at(level.intensity, point.gflops), level) for level in levels]
    x, own = at(point.intensity, point.gflops)
    ends = [x, *(x for x, _, _ in spots)]
    room.take(((min(ends), own), (max(ends), own)))
    parts = [draw_line(min(ends), own, max(ends), own, colours["point"], 1, ' opacity="0.5"')]
    for x, y, level in spots:
        room.take(box(x, y, _DIAMOND, _DIAMOND))
        title = (
            f"{point.name}, {level.name}: {format_rate(level.gbytes, BANDWIDTH)}, "
            f"{format_percent(level.fraction)} of its roof"
        )
        shape = f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"
        parts.append(
            f'<path d="{shape}" fill="{colours["halo"]}" stroke="{colours["point"]}" '
            f'stroke-width="1.5" data-level="{escape(level.name)}">'
            f"<title>{escape(title)}</title></path>"
        )
    return parts


def draw_level_names(
    at: At, room: Room, point: Point, machine: Machine, colours: Colours
) -> Iterator[str]:
    """The name of each memory level near its diamond, where there is room."""
    levels = levels_of(point, machine)
    spots = [at(level.intensity, point.gflops) for level in levels] if len(levels) > 1 else []
    for x, text in named_together([x for x, _ in spots], [each.name for each in levels], _NAME):
        ways = around((x, spots[0][1]), text_width(text), TEXT_HEIGHT, -1, LEVEL_FAR)
        if place := room.find(ways):
            yield draw_name(place, text, colours["text"])


def named_together(
    places: Sequence[float], names: Sequence[str], width: float
) -> list[tuple[float, str]]:
    """Where the names of levels stand; those closer than `width` to another stand with it."""
    named: list[tuple[float, list[str]]] = []
    for place, name in zip(places, names, strict=False):
        if named and abs(place - named[-1][0]) < width:
            named[-1][1].append(name)
        else:
            named.append((place, [name]))
    return [(place, ", ".join(together)) for place, together in named]


def draw_trail(at: At, room: Room, point: Point, colours: Colours) -> Iterator[str]:
    """The versions before, numbered and joined up to the point."""
    steps = shown_steps(point)
    if not steps:
        return
    spots = [at(step.intensity, step.gflops) for step in steps]
    own = at(point.intensity, point.gflops)
    for line in pairwise([*spots, own]):
        room.take(line)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*spots, own])
    yield (
        f'<polyline points="{path}" fill="none" stroke="{colours["text"]}" stroke-width="1.2" '
        'stroke-dasharray="4 3" opacity="0.7"/>'
    )
    for (x, y), spot, step in zip(apart(spots, own, _BADGE), spots, steps, strict=True):
        room.take(box(x, y, _BADGE / 2, _BADGE / 2))
        if (x, y) != spot:
            room.take(((x, y), spot))
            yield draw_line(x, y, *spot, colours["text"], 0.8)
        yield (
            f'<g data-step="{step.number}"><circle cx="{x:.1f}" cy="{y:.1f}" r="8" '
            f'fill="{colours["halo"]}" stroke="{colours["text"]}"/>'
            f"{draw_text(x, y + 3.5, str(step.number), colours['text'], 'middle')}"
            f"<title>{escape(step_text(step))}</title></g>"
        )


def apart(
    spots: Sequence[tuple[float, float]], own: tuple[float, float], size: float
) -> list[tuple[float, float]]:
    """Where marks of `size` pixels stand that belong to `spots`: there, or as near as they lie on
    no other mark and not on the point at `own`. Versions that are about as fast share a spot.
    """
    taken = [own]
    for x, y in spots:
        ways = ((x + right * size, y + down * size) for right, down in _AROUND)
        taken.append(next(way for way in ways if all(dist(way, each) >= size for each in taken)))
    return taken[1:]


def step_text(step: Step) -> str:
    """A version with what was changed to get there."""
    how = " (predicted)" if step.predicted else " (cold caches)" if step.cold else ""
    return "\n".join([f"{step.number}: {format_time(step.time_us)}{how}", *step.change])
