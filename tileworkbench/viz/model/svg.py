"""Parts of drawings: what the views that Python draws have in common.

One drawing serves the widget, the static card and the saved page. In a widget its colours follow
JupyterLab's theme; in an image nothing can, so it has a ground.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping
from html import escape
from itertools import pairwise

from tileworkbench.viz.model.labels import Name

Colours = Mapping[str, str]

THEMED: Colours = {
    "ground": "none",
    "halo": "var(--tw-ground, #fff)",
    "text": "var(--tw-text, #222)",
    "faint": "var(--tw-faint, #555)",
    "grid": "var(--jp-border-color2, #ddd)",
    "roof": "var(--tw-text, #222)",
    "other": "var(--tw-ghost, #666)",
    "point": "var(--tw-point, #0b6a9f)",
    "wrong": "var(--tw-bad-text, #c62828)",
}
PAPER: Colours = {
    "ground": "#ffffff",
    "halo": "#ffffff",
    "text": "#222222",
    "faint": "#666666",
    "grid": "#e4e4e4",
    "roof": "#222222",
    "other": "#6b6b6b",
    "point": "#0b6a9f",
    "wrong": "#c62828",
}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def as_image(drawing: str) -> str:
    """A drawing as a ``data:`` address."""
    return f"data:image/svg+xml;base64,{b64encode(drawing.encode()).decode('ascii')}"


def still(drawing: str) -> str:
    """A drawing without what only a browser's page needs of it: titles to hover on, boxes to point
    at and marks for scripts. In an image they would be bytes that nobody sees.
    """
    bare = re.sub(r"<title>[^<]*</title>| data-[\w-]+=\"[^\"]*\"", "", drawing)
    return re.sub(r"<rect [^>]*pointer-events=[^>]*></rect>", "", bare)


def draw_line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: str,
    width: float,
    style: str = "",
    inner: str = "",
) -> str:
    """A line; `style` are further attributes, `inner` is markup."""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
        f'stroke-width="{width}"{style}>{inner}</line>'
    )


def draw_text(x: float, y: float, text: str, colour: str, anchor: str, style: str = "") -> str:
    """A text, escaped; `anchor` is start, middle or end, `style` further attributes."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"{style}>'
        f"{escape(text)}</text>"
    )


TEXT_HEIGHT = 12.0  # pixels of a line of 11, from the top of its letters to below a g
_BASE = 3.5  # from the middle of that to the base line
_BOLD = 1.05


def text_width(text: str, bold: bool = False) -> float:
    """Pixels that a text of 11 takes at most, in one of the wide fonts: nobody here knows which
    font a browser has.
    """
    width = sum(
        3.8
        if each in " .,:;/|'()il"
        else 10.8
        if each in "mw%MW@"
        else 8.4
        if each.isupper()
        else 7.0
        for each in text
    )
    return width * _BOLD if bold else width


def draw_name(place: Name, text: str, colour: str, style: str = "") -> str:
    """A text where it has room, with a line to what it names where that is far."""
    x, y = place.x, place.y
    tie = "".join(draw_line(*a, *b, colour, 0.7) for a, b in pairwise(place.tie()))
    turn = f' transform="rotate({place.angle:.1f} {x:.1f} {y:.1f})"' if place.angle else ""
    return tie + draw_text(x, y + _BASE, text, colour, "middle", style + turn)


def round_step(span: float) -> int:
    """A round distance between ticks, for at most about eight of them."""
    power = 1
    while power * 10 <= span / 4:
        power *= 10
    return next((power * m for m in (1, 2, 5) if span / (power * m) <= 9), power * 10)
