"""Kernels side by side: what each view says of each, aligned by label. What differs is loud."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.viz.model import card, html
from tileworkbench.viz.model.text import clip
from tileworkbench.viz.model.view import KernelView
from tileworkbench.viz.model.views import VIEWS

HTML_LIMIT = 60_000  # bytes of a comparison in an output
_ROWS = (400, 40, 8, 1)  # of a table, where there is room for so many
_CARD_ROWS = 20  # that are always there
_CHARACTERS = 160  # of a value
_LEFT_OUT = "Not drawn here: run the cell to see it."
_CELL = "padding:1px 14px 1px 6px;text-align:left;vertical-align:top;border:none"
_HEAD = f"{_CELL};{html.FAINT};min-width:9em"  # long values beside it would leave it no room
_LOUD = f"{_CELL};{html.tone(html.ACCENT)};font-weight:600"


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of a view: its label, and what it says of each kernel: "" of one that lacks it, None
    of one for a kind of target that has nothing of the sort, such as banks on a CPU.
    """

    view: str
    label: str
    values: tuple[str | None, ...]

    @property
    def differs(self) -> bool:
        """Whether kernels of which it can be said differ in it."""
        return len({value for value in self.values if value is not None}) > 1


@dataclass(frozen=True, slots=True)
class Compared:
    """One view of all kernels: its rows, and for each kernel why it has nothing to show ("")."""

    name: str
    title: str
    facts: tuple[Fact, ...]
    missing: tuple[str, ...]

    @property
    def differences(self) -> tuple[Fact, ...]:
        """The rows in which the kernels differ."""
        return tuple(fact for fact in self.facts if fact.differs)

    @property
    def note(self) -> str:
        """``3 of 12 rows differ``."""
        count, total = len(self.differences), len(self.facts)
        if not total:
            return ""
        verb = "differs" if count == 1 else "differ"
        return f"{count} of {total} rows {verb}" if count else "no difference"


def compare_views(views: Sequence[KernelView], live: bool) -> tuple[Compared, ...]:
    """The card and every view that some kernel has. What depends on the host or was measured is
    left out unless `live`.
    """
    views = [view.placed() for view in views] if live else views
    compared = [Compared("card", "Card", _facts("card", views, live), ("",) * len(views))]
    for name, each in VIEWS.items():
        missing = tuple(each.missing(view) for view in views)
        if not all(missing):
            compared.append(Compared(name, each.title, _facts(name, views, live), missing))
    return tuple(compared)


def _facts(name: str, views: Sequence[KernelView], live: bool) -> tuple[Fact, ...]:
    sides = [_rows(name, view, live) for view in views]
    labels = dict.fromkeys(label for side in sides for label in side)
    known = {(v.target_kind, label) for v, side in zip(views, sides, strict=True) for label in side}

    def value(label: str, view: KernelView, side: Mapping[str, str]) -> str | None:
        return side.get(label, "" if (view.target_kind, label) in known else None)

    both = list(zip(views, sides, strict=True))
    return tuple(Fact(name, label, tuple(value(label, *each) for each in both)) for label in labels)


def _rows(name: str, view: KernelView, live: bool) -> Mapping[str, str]:
    if name == "card":
        return card.rows(view, live)
    return {} if VIEWS[name].missing(view) else VIEWS[name].rows(view, live)


def comparison_model(views: Sequence[KernelView], names: Sequence[str]) -> dict[str, Any]:
    """What the browser shows: names, and each view with its rows and its joint picture."""
    views = [view.placed() for view in views]
    parts = compare_views(views, live=True)
    return {
        "names": list(names),
        "sources": len({view.record.source for view in views}),
        "views": [
            {
                "name": part.name,
                "title": part.title,
                "note": part.note,
                "missing": list(part.missing),
                "rows": [[fact.label, *fact.values] for fact in part.facts],
                "together": _together(part, views, names, live=True),
            }
            for part in parts
        ],
    }


