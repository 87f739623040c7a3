"""Exceptions that leave a magic, shown as if the cell were plain Python."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from tileworkbench.compiler.diagnostics import TileError, TileSyntaxError

# IPython asks no SyntaxError how it wants to be shown, except the kinds that `show_syntax_error` is
# registered for. Registering Python's own would take those of plain cells too, so the errors of our
# cells are of kinds of their own, with the same names.
_KINDS: dict[type[SyntaxError], type[SyntaxError]] = {
    kind: type(kind.__name__, (kind,), {}) for kind in (SyntaxError, IndentationError, TabError)
}
SYNTAX_ERRORS: tuple[type[SyntaxError], ...] = (TileSyntaxError, *_KINDS.values())


@contextmanager
def shown_from(shell: InteractiveShell, *files: str) -> Iterator[None]:
    """Tracebacks of exceptions raised within begin in one of `files`: neither the magic nor IPython
    is part of what went wrong. Our own errors show no traceback at all.
    """
    try:
        yield
    except (TileError, UsageError):
        raise
    except SyntaxError as error:
        shown = _KINDS.get(type(error), type(error))(*error.args)
        shown.with_traceback(error.__traceback__)
        _begin_in(shell, shown, files)
        raise shown from error.__cause__
    except (Exception, KeyboardInterrupt) as error:
        _begin_in(shell, error, files)
        raise


def _begin_in(shell: InteractiveShell, error: BaseException, files: tuple[str, ...]) -> None:
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename not in files:
        start = start.tb_next
    if start is None and not isinstance(error, SyntaxError):
        return  # nothing of the user's is to blame: show everything

    def render() -> list[str]:
        return _render(shell, error, start)

    # IPython asks an exception for this method before it makes a traceback of its own.
    error._render_traceback_ = render  # type: ignore[attr-defined]


def _render(
    shell: InteractiveShell, error: BaseException, start: TracebackType | None
) -> list[str]:
    kind = type(error)
    if isinstance(error, SyntaxError):
        entries: Any = traceback.extract_tb(start)
        lines: list[str] = shell.SyntaxTB.structured_traceback(kind, error, entries)
    else:
        lines = shell.InteractiveTB.structured_traceback(kind, error, start, tb_offset=0)
    return lines


def show_syntax_error(
    shell: InteractiveShell, kind: Any, error: Any, trace: Any, tb_offset: Any = None
) -> list[str]:
    """A handler of `SYNTAX_ERRORS` for IPython's `set_custom_exc`."""
    lines: list[str] = error._render_traceback_()
    shell._showtraceback(kind, error, lines)
    return lines
