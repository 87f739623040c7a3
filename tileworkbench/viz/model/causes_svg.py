"""Time by cause as two bars: what a model expects, and beneath it what was measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape

from tileworkbench.bench.parts import Causes
from tileworkbench.bench.units import format_time
from tileworkbench.viz.model.palette import CATEGORIES, EMPTY
from tileworkbench.viz.model.svg import FONT, PAPER, Colours, draw_text

WIDTH, HEIGHT = 680, 118
_LEFT, _RIGHT, _BAR = 78, 16, 26
_TOPS = (8, 44)
_LEGEND = 16  # from one row of the legend to the next
_CHARACTER = 6.4  # pixels of a letter, for what fits into a box
_HUES: Mapping[str, int] = {
    **{"compute": 1, "packing": 4, "wavefronts": 5, "latency": 6, "barriers": 7, "atomics": 7},
    **{"L1": 3, "shared": 3, "L2": 3, "L3": 0, "DRAM": 0, "launch": 2},
}
_EXPLAINED = "#0b5c8e"  # dark enough for white text
_SMALL = 0.004  # of the whole, too little to see


def causes_svg(causes: Causes, measured_us: float = math.nan, colours: Colours = PAPER) -> str:
    """A complete ``<svg>``; `measured_us` is NaN where nothing was measured. Boxes of causes carry
    ``data-cause``, the parts of lines in them ``data-line`` and ``data-us``, their titles the
    numbers; what the model does not explain is an empty box.
    """
    total = causes.total_us
    known = not math.isnan(measured_us)
    height = HEIGHT if known else HEIGHT - _TOPS[1] + _TOPS[0]
    scale = (WIDTH - _LEFT - _RIGHT) / max(total, measured_us if known else 0.0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" font-family="{FONT}" font-size="11">',
        f"<title>{escape(_title(causes, measured_us))}</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="6" fill="{colours["ground"]}"/>',
        *_name(_TOPS[0], "predicted", total, colours),
        *_segments(causes, scale),
    ]
    if known:
        parts += _measured(total, measured_us, scale, colours)
    parts += _legend(causes, height - 30, colours)
    return "".join([*parts, "</svg>"])


def unexplained(causes: Causes, measured_us: float) -> str:
    """What a measurement and the model have to do with each other, in one sentence."""
    rest = measured_us - causes.total_us
    if rest >= 0:
        percent = rest / measured_us * 100
        return (
            f"Of {format_time(measured_us)} measured the model explains "
            f"{format_time(causes.total_us)}; {percent:.0f} % is unexplained."
        )
    return (
        f"It took {format_time(measured_us)}, {format_time(-rest)} less than the model expects: "
        "the model is too careful with this kernel."
    )


def _title(causes: Causes, measured_us: float) -> str:
    predicted = f"Predicted {causes}"
    return (
        predicted if math.isnan(measured_us) else f"{predicted}; {unexplained(causes, measured_us)}"
    )


def _colour(cause: str) -> str:
    hue = _HUES.get(cause)
    red, green, blue = EMPTY if hue is None else CATEGORIES[hue]
    return f"rgb({red},{green},{blue})"


def _segments(causes: Causes, scale: float) -> list[str]:
    parts, x = [], float(_LEFT)
    for cause, time_us in causes.by_cause().items():
        width = time_us * scale
        if time_us < _SMALL * causes.total_us:
            continue
        title = f"{cause}: {format_time(time_us)}, {time_us / causes.total_us * 100:.0f} %"
        parts.append(_box(x, _TOPS[0], width, _colour(cause), title, f' data-cause="{cause}"'))
        parts += _lines(causes, cause, x, scale)
        parts.append(_inside(x, _TOPS[0], width, cause, "#141414"))
        x += width
    return parts


def _lines(causes: Causes, cause: str, x: float, scale: float) -> list[str]:
    """What each line has of a cause, as boxes without colour from `x` on."""
    parts = []
    for line, time_us in causes.by_line(cause).items():
        width = time_us * scale
        if line and time_us >= _SMALL * causes.total_us:
            percent = time_us / causes.total_us * 100
            title = f"line {line}, {cause}: {format_time(time_us)}, {percent:.0f} %"
            parts.append(
                f'<rect x="{x:.1f}" y="{_TOPS[0]}" width="{width:.1f}" height="{_BAR}" '
                f'fill="none" pointer-events="all" data-line="{line}" data-us="{time_us:.6g}">'
                f"<title>{escape(title)}</title></rect>"
            )
        x += width
    return parts


def _box(x: float, y: float, width: float, colour: str, title: str, style: str = "") -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.5):.1f}" height="{_BAR}" fill="{colour}" '
        f'stroke="#ffffff" stroke-width="0.6"{style}><title>{escape(title)}</title></rect>'
    )


def _measured(total: float, measured_us: float, scale: float, colours: Colours) -> list[str]:
    """The measured bar: what the model explains of it, and the rest."""
    y, explained = _TOPS[1], min(total, measured_us)
    parts = [
        *_name(y, "measured", measured_us, colours),
        _box(_LEFT, y, explained * scale, _EXPLAINED, f"explained: {format_time(explained)}"),
        _inside(_LEFT, y, explained * scale, "explained", "#ffffff"),
    ]
    if measured_us > total:
        rest = measured_us - total
        title = f"not explained: {format_time(rest)}, {rest / measured_us * 100:.0f} %"
        x, width = _LEFT + explained * scale, max(rest * scale - 1, 0.5)
        parts.append(
            f'<rect x="{x:.1f}" y="{y + 0.5}" width="{width:.1f}" height="{_BAR - 1}" fill="none" '
            f'stroke="{colours["text"]}" stroke-dasharray="3 3" data-cause="unexplained">'
            f"<title>{escape(title)}</title></rect>"
        )
        parts.append(_inside(x, y, width, "unexplained", colours["text"]))
    return parts


def _name(y: float, name: str, time_us: float, colours: Colours) -> list[str]:
    """What a bar is, and how long it is."""
    return [
        draw_text(_LEFT - 8, y + 11, name, colours["text"], "end"),
        draw_text(_LEFT - 8, y + 24, format_time(time_us), colours["faint"], "end"),
    ]


def _inside(x: float, y: float, width: float, text: str, colour: str) -> str:
    """The name of a box in it, where it has room."""
    if len(text) * _CHARACTER > width - 4:
        return ""
    return draw_text(x + width / 2, y + 17, text, colour, "middle")


def _legend(causes: Causes, y: float, colours: Colours) -> list[str]:
    """Causes with their times, in two rows: one that is in no box has its name here alone."""
    parts, x, top = [], float(_LEFT), y
    for cause, time_us in causes.by_cause().items():
        text = f"{cause} {format_time(time_us)}"
        width = 18 + len(text) * _CHARACTER
        if x + width > WIDTH - _RIGHT:
            x, y = float(_LEFT), y + _LEGEND
        if time_us < _SMALL * causes.total_us or y > top + _LEGEND:
            break
        parts.append(
            f'<rect x="{x:.1f}" y="{y:g}" width="10" height="10" fill="{_colour(cause)}"/>'
        )
        parts.append(draw_text(x + 14, y + 9, text, colours["text"], "start"))
        x += width + 6
    return parts
