"""What a kernel prints as a view: by block and thread, to filter."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileError
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP
from tileworkbench.compiler.sim.prints import PrintedLine, Prints
from tileworkbench.viz.model import html
from tileworkbench.viz.model.text import block_text
from tileworkbench.viz.model.view import KernelView

MOST_SHOWN = 2000
"""Lines that a browser gets; `kernel.prints(...)` has more."""

SECONDS = 20.0
"""How long the run of a view may take."""

_ROWS = 60  # lines in the page of a reader without a kernel


def missing(view: KernelView) -> str:
    """Why there is nothing to show; empty where the kernel prints."""
    if view.debugging is None:
        return "nothing is known of what it prints"
    return view.debugging.prints_missing


def about(view: KernelView) -> str:
    """What one looks at."""
    log = _last(view)
    if log is None:
        return (
            "What T.print makes when the kernel runs in the simulator, by block and thread. "
            f"Nothing has run yet; the first {MOST_SHOWN} lines will be shown."
        )
    return (
        f"The {len(log.lines)} lines that T.print made on {log.inputs}, by block and thread, "
        "in the order of the run. Click a line's number to mark it in the kernel. A line of all "
        "threads is of a value that they share."
    )


def model(view: KernelView) -> dict[str, Any]:
    """What was printed; ``{"ran": False}`` where nothing has run yet."""
    log = _last(view)
    return {"ran": False} if log is None else _shown(log)


def run_answer(view: KernelView, content: dict[str, Any]) -> dict[str, Any]:
    """Run it; the model, or an ``error``."""
    assert view.debugging is not None  # see `missing`
    try:
        return _shown(view.debugging.prints(seconds=SECONDS)) | {"about": about(view)}
    except TileError as error:
        return {"error": str(error)}


def _last(view: KernelView) -> Prints | None:
    return None if view.debugging is None else view.debugging.last_prints


def _shown(log: Prints) -> dict[str, Any]:
    kept = log.lines[:MOST_SHOWN]
    return {
        "ran": True,
        "inputs": log.inputs,
        "stopped": log.stopped,
        "total": len(log.lines) + log.dropped,
        "lines": [_line(line) for line in kept],
    }


def _line(line: PrintedLine) -> dict[str, Any]:
    return {
        "block": list(line.block),
        "thread": line.thread,
        "who": thread_text(line.thread),
        "line": line.line,
        "where": where_text(line),
        "message": line.message,
        "value": line.value,
    }


def thread_text(thread: int) -> str:
    """A thread in words."""
    if thread < 0:
        return "all threads"
    return f"thread {thread} (warp {thread // LANGUAGE_WARP}, lane {thread % LANGUAGE_WARP})"


def where_text(line: PrintedLine) -> str:
    """The iterations around a line, in words; empty outside loops."""
    return ", ".join(f"{name} = {value}" for name, value in line.loops)


def rows(view: KernelView, live: bool) -> dict[str, str]:
    """What a comparison says."""
    log = _last(view)
    if log is None:
        return {"printed": "has not run"}
    return {"printed": f"{len(log.lines) + log.dropped} lines on {log.inputs}"}


def section(view: KernelView, opened: bool) -> str:
    """The first lines by block for readers without a kernel: of the last run, and where the view
    stands alone of one on the kernel's inputs.
    """
    log = _last(view)
    if log is None and opened:
        assert view.debugging is not None  # see `missing`
        try:
            log = view.debugging.prints(seconds=SECONDS)
        except TileError as error:
            return html.line("Prints", str(error))
    if log is None:
        return ""
    shown = Prints(log.kernel, log.lines[:_ROWS])
    body = [
        html.details(
            block_text(block),
            html.table(
                [_cells(line) for lines in threads.values() for line in lines],
                ("thread", "line", "where", "message", "value"),
            ),
            note=_count(sum(map(len, threads.values()))),
            opened=opened,
        )
        for block, threads in shown.by_thread().items()
    ]
    rest = len(log.lines) + log.dropped - len(shown.lines)
    notes = [f"{_count(rest)} more"] if rest else []
    notes += [log.stopped] if log.stopped else []
    body += [html.tag("div", html.FAINT, html.text(note)) for note in notes]
    return html.details("Prints", *body, note=f"on {log.inputs}", opened=opened)


def _cells(line: PrintedLine) -> list[str]:
    texts = (thread_text(line.thread), line.line, where_text(line), line.message, line.value)
    return [html.text(text) for text in texts]


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines} lines"
