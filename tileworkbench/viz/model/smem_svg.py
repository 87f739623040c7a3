"""Shared memory drawn as SVG: address upwards, the statements of a block to the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tileworkbench.bench.units import format_bytes
from tileworkbench.compiler.schedule.shared_memory import SharedBuffer, SharedMemory
from tileworkbench.viz.model.palette import CATEGORIES
from tileworkbench.viz.model.svg import FONT, PAPER, Colours, draw_line, draw_text
from tileworkbench.viz.model.text import clip

WIDTH, HEIGHT = 720, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 158, 12, 58
_CHARACTER = 6.7  # pixels of a letter, for what fits into a box
_TICK_GAP = 10  # pixels between two line numbers
_LABEL = 27  # pixels from one limit's two lines of text to the next


class _Axes:
    """Steps and bytes in pixels; the top is the limit above what is used, if it is near."""

    def __init__(self, shared: SharedMemory, limits: Sequence[int]) -> None:
        self.steps = len(shared.lines)
        above = [limit for limit in limits if shared.bytes_ <= limit <= 5 * shared.bytes_]
        self.top = max([shared.bytes_, *above[:2]]) * 1.06
        self.limits = [limit for limit in limits if limit <= self.top]

    def x(self, step: float) -> float:
        return _LEFT + step / self.steps * (WIDTH - _LEFT - _RIGHT)

    def y(self, bytes_: float) -> float:
        return HEIGHT - _BOTTOM - bytes_ / self.top * (HEIGHT - _TOP - _BOTTOM)


def smem_svg(
    shared: SharedMemory, limits: Mapping[str, Sequence[str]], colours: Colours = PAPER
) -> str:
    """A complete ``<svg>`` element; `limits` are bytes of a block and who has as many. Boxes carry
    ``data-buffer`` and ``data-line``.
    """
    axes = _Axes(shared, [int(limit) for limit in limits])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" font-family="{FONT}" font-size="11">',
        f"<title>Shared memory of a block: {escape(format_bytes(shared.bytes_))}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{colours["ground"]}"/>',
        *_frame(axes, colours),
        *_time(shared, axes, colours),
    ]
    for number, buffer in enumerate(shared.buffers):
        parts += _box(buffer, CATEGORIES[number % len(CATEGORIES)], axes)
    free = 0.0
    for limit in sorted(axes.limits, reverse=True):
        names = ", ".join(limits[str(limit)])
        place = max(axes.y(limit), free)
        free = place + _LABEL
        parts.append(_limit(limit, names, axes, place, colours, shared.bytes_ > limit))
    return "".join([*parts, "</svg>"])


def _frame(axes: _Axes, colours: Colours) -> list[str]:
    """The address axis, in four steps of round numbers."""
    step = 1024
    while step * 5 < axes.top:
        step *= 2
    lines, numbers = [], []
    for bytes_ in range(0, int(axes.top) + 1, step):
        y = axes.y(bytes_)
        lines.append(f"M{_LEFT} {y:.1f}h{WIDTH - _LEFT - _RIGHT}")
        place = f'x="{_LEFT - 6}" y="{y + 4:.0f}"'
        numbers.append(f"<text {place}>{escape(format_bytes(bytes_))}</text>")
    return [
        f'<path d="{"".join(lines)}" stroke="{colours["grid"]}"/>',
        f'<g fill="{colours["faint"]}" text-anchor="end">{"".join(numbers)}</g>',
    ]


def _time(shared: SharedMemory, axes: _Axes, colours: Colours) -> list[str]:
    """Loops as brackets below the axis, and the user's lines below them."""
    parts = []
    base = HEIGHT - _BOTTOM
    outer = [loop for loop in shared.loops if not any(_inside(loop, o) for o in shared.loops)]
    for first, last in outer:
        if last - first < axes.steps / 60:
            continue
        x1, x2 = axes.x(first), axes.x(last + 1)
        parts.append(draw_line(x1 + 1, base + 6, x2 - 1, base + 6, colours["faint"], 3))
        if x2 - x1 > 4 * _CHARACTER:
            parts.append(draw_text((x1 + x2) / 2, base + 18, "loop", colours["faint"], "middle"))
    free = 0.0
    ticks, numbers = [], []
    for step, number in enumerate(shared.lines):
        x, half = axes.x(step), len(str(number)) * _CHARACTER / 2
        if not number or number == shared.lines[step - 1] or x - half < free:
            continue
        free = x + half + _TICK_GAP
        ticks.append(f"M{x:.0f} {base}v4")
        numbers.append(f'<text x="{x:.0f}" y="{base + 32}">{number}</text>')
    parts.append(f'<path d="{"".join(ticks)}" stroke="{colours["faint"]}"/>')
    parts.append(f'<g fill="{colours["faint"]}" text-anchor="middle">{"".join(numbers)}</g>')
    label = "statements of a block in program order (numbers: lines of the kernel)"
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(draw_text(middle, HEIGHT - 8, label, colours["faint"], "middle"))
    return parts


