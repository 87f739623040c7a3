"""HTML that survives JupyterLab's sanitiser: inline styles, tables, <details> and data-URI images.

Scripts, style sheets, inline SVG and ids are stripped there, so none is ever written. The theme is
not known, and no colour of text has 4.5:1 on both a white and a black ground: text keeps the
reader's colour, fainter for what matters less, and colours are those of grounds and borders.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from html import escape

MONO = "font-family:ui-monospace,Menlo,Consolas,monospace"
FAINT = "opacity:0.78"
LINE = "rgba(128,128,128,0.35)"
GOOD, WARN, BAD, ACCENT = "#2e9e5b", "#c77700", "#d3302f", "#2f80c9"


def text(value: object) -> str:
    """`value` as text: whatever a user wrote is data, never markup."""
    return escape(str(value), quote=True)


def tag(name: str, style: str, *content: str, **attributes: str) -> str:
    """One element; `content` is HTML already, attribute values are escaped here."""
    named = "".join(f' {key}="{escape(value, quote=True)}"' for key, value in attributes.items())
    styled = f' style="{style}"' if style else ""
    return f"<{name}{styled}{named}>{''.join(content)}</{name}>"


def tone(colour: str) -> str:
    """The style of what is good or bad: a tinted ground, which words must go with."""
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return f"background-color:rgba({red},{green},{blue},0.22)"


def chip(label: str, colour: str = "#8a8a8a", title: str = "") -> str:
    """A small rounded label, and a space that parts its text from the next when it is copied."""
    style = (
        f"display:inline-block;border:1px solid {colour};border-radius:9px;"
        "padding:0 7px;margin-right:4px;font-size:11px;line-height:16px"
    )
    attributes = {"title": title} if title else {}
    return tag("span", style, text(label), **attributes) + " "


def panel(*content: str) -> str:
    """The frame around a card."""
    style = (
        f"border:1px solid {LINE};border-radius:6px;padding:10px 14px;max-width:920px;"
        "font-size:13px;line-height:1.5"
    )
    return tag("div", style, *content)


def details(summary: str, *content: str, note: str = "", opened: bool = False) -> str:
    """A section that opens on a click, or is open; `summary` and `note` are text."""
    head = tag("b", "", text(summary))
    if note:
        head += " " + tag("span", f"{FAINT};margin-left:8px", text(note))
    body = tag("div", "margin:6px 0 4px 14px", *content)
    state = {"open": ""} if opened else {}
    return tag("details", "margin-top:6px", tag("summary", "cursor:pointer", head), body, **state)


def line(label: str, note: str) -> str:
    """A line that looks like the head of a section; `label` and `note` are text."""
    faint = tag("span", f"{FAINT};margin-left:8px", text(note))
    return tag("div", "margin-top:6px", tag("b", "", text(label)), " ", faint)


def table(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """A borderless table of HTML cells, aligned left; `heads` are text."""
    row_style = "background:transparent;border:none"
    cell = "padding:1px 18px 1px 0;text-align:left;vertical-align:top;border:none"
    parts = []
    if heads:
        cells = (tag("th", f"{cell};{FAINT};font-weight:normal", text(head)) for head in heads)
        parts.append(tag("tr", row_style, *cells))
    for row in rows:
        parts.append(tag("tr", row_style, *(tag("td", cell, value) for value in row)))
    style = "border-collapse:collapse;border:none;margin:6px 0;table-layout:auto;font-size:13px"
    return tag("table", style, "".join(parts))


def code_block(lines: Iterable[str]) -> str:
    """Preformatted text; `lines` are HTML."""
    style = (
        f"{MONO};font-size:12px;line-height:1.4;overflow:auto;max-height:420px;margin:0;"
        "background-color:rgba(128,128,128,0.08);border-radius:4px;padding:6px 10px;"
        "white-space:pre;text-align:left"
    )
    return tag("pre", style, "\n".join(lines))


def difference(texts: Sequence[str], names: Sequence[str], most: int) -> str:
    """The unified difference of two texts, of at most so many lines; empty where they are equal."""
    one, other = (each.splitlines() for each in texts)
    lines = list(difflib.unified_diff(one, other, names[0], names[1], lineterm=""))
    colours = {"-": BAD, "+": GOOD, "@": ACCENT}
    shown = [
        tag("span", tone(colours[line[0]]) if line[0] in colours else "", text(line[:300]))
        for line in lines[:most]
    ]
    if len(lines) > most:
        shown.append(tag("span", FAINT, f"... {len(lines) - most} more lines"))
    return code_block(shown) if shown else ""


def image(address: str, alt: str, width: int) -> str:
    """An image from a ``data:`` address, `width` CSS pixels wide or, in a narrow page, less. It
    has no height: a page that made it narrower would leave the rest of that empty.
    """
    size = f'width="{width}" style="margin:4px 0;max-width:100%"'
    return f'<img src="{text(address)}" alt="{text(alt)}" {size}>'
