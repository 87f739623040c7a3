"""Differences of two texts, line by line and, inside changed lines, word by word."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

from tileworkbench.compiler.fast_dataclass import dataclass

Kind = Literal["same", "changed", "removed", "added"]
Range = tuple[int, int]

_WORD = re.compile(r"\w+|\s+|[^\w\s]")
_ALIGN_LIMIT = 2500  # line pairs of one block that are still aligned by likeness
_ALIKE = 0.6  # below this, two lines are a removal and an addition rather than a change


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a side-by-side view: indices of lines (None where a side is empty).

    `before_words` and `after_words` are the character ranges that differ in a changed line.
    """

    kind: Kind
    before: int | None
    after: int | None
    before_words: tuple[Range, ...] = ()
    after_words: tuple[Range, ...] = ()


def diff_lines(before: Sequence[str], after: Sequence[str]) -> list[Row]:
    """The rows that take `before` to `after`."""
    if before == after:
        return [Row("same", i, i) for i in range(len(before))]
    rows: list[Row] = []
    for tag, low, high, start, stop in _opcodes(before, after):
        if tag == "equal":
            rows += [Row("same", low + k, start + k) for k in range(high - low)]
        else:
            rows += _block(before, after, (low, high), (start, stop))
    return rows


def _opcodes(
    before: Sequence[str], after: Sequence[str]
) -> Iterator[tuple[str, int, int, int, int]]:
    """difflib's opcodes, with the common ends taken off first: passes change little."""
    shorter = min(len(before), len(after))
    head = next((i for i in range(shorter) if before[i] != after[i]), shorter)
    rest = shorter - head
    tail = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    if head:
        yield "equal", 0, head, 0, head
    inner_before = before[head : len(before) - tail]
    inner_after = after[head : len(after) - tail]
    matcher = SequenceMatcher(None, inner_before, inner_after, autojunk=len(inner_before) > 2000)
    for tag, low, high, start, stop in matcher.get_opcodes():
        yield tag, low + head, high + head, start + head, stop + head
    if tail:
        yield "equal", len(before) - tail, len(before), len(after) - tail, len(after)


def _block(before: Sequence[str], after: Sequence[str], left: Range, right: Range) -> Iterator[Row]:
    """The rows of one replaced block: like lines side by side, the others alone."""
    low, start = left[0], right[0]
    for i, j in [*_pair(before[slice(*left)], after[slice(*right)]), (None, None)]:
        stop_before = left[1] if i is None else left[0] + i
        stop_after = right[1] if j is None else right[0] + j
        yield from (Row("removed", k, None) for k in range(low, stop_before))
        yield from (Row("added", None, k) for k in range(start, stop_after))
        if i is not None:
            words = diff_words(before[stop_before], after[stop_after])
            yield Row("changed", stop_before, stop_after, *words)
        low, start = stop_before + 1, stop_after + 1


def _pair(before: Sequence[str], after: Sequence[str]) -> list[tuple[int, int]]:
    """Monotone pairs of like lines with the greatest total likeness."""
    if not before or not after or len(before) * len(after) > _ALIGN_LIMIT:
        return []
    words_before, words_after = _bags(before), _bags(after)
    columns = len(after) + 1
    best = [[0.0] * columns for _ in range(len(before) + 1)]
    for i in reversed(range(len(before))):
        for j in reversed(range(len(after))):
            likeness = _likeness(words_before[i], words_after[j])
            paired = best[i + 1][j + 1] + likeness if likeness >= _ALIKE else 0.0
            best[i][j] = max(paired, best[i + 1][j], best[i][j + 1])
    pairs: list[tuple[int, int]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            pairs.append((i, j))
            i, j = i + 1, j + 1
    return pairs


def _bags(lines: Sequence[str]) -> list[Counter[str]]:
    return [Counter(word for word in _WORD.findall(line) if word.strip()) for line in lines]


def _likeness(one: Counter[str], other: Counter[str]) -> float:
    """Shared words, twice, over all words: 1 for the same bag, 0 for nothing in common."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 1.0


def diff_words(before: str, after: str) -> tuple[tuple[Range, ...], tuple[Range, ...]]:
    """The character ranges of `before` and of `after` that differ, indentation aside."""
    left, right = _WORD.findall(before.lstrip()), _WORD.findall(after.lstrip())
    left_starts = _starts(left, len(before) - len(before.lstrip()))
    right_starts = _starts(right, len(after) - len(after.lstrip()))
    removed: list[Range] = []
    added: list[Range] = []
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for tag, low, high, start, stop in matcher.get_opcodes():
        if tag == "equal":
            continue
        if high > low:
            removed.append((left_starts[low], left_starts[high]))
        if stop > start:
            added.append((right_starts[start], right_starts[stop]))
    return tuple(removed), tuple(added)


def _starts(words: Sequence[str], first: int) -> list[int]:
    """Where each word starts, and the end of the last."""
    starts = [first]
    for word in words:
        starts.append(starts[-1] + len(word))
    return starts
