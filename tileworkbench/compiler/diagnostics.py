"""Source spans, and every error a user can meet, rendered with the source line and a caret.

The tree of errors::

    TileError
    ├── CompileError            wrong kernels: span, message, hint, notes
    │   ├── TileSyntaxError     (SyntaxError)
    │   ├── TileTypeError       (TypeError)
    │   │   └── TileAssertionError  (AssertionError)
    │   ├── TileValueError      (ValueError)
    │   ├── TileIndexError      (IndexError)
    │   ├── TileRuntimeError    (RuntimeError)   names used after their scope, endless loops
    │   │   └── JITNoBuilderError   the language outside a kernel
    │   ├── ShapeError          (AssertionError, ValueError)
    │   ├── LayoutError         (ValueError)
    │   ├── ResourceError
    │   ├── UnsupportedError    (NotImplementedError)
    │   └── VerifyError         the compiler's own IR is malformed: a bug of ours
    ├── ArgumentError           (ValueError)     wrong arguments of a call
    │   └── NotOneKernelError   (AttributeError)    a function with no kernel yet, or several
    ├── RunError                something went wrong while a kernel ran
    │   ├── OutOfBoundsError    (IndexError)
    │   ├── RaceError
    │   ├── SimulatorLimitError
    │   ├── DeadlockError
    │   ├── DeviceAssertError
    │   ├── CheckError          (AssertionError) a result disagrees with its reference
    │   └── Interrupted         (KeyboardInterrupt)
    │       └── BenchInterrupted    with what was measured (bench/timing.py)
    └── DeviceUnavailableError  (RuntimeError)

and beside it `TileWarning` (UserWarning).
"""

from __future__ import annotations

import linecache
from typing import Any

from tileworkbench.compiler.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A range of source text. Lines count from 1, columns (in characters) from 0; the end is
    exclusive.
    """

    file: str
    line: int
    column: int = 0
    end_line: int = 0
    end_column: int = 0

    def __str__(self) -> str:
        return f"{display_name(self.file)}, line {self.line}"


@dataclass(frozen=True, slots=True)
class Note:
    """A further remark of a diagnostic, with its own place in the source when it has one."""

    message: str
    span: Span | None = None

    def render(self, label: str = "note") -> str:
        """The remark with its source line."""
        lines = [f"{label}: {self.message}"]
        return "\n".join(lines if self.span is None else [*lines, *render_span(self.span)])


def line_in(file: str, span: Span | None) -> int:
    """The line of `span` in `file` ("": in any), 0 where it is not there."""
    return span.line if span is not None and file in ("", span.file) else 0


def display_name(file: str) -> str:
    """The name a user knows `file` by: IPython's ``Cell In[n]`` for a cell, else the file's own
    name.
    """
    names = _cell_names()
    return names.get(file, file)


def _cell_names() -> dict[str, str]:
    """IPython's map from a cell's compiled file name to ``Cell In[n]``, empty outside IPython."""
    import sys

    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    numbers = getattr(getattr(shell, "compile", None), "_filename_map", None) or {}
    return {name: f"Cell In[{number}]" for name, number in numbers.items()}


def render_span(span: Span) -> list[str]:
    """The lines ``--> where`` and the source text of `span` with carets below it."""
    lines = [f"  --> {span}"]
    text = linecache.getline(span.file, span.line).rstrip("\n")
    if not text.strip():
        return lines
    indent = len(text) - len(text.lstrip())
    start = max(span.column, indent)
    end = span.end_column if span.end_line == span.line else len(text.rstrip())
    gutter = str(span.line)
    blank = " " * len(gutter)
    lines.append(f"{gutter} | {text[indent:]}")
    if end > start:
        lines.append(f"{blank} | {' ' * (start - indent)}{'^' * (end - start)}")
    return lines


class TileError(Exception):
    """Root of every error that this package raises on purpose.

    `span` is the place in the user's source, `notes` are further remarks with places of their own.
    """

    kind: str = "error"

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        span: Span | None = None,
        notes: tuple[Note, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.span = span
        self.notes = notes

    def render(self) -> str:
        """The whole diagnostic as text: what, where, why and what to do."""
        lines = [f"{type(self).__name__}: {self.message}"]
        if self.span is not None:
            lines += render_span(self.span)
        lines += [note.render() for note in self.notes]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.render().split(": ", 1)[1]

    def _render_traceback_(self) -> list[str]:
        """IPython's hook: a cell shows the diagnostic and none of our frames."""
        return self.render().splitlines()


