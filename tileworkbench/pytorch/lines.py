"""Pieces of a kernel's text that all who write one have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def shape_text(shape: Sequence[int]) -> str:
    return f"({shape[0]},)" if len(shape) == 1 else f"({', '.join(map(str, shape))})"


def index_check(place: str, count: int) -> str:
    """The line that ends a kernel whose index at `place` names none of `count` rows."""
    return f'T.device_assert(({place} >= 0) & ({place} < {count}), "an index is out of range")'


def indented(lines: Iterator[str], depth: int) -> Iterator[str]:
    for line in lines:
        yield "    " * depth + line
