"""Layouts as CuTe writes them: ``(4,(2,2)):(2,(1,8))``, and ``Sw<3,4,3> o`` before one.

Each part of the outer tuple is one index of our `Layout`; parts of parts are its digits, the first
one fastest. Without strides a layout is compact, its first index fastest. The text is parsed, never
evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import LayoutError, Span

from .algebra import first_fastest, offset_at, swizzle
from .digits import Digit, Term
from .layout import Layout
from .maps import DigitMap

FILE = "<layout>"
"""The file that spans of a text are in."""
LARGEST = 2**31 - 1
"""The largest number and the largest offset that are read."""
TEXT_LIMIT, DEPTH_LIMIT = 2000, 16
"""Characters of a text, and parentheses in one another."""

Tree = int | tuple["Tree", ...]
Swizzle = tuple[int, int, int]

_TOKEN = re.compile(r"\s*(?:_?([0-9]+)|([(),:]))")
_SWIZZLE = re.compile(r"\s*(?:Sw|Swizzle|S)?\s*<([^<>]*)>")
_NUMBERS = re.compile(r"\s*(-?\d{1,3})\s*,\s*(-?\d{1,3})\s*,\s*(-?\d{1,3})\s*")
_THEN = re.compile(r"\s*(?:∘|o\b)(?:\s*0\s*(?:∘|o\b))?")


def looks_like_cute(text: str) -> bool:
    """Whether a text is meant as shape and strides: numbers and ``( ) , :``, nothing else."""
    return re.fullmatch(r"[-\s\w(),:]*", text) is not None and re.search(r"[a-zA-Z]", text) is None


def parse_swizzle(text: str, start: int = 0) -> tuple[Swizzle, int] | None:
    """The numbers of ``Sw<B,M,S> o`` at `start`, and where what follows starts.

    None where the text starts otherwise. ``<B,M,S>`` alone ends at the text's end.

    Raises:
        LayoutError: the numbers, or what follows, are not of that form.
    """
    match = _SWIZZLE.match(text, start)
    if not match:
        return None
    numbers = _NUMBERS.fullmatch(match.group(1))
    if not numbers:
        span = Span(FILE, 1, match.start(1), 1, match.end(1))
        raise LayoutError("A swizzle has three numbers: <bits, base, shift>.", span=span)
    bits, base, shift = map(int, numbers.groups())
    then = _THEN.match(text, match.end())
    end = then.end() if then else match.end()
    if not then and text[end:].strip():
        span = Span(FILE, 1, end, 1, len(text))
        raise LayoutError("Between a swizzle and its layout stands 'o'.", span=span)
    return (bits, base, shift), end


def parse_cute(text: str, start: int = 0) -> Layout:
    """The layout of ``shape:stride`` or ``shape``, from the character `start` of `text` on.

    Raises:
        LayoutError: with the place in `text`.
    """
    return _Parser(text, start).layout()


class _Parser:
    """A parser that goes down into parentheses; `at` is the next character."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.at = text, start
        if len(text) > TEXT_LIMIT:
            raise LayoutError(f"A layout has {len(text)} characters, and {TEXT_LIMIT} are read.")

    def layout(self) -> Layout:
        first = self.at
        shape = self.tree(DEPTH_LIMIT)
        middle = self.at
        strides: Tree = _compact(shape, 1)[0]
        if self.take(":"):
            strides = self.tree(DEPTH_LIMIT)
        if self.peek():
            self.fail("After the layout nothing else may stand.", self.at)
        modes = shape if isinstance(shape, tuple) else (shape,)
        steps = strides if isinstance(strides, tuple) and isinstance(shape, tuple) else (strides,)
        if not _same_form(modes, steps):
            self.fail("The strides need the same parentheses as the shape.", middle + 1)
        pairs = [list(_leaves(mode, step)) for mode, step in zip(modes, steps, strict=True)]
        if any(extent < 1 for pair in pairs for extent, _ in pair):
            self.fail("An extent is 1 or more.", first, middle)
        reach = sum((extent - 1) * stride for pair in pairs for extent, stride in pair)
        if max(reach, prod(extent for pair in pairs for extent, _ in pair)) > LARGEST:
            self.fail(f"The layout reaches beyond {LARGEST}.", first)
        return _strided(pairs)

    def tree(self, depth: int) -> Tree:
        """A number, or a tuple of trees."""
        start = self.at
        if not depth:
            self.fail(f"More than {DEPTH_LIMIT} parentheses stand in one another.", start)
        if not self.take("("):
            return self.number()
        parts: list[Tree] = []
        while not self.take(")"):
            if not self.peek():
                self.fail("This parenthesis is not closed.", start, start + 1)
            parts.append(self.tree(depth - 1))
            if not self.take(",") and self.peek() != ")":
                if not self.peek():
                    continue
                self.fail("Here ',' or ')' should stand.", self.at)
        if not parts:
            self.fail("A tuple has one part or more.", start, self.at)
        return tuple(parts)

    def number(self) -> int:
        match = _TOKEN.match(self.text, self.at)
        if not match or match.group(1) is None:
            self.fail("Here a number or '(' should stand.", self.at)
        self.at = match.end()
        if len(match.group(1)) > 10 or int(match.group(1)) > LARGEST:
            self.fail(f"Numbers go up to {LARGEST}.", match.start(1), match.end(1))
        return int(match.group(1))

    def peek(self) -> str:
        """The next character that is not space; empty at the end."""
        return self.text[self.at :].lstrip()[:1]

    def take(self, symbol: str) -> bool:
        if self.peek() != symbol:
            return False
        self.at = self.text.index(symbol, self.at) + 1
        return True

    def fail(self, message: str, start: int, end: int = 0) -> NoReturn:
        """Refuse the characters from `start` to `end`, or the next one, which is not space."""
        while not end and self.text[start : start + 1].isspace():
            start += 1
        raise LayoutError(message, span=Span(FILE, 1, start, 1, end or start + 1))


