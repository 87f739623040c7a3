"""The texts of several kernels side by side: equal lines in one row, each shaded by its cost."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from tileworkbench.viz.model import html
from tileworkbench.viz.model.source import cost_words, shade, weighted
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView

_LINES = 400
_CHARACTERS = 160
_CELL = f"{html.MONO};font-size:12px;white-space:pre;text-align:left;border:none"
_NUMBER = f"{html.MONO};font-size:12px;text-align:right;border:none;{html.FAINT}"

Row = tuple[int | None, ...]


def together(views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """A table with a row per line and, for each kernel, its cost and text; a text that all have is
    written once.
    """
    texts = [view.record.source.splitlines() for view in views]
    costs = [{cost["line"]: cost for cost in weighted(view)} for view in views]
    once = all(text == texts[0] for text in texts)
    rows = []
    for places in aligned(texts)[:_LINES]:
        cells = []
        for side, place in enumerate(places):
            text = "" if place is None else texts[side][place]
            number = 0 if place is None else views[side].record.first_line + place
            cost = costs[side].get(number)
            differs = not once and len({_line(texts, places, at) for at in range(len(texts))}) > 1
            cells += _cells(number, text, cost, differs, with_text=not once or side == 0)
        rows.append(html.tag("tr", "background:transparent;border:none", *cells))
    heads = [
        cell
        for at, name in enumerate(names)
        for cell in ([_head(""), _head(""), _head(name)] if not once or not at else [_head(name)])
    ]
    body = "".join((html.tag("tr", "background:transparent;border:none", *heads), *rows))
    style = "border-collapse:collapse;border:none;margin:6px 0;font-size:12px"
    return html.tag("div", "overflow:auto", html.tag("table", style, body))


def aligned(texts: Sequence[Sequence[str]]) -> list[Row]:
    """The rows of a table: for each text the number of its line, None where it has none. Lines
    stand in the row of the equal line of the first text.
    """
    count = len(texts[0])
    beside: list[list[int | None]] = [list(range(count))]
    before: list[list[list[int]]] = []  # lines of each other text between two of the first
    for other in texts[1:]:
        matched: list[int | None] = [None] * count
        extra: list[list[int]] = [[] for _ in range(count + 1)]
        matcher = difflib.SequenceMatcher(None, texts[0], other, autojunk=False)
        for _, a, b, c, d in matcher.get_opcodes():
            both = min(b - a, d - c)
            matched[a : a + both] = range(c, c + both)
            extra[b] += range(c + both, d)
        beside.append(matched)
        before.append(extra)
    rows: list[Row] = []
    for at in range(count + 1):
        for step in range(max((len(extra[at]) for extra in before), default=0)):
            found = (extra[at][step] if step < len(extra[at]) else None for extra in before)
            rows.append((None, *found))
        if at < count:
            rows.append(tuple(lines[at] for lines in beside))
    return rows


def _line(texts: Sequence[Sequence[str]], places: Row, side: int) -> str | None:
    place = places[side]
    return None if place is None else texts[side][place]


def _cells(
    number: int, text: str, cost: dict[str, Any] | None, differs: bool, with_text: bool
) -> list[str]:
    """The cost of a line, shaded; with its text its number and itself, loud where it differs."""
    words = cost_words(cost) if cost else ""
    tint = shade(cost["weight"]) if cost else ""
    shown = [html.tag("td", f"{_CELL};padding:0 8px;{tint}", html.text(words))]
    if with_text:
        loud = html.tone(html.ACCENT) if differs and number else ""
        shown.append(html.tag("td", f"{_NUMBER};padding:0 6px", str(number or "")))
        content = html.tag("span", loud, html.text(clip(text, _CHARACTERS))) if text else ""
        shown.append(html.tag("td", f"{_CELL};padding:0 18px 0 0", content))
    return shown


def _head(name: str) -> str:
    style = f"{html.MONO};text-align:left;border:none;padding:2px 8px;font-weight:600"
    return html.tag("th", style, html.text(name))
