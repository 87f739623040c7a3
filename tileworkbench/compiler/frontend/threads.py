"""What kernels say about single threads: their indices, roles, exchanges and barriers.

A kernel that names its threads has thread variables, one for each extent of its blocks; they are
made when they are first asked for. Statements outside T.Parallel are executed by every thread, each
with values of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tileworkbench.compiler.diagnostics import (
    Span,
    TileTypeError,
    TileValueError,
)
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.loops import LoopSpec, set_range
from tileworkbench.compiler.frontend.regions import to_operand
from tileworkbench.compiler.frontend.values import Value, describe, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Address, Const, Expr, Load, Var, is_bool
from tileworkbench.compiler.ir.rewrite import statements, walk
from tileworkbench.compiler.ir.simt import (
    LANGUAGE_WARP,
    LANGUAGE_WARPGROUP,
    Barrier,
    BarrierArrive,
    Engine,
    Exchange,
    Start,
    exchange_dtype,
)
from tileworkbench.compiler.ir.stmt import If, Stmt, seq
from tileworkbench.compiler.ir.types import BOOL, INT32, UINT32

_NAMES = ("tx", "ty", "tz")
_ROLE_BARRIERS = 8  # of the 16 that a block has, where those of roles begin; kernels count from 1
_FULL_MASK = build.const(0xFFFFFFFF, UINT32)


def at_thread_level(construct: str) -> Builder:
    """The builder, outside T.Parallel. Raises `TileValueError` inside it, where iterations are not
    threads.
    """
    builder = in_kernel(construct)
    if builder.enclosing("parallel") is not None:
        raise TileValueError(
            f"'{construct}' is executed by threads and cannot be used inside T.Parallel, whose "
            "iterations are spread over them",
            hint="move it out of the loop, or write the loop over T.get_thread_binding()",
        )
    return builder


# Indices


def thread_variables(builder: Builder) -> tuple[Var, ...]:
    """The thread's indices, x first, of the launch that is being traced."""
    if not builder.thread_vars:
        builder.thread_vars = tuple(
            builder.fresh_var(name, INT32) for name, _ in zip(_NAMES, builder.threads, strict=False)
        )
        for var, extent in zip(builder.thread_vars, builder.threads, strict=True):
            set_range(builder, var, build.int_const(0), build.int_const(extent))
    return builder.thread_vars


def kernel_value(builder: Builder, var: Var) -> Value:
    """A variable that lives as long as the launch."""
    return Value(var, builder.bind(var.name, kind="kernel"))


def check_dimension(construct: str, dim: Any, count: int) -> int:
    """A dimension of the block or grid. Raises `TileTypeError` or `TileValueError`."""
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TileTypeError(f"the dimension of {construct} must be an integer, not {describe(dim)}")
    if not 0 <= dim < count:
        raise TileValueError(
            f"{construct} has the dimensions 0 to {count - 1}, and {dim} is none of them"
        )
    return dim


def thread_index(builder: Builder, dim: int) -> Value:
    """The thread's index along `dim`; 0 along one that the block does not have, or where it has one
    thread.
    """
    if dim >= len(builder.threads) or builder.threads[dim] == 1:
        return Value(build.int_const(0))
    return kernel_value(builder, thread_variables(builder)[dim])


def linear_index(builder: Builder) -> Expr:
    """The thread's number in the block, x fastest."""
    index: Expr = build.int_const(0)
    variables = thread_variables(builder)
    for var, extent in zip(reversed(variables), reversed(builder.threads), strict=True):
        index = build.add(build.mul(index, build.int_const(extent)), var)
    return index


def thread_count(builder: Builder) -> int:
    """How many threads a block has."""
    count = 1
    for extent in builder.threads:
        count *= extent
    return count


class LaunchIndex(Value, LoopSpec):
    """An index of the launch, as a value and as the loop whose one variable it is."""

    __slots__ = ()
    __iter__ = LoopSpec.__iter__  # type: ignore[assignment]

    def run(self, builder: Builder) -> Iterator[Value]:
        yield Value(self.expr, self.binding)


def launch_index(start: int, stop: int, index: str) -> LaunchIndex:
    """The thread's or block's index along one dimension, ``threadIdx.x`` for instance, which must
    run from `start` to `stop`. Raises `TileValueError` where the launch has other numbers.
    """
    builder = in_kernel("T.thread_binding")
    dim = "xyz".index(index[-1])
    threads = index.startswith("threadIdx")
    extents = builder.threads if threads else tuple(map(build.const_int, builder.grid))
    extent = extents[dim] if dim < len(extents) else 1
    if start != 0 or stop != extent:
        raise TileValueError(
            f"the launch has {extent or 'any number of'} values of '{index}', and "
            f"T.thread_binding runs from {start} to {stop}",
            hint="T.Kernel(threads=...) gives the number of threads",
        )
    if dim >= len(extents):
        return LaunchIndex(build.int_const(0))
    variables = thread_variables(builder) if threads else builder.blocks
    value = kernel_value(builder, variables[dim])
    return LaunchIndex(value.expr, value.binding)


# Exchanges and barriers


