"""What a running trace writes into: a stack of open frames, unique names, and the sites of
statements.

Each thread has its own stack of builders. `tracing` puts one on it and always takes it off again,
so a trace that fails leaves nothing behind.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Protocol

from tileworkbench.compiler.diagnostics import (
    CompileError,
    JITNoBuilderError,
    Note,
    Span,
    TileRuntimeError,
    TileValueError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.expr import Buffer, Expr, Var
from tileworkbench.compiler.ir.rewrite import evaluated
from tileworkbench.compiler.ir.stmt import Stmt, seq
from tileworkbench.compiler.ir.types import DType

if TYPE_CHECKING:
    from tileworkbench.compiler.layout import Fragment, Layout

_RESERVED = frozenset({"T"})  # the printer's name for the language


class _Traces(threading.local):
    """The traces of a thread that run, the innermost last."""

    def __init__(self) -> None:
        self.builders: list[Builder] = []


_traces = _Traces()


@dataclass(eq=False, slots=True)
class Frame:
    """An open scope that statements are written into.

    Values bound in it must not be used once it is closed.

    `kind` is "function", "kernel", "role", "parallel", "pipelined", "then", "else", "while" or a
    `LoopKind`.
    """

    kind: str
    depth: int
    site: int
    span: Span | None
    stmts: list[Stmt] = field(default_factory=list)
    open: bool = True
    repeats: bool = False  # a loop of the program: what Python computes in it happens once only
    never: bool = False  # nothing in it is ever executed: a loop without iterations
    cond: Expr | None = None  # what holds in a branch
    threads: tuple[int, int] | None = None  # the first thread of a role, and how many it has

    @property
    def described(self) -> str:
        """What a message calls this scope."""
        names = {"then": "branch", "else": "branch", "kernel": "kernel", "function": "function"}
        names |= {"role": "T.ws block"}
        return names.get(self.kind, "loop")


@dataclass(frozen=True, eq=False, slots=True)
class Binding:
    """Where and in which frame a name was bound."""

    name: str
    frame: Frame
    span: Span | None
    allocated: bool = False

    def check(self) -> None:
        """Raise `TileRuntimeError` when the frame has ended."""
        if not self.frame.open:
            raise out_of_scope(self.name, self.frame.described, self.span, self.allocated)


def out_of_scope(name: str, scope: str, span: Span | None, allocated: bool) -> CompileError:
    """The error of using `name` after the loop, branch or kernel that binds it."""
    if scope == "kernel":
        hint = "nothing but tensors in global memory lives from one launch to the next"
    elif allocated:
        hint = f"allocate it before the {scope}"
    else:
        hint = (
            f"bind it before the {scope}, or keep the value in a variable: "
            f"{name} = T.alloc_var(dtype)"
        )
    return TileRuntimeError(
        f"'{name}' is used after the {scope} that binds it has ended",
        hint=hint,
        notes=(Note(f"'{name}' is bound here", span),),
    )


@dataclass(eq=False, slots=True)
class PythonLoop:
    """A loop that Python runs while tracing; `frame` is where its `for` statement stands."""

    frame: Frame


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A builder's state around a call that inlines other source."""

    site: int
    span: Span | None
    hints: tuple[str, ...]


class LoopScope(Protocol):
    """What the builder knows of a loop that is being traced: see `control.Scope`."""

    owner: Any
    names: tuple[str, ...]
    rebound: set[str]
    repeats: bool


