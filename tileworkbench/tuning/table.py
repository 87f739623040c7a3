"""Configurations as a table in plain text."""

from __future__ import annotations

from collections.abc import Sequence

MARK = "*"
"""Stands before the best row."""


def text_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (heads, *rows)]