def _inside(loop: tuple[int, int], other: tuple[int, int]) -> bool:
    return loop != other and other[0] <= loop[0] and loop[1] <= other[1]


def _box(buffer: SharedBuffer, colour: tuple[int, int, int], axes: _Axes) -> list[str]:
    """A buffer, cut into its versions; dark text, readable on all colours of the palette."""
    x1, x2 = axes.x(buffer.first), axes.x(buffer.last + 1)
    y1, y2 = axes.y(buffer.offset + buffer.bytes_), axes.y(buffer.offset)
    shape = "x".join(map(str, buffer.shape))
    label = f"{buffer.name} {format_bytes(buffer.bytes_)}"
    title = (
        f"{buffer.name}: {buffer.dtype} {shape}, {buffer.bytes_} bytes from {buffer.offset}, "
        f"steps {buffer.first} to {buffer.last}"
    )
    fill = "rgb({},{},{})".format(*colour)
    parts = [
        f'<g data-buffer="{escape(buffer.name)}" data-line="{buffer.line}">'
        f"<title>{escape(title)}</title>"
        f'<rect x="{x1:.1f}" y="{y1:.1f}" width="{x2 - x1:.1f}" height="{y2 - y1:.1f}" '
        f'fill="{fill}" stroke="#333333" stroke-width="1"/>'
    ]
    height = (y2 - y1) / buffer.versions
    for version in range(1, buffer.versions):
        y = y2 - version * height
        parts.append(draw_line(x1, y, x2, y, "#333333", 1, ' stroke-dasharray="3 2"'))
    room = int((x2 - x1 - 8) / _CHARACTER)
    if room >= 4 and y2 - y1 >= 12:
        text = label if len(label) <= room else clip(buffer.name, room)
        parts.append(draw_text(x1 + 5, y1 + 12, text, "#141414", "start"))
    if buffer.versions > 1 and height >= 13 and room >= 24:
        for version in range(buffer.versions):
            y = y2 - version * height - 4
            parts.append(draw_text(x2 - 5, y, f"stage {version}", "#141414", "end"))
    parts.append("</g>")
    return parts


def _limit(
    limit: int, names: str, axes: _Axes, place: float, colours: Colours, over: bool
) -> str:
    """A line, and at `place` its text: at the line, or below the text of the limit above it."""
    y = axes.y(limit)
    colour = colours["wrong"] if over else colours["text"]
    dashes = ' stroke-dasharray="6 4"'
    end = WIDTH - _RIGHT
    drawn = draw_line(_LEFT, y, end, y, colour, 1.2, dashes)
    if place > y:
        drawn += draw_line(end, y, end + 4, place - 3, colour, 0.8)
    x, room = end + 5, int((_RIGHT - 5) / _CHARACTER)
    label = draw_text(x, place + 1, format_bytes(limit), colour, "start")
    return drawn + label + draw_text(x, place + 13, clip(names, room), colour, "start")
