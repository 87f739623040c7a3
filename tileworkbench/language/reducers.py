"""Reducers: fragments that the iterations of T.Parallel contribute to, in any order."""

from __future__ import annotations

from typing import Any, NoReturn

from tileworkbench.compiler.diagnostics import TileAssertionError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Binding, in_kernel
from tileworkbench.compiler.frontend.loops import refuse_in_parallel
from tileworkbench.compiler.frontend.refusals import NotScalar
from tileworkbench.compiler.frontend.regions import copy_regions, to_operand
from tileworkbench.compiler.frontend.tensors import TensorValue, check_target, whole
from tileworkbench.compiler.frontend.values import describe, fitting, to_expr
from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir.expr import Binary, Buffer, Cast, Expr, Load
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind
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


class Reducer(NotScalar):
    """What T.alloc_reducer returns; only the functions of this module take it."""

    __slots__ = ("binding", "buffer", "op", "started")

    def __init__(self, tensor: TensorValue, op: str) -> None:
        self.buffer: Buffer = tensor.buffer
        self.binding: Binding | None = tensor.binding
        self.op = op
        self.started = False

    def __getitem__(self, index: Any) -> ReducerElement:
        return ReducerElement(self, index)

    def use(self, construct: str) -> Buffer:
        """The fragment. Raises unless the reducer is alive and started."""
        if self.binding is not None:
            self.binding.check()
        if not self.started:
            raise TileValueError(
                f"{construct} of '{self.buffer.name}' comes before its T.reducer_init",
                hint="start it with T.reducer_init(reducer)",
            )
        return self.buffer

    @property
    def described(self) -> str:
        return f"the reducer '{self.buffer.name}'"

    def refuse(self, *_: Any) -> NoReturn:
        raise TileTypeError(
            f"'{self.buffer.name}' is a reducer, and its elements have no values yet",
            hint="contribute with T.reducer_update, and read the result of T.finalize_reducer",
        )

    __setitem__ = refuse


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


class Accumulator(TensorValue):
    """A reducer that is written as a fragment: in T.Parallel what an element is combined with is a
    contribution. Finishing it moves the result to `spare`, which from then on is the fragment.
    """

    __slots__ = ("op", "spare")

    def __init__(self, tensor: TensorValue, spare: TensorValue, op: str) -> None:
        super().__init__(tensor.buffer, tensor.binding)
        self.spare = spare.buffer
        self.op = op

    def store(self, index: Any, value: Any) -> None:
        builder = in_kernel("a store")
        if builder.enclosing("parallel") is not None and not isinstance(value, NotScalar):
            indices = check_target(self, index)
            added = _contribution(self.op, Load(self.buffer, indices), to_expr(value))
            if added is not None:
                kind, expr = _KINDS[self.op], build.cast(added, self.buffer.dtype)
                builder.emit(Atomic(kind, self.buffer, indices, expr))
                return
        super().store(index, value)

    def finish(self) -> None:
        """Emit the copy of the result."""
        in_kernel("T.finalize_reducer").emit(tile.Copy(whole(self.use()), whole(self.spare)))
        self.buffer, self.spare = self.spare, self.buffer


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
        found = _contribution(op, element, side)
        if found is not None:
            return build.binary(value.op, found, other)
    return None


def _is(value: Expr, element: Load) -> bool:
    while isinstance(value, Cast):
        value = value.value
    return value is element


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Any:
    """A fragment of `shape` that iterations of T.Parallel contribute to with "sum", "max", "min",
    "bitand", "bitor" or "bitxor".

    It is started by `T.reducer_init`, contributed to by `T.reducer_update` and read by
    `T.finalize_reducer`. With `replication` ("all" or "none", deprecated) it is written as a
    fragment: filled, then updated in T.Parallel as in `acc[i] += x`, then finished. Raises
    `TileTypeError` or `TileValueError` for a wrong dtype, shape or operation.
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
    if replication is None:
        return Reducer(made, op)
    return Accumulator(made, alloc_fragment(shape, dtype), op)


def reducer_init(reducer: Any, init: Any = None) -> None:
    """Start a reducer; `init` is one more contribution to each element.

    Raises `TileValueError` for a reducer that is started already.
    """
    builder = in_kernel("T.reducer_init")
    refuse_in_parallel(builder, "T.reducer_init")
    found = _reducer("T.reducer_init", reducer)
    if found.started:
        raise TileValueError(
            f"'{found.buffer.name}' is started twice",
            hint="finish it with T.finalize_reducer first",
        )
    found.started = True
    buffer = found.use("T.reducer_init")
    value = _neutral(found.op, buffer.dtype) if init is None else fitting(init, buffer.dtype)[0]
    builder.emit(tile.Fill(whole(buffer), value))


def reducer_update(element: Any, value: Any) -> None:
    """Contribute `value`, cast to the reducer's dtype, to `reducer[index]`: once for each iteration
    of the enclosing T.Parallel.

    Raises `TileValueError` outside T.Parallel and before `T.reducer_init`.
    """
    construct = "T.reducer_update"
    builder = in_kernel(construct)
    if not isinstance(element, ReducerElement):
        raise TileTypeError(
            f"{construct} takes an element of a reducer, as in 'acc[i]', not {describe(element)}"
        )
    reducer = element.reducer
    buffer = reducer.use(construct)
    if builder.enclosing("parallel") is None:
        raise TileValueError(
            f"{construct} stands outside T.Parallel, where every thread would contribute",
            hint="put it in 'for i in T.Parallel(...)'",
        )
    indices = check_target(TensorValue(buffer, reducer.binding), element.index)
    expr, _ = fitting(value, buffer.dtype)
    builder.emit(Atomic(_KINDS[reducer.op], buffer, indices, expr))


def finalize_reducer(reducer: Any, dst: Any = None, batch: int = 1) -> None:
    """Copy a reducer's result to `dst`, a tensor or slice of its shape, and end it.

    What T.alloc_reducer made with `replication` is finished in place. Raises `ShapeError` for
    another shape.
    """
    construct = "T.finalize_reducer"
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    if isinstance(reducer, Accumulator) and dst is None:
        reducer.finish()
        return
    found = _reducer(construct, reducer)
    buffer = found.use(construct)
    if dst is None:
        raise TileTypeError(f"{construct} needs a destination for '{buffer.name}'")
    source = to_operand(TensorValue(buffer, found.binding), construct, "source")
    regions = copy_regions(source, to_operand(dst, construct, "destination"), construct)
    builder.emit(tile.Copy(*regions))
    found.started = False


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
