"""A reduction over the threads of a block, written as in the underlying IR:

reducer = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
with T.attr(reducer, "reduce_scope", T.reinterpret(T.uint64(0), "handle")):
    T.evaluate(T.tvm_thread_allreduce(T.uint32(1), value, True, result[0], tx))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError, UnsupportedError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.errors import placed_outside
from tileworkbench.compiler.frontend.regions import Operand, to_operand
from tileworkbench.compiler.frontend.threads import at_thread_level, thread_variables
from tileworkbench.compiler.frontend.values import Value, condition, describe, fitting, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.simt import Barrier
from tileworkbench.compiler.ir.stmt import Alloc, For, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.types import INT32


@dataclass(frozen=True, slots=True)
class CommReducer:
    """A commutative combination of two values and its neutral element."""

    combine: Callable[[Any, Any], Any]
    identity: Any


def comm_reducer(fcombine: Callable[[Any, Any], Any], identity: Sequence[Any]) -> CommReducer:
    """A combination of two values, such as `lambda x, y: x + y`, with its neutral element in a
    list.

    Raises `TileTypeError` or `TileValueError` for anything else.

    >>> total = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
    >>> out = T.alloc_local((1,), T.float32)
    >>> with T.attr(total, "reduce_scope", 0):
    ...     T.tvm_thread_allreduce(1, A[tx], True, out[0], tx)
    >>> B[tx] = out[0]
    """
    if not callable(fcombine):
        raise TileTypeError(f"T.comm_reducer needs a function, not {describe(fcombine)}")
    if not isinstance(identity, list | tuple) or len(identity) != 1:
        raise TileValueError("T.comm_reducer needs a list of one neutral element")
    return CommReducer(fcombine, identity[0])


class AttributeBlock:
    """The context manager that `T.attr` returns; without a reducer it has no effect."""

    def __init__(self, reducer: CommReducer | None) -> None:
        self.reducer = reducer

    @placed_outside
    def __enter__(self) -> None:
        builder = in_kernel("T.attr")
        self.outer = builder.reducer
        builder.reducer = self.reducer or self.outer

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        in_kernel("T.attr").reducer = self.outer


def attr(node: Any, attr_key: str, value: Any) -> AttributeBlock:
    """`with T.attr(reducer, "reduce_scope", handle):` the combination of the
    `T.tvm_thread_allreduce` inside; `with T.attr(node, "async_scope", 1):` copies that a GPU may
    finish later, which are finished at once. Raises `UnsupportedError` for any other attribute.

    >>> total = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
    >>> out = T.alloc_local((1,), T.float32)
    >>> with T.attr(total, "reduce_scope", 0):
    ...     T.tvm_thread_allreduce(1, A[tx], True, out[0], tx)
    >>> B[tx] = out[0]
    """
    if attr_key == "async_scope":
        return AttributeBlock(None)
    if attr_key != "reduce_scope":
        raise UnsupportedError(f"the attribute {attr_key!r} of T.attr is not supported")
    if not isinstance(node, CommReducer):
        raise TileTypeError(
            f"the attribute 'reduce_scope' of T.attr belongs to a T.comm_reducer, not to "
            f"{describe(node)}"
        )
    return AttributeBlock(node)


def tvm_thread_allreduce(
    size: Any, value: Any, cond: Any, out: Any, *indices: Any, dtype: Any = None
) -> Value:
    """`out` of every thread becomes the combination of `value` over the threads that differ in
    `indices` only, without those where `cond` does not hold.

    `size` is the number of values, 1; `dtype` has no effect. All threads of the block execute it.
    Raises `TileValueError` outside a T.attr block with its T.comm_reducer.

    >>> total = T.comm_reducer(lambda x, y: x + y, [T.float32(0)])
    >>> out = T.alloc_local((1,), T.float32)
    >>> with T.attr(total, "reduce_scope", 0):
    ...     T.tvm_thread_allreduce(1, A[tx], True, out[0], tx)
    >>> B[tx] = out[0]
    """
    builder = at_thread_level("T.tvm_thread_allreduce")
    reducer = builder.reducer
    if not isinstance(reducer, CommReducer):
        raise TileValueError(
            "T.tvm_thread_allreduce stands outside 'with T.attr(reducer, \"reduce_scope\", ...)'"
        )
    if build.const_int(to_value(size).expr) != 1:
        raise UnsupportedError("T.tvm_thread_allreduce of several values is not supported")
    place = to_operand(out, "T.tvm_thread_allreduce", "result")
    if place.extents is not None or place.buffer.scope not in ("local", "local.var"):
        raise TileTypeError(
            "the result of T.tvm_thread_allreduce must be an element of T.alloc_local or a "
            f"variable, and '{place.buffer.name}' is neither"
        )
    _emit(builder, reducer, value, cond, place, _dimensions(builder, indices))
    return Value(build.int_const(0))


def _dimensions(builder: Builder, indices: tuple[Any, ...]) -> list[int]:
    """The dimensions of the block that are reduced over."""
    variables = list(thread_variables(builder))
    dims = []
    for index in indices:
        expr = to_value(index).expr
        if build.const_int(expr) == 0:
            continue  # a dimension that the block does not have
        if expr not in variables:
            raise TileValueError("the indices of T.tvm_thread_allreduce must be thread indices")
        dims.append(variables.index(expr))
    return dims


def _emit(
    builder: Builder,
    reducer: CommReducer,
    value: Any,
    cond: Any,
    place: Operand,
    reduced: list[int],
) -> None:
    """All values go to shared memory, and every thread combines those of its own group."""
    variables, dtype = thread_variables(builder), place.buffer.dtype
    element, neutral = fitting(value, dtype)[0], fitting(reducer.identity, dtype)[0]
    taken = condition(cond, "the condition of T.tvm_thread_allreduce").expr
    shape = tuple(build.int_const(extent) for extent in reversed(builder.threads))
    values = Buffer(builder.fresh("thread_values"), dtype, shape, "shared")
    total = Buffer(builder.fresh("thread_total"), dtype, (), "local.var")
    builder.emit(Alloc(values))
    own: tuple[Expr, ...] = tuple(reversed(variables))
    builder.emit(Store(values, own, build.select(taken, element, neutral)))
    builder.emit(Barrier())
    builder.emit(Alloc(total, neutral))
    others = {d: builder.fresh_var("t", INT32) for d in reduced}
    indices: tuple[Expr, ...] = tuple(
        others.get(d, var) for d, var in reversed(list(enumerate(variables)))
    )
    made = reducer.combine(Value(Load(total, ())), Value(Load(values, indices)))
    body: Stmt = Store(total, (), fitting(made, dtype)[0], site=builder.site)
    for d, var in others.items():
        body = _loop(var, builder.threads[d], body)
    builder.emit(body)
    builder.emit(Barrier())
    builder.emit(Store(place.buffer, place.mins, Load(total, ())))


def _loop(var: Var, extent: int, body: Stmt) -> For:
    zero, stop, one = (build.int_const(number) for number in (0, extent, 1))
    return For(var, zero, stop, one, LoopKind.SERIAL, body, site=body.site)