def emit_exchange(
    construct: str, kind: str, args: tuple[Expr, ...], width: Any = LANGUAGE_WARP, mask: Any = None
) -> Value:
    """Emit `kind(args)` here and return its result, which each thread has for itself."""
    builder = at_thread_level(construct)
    widths = [2**i for i in range(LANGUAGE_WARP.bit_length())]
    if isinstance(width, bool) or not isinstance(width, int) or width not in widths:
        shown = describe(width) if not isinstance(width, int) else str(width)
        raise TileValueError(
            f"'width' of {construct} must be a power of two from 1 to {LANGUAGE_WARP}, not {shown}"
        )
    var = builder.fresh_var(builder.hint(0, kind.removesuffix("_sync")), exchange_dtype(kind, args))
    builder.emit(Exchange(var, kind, args, width, to_mask(construct, mask)))
    builder.parallel[var] = frozenset()
    return Value(var, builder.bind(var.name))


def to_mask(construct: str, mask: Any) -> Expr | None:
    """The lanes that take part, one bit for each; None for all of them.

    Raises `TileTypeError` for anything but an integer.
    """
    if mask is None:
        return None
    if isinstance(mask, int) and not isinstance(mask, bool):
        if not 0 <= mask <= 0xFFFFFFFF:
            raise TileValueError(f"the mask {mask} of {construct} does not fit into 32 bits")
        made: Expr = build.const(mask, UINT32)
    else:
        value = to_value(mask).expr
        if not value.dtype.is_int:
            raise TileTypeError(f"the mask of {construct} must be an integer, not '{value.dtype}'")
        made = build.cast(value, UINT32)
    return None if made is _FULL_MASK else made


def to_predicate(construct: str, value: Any) -> Expr:
    """A condition, or an integer that is not zero where it holds.

    Raises `TileTypeError` for a float.
    """
    made = to_value(value).expr
    if is_bool(made):
        return made
    if not made.dtype.is_int:
        raise TileTypeError(
            f"the predicate of {construct} must be a bool or an integer, not '{made.dtype}'",
            hint="compare the value, as in 'x != 0'",
        )
    if isinstance(made, Const):
        return build.const(bool(made.value), BOOL)
    return build.binary("ne", made, build.const(0, made.dtype))


def barrier_address(construct: str, value: Any) -> Address:
    """The memory barrier that `value` names: an element of T.alloc_barrier, or all of it for the
    first one.

    Raises `TileTypeError` for anything else.
    """
    place = to_operand(value, construct, "barrier")
    whole = place.is_whole and len(place.mins) == 1
    if place.buffer.scope != "shared.barrier" or (place.extents is not None and not whole):
        raise TileTypeError(
            f"{construct} needs a barrier made by T.alloc_barrier, not '{place.buffer.name}'"
            if place.buffer.scope != "shared.barrier"
            else f"{construct} needs one barrier, not a slice of '{place.buffer.name}'",
            hint="write barriers[k] for one of T.alloc_barrier([...])",
        )
    return Address(place.buffer, place.mins)


def role_barrier(first: int, count: int) -> Barrier:
    """A barrier of a role of `count` threads that begins with the thread `first`."""
    return Barrier(_ROLE_BARRIERS + first // LANGUAGE_WARPGROUP, count)


def emit_arrival(construct: str, value: Any, engine: Engine | None = None) -> None:
    """One arrival at the memory barrier `value` of every thread that executes this, once what it
    has started on `engine` is done.
    """
    at_thread_level(construct).emit(BarrierArrive(barrier_address(construct, value), engine))


@contextmanager
def started(engine: Engine, barrier: Address | None = None) -> Iterator[None]:
    """What is written in the block is started here, for `engine` to do."""
    builder = in_kernel("an operation that is started")
    stmts = builder.frame.stmts
    before = len(stmts)
    yield
    body = seq(stmts[before:])
    del stmts[before:]
    builder.emit(Start(body, engine, barrier))


def arrive_once(construct: str, value: Any, engine: Engine | None = None) -> None:
    """One arrival at the memory barrier `value`, once all threads that execute this are here and
    what the first one has started on `engine` is done.
    """
    builder = at_thread_level(construct)
    place = barrier_address(construct, value)
    frame = builder.enclosing("role")
    first, count = (0, 0) if frame is None or frame.threads is None else frame.threads
    builder.emit(role_barrier(first, count) if count else Barrier())
    alone = build.binary("eq", linear_index(builder), build.int_const(first))
    builder.emit(If(alone, BarrierArrive(place, engine, site=builder.site)))


def is_barrier(value: Expr) -> bool:
    """Whether `value` stands for a memory barrier, which has no value of its own."""
    return isinstance(value, Load) and value.buffer.scope == "shared.barrier"


def check_barrier_uses(body: Stmt, spans: list[Span | None]) -> None:
    """Raise `TileTypeError` where a memory barrier is used as a number."""
    for stmt in statements(body):
        values = [child for child in stmt.children() if not isinstance(child, Stmt)]
        for part in (node for value in values for node in walk(value)):
            if isinstance(part, Load) and is_barrier(part):
                raise TileTypeError(
                    f"'{part.buffer.name}' holds memory barriers, which have no value",
                    spans[stmt.site],
                    hint="pass one to T.mbarrier_arrive or T.mbarrier_wait_parity",
                )
