"""LLVM IR whose instructions know their line: the comments that code generation writes above the
instructions of a line (`compiler/emit/llvm/text.py`) as debug locations, which LLVM's passes keep.

A location changes no code. What passes make of two lines has line 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tileworkbench.compiler.emit.llvm.text import LINE_COMMENT

NO_LINE = 0
"""Of an instruction that belongs to no line of the user's text, in a function that has lines, or
in one that others call from outside.
"""
CALLER = -1
"""Of an instruction in a function without lines: it works for the line of the call."""

_UNIT = """
!llvm.dbg.cu = !{!900000}
!llvm.module.flags = !{!900003}
!900000 = distinct !DICompileUnit(language: DW_LANG_C99, file: !900001, producer: "", \
isOptimized: true, runtimeVersion: 0, emissionKind: LineTablesOnly)
!900001 = !DIFile(filename: "kernel", directory: "")
!900002 = !DISubroutineType(types: !900004)
!900003 = !{i32 2, !"Debug Info Version", i32 3}
!900004 = !{}
"""
_FIRST = 900010  # the numbers below are those of the text
_COMMENT = re.compile(rf"\s*{re.escape(LINE_COMMENT)}(\d+)$")
_LOCATION = re.compile(r"^!(\d+) = !DILocation\(line: (\d+),", re.MULTILINE)
_PLACED = re.compile(r", !dbg !(\d+)")


def located(text: str) -> str:
    """The module `text`, as it is before LLVM's passes, with a location for each instruction."""
    made: list[str] = []
    facts: list[str] = []
    for name, body in _functions(text):
        if not name:
            made += body
            continue
        scope = _FIRST + len(facts)
        facts.append(
            f'!{scope} = distinct !DISubprogram(name: "{name}", scope: !900001, file: !900001, '
            "type: !900002, unit: !900000, spFlags: DISPFlagDefinition)"
        )
        made.append(f"{body[0].rstrip().removesuffix('{')}!dbg !{scope} {{")
        line, known = NO_LINE, dict[int, int]()
        for row in body[1:]:
            if comment := _COMMENT.match(row):
                line = int(comment[1])
                continue
            if row.startswith("  "):
                if line not in known:
                    known[line] = _FIRST + len(facts)
                    facts.append(f"!{known[line]} = !DILocation(line: {line}, scope: !{scope})")
                row = f"{row}, !dbg !{known[line]}"
            made.append(row)
    return "\n".join([*made, _UNIT, *facts, ""])


def lines_of(text: str) -> list[int]:
    """The line of each row of a `located` module, as it is behind LLVM's passes: `NO_LINE`,
    `CALLER`, or a number of the user's text.
    """
    numbers = {match[1]: int(match[2]) for match in _LOCATION.finditer(text)}
    lines: list[int] = []
    for _, body in _functions(text):
        placed = [_PLACED.search(row) for row in body]
        own = [NO_LINE if place is None else numbers.get(place[1], 0) for place in placed]
        if body[0].startswith("define internal") and not any(own):
            own = [CALLER] * len(own)
        lines += own
    return lines


def _functions(text: str) -> Iterator[tuple[str, list[str]]]:
    """The rows of each function with its name, and those between functions with none."""
    rows: list[str] = []
    name = ""
    for row in text.splitlines():
        if row.startswith("define "):
            if rows:
                yield name, rows
            rows, name = [], row.partition("@")[2].partition("(")[0].strip('"')
        rows.append(row)
        if row == "}":
            yield name, rows
            rows, name = [], ""
    if rows:
        yield name, rows
