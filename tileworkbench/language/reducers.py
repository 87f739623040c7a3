"""Reducers: fragments that the iterations of T.Parallel contribute to, in any order.

A round begins with T.reducer_init and ends with T.finalize_reducer, which gives the result to
another tensor. In the older form it begins with T.fill or T.clear, contributions are written as
updates of a fragment (`acc[i] += x`), and T.finalize_reducer makes the reducer the fragment of its
results.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import (
    TileAssertionError,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.builder import Builder, Frame, in_kernel
from tileworkbench.compiler.frontend.loops import refuse_in_parallel
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.regions import copy_regions, to_operand
from tileworkbench.compiler.frontend.tensors import (
    TensorValue,
    check_target,
    element_or_region,
    has_vector_index,
    whole,
)
from tileworkbench.compiler.frontend.values import Operators, describe, fitting, to_expr, to_value
from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir.expr import Binary, Buffer, Cast, Expr, Load
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.stmt import Alloc, Atomic, AtomicKind, Stmt
from tileworkbench.compiler.ir.types import DType
from tileworkbench.language.memory import alloc_fragment

_KINDS = {
    "sum": AtomicKind.ADD,
    "max": AtomicKind.MAX,
    "min": AtomicKind.MIN,
    "bitand": AtomicKind.AND,
    "bitor": AtomicKind.OR,
    "bitxor": AtomicKind.XOR,
}
_BINARY = {
    "sum": "add",
    "max": "max",
    "min": "min",
    "bitand": "and",
    "bitor": "or",
    "bitxor": "xor",
}
_SIGNS = {
    "sum": "+= x",
    "max": "= T.max(acc[i], x)",
    "min": "= T.min(acc[i], x)",
    "bitand": "&= x",
    "bitor": "|= x",
    "bitxor": "^= x",
}


class Reducer(TensorValue):
    """What T.alloc_reducer returns. `partial` takes the contributions of a round; in the older form
    `buffer` is the fragment of the results once the round is finished.
    """

    __slots__ = ("finished", "op", "partial", "results", "site", "started", "written")

    def __init__(self, builder: Builder, tensor: TensorValue, op: str) -> None:
        super().__init__(tensor.buffer, tensor.binding)
        self.partial = tensor.buffer
        self.results: Buffer | None = None  # of the older form
        self.op = op
        self.started: Frame | None = None  # where the round began
        self.finished: Frame | None = None  # where it ended
        self.written = False  # the round has the older form: its elements are read and stored
        self.site = builder.site  # where the round began
        builder.endings.append(self.check_ending)

    @property
    def name(self) -> str:
        return self.partial.name

    # A round

    @property
    def active(self) -> bool:
        """Whether a round has begun and not ended."""
        return self.started is not None and self.finished is None

    def start(self, construct: str, written: bool) -> None:
        """Begin a round. Raises `TileValueError` where one has begun already."""
        builder = in_kernel(construct)
        if self.binding is not None:
            self.binding.check()
        if self.active and not (written and self.written):
            raise TileValueError(
                f"'{self.name}' is started twice", hint="finish it with T.finalize_reducer first"
            )
        self.started, self.finished = builder.frame, None
        self.written, self.site = written, builder.site
        self.buffer = self.partial

    def end(self, builder: Builder) -> None:
        """End a round. Raises `TileValueError` where it may have ended before, or ends more often
        than it begins.
        """
        started, frame = self.started, builder.frame
        if started is None:
            raise self._not_started("T.finalize_reducer")
        other_arm = frame.kind == "else" and frame is not self.finished
        if self.finished is not None and (self.finished.open or not other_arm):
            raise TileValueError(
                f"'{self.name}' is finished twice",
                hint="start it again with T.reducer_init or T.fill for another result",
            )
        loop = next((f for f in builder.frames[started.depth + 1 :] if f.repeats), None)
        if loop is not None or not started.open:
            where = (
                f"in a {loop.described}" if loop is not None else f"behind a {started.described}"
            )
            began = "before it" if loop is not None else "in it"
            raise TileValueError(
                f"T.finalize_reducer of '{self.name}' stands {where}, and the reducer is started "
                f"{began}",
                hint="start and finish it in the same block; contributions may stand in loops",
            )
        self.finished = frame

    def _not_started(self, construct: str) -> TileValueError:
        return TileValueError(
            f"{construct} of '{self.name}' comes before its T.reducer_init",
            hint="start it with T.reducer_init(reducer), or with T.fill in the older form",
        )

    def check_ending(self, builder: Builder, body: Stmt) -> None:
        """Raise `TileValueError` for a round that the launch `body` leaves open, or for elements
        that are read before its end.
        """
        if self.active:
            raise TileValueError(
                f"'{self.name}' is started, and T.finalize_reducer never ends it",
                builder.sites[self.site],
                hint="without it nobody gets the result",
            )
        for stmt in statements(body):
            for child in stmt.children():
                if isinstance(child, Expr) and any(
                    isinstance(node, Load) and node.buffer is self.partial for node in walk(child)
                ):
                    raise self._too_early(builder.sites[stmt.site])

    def _too_early(self, span: Any = None) -> TileValueError:
        return TileValueError(
            f"'{self.name}' is read before T.finalize_reducer, when each thread may hold a part",
            span,
            hint="finish it first; in T.Parallel contribute with "
            f"'acc[i] {_SIGNS[self.op]}' or T.reducer_update",
        )

    # Its elements

    def use(self) -> Buffer:
        """The fragment of the results. Raises `TileTypeError` or `TileValueError` before."""
        if self.started is None or not self.written:
            self.refuse()
        if self.active:
            raise self._too_early()
        return super().use()

    def filled(self) -> TensorValue:
        self.start("T.fill", written=True)
        if self.results is None:
            self.results = _beside(self)
        return TensorValue(self.partial, self.binding)

    def contributed(self, construct: str) -> TensorValue:
        """The partial results, where T.reducer_update may contribute."""
        if self.binding is not None:
            self.binding.check()
        if not self.active or self.written:
            raise self._not_started(construct)
        return TensorValue(self.partial, self.binding)

    def __getitem__(self, index: Any) -> Any:
        if not self.written:
            return ReducerElement(self, index)
        if self.active and not has_vector_index(index):
            return element_or_region(TensorValue(self.partial, self.binding), index)
        return super().__getitem__(index)

    def check_stored(self, index: Any) -> None:
        if self.started is None or not self.written:
            self.refuse()
        made = TensorValue(self.partial, self.binding) if self.active else self
        check_target(made, index)

    def store(self, index: Any, value: Any) -> None:
        builder = in_kernel("a store")
        if not self.active or isinstance(value, NotScalar):
            super().store(index, value)
            return
        if builder.enclosing("parallel") is None:
            raise _outside_parallel(f"this contribution to '{self.name}'")
        indices = check_target(TensorValue(self.partial, self.binding), index)
        added = _contribution(self.op, Load(self.partial, indices), to_expr(value))
        if added is None:
            raise TileValueError(
                f"this is no contribution to '{self.name}', which collects by '{self.op}'",
                hint=f"write 'acc[i] {_SIGNS[self.op]}', or finish the reducer first",
            )
        expr = build.cast(added, self.partial.dtype)
        builder.emit(Atomic(_KINDS[self.op], self.partial, indices, expr))

    @property
    def described(self) -> str:
        return f"the reducer '{self.name}'"

    def refuse(self, *_: Any) -> NoReturn:
        if self.written and not self.active:
            super().refuse()
        raise TileTypeError(
            f"'{self.name}' is a reducer, and its elements have no values yet",
            hint="contribute with T.reducer_update, and read the result of T.finalize_reducer",
        )


def _beside(reducer: Reducer) -> Buffer:
    """A fragment for the results of `reducer`, allocated where the reducer is."""
    builder = in_kernel("T.fill")
    partial = reducer.partial
    made = Buffer(builder.fresh(partial.name), partial.dtype, partial.shape, partial.scope)
    frame = reducer.binding.frame if reducer.binding is not None else builder.frame
    place = next(
        position
        for position, stmt in enumerate(frame.stmts)
        if isinstance(stmt, Alloc) and stmt.buffer is partial
    )
    frame.stmts.insert(place + 1, Alloc(made, site=frame.stmts[place].site))
    return made


class ReducerElement(NotScalar):
    """An element of a reducer: what T.reducer_update contributes to."""

    __slots__ = ("index", "reducer")

    def __init__(self, reducer: Reducer, index: Any) -> None:
        self.reducer = reducer
        self.index = index

    @property
    def described(self) -> str:
        return f"an element of {self.reducer.described}"

    def refuse(self, *_: Any) -> NoReturn:
        self.reducer.refuse()


def _contribution(op: str, element: Load, value: Expr) -> Expr | None:
    """What `value` combines `element` with by `op`; None where it does something else."""
    while isinstance(value, Cast):
        value = value.value
    if not isinstance(value, Binary):
        return None
    a, b = value.a, value.b
    if op == "sum" and value.op == "sub":
        first = build.const(0, b.dtype) if _is(a, element) else _contribution(op, element, a)
        return None if first is None else build.sub(first, b)
    if value.op != _BINARY[op]:
        return None
    for side, other in ((a, b), (b, a)):
        if _is(side, element):
            return other
        inner = _contribution(op, element, side)
        if inner is not None:
            return build.binary(value.op, inner, other)
    return None


def _is(value: Expr, element: Load) -> bool:
    while isinstance(value, Cast):
        value = value.value
    return value is element


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Any:
    """A fragment of `shape` that iterations of T.Parallel contribute to with "sum", "max", "min",
    "bitand", "bitor" or "bitxor".

    It is started by `T.reducer_init`, contributed to by `T.reducer_update` and read by
    `T.finalize_reducer`. In the older form it is written as a fragment: started by `T.fill` or
    `T.clear`, then updated in T.Parallel as in `acc[i] += x`, then finished in place.
    `replication` ("all" or "none", deprecated) has no effect. Raises `TileTypeError` or
    `TileValueError` for a wrong dtype, shape or operation, and for a round that is never finished.

    >>> total = T.alloc_reducer((64,), T.float32, "sum")
    >>> T.reducer_init(total)
    >>> for i, j in T.Parallel(64, 64):
    ...     T.reducer_update(total[i], acc[i, j])
    >>> T.finalize_reducer(total, row)
    """
    if op not in _KINDS:
        raise TileValueError(
            f"'{op}' is not an operation of T.alloc_reducer", hint=f"use one of {', '.join(_KINDS)}"
        )
    if replication not in (None, "all", "none"):
        raise TileValueError(f"{replication!r} is not a replication of T.alloc_reducer")
    made = alloc_fragment(shape, dtype)
    if op.startswith("bit") and not made.buffer.dtype.is_int:
        raise TileAssertionError(
            f"a reducer with '{op}' needs integers, and '{made.name}' is '{made.buffer.dtype}'"
        )
    return Reducer(in_kernel("T.alloc_reducer"), made, op)


def reducer_init(reducer: Any, init: Any = None) -> None:
    """Start a reducer; `init`, of its dtype or a Python number, is one more contribution to each
    element.

    Raises `TileValueError` for a reducer that is started already, and `TileTypeError` for an
    `init` of another dtype.

    >>> most = T.alloc_reducer((64,), T.float32, "max")
    >>> T.reducer_init(most, 0)
    >>> T.finalize_reducer(most, row)
    """
    construct = "T.reducer_init"
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    state = _reducer(construct, reducer)
    dtype = state.partial.dtype
    if isinstance(init, Operators) and to_value(init).expr.dtype != dtype:
        raise TileTypeError(
            f"{construct} takes a '{dtype}' for '{state.name}', not a "
            f"'{to_value(init).expr.dtype}'",
            hint=f"convert it with T.cast(value, '{dtype}')",
        )
    state.start(construct, written=False)
    value = _neutral(state.op, dtype) if init is None else fitting(init, dtype)[0]
    builder.emit(tile.Fill(whole(state.partial), value))


def reducer_update(element: Any, value: Any) -> None:
    """Contribute `value`, cast to the reducer's dtype, to `reducer[index]`: once for each iteration
    of the enclosing T.Parallel.

    Raises `TileValueError` outside T.Parallel and before `T.reducer_init`.

    >>> most = T.alloc_reducer((1,), T.float32, "max")
    >>> T.reducer_init(most)
    >>> for i in T.Parallel(64):
    ...     T.reducer_update(most[0], row[i])
    >>> T.finalize_reducer(most, row[0:1])
    """
    construct = "T.reducer_update"
    builder = in_kernel(construct)
    if not isinstance(element, ReducerElement):
        raise TileTypeError(
            f"{construct} takes an element of a reducer, as in 'acc[i]', not {describe(element)}"
        )
    reducer = element.reducer
    partial = reducer.contributed(construct)
    if builder.enclosing("parallel") is None:
        raise _outside_parallel(construct)
    indices = check_target(partial, element.index)
    expr, _ = fitting(value, partial.buffer.dtype)
    builder.emit(Atomic(_KINDS[reducer.op], partial.buffer, indices, expr))


def _outside_parallel(construct: str) -> TileValueError:
    return TileValueError(
        f"{construct} stands outside T.Parallel, where every thread would contribute",
        hint="put it in 'for i in T.Parallel(...)'",
    )


def finalize_reducer(reducer: Any, dst: Any = None, batch: int = 1) -> None:
    """Copy a reducer's result to `dst`, a tensor or slice of its shape, and end it.

    What T.fill or T.clear has started is finished in place, without `dst`. `batch` is a hint. A
    reducer is finished once for each time it is started: in the same block, or in a branch of it.
    Raises `TileValueError` elsewhere and `ShapeError` for another shape.

    >>> most = T.alloc_reducer((1,), T.float32, "max")
    >>> T.reducer_init(most, 7)
    >>> T.finalize_reducer(most, row[0:1])
    """
    construct = "T.finalize_reducer"
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
        raise TileValueError(f"'batch' of {construct} must be a positive integer, not {batch!r}")
    state = _reducer(construct, reducer)
    in_place = state.written and state.results is not None
    if state.active and in_place != (dst is None):
        raise TileTypeError(
            f"{construct} of '{state.name}' takes no destination after T.fill: it ends in place"
            if in_place
            else f"{construct} needs a destination for '{state.name}'"
        )
    state.end(builder)
    partial = TensorValue(state.partial, state.binding)
    if state.results is not None and in_place:
        builder.emit(tile.Copy(whole(state.partial), whole(state.results)))
        state.buffer = state.results
        return
    source = to_operand(partial, construct, "source")
    regions = copy_regions(source, to_operand(dst, construct, "destination"), construct)
    builder.emit(tile.Copy(*regions))


def _reducer(construct: str, value: Any) -> Reducer:
    if not isinstance(value, Reducer):
        raise TileTypeError(
            f"{construct} takes a reducer of T.alloc_reducer, not {describe(value)}"
        )
    return value


def _neutral(op: str, dtype: DType) -> Expr:
    """The value that changes no other when combined with it."""
    if op in ("max", "min") and dtype.is_float:
        return build.const(float("-inf") if op == "max" else float("inf"), dtype)
    if op in ("max", "min"):
        return build.const(int(dtype.min_value if op == "max" else dtype.max_value), dtype)
    if op == "bitand":
        return build.const(int(dtype.max_value) if dtype.kind == "uint" else -1, dtype)
    return build.const(0, dtype)
