"""The texts of several kernels side by side: equal lines in one row, each shaded by its cost."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from tileworkbench.viz.model import html
from tileworkbench.viz.model.source import cost_words, shade, weighted
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView

_LINES = 400
_CHARACTERS = 160
_SIDE = "vertical-align:top;text-align:left;border:none;padding:0 16px 0 0"
_TEXT = f"{html.MONO};font-size:12px;line-height:1.5;white-space:pre;margin:0;background:none"

Row = tuple[int | None, ...]


def together(views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """A column for each kernel with the costs and the lines, equal lines beside each other; a text
    that all have is written once.
    """
    texts = [view.record.source.splitlines() for view in views]
    once = all(text == texts[0] for text in texts)
    rows = aligned(texts)[:_LINES]
    loud = {at for at, places in enumerate(rows) if len(set(_lines(texts, places))) > 1}
    columns = []
    for side, (view, name) in enumerate(zip(views, names, strict=True)):
        places = [row[side] for row in rows]
        shown = _column(view, places, loud, with_text=not once or side == 0)
        head = html.tag("b", html.MONO, html.text(name))
        columns.append(html.tag("td", _SIDE, head, html.tag("pre", _TEXT, "\n".join(shown))))
    row = html.tag("tr", "background:none", *columns)
    return html.tag("div", "overflow:auto", html.tag("table", "border-collapse:collapse", row))


def _lines(texts: Sequence[Sequence[str]], places: Row) -> list[str | None]:
    sides = zip(texts, places, strict=True)
    return [None if place is None else text[place] for text, place in sides]


def _column(
    view: KernelView, places: Sequence[int | None], loud: set[int], with_text: bool
) -> list[str]:
    """The lines of a kernel: what each costs, shaded, its number, and itself, loud where it
    differs.
    """
    text, first = view.record.source.splitlines(), view.record.first_line
    costs = {cost["line"]: cost for cost in weighted(view)}
    words = {line: cost_words(cost) for line, cost in costs.items()}
    width = max(map(len, words.values()), default=0)
    shown = []
    for at, place in enumerate(places):
        number = None if place is None else first + place
        cost = f"{words.get(number or 0, ''):>{width}}"
        if weight := costs.get(number or 0, {"weight": 0.0})["weight"]:
            cost = html.tag("span", shade(weight), cost)
        if with_text and place is not None:
            line = html.text(clip(text[place], _CHARACTERS))
            marked = html.tag("span", html.tone(html.ACCENT), line) if at in loud else line
            cost += f" {number:4} {marked}"
        shown.append(cost or " ")
    return shown


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
            cells = (extra[at][step] if step < len(extra[at]) else None for extra in before)
            rows.append((None, *cells))
        if at < count:
            rows.append(tuple(lines[at] for lines in beside))
    return rows
