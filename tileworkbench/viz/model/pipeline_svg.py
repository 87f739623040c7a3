"""A pipeline as SVG: time to the right, a row per stage of a tile and per group of threads."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tileworkbench.viz.model.pipeline_rows import Bar, Window
from tileworkbench.viz.model.svg import FONT, PAPER, Colours, draw_line, draw_text, round_step
from tileworkbench.viz.model.text import clip

WIDTH = 860
_LEFT, _RIGHT, _TOP, _BOTTOM = 168, 12, 30, 66
_ROW, _GAP = 22, 4
_CHARACTER = 6.2

STYLES = {  # colours of viz/model/palette.py; their text is dark
    "flight": ("#77aadd", "copy under way"),
    "use": ("#d6eaf8", "data in use"),
    "copy": ("#77aadd", "issuing copies"),
    "product": ("#44bb99", "product"),
    "compute": ("#bbcc33", "other work"),
    "store": ("#ee8866", "writing out"),
    "wait": ("#cdcdcd", "waiting"),
    "signal": ("#8866cc", "signal"),
    "simulated": ("#cc4488", "copy in the simulator"),
}
_INK = "#141414"


class _Axes:
    def __init__(self, window: Window, rows: Sequence[str]) -> None:
        self.window, self.rows = window, rows
        self.height = _TOP + len(rows) * _ROW + _BOTTOM

    def x(self, time: float) -> float:
        window = self.window
        part = (min(max(time, window.start), window.end) - window.start) / (
            window.end - window.start
        )
        return _LEFT + part * (WIDTH - _LEFT - _RIGHT)

    def y(self, row: str) -> float:
        return _TOP + self.rows.index(row) * _ROW


def pipeline_svg(
    bars: Sequence[Bar],
    rows: Sequence[str],
    window: Window,
    unit: str,
    colours: Colours = PAPER,
    statements: float = 0.0,
    live: bool = False,
) -> str:
    """A complete ``<svg>`` element. `statements` is how many statements of the simulator's logical
    time one `unit` stands for, 0 without a trace. Bars of a `live` drawing can be pointed at: they
    carry ``data-event`` and ``data-line``.
    """
    axes = _Axes(window, rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {axes.height}" '
        f'width="{WIDTH}" height="{axes.height}" role="img" font-family="{FONT}" font-size="11">',
        f"<title>Pipeline: {len(rows)} rows over {unit}</title>",
        f'<rect width="{WIDTH}" height="{axes.height}" rx="6" fill="{colours["ground"]}"/>',
        *_phases(axes, colours),
        *_labels(axes, colours),
        *(_live_bars(bars, axes) if live else _plain_bars(bars, axes)),
        *_scale(axes, unit, colours, statements),
        *_legend(bars, axes, colours),
    ]
    return "".join([*parts, "</svg>"])


def _phases(axes: _Axes, colours: Colours) -> list[str]:
    parts = []
    bottom = axes.height - _BOTTOM
    for number, (name, start, end) in enumerate(axes.window.marks):
        x1, x2 = axes.x(start), axes.x(end)
        if name == "steady state":
            parts.append(
                f'<rect x="{x1:.0f}" y="16" width="{x2 - x1:.0f}" height="{bottom - 16}" '
                f'fill="{colours["grid"]}" opacity="0.45"/>'
            )
        if number:
            dashes = ' stroke-dasharray="4 3"'
            parts.append(draw_line(x1, 16, x1, bottom, colours["faint"], 1, dashes))
        if x2 - x1 > _CHARACTER * len(name):
            parts.append(draw_text((x1 + x2) / 2, 12, name, colours["text"], "middle"))
    return parts


def _labels(axes: _Axes, colours: Colours) -> list[str]:
    lines = (f"M{_LEFT} {axes.y(row) + _ROW - 1:.0f}h{WIDTH - _LEFT - _RIGHT}" for row in axes.rows)
    parts = [f'<path d="{"".join(lines)}" stroke="{colours["grid"]}"/>']
    parts.append(f'<g fill="{colours["text"]}" text-anchor="end">')
    for row in axes.rows:
        label = clip(row.replace("simulated: ", "sim: ").replace("role of ", ""), 26)
        parts.append(f'<text x="{_LEFT - 6}" y="{axes.y(row) + 14:.0f}">{escape(label)}</text>')
    return [*parts, "</g>"]


def _box(bar: Bar, axes: _Axes) -> tuple[float, float, float, float]:
    x1, x2 = axes.x(bar.start), axes.x(bar.end)
    y, height = axes.y(bar.row) + _GAP / 2, _ROW - _GAP
    if bar.style == "simulated":
        y, height = y + height - 4, 4
    return x1, y, max(x2 - x1, 1.5), height


def _visible(bars: Sequence[Bar], axes: _Axes) -> list[Bar]:
    """Those in the window; bars without a width only where they are signals."""
    window = axes.window
    return [
        bar
        for bar in bars
        if bar.end >= window.start
        and bar.start <= window.end
        and (bar.end > bar.start or bar.style == "signal")
    ]


def _live_bars(bars: Sequence[Bar], axes: _Axes) -> list[str]:
    parts = []
    for bar in _visible(bars, axes):
        x, y, width, height = _box(bar, axes)
        edge = "none" if bar.style == "simulated" else _INK
        dashed = ' stroke-dasharray="3 2"' if bar.simulated else ""
        parts.append(
            f'<g data-event="{bar.event}" data-line="{bar.line}" data-style="{bar.style}">'
            f"<title>{escape(STYLES[bar.style][1])}, line {bar.line}</title>"
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" '
            f'fill="{STYLES[bar.style][0]}" stroke="{edge}" stroke-width="0.6"{dashed}/>'
        )
        if _has_number(bar, width):
            place = f'x="{x + 3:.0f}" y="{y + 13:.0f}"'
            parts.append(f'<text {place} fill="{_INK}">{escape(bar.text)}</text>')
        parts.append("</g>")
    return parts


def _plain_bars(bars: Sequence[Bar], axes: _Axes) -> list[str]:
    """The same in few bytes: one path per colour, and one text with a place for each digit."""
    paths: dict[str, list[str]] = {}
    digits: list[tuple[str, int, int]] = []
    for bar in _visible(bars, axes):
        x, y, width, height = _box(bar, axes)
        path = f"M{x:.0f} {y:.0f}h{max(width, 1):.0f}v{height:.0f}h-{max(width, 1):.0f}z"
        paths.setdefault(STYLES[bar.style][0], []).append(path)
        if _has_number(bar, width):
            digits += [
                (digit, round(x + 3 + at * _CHARACTER), round(y + 13))
                for at, digit in enumerate(bar.text)
            ]
    drawn = [f'<path d="{"".join(pieces)}" fill="{fill}"/>' for fill, pieces in paths.items()]
    xs, ys = (" ".join(str(digit[at]) for digit in digits) for at in (1, 2))
    text = "".join(digit for digit, _, _ in digits)
    return [
        f'<g stroke="{_INK}" stroke-width="0.6">',
        *drawn,
        f'</g><text x="{xs}" y="{ys}" fill="{_INK}">{text}</text>',
    ]


def _has_number(bar: Bar, width: float) -> bool:
    """Whether the number of the iteration fits into a bar."""
    if not bar.text or bar.style in ("signal", "simulated"):
        return False
    return width >= _CHARACTER * len(bar.text) + 3


def _scale(axes: _Axes, unit: str, colours: Colours, statements: float) -> list[str]:
    base = axes.height - _BOTTOM
    window = axes.window
    ticks = [f"M{_LEFT} {base}h{WIDTH - _LEFT - _RIGHT}"]
    numbers = []
    step = float(round_step(window.end - window.start))
    at = -(-window.start // step) * step
    while at <= window.end:
        x = f"{axes.x(at):.0f}"
        ticks.append(f"M{x} {base}v4")
        numbers.append(f'<text x="{x}" y="{base + 15}">{at:.0f}</text>')
        at += step
    parts = [
        f'<path d="{"".join(ticks)}" stroke="{colours["faint"]}"/>',
        f'<g fill="{colours["faint"]}" text-anchor="middle">{"".join(numbers)}</g>',
    ]
    label = f"predicted {unit}; numbers in bars: iterations"
    if statements:
        label += f"; sim rows: logical time, {statements:.2g} statements to one of the {unit}"
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(draw_text(middle, base + 30, label, colours["faint"], "middle"))
    return parts


def _legend(bars: Sequence[Bar], axes: _Axes, colours: Colours) -> list[str]:
    parts = []
    used = {bar.style for bar in _visible(bars, axes)} - ({"copy"})
    width = sum(26 + round(len(STYLES[style][1]) * _CHARACTER) for style in used)
    x, y = max(min(_LEFT, WIDTH - width), 12), axes.height - 22
    parts.append(f'<g fill="{colours["text"]}" stroke-width="0.6">')
    for style in [name for name in STYLES if name in used]:
        fill, name = STYLES[style]
        box = f'<path d="M{x} {y}h12v12h-12z" fill="{fill}" stroke="{_INK}"/>'
        parts.append(f'{box}<text x="{x + 16}" y="{y + 10}">{name}</text>')
        x += 26 + round(len(name) * _CHARACTER)
    parts.append("</g>")
    return parts
