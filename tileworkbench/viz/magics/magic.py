"""The class that IPython sees. `%load_ext` loads the language, what completion needs; the first use
loads the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import (
    Magics,
    cell_magic,
    line_magic,
    magics_class,
    no_var_expand,
    output_can_be_silenced,
)

from tileworkbench.viz.magics.forms import form_help, form_of, parse_edit, parse_puzzle, parse_torch
from tileworkbench.viz.magics.grammar import (
    LineError,
    cell_help,
    command_help,
    parse_cell_line,
    parse_command,
)

Parsed = TypeVar("Parsed")


def _documented(text: str) -> Callable[[Any], Any]:
    def document(method: Any) -> Any:
        method.__doc__ = text
        return method

    return document


@magics_class
class TileMagics(Magics):
    """`%%tile` and `%tile`."""

    shell: InteractiveShell

    def __init__(self, shell: InteractiveShell, package: ModuleType) -> None:
        super().__init__(shell)
        self._package = package

    @_documented(cell_help())  # what `%%tile?` shows
    @no_var_expand
    @output_can_be_silenced
    @cell_magic("tile")  # type: ignore[arg-type]
    def tile_cell(self, line: str, cell: str) -> Any:
        if form_of(line) == "puzzle":
            number = _parsed(parse_puzzle, line)
            if number is None:
                print(form_help("puzzle"), end="")
                return None
            from tileworkbench.viz.magics.puzzles import run_puzzle

            give_names(self.shell, self._package)
            return run_puzzle(self.shell, line, cell, number)
        if form_of(line) == "torch":
            of_torch = _parsed(parse_torch, line)
            if of_torch is None:
                print(form_help("torch"), end="")
                return None
            from tileworkbench.viz.magics.torch_cells import run_torch

            give_names(self.shell, self._package)
            return run_torch(self.shell, line, cell, of_torch)
        if form_of(line) is not None:
            edit = _parsed(parse_edit, line)
            if edit.help:
                print(form_help(edit.form), end="")
                return None
            from tileworkbench.viz.magics.edits import run_edit

            return run_edit(self.shell, line, cell, edit)
        options = _parsed(parse_cell_line, line)
        if options.help:
            print(cell_help(), end="")
            return None
        from tileworkbench.viz.magics.cell import run_cell

        give_names(self.shell, self._package)  # once more, after %reset
        return run_cell(self.shell, line, cell, options)

    @_documented(f"Kernels, targets and this machine.\n\n{command_help()}")
    @no_var_expand
    @output_can_be_silenced
    @line_magic("tile")  # type: ignore[arg-type]
    def tile_line(self, line: str) -> Any:
        # IPython silences the value of a line that ends with a semicolon, and leaves it there.
        command, words = _parsed(parse_command, line.rstrip().removesuffix(";"))
        from tileworkbench.viz.magics.commands import run_command

        return run_command(self.shell, command, words)


def give_names(shell: InteractiveShell, package: ModuleType) -> None:
    """`tw` and `T` in the user's namespace, for cells and for completion. The user's own T or tw
    stays what it is, and %who does not list them.
    """
    import tileworkbench.language

    given = {"T": tileworkbench.language, "tw": package}
    shell.push(  # type: ignore[no-untyped-call]
        {name: value for name, value in given.items() if name not in shell.user_ns},
        interactive=False,
    )


def _parsed(parse: Callable[[str], Parsed], line: str) -> Parsed:
    try:
        return parse(line)
    except LineError as error:
        raise UsageError(str(error)) from None
