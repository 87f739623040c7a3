"""A layout as the Python expression that a kernel's author writes for it."""

from __future__ import annotations

from math import prod

from .fragment import Fragment
from .layout import Layout
from .maps import DigitMap
from .text import format_outputs, index_names

TABLE_LIMIT = 1024
"""Most entries of a table that are written out."""


def layout_expression(layout: Layout | Fragment) -> str:
    """``T.Layout(...)`` or ``T.Fragment(...)``, which give an equal one.

    Empty where there is no formula and a table has more than `TABLE_LIMIT` entries.
    """
    mapping = layout.mapping
    names = index_names(layout.rank)
    end = ""
    if isinstance(layout, Fragment) and layout.replicate > 1:
        names, end = (*names, "rep"), f", replicate={layout.replicate}"
    if isinstance(mapping, DigitMap):
        # The replica has a name even where the function does not take it.
        outputs = format_outputs(mapping, (*names, "rep"))
    elif prod(mapping.shape) <= TABLE_LIMIT:
        rows = map(tuple, mapping.values.reshape(-1, mapping.values.shape[-1]).tolist())
        outputs = f"{tuple(rows)}[{_position(mapping.shape[: len(names)], names)}]"
    else:
        return ""
    kind = "T.Fragment" if isinstance(layout, Fragment) else "T.Layout"
    made = f"{kind}({layout.shape}, lambda {', '.join(names)}: {outputs}{end})"
    if isinstance(layout, Fragment) and layout.thread_range:
        start, extent = layout.thread_range
        made += f".bind_thread_range({start}, {extent})"
    return made


def _position(shape: tuple[int, ...], names: tuple[str, ...]) -> str:
    """The row-major position of an index, as text."""
    terms = [
        name if (stride := prod(shape[dim + 1 :])) == 1 else f"{stride} * {name}"
        for dim, name in enumerate(names)
    ]
    return " + ".join(terms)
