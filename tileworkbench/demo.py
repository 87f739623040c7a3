"""The quickstart without a browser: `python -m tileworkbench.demo`, or `make demo`.

Runs the cells of `notebooks/01_quickstart.ipynb` in a kernel of this interpreter, prints what its
kernel is, whether it agrees with torch and how fast both are, and writes the page of its views.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nbclient import NotebookClient
    from nbformat import NotebookNode

    from tileworkbench.bench.timing import BenchResult
    from tileworkbench.workbench.kernel import Kernel

QUICKSTART = Path(__file__).parents[1] / "notebooks" / "01_quickstart.ipynb"
CELL_SECONDS = 300
# Runs after the notebook's cells, on names that they define.
_REPORT = "from tileworkbench.demo import report\nprint(report(kernel, ours, torch_ms, {page!r}))"


class DemoError(Exception):
    """The demo cannot run or go on; the message says why."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tileworkbench.demo", description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=Path("demo.html"), help="HTML file")
    parser.add_argument("--notebook", type=Path, default=QUICKSTART, help="another notebook")
    options = parser.parse_args(arguments)
    try:
        print(run_notebook(options.notebook, options.page))
    except DemoError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def run_notebook(notebook: Path, page: Path) -> str:
    """Execute the cells of `notebook`, write `page`, and return the report.

    The notebook defines `kernel`, a compiled kernel that was checked; `ours`, its measurement; and
    `torch_ms`, the time of torch in milliseconds. Raises `DemoError`.
    """
    page = page.resolve()
    for module in ("ipykernel", "nbclient", "nbformat"):
        if find_spec(module) is None:
            raise DemoError(f"'{module}' is not installed; try pip install 'tileworkbench[lab]'")
    if not notebook.is_file():
        raise DemoError(f"there is no notebook '{notebook}': run the demo in a checkout")
    if not page.parent.is_dir():
        raise DemoError(f"there is no folder '{page.parent}' to write the page to")
    import nbformat

    content = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    last = nbformat.v4.new_code_cell(_REPORT.format(page=str(page)))  # type: ignore[no-untyped-call]
    content.cells.append(last)
    _execute(content, notebook.resolve().parent)
    return "".join(output.get("text", "") for output in last.outputs).rstrip()


def report(kernel: Kernel, ours: BenchResult, torch_ms: float, page: str) -> str:
    """Write the page of `kernel`; returns what it is, whether it is right and how fast it is."""
    check = kernel.view().check
    if check is None:
        raise DemoError(f"'{kernel.name}' was not compared with torch")
    torch_gflops = ours.flops / torch_ms / 1e6
    return (
        f"{kernel!r}\n"
        f"check: largest error {check.max_error:.1e} against torch, "
        f"tolerance {check.tolerance:.1e}\n"
        f"speed: {ours.gflops:.0f} GFLOP/s, torch {torch_gflops:.0f} GFLOP/s "
        f"({ours.gflops / torch_gflops:.2f} times torch)\n"
        f"page:  {kernel.save(page)}"
    )


def _execute(content: NotebookNode, folder: Path) -> None:
    """Run every cell in a fresh kernel, with a line of progress for each."""
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    client = _make_client(content, folder)
    with client.setup_kernel():
        for index, cell in enumerate(content.cells):
            place = f"cell {index + 1}"
            if cell.cell_type == "code" and index + 1 < len(content.cells):
                print(f"{place}: {_first_line(cell.source)}", file=sys.stderr, flush=True)
            try:
                client.execute_cell(cell, index)
            except CellExecutionError:
                raise DemoError(f"{place} failed\n{_trace(cell)}") from None
            except CellTimeoutError:
                raise DemoError(f"{place} took more than {CELL_SECONDS} s") from None
            except DeadKernelError:
                raise DemoError(f"the kernel process died in {place}") from None


def _make_client(content: NotebookNode, folder: Path) -> NotebookClient:
    from nbclient import NotebookClient

    client = NotebookClient(
        content,
        kernel_name="python3",
        timeout=CELL_SECONDS,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(folder)}},
    )
    # Without any folder to look in, this interpreter's own kernel is the only one.
    client.create_kernel_manager().kernel_spec_manager.kernel_dirs = []
    return client


def _first_line(source: str) -> str:
    lines = (line for line in source.splitlines() if line.strip() and not line.startswith("#"))
    return next(lines, "")


def _trace(cell: NotebookNode) -> str:
    """The cell's error as the notebook shows it."""
    errors = (output for output in cell.outputs if output.output_type == "error")
    return "\n".join("\n".join(error.traceback) for error in errors)


if __name__ == "__main__":
    sys.exit(main())