class Builder:
    """The state of one trace."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: list[Frame] = []
        self.loops: list[Frame | PythonLoop] = []
        self.sites: list[Span | None] = [None]
        self.site = 0
        self.span: Span | None = None
        self.hints: tuple[str, ...] = ()
        self.doubts: dict[Expr, CompileError] = {}  # loads that are wrong where they are executed
        self.ranges: dict[Var, tuple[int, int]] = {}  # inclusive bounds of loop variables
        self.starts: dict[Var, Expr] = {}  # of loop variables with a constant step
        # The T.Parallel variables that a variable depends on.
        self.parallel: dict[Var, frozenset[Var]] = {}
        self.dynamic_parallel: set[Var] = set()  # T.Parallel variables without a constant extent
        self.inputs: dict[str, Buffer | Var] = {}
        self.outputs: list[Buffer] = []
        self.workspaces: list[Buffer] = []
        self.has_wide_buffers = False  # some dimension needs indices of 64 bits
        self.safe_values: dict[str, Expr] = {}
        self.layouts: dict[Buffer, Layout | Fragment] = {}  # chosen by the user
        self.endings: list[Callable[[Builder, Stmt], None]] = []  # what checks a finished launch
        self.placements: dict[Buffer, Any] = {}  # of tensors, in this launch (`global_layouts`)
        self.nest: list[tuple[Var, Expr]] = []  # variables and extents of the open T.Parallel
        self.random: Any = None  # the generator of random numbers (`random.Generator`)
        self.sources: list[str] = []  # of T.import_source
        self.uses: list[tuple[str, int]] = []  # constructs for hardware of their own, and sites
        self.checks: list[Stmt] = []  # of 'assert' in front of the next launch
        self.placed_checks: list[Stmt] = []  # and those that a launch begins with
        self.alone = False  # whether the whole function is the body of one launch
        self.launched = False  # whether a launch has been asked for
        self.swizzle: tuple[int, str] | None = None
        self.cluster: tuple[int, ...] = ()
        self.grid: tuple[Expr, ...] = ()  # of the launch that is being traced
        self.blocks: tuple[Var, ...] = ()  # and its block indices
        self.threads: tuple[int, ...] = ()  # the extents of its blocks
        self.thread_vars: tuple[Var, ...] = ()  # and the thread's indices, once they are named
        self.reducer: Any = None  # of the innermost T.attr "reduce_scope"
        self.constants: dict[str, int] | None = None  # of T.const; None outside an eager kernel
        self.returned: tuple[Buffer, ...] | None = None
        self.failure: CompileError | None = None  # of a place that could not raise
        self.declare: Callable[[str, Any], Any] | None = None  # gives a parameter its type
        self.scopes: list[LoopScope] = []
        self.counters: list[tuple[str, Expr]] = []  # variables of open loops as the user calls them
        self.bound_at: dict[str, Span | None] = {}  # where each name was last assigned
        self.symbols: dict[str, Var] = {}  # of T.dynamic, as parameters and outputs use them
        self.placeholders: dict[str, Var] | None = None  # of T.const, in front of declarations
        self._names: set[str] = set(_RESERVED)
        self._counts: dict[str, int] = {}  # the last number behind each name
        self._site_of: dict[Span, int] = {}
        self.push("function")

    # Places and names

    def at(self, span: Span, hints: tuple[str, ...] = ()) -> None:
        """Start the statement at `span`; `hints` are the names its targets suggest for what it
        makes.
        """
        if self.failure is not None:
            raise self.failure
        self.span = span
        self.hints = hints
        site = self._site_of.get(span)
        if site is None:
            site = self._site_of[span] = len(self.sites)
            self.sites.append(span)
        self.site = site

    def checkpoint(self) -> Checkpoint:
        """The current place and hints, for `restore`."""
        return Checkpoint(self.site, self.span, self.hints)

    def restore(self, saved: Checkpoint) -> None:
        """Go back to the place of `saved`."""
        self.site, self.span, self.hints = saved.site, saved.span, saved.hints

    def hint(self, position: int, default: str) -> str:
        """The name suggested for target number `position` of the current statement."""
        return self.hints[position] if position < len(self.hints) else default

    def fresh(self, name: str) -> str:
        """A name of the program that nothing has yet: `name` or `name_1`, `name_2`, ..."""
        candidate, count = name, self._counts.get(name, 0)
        while candidate in self._names:
            count += 1
            candidate = f"{name}_{count}"
        self._counts[name] = count  # names are never given back: all below are taken
        self._names.add(candidate)
        return candidate

    def reserve(self, name: str) -> None:
        """Take exactly `name`. Raises `TileValueError` when something has it already."""
        if name in self._names:
            raise TileValueError(f"the name '{name}' is taken by a parameter or another symbol")
        self._names.add(name)

    def fresh_var(self, name: str, dtype: DType | str) -> Var:
        """A variable with a fresh name."""
        return Var(self.fresh(name), DType(dtype))

    # Frames

    @property
    def frame(self) -> Frame:
        """The innermost open frame."""
        return self.frames[-1]

    def push(self, kind: str, repeats: bool = False) -> Frame:
        """Open a frame at the current site."""
        made = Frame(str(kind), len(self.frames), self.site, self.span, repeats=repeats)
        self.frames.append(made)
        return made

    def pop(self, frame: Frame) -> Stmt:
        """Close `frame`, which must be innermost, and return its statements as one."""
        if self.failure is not None:
            raise self.failure
        self.frames.pop()
        frame.open = False
        return seq(frame.stmts)

    def emit(self, stmt: Stmt) -> None:
        """Append a statement, with the current site unless it has one."""
        if self.failure is not None:
            raise self.failure
        if not stmt.site:
            stmt = replace(stmt, site=self.site)  # type: ignore[type-var]
        if self.doubts and not self.is_conditional:
            self._settle(stmt)
        self.frame.stmts.append(stmt)

    def _settle(self, stmt: Stmt) -> None:
        """Raise the error of a doubtful load that `stmt` is sure to execute."""
        for child in stmt.children():
            if not isinstance(child, Stmt):
                for node in evaluated(child):
                    if isinstance(node, Expr) and node in self.doubts:
                        raise self.doubts[node]

    @property
    def is_conditional(self) -> bool:
        """Whether it may be that what is written here is never executed."""
        return any(f.never or f.kind in ("then", "else", "while") for f in self.frames)

    def enclosing(self, *kinds: str) -> Frame | None:
        """The innermost open frame of one of `kinds`."""
        for frame in reversed(self.frames):
            if frame.kind in kinds:
                return frame
        return None

    def rebind(self, owner: Any, name: str) -> None:
        """The function `owner` assigns `name`."""
        self.bound_at[name] = self.span
        for scope in self.scopes:
            if scope.owner is owner:
                scope.rebound.add(name)

    def carries(self, owner: Any, name: str) -> bool:
        """Whether `name` still holds what it held before the innermost run-time loop of the
        function `owner`.
        """
        for scope in reversed(self.scopes):
            if scope.owner is owner and scope.repeats:
                return name in scope.names and name not in scope.rebound
        return False

    def bind(self, name: str, allocated: bool = False, kind: str = "") -> Binding:
        """A binding of `name`, here, in the innermost frame (of that kind, if one is given)."""
        frame = (self.enclosing(kind) if kind else None) or self.frame
        return Binding(name, frame, self.span, allocated)


def active_builder() -> Builder | None:
    """The builder of this thread's running trace, if one runs."""
    stack = _traces.builders
    return stack[-1] if stack else None


def _quoted(construct: str) -> str:
    """A name of the language in quotes, a description as it is."""
    return f"'{construct}'" if construct.startswith("T.") else construct


def current(construct: str) -> Builder:
    """The running trace's builder. Raises `JITNoBuilderError` when no kernel is being traced."""
    builder = active_builder()
    if builder is None:
        raise JITNoBuilderError(
            f"{_quoted(construct)} has a meaning inside a kernel only",
            hint="call it from a function decorated with @tw.jit, @T.prim_func or @T.macro",
        )
    return builder


def in_kernel(construct: str) -> Builder:
    """Like `current`, and inside `with T.Kernel(...)`. Raises `TileRuntimeError` elsewhere."""
    builder = current(construct)
    if builder.enclosing("kernel") is None:
        raise TileRuntimeError(
            f"{_quoted(construct)} stands outside 'with T.Kernel(...)'",
            hint="move it into the kernel's block",
        )
    return builder


@contextmanager
def tracing(builder: Builder) -> Iterator[Builder]:
    """Make `builder` current in this thread for the block, and close all its frames after it."""
    stack = _traces.builders
    stack.append(builder)
    try:
        yield builder
    finally:
        stack.pop()
        for frame in builder.frames:
            frame.open = False