class CompileError(TileError):
    """A kernel that cannot be compiled: what is wrong, where, and what to do about it."""

    def __init__(
        self,
        message: str,
        span: Span | None = None,
        hint: str | None = None,
        notes: tuple[Note, ...] = (),
    ) -> None:
        super().__init__(message, hint, span, notes)


class TileSyntaxError(CompileError, SyntaxError):
    """The kernel uses Python syntax that has no meaning in a kernel."""

    # SyntaxError.__str__ would append its own idea of file and line.
    __str__ = TileError.__str__


class TileTypeError(CompileError, TypeError):
    """An operand, dtype or argument of the wrong kind."""


class TileAssertionError(TileTypeError, AssertionError):
    """A dtype that is not legal here, where TileLang asserts."""


class TileValueError(CompileError, ValueError):
    """A value, shape or option that is not legal here."""


class TileIndexError(CompileError, IndexError):
    """The wrong number of indices, or one that is provably out of range."""


class TileRuntimeError(CompileError, RuntimeError):
    """A name used after its scope has ended, or a trace that would not end."""


class JITNoBuilderError(TileRuntimeError):
    """A construct of the language where no kernel is being traced; the name is TileLang's."""


class ShapeError(CompileError, AssertionError, ValueError):
    """Shapes that do not fit together."""


class LayoutError(CompileError, ValueError):
    """A layout that is not injective, not representable, or in conflict with another.

    `explanation` is how a conflict came about, as data for views.
    """

    explanation: object = None


class ResourceError(CompileError):
    """More shared memory, registers or threads than the target has."""


class UnsupportedError(CompileError, NotImplementedError):
    """Something legal that this version, target or machine does not have."""


class VerifyError(CompileError):
    """The compiler built IR that its own verifier rejects; a bug in the compiler, not in the
    kernel.
    """


class ArgumentError(TileError, ValueError):
    """A call whose arguments do not fit the kernel's parameters."""


class NotOneKernelError(ArgumentError, AttributeError):
    """A function that is asked for what one compiled kernel has, and has none yet, or several."""


class TileWarning(UserWarning):
    """The language defines what this does, but the author surely means something else."""


class RunError(TileError):
    """Something went wrong while a kernel ran: `kernel`, where it was called or checked."""

    kernel: Any = None


class SimulatorLimitError(RunError):
    """The simulator cannot run this program, though it may be right."""


class OutOfBoundsError(RunError, IndexError):
    """An access outside its buffer."""


class RaceError(RunError):
    """Two unordered accesses to one element, at least one of them a write."""


class DivergenceError(RunError):
    """Only some threads of a warp execute what it executes as a whole."""


class DeadlockError(RunError):
    """Every thread waits."""


class DeviceAssertError(RunError):
    """`T.device_assert` failed."""


# How the message of a device assertion begins that the compiler itself has put where threads wait.
DEADLOCK = "deadlock: "


# And where the compiler checks an index of a tile: before the dimension and the buffer.
OUT_OF_RANGE = "out of range: "


def empty_grid(kernel: str) -> ArgumentError:
    """The error of a call that launches no block."""
    return ArgumentError(f"'{kernel}': the grid is empty, there is no block to run")


def failed_assertion(message: str, what: str, value: int | None = None) -> RunError:
    """The error of a device assertion with that message; `what` comes before the user's own, and
    `value` belongs to it.
    """
    if message.startswith(DEADLOCK):
        return DeadlockError(message)
    if message.startswith(OUT_OF_RANGE):
        place = message.removeprefix(OUT_OF_RANGE)
        return OutOfBoundsError(
            f"index {value} is out of range for dimension {place}",
            "guard the access with an 'if'",
        )
    return DeviceAssertError(f"{what}: {message}" if message else what)


class CheckError(RunError, AssertionError):
    """A kernel's result disagrees with its reference.

    `map` says where, and who wrote it: a `tileworkbench.viz.model.error_map.ErrorMap`; None where
    the two cannot be compared element by element. `view` names the view of `kernel` that shows what
    is wrong, where it is not the map.
    """

    map: Any = None
    view: str = ""


class Interrupted(RunError, KeyboardInterrupt):
    """The user interrupted a running kernel."""


def interrupted(name: str, span: Span | None = None) -> Interrupted:
    """The error of a kernel of that name that Ctrl-C has stopped, at `span` where that is known."""
    return Interrupted(f"'{name}' was interrupted; its outputs are incomplete", span=span)


class DeviceUnavailableError(TileError, RuntimeError):
    """The target needs a device that this machine does not have."""
