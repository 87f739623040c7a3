"""The loops of the kernel: each opens a frame, yields its variables once, emits its statement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tileworkbench.compiler.diagnostics import (
    LayoutError,
    TileSyntaxError,
    TileValueError,
)
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.bounds import bounds
from tileworkbench.compiler.frontend.builder import Builder, Frame, current, in_kernel
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.random import leave_parallel
from tileworkbench.compiler.frontend.tensors import parallel_variables
from tileworkbench.compiler.frontend.values import Value, index_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr, Var
from tileworkbench.compiler.ir.stmt import DeviceAssert, For, LoopKind, Stmt
from tileworkbench.compiler.ir.tile import Parallel, Pipelined
from tileworkbench.compiler.ir.types import INT32, INT64
from tileworkbench.compiler.layout.fragment import Fragment

_DEFAULT_NAMES = "ijklmnopqrstuvwxyz"


class LoopSpec(ABC):
    """A loop that has not been entered yet: the result of T.serial, T.Parallel and their like."""

    @abstractmethod
    def run(self, builder: Builder) -> Iterator[Any]:
        """Open the loop, yield its variables once, and emit it when the body has been traced."""

    @placed_outside
    def __iter__(self) -> Iterator[Any]:
        """The same in a helper function that is not rewritten."""
        return self.run(current("a loop"))


class OpenLoop:
    """A loop frame while its body is traced; `body` is the traced statement afterwards."""

    __slots__ = ("body", "frame")
    body: Stmt

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    @property
    def site(self) -> int:
        """The site of the loop's first line."""
        return self.frame.site


@contextmanager
def open_loop(builder: Builder, kind: str) -> Iterator[OpenLoop]:
    """A loop frame around the `yield` of a generator; remembers a body that Python left early."""
    frame = builder.push(kind, repeats=True)
    builder.loops.append(frame)
    opened = OpenLoop(frame)
    try:
        yield opened
    except GeneratorExit:
        builder.failure = TileSyntaxError(
            "a run-time loop was left by Python's own 'break' or 'return'",
            frame.span,
            hint="decorate the function that contains the loop with @T.macro",
        )
        raise
    builder.loops.remove(frame)
    opened.body = builder.pop(frame)


def loop_var(builder: Builder, position: int, dtype: str = "int32") -> Var:
    """A fresh variable named after target number `position` of the `for` statement."""
    return builder.fresh_var(builder.hint(position, _DEFAULT_NAMES[position]), dtype)


def set_range(builder: Builder, var: Var, start: Expr, stop: Expr, step: int = 1) -> None:
    """Record where a loop variable of the innermost frame starts, and its bounds where they are
    known.
    """
    builder.starts[var] = start
    low, high = bounds(start, builder.ranges), bounds(stop, builder.ranges)
    if step < 0:
        first, last = (None if high[0] is None else high[0] + 1), low[1]
    else:
        first, last = low[0], None if high[1] is None else high[1] - 1
    if first is not None and last is not None:
        if first <= last:
            builder.ranges[var] = (first, last)
        else:
            builder.frame.never = True


@dataclass(frozen=True, slots=True)
class SerialLoop(LoopSpec):
    """`for i in range(start, stop, step)` in order, unrolled or vectorised as `kind` says."""

    start: Any
    stop: Any
    step: Any = 1
    kind: LoopKind = LoopKind.SERIAL

    def known(self) -> LoopSpec | range:
        """Its values, for a loop around launches, which is unrolled; itself where they are not
        known.
        """
        bounds_ = (self.start, self.stop, self.step)
        numbers = [build.const_int(index_expr(value)[0]) for value in bounds_]
        start, stop, step = numbers
        if start is None or stop is None or not step:
            return self
        return range(start, stop, step)

    def run(self, builder: Builder) -> Iterator[Value]:
        in_kernel(f"T.{self.kind}")
        start, stop, step = (
            index_expr(v, f"a bound of T.{self.kind}")[0]
            for v in (self.start, self.stop, self.step)
        )
        number = build.const_int(step)
        if number == 0:
            raise TileValueError("the step of a loop must not be 0")
        dtype = INT64 if INT64 in (start.dtype, stop.dtype, step.dtype) else INT32
        start, stop, step = (build.cast(v, dtype) for v in (start, stop, step))
        if number is None:
            nonzero = build.binary("ne", step, build.const(0, dtype))
            builder.emit(DeviceAssert(nonzero, "the step of a loop is 0"))
        var = loop_var(builder, 0, dtype)
        with open_loop(builder, self.kind) as loop:
            if number is not None:
                set_range(builder, var, start, stop, number)
            yield Value(var, builder.bind(var.name))
        builder.emit(For(var, start, stop, step, self.kind, loop.body, site=loop.site))


@dataclass(frozen=True, slots=True)
class ShiftedLoop(LoopSpec):
    """A loop of one variable whose values begin at `start` instead of 0."""

    loop: LoopSpec
    start: Any

    def run(self, builder: Builder) -> Iterator[Any]:
        for value in self.loop.run(builder):
            yield value + self.start


@dataclass(frozen=True, slots=True)
class GridLoop(LoopSpec):
    """A serial nest over the box `extents`."""

    extents: tuple[Any, ...]

    def run(self, builder: Builder) -> Iterator[Value | tuple[Value, ...]]:
        in_kernel("T.grid")
        yield from self._nest(builder, ())

    def _nest(
        self, builder: Builder, outer: tuple[Value, ...]
    ) -> Iterator[Value | tuple[Value, ...]]:
        depth = len(outer)
        if depth == len(self.extents):
            yield outer[0] if depth == 1 else outer
            return
        stop = index_expr(self.extents[depth], "an extent of T.grid")[0]
        var = loop_var(builder, depth, stop.dtype)
        zero, one = build.const(0, stop.dtype), build.const(1, stop.dtype)
        with open_loop(builder, LoopKind.SERIAL) as loop:
            set_range(builder, var, zero, stop)
            yield from self._nest(builder, (*outer, Value(var, builder.bind(var.name))))
        builder.emit(For(var, zero, stop, one, LoopKind.SERIAL, loop.body, site=loop.site))


