"""A kernel function of a cell over values of names that the cell's code closes over: what `--sweep`
and `--slide` need beside compile-time arguments.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from tileworkbench.api import Jit, Recipe
from tileworkbench.viz.magics.source import CellSource
from tileworkbench.workbench.kernel import Kernel


class CellVariants:
    """A function whose `closed` names are compile-time arguments, too: `remake` gives the function
    that the cell defines with other values of them.
    """

    def __init__(
        self, jit: Jit, closed: Collection[str], remake: Callable[[dict[str, Any]], Jit]
    ) -> None:
        self._jit, self._closed, self._remake = jit, closed, remake
        self.fn = jit.fn

    def constants(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """As `Jit.constants`."""
        used, missing = self._jit.constants(values)
        return used | {name: values[name] for name in self._closed if name in values}, missing

    def compile(self, **used: Any) -> Kernel:
        """As `Jit.compile`, by name."""
        return self._of(used).compile(**used)

    def recipe(self, **used: Any) -> tuple[Recipe, tuple[Any, ...] | None]:
        """As `Jit.recipe`, by name."""
        return self._of(used).recipe(**used)

    def _of(self, used: dict[str, Any]) -> Jit:
        """The function with its closed names from `used`, which loses them."""
        return self._remake({name: used.pop(name) for name in self._closed if name in used})


def closed_names(tree: ast.Module, names: Collection[str]) -> tuple[str, ...]:
    """Those of `names` that the cell reads and binds nowhere: no arguments of its kernels, but
    constants as -D gives them.
    """
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    bound |= {node.id for node in used if not isinstance(node.ctx, ast.Load)}
    free = {node.id for node in used} - bound
    return tuple(name for name in names if name in free)


def definitions_of(source: CellSource) -> CellSource:
    """The cell without the statements that only do something."""
    body = [node for node in source.tree.body if not isinstance(node, ast.Expr)]
    return replace(source, tree=ast.Module(body, source.tree.type_ignores))
