"""Branches and loops of a running trace, and what becomes of the names that they bind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from tileworkbench.compiler.diagnostics import (
    Span,
    TileRuntimeError,
    TileTypeError,
    TileValueError,
    UnsupportedError,
)
from tileworkbench.compiler.frontend.builder import (
    Builder,
    Frame,
    PythonLoop,
    in_kernel,
)
from tileworkbench.compiler.frontend.loops import LoopSpec, SerialLoop, open_loop
from tileworkbench.compiler.frontend.refusals import NotScalar, Stale
from tileworkbench.compiler.frontend.values import Operators, VarCell, condition, describe
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Const, Expr, Load
from tileworkbench.compiler.ir.rewrite import walk
from tileworkbench.compiler.ir.stmt import Assume, Break, If, Kernel, Stmt, While, items, seq

Reader = Callable[[], Any]


def read(reader: Reader, name: str) -> Any:
    """What a name holds; a `Stale` for one that is not bound."""
    try:
        return reader()
    except NameError:
        return Stale(name, None, None, False)


def refuse_loads(value: Expr) -> None:
    """Raise `TileValueError` for a value of the host that reads a tensor."""
    if any(isinstance(node, Load) for node in walk(value)):
        raise TileValueError(
            "an element of a tensor is read outside 'with T.Kernel(...)'",
            hint="move it into the kernel's block",
        )


class Names:
    """The names that a branch or loop may bind, and what they held before it."""

    def __init__(self, builder: Builder, names: tuple[str, ...], saved: list[Any]) -> None:
        self.builder = builder
        self.names = names
        self.saved = saved
        self.changed: dict[str, tuple[Span | None, bool]] = {}

    def note_changes(self, readers: tuple[Reader, ...]) -> tuple[Any, ...]:
        """What the names hold now, remembering which are no longer what they were."""
        values = tuple(read(reader, name) for reader, name in zip(readers, self.names, strict=True))
        for name, old, new in zip(self.names, self.saved, values, strict=True):
            unbound = isinstance(old, Stale) and isinstance(new, Stale)
            if new is not old and not unbound:
                allocated = isinstance(new, NotScalar | VarCell)
                self.changed[name] = (self.builder.bound_at.get(name), allocated)
        return values

    def after(self, scope: str) -> tuple[Any, ...]:
        """What the names hold after the run-time `scope`: their old values, or nothing usable."""
        return tuple(
            Stale(name, scope, *self.changed[name]) if name in self.changed else old
            for name, old in zip(self.names, self.saved, strict=True)
        )


class Branch(Names):
    """One `if`: a statement of the kernel for a run-time condition, else decided here."""

    def __init__(
        self, builder: Builder, test: Any, names: tuple[str, ...], saved: list[Any]
    ) -> None:
        super().__init__(builder, names, saved)
        self.cond: Expr | None = None
        self.truth = False
        self.frame: Frame | None = None
        self.bodies: list[Stmt | None] = [None, None]
        self.site = builder.site
        if isinstance(test, Operators):
            cond = condition(test, "the condition of 'if'").expr
            if isinstance(cond, Const):
                self.truth = bool(cond.value)
            else:
                if builder.enclosing("kernel") is None:
                    refuse_loads(cond)
                self.cond = cond
        else:
            self.truth = bool(test)

    def then(self) -> bool:
        """Whether to trace the first body."""
        return self._open("then") if self.cond is not None else self.truth

    def orelse(self) -> bool:
        """Whether to trace the second body."""
        return self._open("else") if self.cond is not None else not self.truth

    def _open(self, kind: str) -> bool:
        self.frame = self.builder.push(kind)
        cond = self.cond
        self.frame.cond = build.unary("not", cond) if kind == "else" and cond is not None else cond
        return True

    def _close(self, readers: tuple[Reader, ...]) -> tuple[Any, ...]:
        values = self.note_changes(readers)
        if self.frame is not None:
            self.bodies[self.frame.kind == "else"] = self.builder.pop(self.frame)
            self.frame = None
        return values

    def between(self, *readers: Reader) -> tuple[Any, ...]:
        """What the names hold at the start of the second body."""
        values = self._close(readers)
        return tuple(self.saved) if self.cond is not None else values

    def end(self, *readers: Reader) -> tuple[Any, ...]:
        """Emit the statement; what the names hold after it."""
        values = self._close(readers)
        if self.cond is None:
            return values
        then, orelse = self.bodies
        if self.builder.enclosing("kernel") is None:
            for cond, body in ((self.cond, then), (build.unary("not", self.cond), orelse)):
                for stmt in () if body is None else items(body):
                    self.builder.emit(self._under(cond, stmt))
        elif then is not None:
            self.builder.emit(If(self.cond, then, orelse, site=self.site))
        return self.after("branch")

    def _under(self, cond: Expr, stmt: Stmt) -> Stmt:
        """A launch under a condition: its blocks do nothing where that does not hold, one for each
        extent that is known at run time.

        Raises `UnsupportedError` for what is no such launch.
        """
        if isinstance(stmt, Assume):
            return replace(
                stmt, cond=build.logical("logical_or", build.unary("not", cond), stmt.cond)
            )
        if not isinstance(stmt, Kernel):
            raise UnsupportedError(
                "this launch cannot stand under a condition yet", self.builder.sites[stmt.site]
            )
        extents = [
            extent
            if isinstance(extent, Const)
            else build.select(cond, extent, build.const(1, extent.dtype))
            for extent in stmt.grid
        ]
        below = items(stmt.body)
        checks = [part for part in below if any(part is c for c in self.builder.placed_checks)]
        body = If(cond, seq(below[len(checks) :]), site=self.site)
        return replace(stmt, grid=tuple(extents), body=seq([*checks, body]))


class Scope(Names):
    """One loop."""

    def __init__(
        self, owner: Any, builder: Builder, names: tuple[str, ...], saved: list[Any]
    ) -> None:
        super().__init__(builder, names, saved)
        self.owner = owner
        self.rebound: set[str] = set()
        self.repeats = False

    def loop(self, iterable: Any) -> Iterator[Any]:
        """The values of the loop's target: once, symbolic, for a loop of the kernel; each in turn
        for a Python iterable.
        """
        if isinstance(iterable, range):
            iterable = SerialLoop(iterable.start, iterable.stop, iterable.step)
        if isinstance(iterable, SerialLoop) and self.builder.enclosing("kernel") is None:
            iterable = iterable.known()
        if isinstance(iterable, LoopSpec):
            self.repeats = True
            for name in self.names:
                self.builder.bound_at[name] = self.builder.span
            values = iterable.run(self.builder)
            launched = isinstance(iterable, Operators)  # its index is no loop's
            yield from self._inside(values if launched else self._counted(values))
            return
        if isinstance(iterable, Operators | NotScalar):
            raise TileTypeError(
                f"a loop cannot iterate over {describe(iterable)}",
                hint="use range, T.serial or T.Parallel",
            )
        loop = PythonLoop(self.builder.frame)
        self.builder.loops.append(loop)
        try:
            yield from self._inside(iter(iterable))
        finally:  # Python's `break` closes the generator here
            self.builder.loops.remove(loop)

    def _counted(self, values: Iterator[Any]) -> Iterator[Any]:
        """The same; what the loop's targets are called is known inside."""
        names, outer = self.builder.hints, self.builder.counters
        try:
            for value in values:
                targets = value if isinstance(value, tuple) else (value,)
                if len(names) == len(targets):
                    pairs = zip(names, targets, strict=True)
                    self.builder.counters = [*outer, *((name, each.expr) for name, each in pairs)]
                yield value
        finally:  # Python's `break` closes the generator here
            self.builder.counters = outer

    def _inside(self, values: Iterator[Any]) -> Iterator[Any]:
        self.builder.scopes.append(self)
        try:
            yield from values
        finally:
            self.builder.scopes.remove(self)

    def repeat(self, test: Reader) -> Iterator[None]:
        """One symbolic pass through the body of a `while`."""
        stmts = self.builder.frame.stmts
        before = len(stmts)
        value = test()
        asked = stmts[before:]
        del stmts[before:]
        cond = (
            condition(value, "the condition of 'while'").expr
            if isinstance(value, Operators)
            else build.TRUE
        )
        if not isinstance(value, Operators) and not value:
            return
        if isinstance(cond, Const):
            if not cond.value:
                return
            raise TileRuntimeError(
                "the condition of 'while' is known while compiling and true, so the loop would "
                "never end",
                hint="keep the loop's state in T.alloc_var, or iterate with 'for'",
            )
        self.repeats = True
        builder = in_kernel("'while'")
        with open_loop(builder, "while") as frame:
            if asked:  # the statements that the condition takes belong to every iteration
                frame.frame.stmts += asked
                builder.emit(If(build.unary("not", cond), Break()))
                cond = build.TRUE
            yield from self._inside(iter((None,)))
        builder.emit(While(cond, frame.body, site=frame.site))

    def leave(self, *readers: Reader) -> tuple[Any, ...]:
        """What the names hold after the loop."""
        values = self.note_changes(readers)
        return self.after("loop") if self.repeats else values
