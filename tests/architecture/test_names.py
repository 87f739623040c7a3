"""Names say what they name."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "tileworkbench"
MOST_FOUND = 0  # for what was written meanwhile; goes down only


def binds(function: ast.AST, name: str) -> bool:
    """Whether a parameter or variable of `function`, or of what is defined in it, has this name."""
    return any(
        (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id == name)
        or (isinstance(node, ast.arg) and node.arg == name)
        or (isinstance(node, ast.MatchAs | ast.MatchStar) and node.name == name)
        for node in ast.walk(function)
    )


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """The outermost functions and methods of a module."""
    outermost = []
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            outermost.append(child)
        else:
            outermost += functions(child)
    return outermost


def test_hardly_a_result_is_called_found() -> None:
    """It does not say what was found: a site, a tile, a hazard."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    places = [
        f"{path.relative_to(PACKAGE)}:{function.name}"
        for path, source in sources.items()
        if re.search(r"\bfound\b", source)  # parsing them all takes longer than all the rest
        for function in functions(ast.parse(source))
        if binds(function, "found")
    ]
    assert len(places) <= MOST_FOUND, places
