"""Kernels that are one but for their names: a layer of a model is there many times."""

from __future__ import annotations

import ast


def form_of(text: str) -> str:
    """A kernel's text without comments, its names numbered in the order in which they appear.

    Two kernels of one form do the same with their arguments, in the same order.
    """
    tree = ast.parse(text)
    own = _Names()
    own.visit(tree)
    return ast.dump(_Numbered(own.found).visit(tree))


class _Names(ast.NodeVisitor):
    """The names that a text gives: functions, parameters, variables."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def _add(self, name: str) -> None:
        self.found.setdefault(name, f"_{len(self.found)}")

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._add(node.name)
        self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> None:
        self._add(node.arg)
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._add(node.id)


class _Numbered(ast.NodeTransformer):
    def __init__(self, numbers: dict[str, str]) -> None:
        self._numbers = numbers

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name = self._numbers[node.name]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self._numbers[node.arg]
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._numbers.get(node.id, node.id)
        return node
