"""What a `%%tile torch` cell does: run plain torch code, make kernels of it, check them, show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.compiler.driver import resolve_target
from tileworkbench.pytorch.tiled import Tiled, tile
from tileworkbench.viz.magics.errors import shown_from
from tileworkbench.viz.magics.forms import TorchOptions
from tileworkbench.viz.magics.grammar import near
from tileworkbench.viz.magics.source import CellSource, bound_names, execute, read_cell


def run_torch(shell: InteractiveShell, line: str, cell: str, options: TorchOptions) -> Tiled | None:
    """Run one cell; returns the function in kernels, whose card the cell shows."""
    if not cell.strip():
        raise UsageError("the cell is empty: write a function of torch operations below the line")
    if options.target is not None:
        resolve_target(options.target)
    with shown_from(shell):
        source = read_cell(shell, line, cell)
    namespace = shell.user_ns
    with shown_from(shell, source.file):
        execute(shell, source, {}, _as_it_is, shell.user_ns)
        name = _subject(source, namespace, options.name)
        arguments = _arguments(namespace, options.args)
        tiled = tile(namespace[name], target=options.target, keep_slower=options.keep_slower)
        tiled.name = options.output or name
        namespace[tiled.name] = tiled  # now: a check that fails sends the user to its kernels
        tiled.check(*arguments, rtol=options.rtol, atol=options.atol)
        if options.bench is not None:
            tiled.bench(*arguments, rounds=options.bench)
    return None if options.quiet else tiled


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _subject(source: CellSource, namespace: dict[str, Any], wanted: str | None) -> str:
    """The name of the function or module that the cell is about."""
    made = [
        name
        for name in bound_names(source.tree)
        if callable(namespace.get(name)) and not isinstance(namespace.get(name), type)
    ]
    if wanted is None and not made:
        raise UsageError("the cell defines no function, and makes no module")
    if wanted is None:
        return made[-1]
    if wanted not in made:
        known = near(wanted, made) if made else "; the cell defines none"
        raise UsageError(f"'{wanted}' is no function of this cell{known}")
    return wanted


def _arguments(namespace: dict[str, Any], text: str) -> list[Any]:
    try:
        return list(eval(f"({text},)", namespace))
    except Exception as error:
        raise UsageError(f"'--args {text}' has no value: {error}") from None