@dataclass(frozen=True, slots=True)
class ParallelLoop(LoopSpec):
    """A block-wide element-wise nest over the box `extents`."""

    extents: tuple[Any, ...]
    coalesced_width: int | None = None
    loop_layout: Fragment | None = None

    def run(self, builder: Builder) -> Iterator[Value | tuple[Value, ...]]:
        in_kernel("T.Parallel")
        outer = builder.enclosing("parallel")
        if outer is not None and (builder.frame is not outer or outer.stmts):
            raise _not_nested()
        extents = tuple(self._extent(builder, value, outer is not None) for value in self.extents)
        names = tuple(loop_var(builder, position, e.dtype) for position, e in enumerate(extents))
        with open_loop(builder, "parallel") as loop:
            builder.nest += zip(names, extents, strict=True)
            for var, extent in zip(names, extents, strict=True):
                builder.parallel[var] = frozenset((var,))
                set_range(builder, var, build.const(0, extent.dtype), extent)
                if build.const_int(extent) is None:
                    builder.dynamic_parallel.add(var)
            values = tuple(Value(var, builder.bind(var.name)) for var in names)
            yield values[0] if len(values) == 1 else values
        del builder.nest[-len(names) :]
        if any(build.const_int(extent) == 0 for extent in extents):
            return
        made = self._merged(builder, names, extents, loop)
        if outer is None:
            check_iterations("T.Parallel", made.loop_layout, made.extents)
            leave_parallel(builder, made)
        else:
            builder.emit(made)

    def _extent(self, builder: Builder, value: Any, nested: bool) -> Expr:
        extent = index_expr(value, "an extent of T.Parallel")[0]
        number = build.const_int(extent)
        if number is not None and number < 0:
            raise TileValueError(f"an extent of T.Parallel must not be negative, not {number}")
        if nested and parallel_variables(builder, extent):
            raise TileValueError(
                "the extent of a nested T.Parallel depends on the outer one's variable",
                hint="use the full extent and guard the body with 'if', or make the inner loop "
                "T.serial",
            )
        return extent

    def _merged(
        self, builder: Builder, names: tuple[Var, ...], extents: tuple[Expr, ...], loop: OpenLoop
    ) -> Parallel:
        """The loop, joined with one that is directly nested in it."""
        inner = [stmt for stmt in loop.frame.stmts if isinstance(stmt, Parallel)]
        if not inner:
            return Parallel(
                names,
                extents,
                loop.body,
                self.coalesced_width,
                self.loop_layout,
                site=loop.site,
            )
        if len(loop.frame.stmts) > 1:
            error = _not_nested()
            error.span = builder.sites[loop.frame.stmts[1].site]
            raise error
        child = inner[0]
        width = self.coalesced_width or child.coalesced_width
        if self.loop_layout is not None and child.loop_layout is not None:
            raise LayoutError(
                "both loops of a nest have a 'loop_layout', and one is for all of it",
                hint="give it to the outer T.Parallel, over the extents of both",
            )
        return Parallel(
            (*names, *child.vars),
            (*extents, *child.extents),
            child.body,
            width,
            self.loop_layout or child.loop_layout,
            site=loop.site,
        )


def _not_nested() -> TileValueError:
    return TileValueError(
        "T.Parallel loops in one another must be directly nested, with no other statement "
        "between them",
        hint="write one loop with several extents, as in 'for i, j in T.Parallel(m, n)', or make "
        "the inner one T.serial",
    )


@dataclass(frozen=True, slots=True)
class PipelinedLoop(LoopSpec):
    """A serial loop whose iterations may overlap."""

    start: Any
    stop: Any
    num_stages: int
    order: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()

    def run(self, builder: Builder) -> Iterator[Value]:
        in_kernel("T.Pipelined")
        refuse_in_parallel(builder, "T.Pipelined")
        start, stop = (
            index_expr(value, "a bound of T.Pipelined")[0] for value in (self.start, self.stop)
        )
        dtype = INT64 if INT64 in (start.dtype, stop.dtype) else INT32
        start, stop = build.cast(start, dtype), build.cast(stop, dtype)
        var = loop_var(builder, 0, dtype)
        with open_loop(builder, "pipelined") as loop:
            set_range(builder, var, start, stop)
            yield Value(var, builder.bind(var.name))
        builder.emit(
            Pipelined(
                var, start, stop, self.num_stages, loop.body, self.order, self.stage, site=loop.site
            )
        )


def refuse_in_parallel(builder: Builder, construct: str) -> None:
    """Raise `TileValueError` inside a T.Parallel loop, whose iterations work on single elements."""
    if builder.enclosing("parallel") is not None:
        raise TileValueError(
            f"'{construct}' works on whole tiles and cannot be used inside T.Parallel",
            hint="move it out of the loop, or work on single elements with indices",
        )


def check_iterations(construct: str, layout: Fragment | None, extents: Sequence[Expr]) -> None:
    """Raise `LayoutError` for a layout of other iterations than `extents`."""
    shape = tuple(build.const_int(extent) for extent in extents)
    if layout is not None and layout.shape != shape:
        shown = ", ".join("?" if extent is None else str(extent) for extent in shape)
        raise LayoutError(
            f"'loop_layout' of {construct} has shape {layout.shape}, and the loop has extents "
            f"({shown})"
        )
