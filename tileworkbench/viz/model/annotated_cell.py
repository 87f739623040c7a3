"""A kernel's own text with another layout of a tile, as a cell to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import accumulate

from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.record import CompileRecord
from tileworkbench.viz.model.tiles import SharedTile


def cell_with(
    record: CompileRecord, tile: SharedTile, line: str, magic: str | None = None
) -> str:
    """The kernel's own text with `line` where it decides, in place of what the text says of the
    tile's layout already: behind the `magic` line of the `%%tile` that compiled it, or one that
    compiles it where nothing else would. Where the text is only a part of a function, `line` alone,
    with a comment that says where it belongs.
    """
    text = record.source.rstrip("\n")
    if text[:1].isspace():
        return _alone(record, tile, line)
    tree = ast.parse(text)
    made = _replaced(text, tree, tile.name, line) or _inserted(text, tree, record, tile, line)
    if made is None:
        return _alone(record, tile, line)
    if magic is not None:
        return f"{f'%%tile {magic}'.rstrip()}\n{made}\n"
    if made.startswith("@"):
        return f"{made}\n"
    defines = "".join(f" -D {name}={value}" for name, value in record.constants)
    return f"%%tile {record.name}{defines} -t {record.target}\n{made}\n"


def _alone(record: CompileRecord, tile: SharedTile, line: str) -> str:
    where = f"behind line {tile.line} of '{record.name}'" if tile.line else f"'{record.name}'"
    return f"# for the kernel {where}\n{line}\n"


def _replaced(text: str, tree: ast.Module, name: str, line: str) -> str | None:
    """The text with `line` in place of the last annotation of the tile: of one that annotates
    others too, only its part is taken out, and `line` stands behind it. None without one.
    """
    same = [(stmt, made, at) for stmt, made, at in _annotations(tree) if _key(made, at) == name]
    if not same:
        return None
    stmt, made, at = max(same, key=lambda each: each[0].lineno)
    places = _Places(text)
    start, end = places.of(stmt)
    if len(made.keys) == 1:
        return text[:start] + line + text[end:]
    first, last = places.of(made.keys[at])[0], places.of(made.values[at])[1]  # type: ignore[arg-type]
    if at + 1 < len(made.keys):
        last = places.of(made.keys[at + 1])[0]  # type: ignore[arg-type]
    else:
        first = places.of(made.values[at - 1])[1]
    own = " " * stmt.col_offset
    return f"{text[:first]}{text[last:end]}\n{own}{line}{text[end:]}"


def _annotations(tree: ast.Module) -> Iterator[tuple[ast.Expr, ast.Dict, int]]:
    """Statements `T.annotate_layout({...})` with their dictionary and the number of each entry."""
    for stmt in ast.walk(tree):
        match stmt:
            case ast.Expr(
                ast.Call(ast.Attribute(attr="annotate_layout"), [ast.Dict() as made, *_])
            ):
                for at in range(len(made.keys)):
                    yield stmt, made, at


def _key(made: ast.Dict, at: int) -> str:
    key = made.keys[at]
    return key.id if isinstance(key, ast.Name) else ""


def _inserted(
    text: str, tree: ast.Module, record: CompileRecord, tile: SharedTile, line: str
) -> str | None:
    """The text with `line` behind the tile's declaration and whatever may annotate it. None where
    the text does not hold it.
    """
    declared = [
        record.program.span(stmt.site)
        for stmt in statements(record.program.body)
        if isinstance(stmt, Alloc) and stmt.buffer.name == tile.name
    ]
    span = declared[0] if declared else None
    if span is None or span.file != record.source_file:
        return None
    at = span.line - record.first_line + 1
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr)
        and (
            node.lineno <= at <= (node.end_lineno or 0)
            or (tile.annotated and "annotate_layout" in ast.unparse(node))
        )
    ]
    if not nodes:
        return None
    last = max(nodes, key=lambda node: node.end_lineno or 0)
    lines, behind = text.splitlines(), last.end_lineno or 0
    return "\n".join([*lines[:behind], " " * last.col_offset + line, *lines[behind:]])


class _Places:
    """Where nodes of a text are, in characters: `ast` counts the bytes of a line."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines(keepends=True)
        self.starts = [0, *accumulate(map(len, self.lines))]

    def of(self, node: ast.stmt | ast.expr) -> tuple[int, int]:
        """The first character of a node, and the one behind its last."""
        return (
            self._at(node.lineno, node.col_offset),
            self._at(node.end_lineno or 0, node.end_col_offset or 0),
        )

    def _at(self, line: int, column: int) -> int:
        before = self.lines[line - 1].encode()[:column].decode()
        return self.starts[line - 1] + len(before)
