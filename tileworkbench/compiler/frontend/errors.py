"""Errors of a trace, placed in the user's text and freed of the compiler's own frames."""

from __future__ import annotations

import inspect
import linecache
import sysconfig
from collections.abc import Callable
from functools import cache, wraps
from os.path import abspath, dirname, join
from types import CodeType, TracebackType
from typing import ParamSpec, TypeVar
from weakref import WeakSet

from tileworkbench.compiler.diagnostics import (
    CompileError,
    Span,
    TileIndexError,
    TileTypeError,
    TileValueError,
    render_span,
)
from tileworkbench.compiler.frontend.builder import active_builder
from tileworkbench.compiler.frontend.dtypes import is_dtype
from tileworkbench.compiler.frontend.source import make_span

P = ParamSpec("P")
R = TypeVar("R")

_KINDS: dict[type[Exception], type[CompileError]] = {
    TypeError: TileTypeError,
    ValueError: TileValueError,
    ZeroDivisionError: TileValueError,
    OverflowError: TileValueError,
    IndexError: TileIndexError,
}
# What else Python raises about a text that it runs.
_PYTHONS = (
    *(AssertionError, AttributeError, FloatingPointError, KeyError, LookupError, MemoryError),
    *(NameError, RecursionError, RuntimeError, UnboundLocalError),
)
_PACKAGE = dirname(dirname(dirname(abspath(__file__))))
_OURS = tuple(join(_PACKAGE, name, "") for name in ("compiler", "language", "compat"))
_KERNELS = join(_PACKAGE, "kernels", "")
# What executes the operations of a kernel's text.
_ACTING = tuple(join(_PACKAGE, "compiler", "frontend", f"{n}.py") for n in ("control", "rewritten"))
_LIBRARIES = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_rewritten: WeakSet[CodeType] = WeakSet()


def register(code: CodeType) -> None:
    """Remember that `code` and the functions in it are rewritten kernel source."""
    _rewritten.add(code)
    for value in code.co_consts:
        if isinstance(value, CodeType):
            register(value)


def _entries(traceback: TracebackType | None) -> list[TracebackType]:
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    return entries


def is_ours(code: CodeType) -> bool:
    """Whether `code` belongs to the compiler or the language module."""
    return code.co_filename.startswith(_OURS) and code not in _rewritten


def is_package(code: CodeType) -> bool:
    """Whether `code` belongs to this package and is not a kernel."""
    return code.co_filename.startswith(_PACKAGE) and not code.co_filename.startswith(_KERNELS)


def _is_users(code: CodeType) -> bool:
    return code in _rewritten or not (is_ours(code) or code.co_filename.startswith(_LIBRARIES))


def innermost_span(traceback: TracebackType | None) -> Span | None:
    """The user's expression that was being evaluated when the exception was raised."""
    for entry in reversed(_entries(traceback)):
        code = entry.tb_frame.f_code
        if _is_users(code):
            return _span_at(code, entry.tb_lasti, entry.tb_lineno)
    return None


def _span_at(code: CodeType, instruction: int, number: int) -> Span:
    """The expression that an instruction of `code` belongs to."""
    line, end_line, column, end_column = list(code.co_positions())[instruction // 2]
    file = code.co_filename
    if line is None or end_line is None or column is None or end_column is None:
        return Span(file, number)
    return make_span(file, linecache.getlines(file), line, column, end_line, end_column)


def caller_span() -> Span | None:
    """The user's expression that called into the package, where no trace runs."""
    frame = inspect.currentframe()
    while frame is not None and not _is_users(frame.f_code):
        frame = frame.f_back
    return None if frame is None else _span_at(frame.f_code, frame.f_lasti, frame.f_lineno)


def placed_outside(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: errors of `function` outside a trace, which places them itself, become ours and
    get the caller's place.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except CompileError as error:
            if error.span is None and active_builder() is None:
                error.span = caller_span()
            raise
        except (TypeError, ValueError) as error:
            raiser = _entries(error.__traceback__)[-1].tb_frame.f_code
            if not is_ours(raiser) or active_builder() is not None:
                raise
            kind = TileTypeError if isinstance(error, TypeError) else TileValueError
            raise kind(str(error), caller_span()) from None

    return call


def users_traceback(traceback: TracebackType | None) -> TracebackType | None:
    """`traceback` without the compiler's frames."""
    kept: TracebackType | None = None
    for entry in reversed(_entries(traceback)):
        if not is_ours(entry.tb_frame.f_code):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept


def _raiser(traceback: TracebackType | None) -> CodeType | None:
    """The code that raised, or called the library that did."""
    for entry in reversed(_entries(traceback)):
        code = entry.tb_frame.f_code
        if _is_users(code) or is_ours(code):
            return code
    return None


def _kind_of(error: type[Exception], raiser: CodeType) -> type[CompileError] | None:
    """Our kind for an exception that `raiser` raised, None for one that is not about the kernel.

    What the text of a kernel raises itself is an error of the kernel, whichever kind Python has for
    it; what our code raises is one where it is a kind for users, or stands for what Python does.
    """
    ours = is_ours(raiser)
    if error is RecursionError:  # of nested text or endless macros, wherever it is noticed
        return _kernel_kind(error)
    if error in _KINDS and (ours or raiser in _rewritten):
        return _KINDS[error]
    standing = error is UnboundLocalError or raiser.co_name == "__getattr__"
    acting = raiser in _rewritten or raiser.co_filename in _ACTING
    if error in _PYTHONS and (acting or (ours and standing)):
        return _kernel_kind(error)
    return None


def _message(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the kernel, or a macro that it calls, is nested too deeply"
    return str(error) or type(error).__name__


def _hint(error: Exception) -> str | None:
    """What to write for a name without its module, None for other errors."""
    name = getattr(error, "name", None) if isinstance(error, NameError) else None
    return f"did you mean T.{name}?" if name is not None and is_dtype(name) else None


@cache
def _kernel_kind(kind: type[Exception]) -> type[CompileError]:
    """The class of errors of a kernel that are also a `kind`."""
    return type(f"Tile{kind.__name__}", (CompileError, kind), {"__doc__": kind.__doc__})


def placed(error: Exception, fallback: Span | None) -> Exception:
    """`error` as the user should see it: ours with a span, Python's own kinds raised by us as ours,
    others as they are.

    `fallback` is the statement that was being traced, for errors without a place of their own.
    """
    traceback = error.__traceback__
    span = innermost_span(traceback) or fallback
    if isinstance(error, CompileError):
        if error.span is None:
            error.span = span
        return error.with_traceback(users_traceback(traceback))
    raiser = _raiser(traceback)
    if raiser is not None:
        kind = _kind_of(type(error), raiser)
        if kind is not None:
            return kind(_message(error), span, _hint(error))
    if span is not None and not getattr(error, "__notes__", None):
        place = ["while the kernel was traced", *render_span(span)]
        error.add_note("\n".join(place))
        if raiser in _rewritten or (raiser is not None and is_ours(raiser)):
            # IPython's hook: the cell's line says it all, our frames say nothing.
            lines = [f"{type(error).__name__}: {error}", *place]
            error._render_traceback_ = lambda: lines  # type: ignore[attr-defined]
    return error.with_traceback(users_traceback(traceback))
