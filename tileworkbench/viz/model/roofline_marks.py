"""What a roofline shows of a point beside its place: its memory levels, and the trail behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import dist, hypot, isfinite

from tileworkbench.bench.points import (
    BANDWIDTH,
    Machine,
    Point,
    Step,
    format_percent,
    format_rate,
    levels_of,
)
from tileworkbench.bench.units import format_time
from tileworkbench.viz.model.svg import Colours, draw_line, draw_text

_NAME = 34  # pixels that the name of a level takes
_FAR = 12
_BADGE = 17.0  # pixels that the number of a version takes
# Steps to where a mark may stand, nearest first; of equally near ones above, then on the right.
_AROUND = sorted(
    ((x, y) for x in range(-_FAR, _FAR + 1) for y in range(-_FAR, _FAR + 1)),
    key=lambda step: (hypot(*step), step[1], -step[0]),
)

At = Callable[[float, float], tuple[float, float]]
"""Intensity and GFLOP/s to pixels."""
Room = Callable[[float, float, float, float], float]
"""Left, right, base line and step of a name to a base line where there is room."""
Keep = Callable[[tuple[float, float, float]], None]
"""Takes the room of a text: left, right, base line."""


def shown_steps(point: Point) -> tuple[Step, ...]:
    """The steps of a point's trail that have a place in the drawing."""
    return tuple(step for step in point.trail.before if step.flops and isfinite(step.intensity))


def places(point: Point, machine: Machine) -> Iterator[tuple[float, float]]:
    """Intensity and GFLOP/s of everything that the marks of a point need room for."""
    for level in levels_of(point, machine):
        yield level.intensity, point.gflops
    for step in shown_steps(point):
        yield step.intensity, step.gflops


def draw_levels(
    at: At, room: Room | None, point: Point, machine: Machine, colours: Colours
) -> Iterator[str]:
    """A diamond for each memory level, as high as the point and on one line with it; with its name
    where there is `room` for names.
    """
    levels = levels_of(point, machine)
    if len(levels) < 2:
        return
    spots = [(*at(level.intensity, point.gflops), level) for level in levels]
    own = at(point.intensity, point.gflops)
    ends = [own[0], *(x for x, _, _ in spots)]
    yield draw_line(min(ends), own[1], max(ends), own[1], colours["point"], 1, ' opacity="0.5"')
    names: list[tuple[float, list[str]]] = []  # those that would lie on each other stand together
    for x, y, level in spots:
        title = (
            f"{point.name}, {level.name}: {format_rate(level.gbytes, BANDWIDTH)}, "
            f"{format_percent(level.fraction)} of its roof"
        )
        shape = f"M{x:.1f} {y - 6:.1f}l6 6l-6 6l-6 -6z"
        yield (
            f'<path d="{shape}" fill="{colours["halo"]}" stroke="{colours["point"]}" '
            f'stroke-width="1.5" data-level="{escape(level.name)}">'
            f"<title>{escape(title)}</title></path>"
        )
        if names and abs(x - names[-1][0]) < _NAME:
            names[-1][1].append(level.name)
        else:
            names.append((x, [level.name]))
    if room is None:
        return
    halo = f' stroke="{colours["halo"]}" stroke-width="3"'  # a roof's name may lie below
    for x, together in names:
        text = ", ".join(together)
        half = 3.1 * len(text)
        y = room(x - half, x + half, own[1] - 10, -12.0)
        yield draw_text(x, y, text, colours["text"], "middle", halo)


def draw_trail(at: At, keep: Keep, point: Point, colours: Colours) -> Iterator[str]:
    """The versions before, numbered and joined up to the point; no name may lie on them."""
    steps = shown_steps(point)
    if not steps:
        return
    spots = [at(step.intensity, step.gflops) for step in steps]
    own = at(point.intensity, point.gflops)
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in [*spots, own])
    yield (
        f'<polyline points="{path}" fill="none" stroke="{colours["text"]}" stroke-width="1.2" '
        'stroke-dasharray="4 3" opacity="0.7"/>'
    )
    for (x, y), spot, step in zip(apart(spots, own, _BADGE), spots, steps, strict=True):
        keep((x - _BADGE / 2, x + _BADGE / 2, y + 4))
        if (x, y) != spot:
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
