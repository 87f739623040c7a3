"""Layouts that people type: Python, CuTe's shapes and strides, swizzles, operands of instructions.

Everything but Python is parsed. Python is the user's own code, run where the user's code runs.
"""

from __future__ import annotations

import linecache
import re
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError, Span, TileError
from tileworkbench.compiler.layout import Fragment, Layout
from tileworkbench.compiler.layout.algebra import swizzle
from tileworkbench.compiler.layout.cute import (
    FILE,
    LARGEST,
    TEXT_LIMIT,
    looks_like_cute,
    parse_cute,
    parse_swizzle,
)
from tileworkbench.compiler.layout.operations import Takes
from tileworkbench.compiler.machine.operands import looks_like_instruction, operand_fragment

ELEMENT_LIMIT = 2**16
"""Most elements, copies counted, of a layout that is shown."""
FORMS = (
    "(4,(2,2)):(2,(1,8)), Sw<3,3,3> o (8,64):(64,1), mma.m16n8k16.f16 A, or "
    "T.Layout((8, 8), lambda i, j: (i, i ^ j))"
)
_QUOTED = re.compile(r"""^\s*(['"])([^'"]*)\1\s*$""")


def read_layout(text: str, names: Mapping[str, Any]) -> Layout | Fragment:
    """The layout of `text`, which may stand in quotes; `names` are what Python in it may use.

    A swizzle alone is that of rows which it permutes whole: ``Sw<3,3,3>`` of 8 rows of 64.

    Raises:
        LayoutError: with the place in `text` where there is one.
    """
    line = _QUOTED.sub(r" \2 ", re.sub(r"[\r\n\t]", " ", text))
    _remember(line)
    if not line.strip():
        raise LayoutError("There is no layout yet.", hint=f"Type one: {FORMS}")
    if len(line) > TEXT_LIMIT:
        raise LayoutError(f"A layout has {len(line)} characters, and {TEXT_LIMIT} are read.")
    layout = _read(line, 0, names)
    check_size(layout)
    return layout


def _remember(line: str) -> None:
    """Let an error show the line below its message, as it does for a file's."""
    linecache.cache[FILE] = (len(line), None, [f"{line}\n"], FILE)


def _read(line: str, start: int, names: Mapping[str, Any]) -> Layout | Fragment:
    parsed = parse_swizzle(line, start)
    if parsed:
        numbers, rest = parsed
        span = Span(FILE, 1, start, 1, rest)
        if not line[rest:].strip():
            if line[start:rest].rstrip().endswith(">"):
                return _swizzled_rows(*numbers)
            hint = "Sw<3,3,3> o (8,64):(64,1)"
            raise LayoutError("A swizzle stands before a layout.", hint=hint, span=span)
        inner = _read(line, rest, names)
        if isinstance(inner, Fragment):
            raise LayoutError("A swizzle is for offsets, and a fragment has none.", span=span)
        check_size(inner)
        return swizzle(inner, *numbers)
    text = line[start:]
    if looks_like_instruction(text) and text.strip() not in names:
        return _placed(line, start, text)
    if looks_like_cute(text):
        return parse_cute(line, start)
    return _evaluate(line, start, names)


def _swizzled_rows(bits: int, base: int, shift: int) -> Layout:
    """A swizzle over the offsets that it tells apart, row by row."""
    width = 2 ** min(base + abs(shift), LARGEST.bit_length())
    rows = Layout.row_major((2 ** min(bits, LARGEST.bit_length()), width))
    check_size(rows)
    return swizzle(rows, bits, base, shift)


def _placed(line: str, start: int, text: str) -> Fragment:
    try:
        return operand_fragment(text)
    except LayoutError as error:
        begin = start + len(text) - len(text.lstrip())
        span = Span(FILE, 1, begin, 1, len(line.rstrip()))
        raise LayoutError(error.message, hint=error.hint, span=span) from None


def _evaluate(line: str, start: int, names: Mapping[str, Any]) -> Layout | Fragment:
    """The value of a Python expression."""
    begin = start + len(line[start:]) - len(line[start:].lstrip())
    whole = Span(FILE, 1, begin, 1, len(line.rstrip()))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # it is half typed
            code = compile(line[begin:], FILE, "eval")
        value = eval(code, dict(names))
    except SyntaxError as error:
        at = min(begin + max((error.offset or 1) - 1, 0), whole.end_column - 1)
        raise LayoutError(f"{error.msg}", span=Span(FILE, 1, at, 1, at + 1)) from None
    except TileError as error:
        span = _place(error.__traceback__, line, begin) or whole
        raise LayoutError(error.message, hint=error.hint, span=span) from None
    except Exception as error:
        span = _place(error.__traceback__, line, begin) or whole
        raise LayoutError(f"{type(error).__name__}: {error}", span=span) from None
    if not isinstance(value, Layout | Fragment):
        message = f"This is '{type(value).__name__}', and no layout."
        raise LayoutError(message, hint=f"Type one: {FORMS}", span=whole)
    return value


def _place(traceback: TracebackType | None, line: str, begin: int) -> Span | None:
    """Where in the text the error came from: the innermost of its own frames."""
    positions = None
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_filename == FILE:
            positions = list(code.co_positions())[traceback.tb_lasti // 2]
        traceback = traceback.tb_next
    if positions is None or positions[2] is None or positions[3] is None:
        return None
    read = line[begin:].encode()  # columns of code are bytes
    start, end = (begin + len(read[:column].decode(errors="ignore")) for column in positions[2:])
    return Span(FILE, 1, start, 1, end) if 0 <= start < end <= len(line) else None


def check_size(layout: Layout | Fragment) -> None:
    """Refuse what is too large to be shown.

    Raises:
        LayoutError: too many elements, or offsets too large.
    """
    count = layout.size * (layout.replicate if isinstance(layout, Fragment) else 1)
    if count > ELEMENT_LIMIT:
        raise LayoutError(f"This has {count} elements, and at most {ELEMENT_LIMIT} are shown.")
    reach = 1
    for extent in layout.mapping.output_shape:
        reach *= extent
    if reach > LARGEST:
        raise LayoutError(f"This reaches beyond offset {LARGEST}.")


def read_other(takes: Takes, text: str, names: Mapping[str, Any]) -> Any:
    """What an operation takes beside the layout, from text.

    Raises:
        LayoutError: with the place in `text` where there is one.
    """
    if takes is Takes.LAYOUT:
        return read_layout(text, names)
    if takes is Takes.NOTHING:
        return None
    _remember(text)
    whole = Span(FILE, 1, 0, 1, max(len(text), 1))
    if takes is Takes.SWIZZLE:
        swizzle = parse_swizzle(text if "<" in text else f"<{text}>")
        if swizzle is None or text[swizzle[1] :].strip():
            raise LayoutError("A swizzle is three numbers: <bits, base, shift>.", span=whole)
        return swizzle[0]
    numbers = [int(word) for word in re.findall(r"[0-9]{1,10}", text)]
    if re.search(r"[^0-9,\s()]", text) or any(not 0 < each <= LARGEST for each in numbers):
        raise LayoutError(f"These are to be numbers from 1 to {LARGEST}.", span=whole)
    if takes is Takes.NUMBERS:
        return tuple(numbers)
    if len(numbers) > 1 or (not numbers and takes is Takes.NUMBER):
        raise LayoutError("One number is wanted here.", span=whole)
    return numbers[0] if numbers else None
