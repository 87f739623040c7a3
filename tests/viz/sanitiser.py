"""What JupyterLab's HTML sanitiser lets through, as far as our static views may use it."""

from __future__ import annotations

from html.parser import HTMLParser

TAGS = {
    *("b", "code", "details", "div", "img", "pre", "span", "summary", "table", "td", "th", "tr"),
}
ATTRIBUTES = {"style", "title"}
FURTHER = {"img": {"alt", "height", "src", "width"}, "details": {"open"}}
PROPERTIES = {
    *("background", "background-color", "border", "border-collapse", "border-radius", "color"),
    *("cursor", "display", "font-family", "font-size", "font-weight", "line-height", "margin"),
    *("margin-left", "margin-right", "margin-top", "max-height", "max-width", "min-width"),
    *("opacity", "overflow", "padding", "table-layout", "text-align", "vertical-align"),
    "white-space",
}
ADDRESSES = ("data:image/png;base64,", "data:image/svg+xml;base64,")


class _Checker(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.problems.append(f"tag <{tag}>")
        if tag != "img":
            self.open.append(tag)
        for name, value in attrs:
            if name not in ATTRIBUTES | FURTHER.get(tag, set()):
                self.problems.append(f"attribute {name} of <{tag}>")
            if name == "src" and not (value or "").startswith(ADDRESSES):
                self.problems.append(f"address {value}")
            if name == "style":
                names = {part.partition(":")[0].strip() for part in (value or "").split(";")}
                self.problems += [f"style {name}" for name in names - PROPERTIES - {""}]

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"misplaced </{tag}>")


def problems(html: str) -> list[str]:
    """What in `html` would be stripped, or is not well formed."""
    checker = _Checker()
    checker.feed(html)
    checker.close()
    return checker.problems + [f"unclosed <{tag}>" for tag in checker.open]
