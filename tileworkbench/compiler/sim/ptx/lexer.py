"""PTX text to tokens, each with its line and the source line that the latest ``.loc`` names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tileworkbench.compiler.sim.ptx.errors import PtxSyntaxError

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<float>0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16})
    |(?P<number>0[xX][0-9a-fA-F]+U?|0[bB][01]+U?|\d+U?)
    |(?P<name>[A-Za-z_$%.][\w$.]*(?:::[\w$.]+)*)
    |(?P<mark>[{}()\[\],;:=<>+\-!|@~]))""",
    re.VERBOSE,
)
# Ended by the line's end, not by a semicolon.
_LINE_DIRECTIVES = frozenset({".version", ".target", ".address_size", ".loc", ".file"})


@dataclass(frozen=True, slots=True)
class Token:
    """One word or mark. `kind` is "string", "float", "number", "name" or "mark"."""

    kind: str
    text: str
    line: int
    source_line: int


def tokenize(text: str) -> tuple[str, list[Token]]:
    """The target that a module names, and its tokens. Raises `PtxSyntaxError`."""
    target, source_line = "", 0
    tokens: list[Token] = []
    callers: dict[tuple[str, str], tuple[str, str]] = {}
    # A block comment keeps its line ends, so that lines still count.
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.S)
    skipping = False
    for number, whole in enumerate(text.splitlines(), 1):
        line = whole.split("//")[0].strip()
        if line.startswith(".section"):
            skipping = True  # debug information, up to the brace of its own line
        if skipping:
            skipping = not line.endswith("}")
        elif (words := line.split()) and words[0] in _LINE_DIRECTIVES:
            if words[0] == ".target":
                target = words[1].rstrip(",")
            elif words[0] == ".loc":
                source_line = _outermost_line(words, callers)
        elif line:
            tokens += _scan_line(line, number, source_line)
    return target, tokens


def _outermost_line(words: list[str], callers: dict[tuple[str, str], tuple[str, str]]) -> int:
    """The line that a ``.loc`` is about, in the kernel itself for inlined code: the place where the
    function was called, and so on outwards. `callers` has the places seen so far."""
    place = words[2], words[3].rstrip(",")
    if "inlined_at" in words:
        at = words.index("inlined_at")
        callers[place] = words[at + 2], words[at + 3]
        seen = {place}
        while (outer := callers.get(place)) is not None and outer not in seen:
            seen.add(outer)
            place = outer
    return int(place[0])


def _scan_line(line: str, number: int, source_line: int) -> Iterator[Token]:
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise PtxSyntaxError(f"PTX line {number} has a character that is no PTX: '{line[at:]}'")
        kind = match.lastgroup or ""
        yield Token(kind, match[kind], number, source_line)
        at = match.end()
        while at < len(line) and line[at].isspace():
            at += 1
