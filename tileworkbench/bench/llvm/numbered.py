"""LLVM IR whose instructions have their numbers as lines, so that machine code tells of which of
them it was made (LLVM Language Reference, "DILocation"). The code that LLVM makes stays the same.
"""

from __future__ import annotations

import re

# Metadata that a module has already begin at zero.
_FIRST = 1_000_000
_UNIT, _FILE, _TYPE, _VERSION = (f"!{_FIRST + at}" for at in range(4))
_FLAG = "Debug Info Version"
_FLAGS = re.compile(r"(!llvm\.module\.flags = !\{.*)\}")
_HEADER = (
    f"!llvm.dbg.cu = !{{{_UNIT}}}",
    f"{_UNIT} = distinct !DICompileUnit(language: DW_LANG_C, file: {_FILE}, "
    "emissionKind: LineTablesOnly)",
    f'{_FILE} = !DIFile(filename: "kernel.ll", directory: "")',
    f"{_TYPE} = !DISubroutineType(types: !{{}})",
    f'{_VERSION} = !{{i32 2, !"{_FLAG}", i32 3}}',
)


def numbered(text: str) -> str:
    """The module `text` with the number of each instruction of a function, from 1, as its line."""
    lines, added = list[str](), list(_HEADER)
    scope, count, is_open = "", 0, False
    for line in text.splitlines():
        if line.startswith("define"):
            scope, count = f"!{_FIRST + len(added)}", 0
            added.append(
                f'{scope} = distinct !DISubprogram(name: "code", scope: {_FILE}, file: {_FILE}, '
                f"line: 1, type: {_TYPE}, unit: {_UNIT}, spFlags: DISPFlagDefinition)"
            )
            line = f"{line.rstrip().removesuffix('{')} !dbg {scope} {{"
        elif line.startswith("}"):
            scope = ""
        elif scope and line.startswith("  ") and not line.lstrip().startswith(";"):
            line = re.sub(r"\s+;.*$", "", line.rstrip())
            # The targets of a switch stand in lines of their own.
            is_open = line.endswith("[") or (is_open and line.strip() != "]")
            if not is_open:
                count += 1
                where = f"!{_FIRST + len(added)}"
                added.append(f"{where} = !DILocation(line: {count}, scope: {scope})")
                line = f"{line}, !dbg {where}"
        lines.append(line)
    if _FLAGS.search(text):
        lines = [_FLAGS.sub(rf"\1, {_VERSION}}}", line) for line in lines]
    else:
        lines.append(f"!llvm.module.flags = !{{{_VERSION}}}")
    return "\n".join((*lines, *added))