def _compact(shape: Tree, stride: int) -> tuple[Tree, int]:
    """Strides of a compact layout, the first part fastest, and the stride after them."""
    if isinstance(shape, int):
        return stride, stride * shape
    parts = []
    for part in shape:
        step, stride = _compact(part, stride)
        parts.append(step)
    return tuple(parts), stride


def _same_form(shape: Tree, strides: Tree) -> bool:
    if isinstance(shape, int) or isinstance(strides, int):
        return isinstance(shape, int) and isinstance(strides, int)
    return len(shape) == len(strides) and all(map(_same_form, shape, strides))


def _leaves(shape: Tree, strides: Tree) -> Iterator[tuple[int, int]]:
    """Extent and stride of each number in a mode, the fastest first."""
    if isinstance(shape, int) or isinstance(strides, int):
        assert isinstance(shape, int) and isinstance(strides, int)
        yield shape, strides
        return
    for part, step in zip(shape, strides, strict=True):
        yield from _leaves(part, step)


def _strided(modes: Sequence[Sequence[tuple[int, int]]]) -> Layout:
    def place(*x: Any) -> Any:
        total: Any = 0
        for value, pairs in zip(x, modes, strict=True):
            digits = first_fastest(tuple(extent for extent, _ in pairs), value)
            steps = (digit * stride for digit, (_, stride) in zip(digits, pairs, strict=True))
            total = sum(steps, total)
        return total

    return Layout([prod(extent for extent, _ in pairs) for pairs in modes], place)


def cute_text(layout: Layout) -> str:
    """The layout as CuTe writes it; empty where shapes, strides and one swizzle do not suffice."""
    flat = layout if len(layout.output_shape) == 1 else _flat(layout)
    if not isinstance(flat.mapping, DigitMap) or flat.mapping.sums[0].constant:
        return ""
    terms = flat.mapping.sums[0].terms
    crossed = [term for term in terms if len(term.digits) > 1]
    if not crossed:
        return _plain_text(flat.shape, terms)
    base = min(term.stride for term in crossed).bit_length() - 1
    bits = sum(term.extent.bit_length() - 1 for term in crossed)
    for shift in range(bits, 31 - base - bits):
        # A swizzle undoes itself.
        mapping = swizzle(flat, bits, base, shift).mapping
        text = (
            _plain_text(flat.shape, mapping.sums[0].terms) if isinstance(mapping, DigitMap) else ""
        )
        if text:
            return f"Sw<{bits},{base},{shift}> o {text}"
    return ""


def _flat(layout: Layout) -> Layout:
    return Layout(layout.shape, lambda *x: offset_at(layout, x))


def _plain_text(shape: Sequence[int], terms: Sequence[Term]) -> str:
    if any(len(term.digits) > 1 or term.stride < 0 for term in terms):
        return ""
    known: dict[int, list[tuple[Digit, int]]] = {}
    for term in terms:
        known.setdefault(term.digits[0].dim, []).append((term.digits[0], term.stride))
    modes = [_mode(extent, sorted(known.get(dim, []))) for dim, extent in enumerate(shape)]
    if not all(modes):
        return ""
    sides = [[_tuple([pair[side] for pair in mode]) for mode in modes] for side in (0, 1)]
    # One index of several digits keeps its parentheses: without them it would be several indices.
    plain = len(modes) == len(modes[0]) == 1
    return ":".join(side[0] if plain else f"({','.join(side)})" for side in sides)


def _mode(extent: int, digits: Sequence[tuple[Digit, int]]) -> list[tuple[int, int]]:
    """Extents and strides of one index; empty where its digits do not fill it exactly."""
    pairs, reached = [], 1
    for digit, stride in digits:
        if digit.divisor > reached:
            pairs.append((digit.divisor // reached, 0))
        pairs.append((digit.extent, stride))
        reached = digit.divisor * digit.extent
    if extent % reached:
        return []
    return pairs if pairs and extent == reached else [*pairs, (extent // reached, 0)]


def _tuple(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"({','.join(map(str, numbers))})"