def _together(part: Compared, views: Sequence[KernelView], names: Sequence[str], live: bool) -> str:
    """The picture of those kernels that the view has something to show of."""
    if part.name == "card":
        return ""
    shown = [at for at, why in enumerate(part.missing) if not why]
    chosen = [views[at] for at in shown], [names[at] for at in shown]
    return VIEWS[part.name].together(*chosen, live)


def comparison_html(views: Sequence[KernelView], names: Sequence[str]) -> str:
    """All views for readers without a kernel, in at most `HTML_LIMIT` bytes: the rows that differ,
    those that do not folded, and pictures. Where there is too little room those of single kernels
    are left out before those of all, the longest first, and then rows.
    """
    parts = compare_views(views, live=False)
    joint = {part.name: _together(part, views, names, live=False) for part in parts}
    alone = {
        part.name: "".join(_each(part, views, names))
        for part in parts
        if part.name != "card" and part.differences and not joint[part.name]
    }
    page = _page(parts, names, joint | alone, _ROWS[0])
    for pictures in (alone, joint):
        for name in sorted(pictures, key=lambda name: -len(pictures[name])):
            if len(page.encode()) <= HTML_LIMIT:
                return page
            pictures[name] = pictures[name] and html.tag("div", html.FAINT, _LEFT_OUT)
            page = _page(parts, names, joint | alone, _ROWS[0])
    for most in _ROWS[1:]:
        if len(page.encode()) > HTML_LIMIT:
            page = _page(parts, names, joint | alone, most)
    return page


def _page(
    parts: Sequence[Compared], names: Sequence[str], pictures: Mapping[str, str], most: int
) -> str:
    first, *rest = parts
    panels = [_tables(first, names, most)]
    for part in rest:
        body = _tables(part, names, most) + pictures[part.name]
        panels.append(html.details(part.title, body, note=part.note))
    return html.panel(*panels)


def _tables(part: Compared, names: Sequence[str], most: int) -> str:
    tables = [
        html.tag("div", "", html.tag("b", html.MONO, html.text(name)), ": ", html.text(why))
        for name, why in zip(names, part.missing, strict=True)
        if why
    ]
    if part.name == "card":
        return _table(part.facts, names, max(most, _CARD_ROWS))
    same = [fact for fact in part.facts if not fact.differs]
    if part.differences:
        tables.append(_table(part.differences, names, most))
    if same:
        tables.append(html.details("No difference", _once(same[:most]), note=_row_count(len(same))))
    return "".join(tables)


def _row_count(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


def _once(facts: Sequence[Fact]) -> str:
    """Rows that say the same of all kernels of which they say anything, as plain lines."""
    width = max((min(len(fact.label), 40) for fact in facts), default=0)
    said = (next(value for value in fact.values if value is not None) for fact in facts)
    lines = (
        f"{f.label:<{width}}  {clip(v, _CHARACTERS)}" for f, v in zip(facts, said, strict=True)
    )
    return html.code_block(map(html.text, lines))


def _table(facts: Sequence[Fact], names: Sequence[str], most: int) -> str:
    rows = [[html.tag("th", _HEAD, html.text(name)) for name in ("", *names)]]
    for fact in facts[:most]:
        style = _LOUD if fact.differs else _CELL
        cells = [html.tag("td", _CELL if v is None else style, _value(v)) for v in fact.values]
        rows.append([html.tag("td", _CELL, html.text(clip(fact.label, _CHARACTERS))), *cells])
    if len(facts) > most:
        rows.append([html.tag("td", f"{_CELL};{html.FAINT}", f"and {len(facts) - most} more rows")])
    body = (html.tag("tr", "background:none", *cells) for cells in rows)
    return html.tag("table", "border-collapse:collapse;margin:6px 0;font-size:13px", *body)


def _value(value: str | None) -> str:
    return "" if value is None else html.text(clip(value, _CHARACTERS) or "–")


def _each(part: Compared, views: Sequence[KernelView], names: Sequence[str]) -> Iterator[str]:
    for view, name, why in zip(views, names, part.missing, strict=True):
        section = "" if why else VIEWS[part.name].section(view, False)
        if section:
            yield html.tag("div", f"{html.MONO};margin-top:8px", html.text(name)) + section
