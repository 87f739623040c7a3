"""Wrong versions of a PTX text, one change at one place each, generated at every place there is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`text` with one line changed: what kind of change, the line's number and what it was."""

    kind: str
    line: int
    before: str
    text: str


def _number_plus(match: re.Match[str], step: int) -> str:
    return match[0].replace(match[1], str(int(match[1]) + step))


_Edit = Callable[[str], str | None]


def _drop(pattern: str) -> _Edit:
    """Leave the instruction out."""
    return lambda line: "" if re.search(pattern, line) else None


def _replace(pattern: str, replacement: str | Callable[[re.Match[str]], str]) -> _Edit:
    def edit(line: str) -> str | None:
        changed = re.sub(pattern, replacement, line, count=1)
        return changed if changed != line else None

    return edit


_REGISTER = r"(%\w+)"
# Each kind of mistake a lowering could make, as an edit of the one line that shows it.
EDITS: dict[str, _Edit] = {
    "barrier dropped": _drop(r"\bbar(rier)?(\.cta)?\.(sync|red)|bar\.warp\.sync"),
    "wait dropped": _drop(r"cp\.async\.wait_(group|all)|wgmma\.wait_group"),
    "wait count one more": _replace(
        r"wait_group(?:\.\w+)* (\d+)", lambda match: _number_plus(match, 1)
    ),
    "commit dropped": _drop(r"cp\.async\.commit_group|wgmma\.commit_group"),
    "guard dropped": _replace(r"^(\s*)@!?%\w+ (?=st|ld|cp|red|atom)", r"\1"),
    "zero fill dropped": _replace(
        rf"(cp\.async\.c[ag]\.\S+ \[[^]]+\], \[[^]]+\], (\d+)), {_REGISTER};", r"\1, \2;"
    ),
    "copy dropped": _drop(r"cp\.async\.c[ag]\."),
    "swizzle dropped": _replace(rf"xor\.b32\s+{_REGISTER}, {_REGISTER}, \S+;", r"mov.b32 \1, \2;"),
    "transpose dropped": _replace(r"(ldmatrix\S*)\.trans", r"\1"),
    "transpose added": _replace(r"(ldmatrix\S*x[124])\.shared", r"\1.trans.shared"),
    "fragment registers swapped": _replace(
        rf"(mma\.\S+ +\{{[^}}]*\}}, *)\{{{_REGISTER}, *{_REGISTER}(.*?)\}}", r"\1{\3, \2\4}"
    ),
    "product dropped": _drop(r"^\s*mma\.sync"),
    "parity flipped": _replace(
        rf"(mbarrier\.try_wait\.parity\S* %?\w+, \[[^]]+\]), {_REGISTER};",
        r"{.reg .b32 flipped; xor.b32 flipped, \2, 1; \1, flipped;}",
    ),
    "offset shifted": _replace(
        r"((?:ld|st)\.shared\S*.*\[%\w+\+)(\d+)\]",
        lambda match: f"{match[1]}{int(match[2]) + 16}]",
    ),
    "comparison off by one": _replace(
        r"setp\.(lt|le|gt|ge)\.(?=[su](32|64))",
        lambda match: match[0].replace(
            match[1], {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}[match[1]]
        ),
    ),
    "stage off by one": _replace(
        r"(add\.s32\s+%\w+, %\w+, )(2048|4096|8192|16384);",
        lambda match: f"{match[1]}{2 * int(match[2])};",
    ),
    "shuffle from another lane": _replace(
        r"(shfl\.sync\.(?:bfly|down|up)\.b32\s+\S+ %\w+, )(%\w+|\d+),",
        r"\g<1>0,",
    ),
    "store dropped": _drop(r"^\s*st\.(global|shared)"),
    "address shifted": _replace(r"(st\.global\S*\s+\[%\w+)(\+\d+)?\]", r"\1+-4]"),
}


def mutants(text: str) -> Iterator[Mutant]:
    """Every mutant of a PTX text, in the order of its lines."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith((".", "//")):
            continue
        for kind, edit in EDITS.items():
            changed = edit(line)
            if changed is not None:
                new = "\n".join([*lines[: number - 1], changed, *lines[number:]])
                yield Mutant(kind, number, line.strip(), new)
