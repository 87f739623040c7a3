"""What `%%tile ir` and `%%tile src` do: compile what was edited, and show the kernel it makes."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.editing.ir import edit_ir, find_pass
from tileworkbench.editing.source import check_runs_code, edit_source
from tileworkbench.viz.magics.commands import find_kernel
from tileworkbench.viz.magics.forms import EditOptions
from tileworkbench.viz.magics.source import name_cell
from tileworkbench.viz.model.edit import ir_cell, source_cell
from tileworkbench.workbench.inputs import make_inputs
from tileworkbench.workbench.kernel import Kernel


def run_edit(shell: InteractiveShell, line: str, cell: str, options: EditOptions) -> Any:
    """Compile an edited text; returns the kernel, which the cell shows."""
    namespace = shell.user_ns
    kernel = find_kernel(namespace, options.name)
    if not cell.strip():
        command = f"%tile {options.form} {options.name}"
        after = f" --after {options.after}" if options.after else ""
        raise UsageError(f"the cell is empty: '{command}{after}' makes one with the text")
    file = name_cell(shell, line, cell)
    if options.form == "ir":
        # Line 1 is the magic's.
        made = edit_ir(kernel, f"\n{cell}", options.after or "0", file)
    else:
        made = _run_source(shell, kernel, cell, file, options)
    if options.output:
        namespace[options.output] = made
    return None if options.quiet else made


def _run_source(
    shell: InteractiveShell, kernel: Kernel, cell: str, file: str, options: EditOptions
) -> Kernel:
    arguments = (
        make_inputs(kernel.program) if options.args is None else _values(shell, options.args)
    )
    trial = edit_source(kernel, cell, arguments, options.seconds, file, first_line=2)
    if not options.quiet:
        print(trial)
    return trial.kernel


def _values(shell: InteractiveShell, text: str) -> list[Any]:
    try:
        return list(eval(f"({text},)", shell.user_ns))
    except Exception as error:
        raise UsageError(f"'--args {text}' has no value: {error}") from None


def put_cell(shell: InteractiveShell, form: str, words: list[str]) -> None:
    """`%tile ir K --after PASS` and `%tile src K`: a new cell with the text."""
    takes = "a kernel and --after PASS" if form == "ir" else "a kernel"
    if len(words) != (3 if form == "ir" else 1) or (form == "ir" and words[1] != "--after"):
        raise UsageError(f"%tile {form} takes {takes}")
    kernel = find_kernel(shell.user_ns, words[0])
    if form == "ir":
        text = ir_cell(kernel.record, find_pass(kernel.record, words[2]), words[0])
    else:
        check_runs_code(kernel)
        text = source_cell(kernel.record, words[0])
    shell.set_next_input(text)
