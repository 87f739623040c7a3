"""The text of a user's function, from linecache. Its whole file is parsed, so that every place is
absolute.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tileworkbench.compiler.diagnostics import Span, TileSyntaxError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.syntax import statements_of


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """Where a function is written: its text (decorators included), its file and that text's first
    line.
    """

    text: str
    file: str
    first_line: int


@dataclass(frozen=True, slots=True)
class Located:
    """A function's tree and the lines of its file, which turn byte columns into characters."""

    node: ast.FunctionDef
    file: str
    lines: tuple[str, ...]

    def span(self, start: ast.AST, end: ast.AST | None = None) -> Span:
        """The range from the start of one node to the end of another (default: of the same)."""
        end = start if end is None else end
        line, column = start.lineno, start.col_offset  # type: ignore[attr-defined]
        end_line, end_column = end.end_lineno, end.end_col_offset  # type: ignore[attr-defined]
        return make_span(self.file, self.lines, line, column, end_line, end_column)


def make_span(
    file: str,
    lines: tuple[str, ...] | list[str],
    line: int,
    column: int,
    end_line: int,
    end_column: int,
) -> Span:
    """A span from Python's positions, which count columns in bytes of UTF-8."""

    def characters(number: int, offset: int) -> int:
        text = lines[number - 1] if 0 < number <= len(lines) else ""
        return len(text.encode()[:offset].decode(errors="ignore")) if not text.isascii() else offset

    return Span(file, line, characters(line, column), end_line, characters(end_line, end_column))


def locate(fn: Callable[..., Any]) -> Located:
    """The tree of `fn`.

    Raises `TileSyntaxError` when its source is not available or is a lambda.
    """
    code = inspect.unwrap(fn).__code__
    file = code.co_filename
    linecache.checkcache(file)
    lines = tuple(linecache.getlines(file, fn.__globals__))
    if not lines:
        raise TileSyntaxError(
            f"the source of '{fn.__name__}' is not available",
            hint="define the kernel in a file or a notebook cell; text run by exec() has no "
            "source to read",
        )
    function = _functions(file, lines).get((code.co_firstlineno, code.co_name))
    if function is None:
        what = (
            "a lambda"
            if code.co_name == "<lambda>"
            else "not a plain 'def' of its file as it is now"
        )
        raise TileSyntaxError(
            f"the source of '{fn.__name__}' is not available: it is {what}",
            hint="define the kernel with 'def'; reload the module if its file has changed",
        )
    return Located(function, file, lines)


@lru_cache(maxsize=32)
def _functions(file: str, lines: tuple[str, ...]) -> dict[tuple[int, str], ast.FunctionDef]:
    """Every `def` of a file by its first line (that of its first decorator) and name."""
    try:
        tree = ast.parse("".join(lines), file)
    except SyntaxError:
        return {}
    functions: dict[tuple[int, str], ast.FunctionDef] = {}
    for node in statements_of(tree):
        if isinstance(node, ast.FunctionDef):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            functions[first, node.name] = node
            functions.setdefault((node.lineno, node.name), node)
    return functions


def source_of(fn: Callable[..., Any]) -> FunctionSource:
    """The text of `fn` with its decorators. Raises `TileSyntaxError` when it is not available."""
    located = locate(fn)
    node = located.node
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    text = "".join(located.lines[first - 1 : node.end_lineno])
    return FunctionSource(text, located.file, first)
