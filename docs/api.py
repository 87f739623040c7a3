"""The page of `tw`: what scripts and cells call."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import tileworkbench as tw
from docs import markdown


def names() -> list[str]:
    """What `tw` gives, errors apart, functions first."""
    found = [n for n in tw._EXPORTS if not n.endswith(("Error", "Warning", "Interrupted"))]
    return sorted(found, key=lambda name: (inspect.isclass(getattr(tw, name)), name.lower()))


def members(cls: type) -> list[str]:
    """The public methods and properties of a class that are documented."""
    found = [name for name in dir(cls) if not name.startswith("_")]
    return [name for name in found if inspect.getdoc(inspect.getattr_static(cls, name))]


def pages() -> Iterator[tuple[str, str]]:
    entries = [_entry(f"## `tw.{name}`", name, getattr(tw, name), "tw.") for name in names()]
    yield (
        "api.md",
        markdown.page(
            "# The `tw` interface",
            "`import tileworkbench as tw`. Errors have [pages of their own](errors/index.md).",
            *entries,
        ),
    )


def _entry(title: str, name: str, value: Any, prefix: str) -> str:
    parts = [title]
    if inspect.isclass(value):
        parts.append(markdown.prose(inspect.getdoc(value) or ""))
        parts += [
            _entry(f"### `{name}.{each}`", each, inspect.getattr_static(value, each), f"{name}.")
            for each in members(value)
        ]
        return markdown.page(*parts)
    if isinstance(value, property):
        parts.append("A property.")
    elif callable(value):
        parts.append(markdown.signature(name, value, prefix))
    return markdown.page(*parts, markdown.prose(inspect.getdoc(value) or ""))
