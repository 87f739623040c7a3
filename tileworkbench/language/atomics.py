"""Accesses of single elements that no other thread or block can come in between of.

Inside T.Parallel each iteration makes one access; outside it every thread of the block does. The
elements lie in global or shared memory, and accesses outside a global tensor are skipped. Memory
that is private to a thread takes them as plain accesses: nobody can come in between.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import (
    TileTypeError,
    TileValueError,
    UnsupportedError,
)
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.loops import refuse_in_parallel
from tileworkbench.compiler.frontend.private_tiles import PRIVATE, element_at, nest
from tileworkbench.compiler.frontend.regions import Operand, copy_regions, to_operand
from tileworkbench.compiler.frontend.tensors import (
    RegionValue,
    TensorValue,
    check_access,
    elements,
    parallel_variables,
)
from tileworkbench.compiler.frontend.threads import started, thread_variables
from tileworkbench.compiler.frontend.values import Value, describe, fitting
from tileworkbench.compiler.frontend.vectors import VectorValue, gather
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Var
from tileworkbench.compiler.ir.simt import CommitGroup, Engine, WaitGroup
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind, For, Let, LoopKind, Stmt, Store
from tileworkbench.compiler.ir.tile import Parallel

_ORDERS = ("relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst")
_NAMES = "ijklmnop"


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: Any = None,
) -> Any:
    """`dst += value`, atomically for each element.

    `dst` is an element `C[i, j]`, a slice or a tensor, of any memory but fragments. A tensor or
    slice as `value` is added element by element to the box of `dst` that it covers, a scalar to
    every element. With `return_prev`, which needs an element and a scalar, the result is what
    the element held before. Blocks and threads add in no fixed order, so that sums of floats may
    differ from call to call; where that matters, write each share to a place of its own and add
    them in a second launch, as `kernels.split_k_matmul(deterministic=True)` does. `memory_order`
    is "relaxed" to "seq_cst"; all are executed as "seq_cst".

    With `use_tma` the copy engine adds a tile of shared memory to one of global memory, from Hopper
    on and where it can (the card says where not, and why); the tile may be written again behind it.
    Elsewhere threads add the elements.

    Raises `TileTypeError`, `TileValueError` or `ShapeError` for operands that do not fit.

    >>> T.atomic_add(B[0], A[i])
    """
    if not use_tma:
        return _atomic(AtomicKind.ADD, dst, value, memory_order, return_prev)
    construct = "T.atomic_add"
    builder, place = in_kernel(construct), to_operand(dst, construct, "destination")
    tile = isinstance(value, TensorValue | RegionValue) and to_operand(value, construct, "value")
    if not tile or (tile.buffer.scope, place.buffer.scope) != ("shared", "global"):
        raise TileValueError(
            "T.atomic_add with use_tma adds a tile of shared memory to one of global memory",
            hint="leave out use_tma: threads add the elements",
        )
    with started(Engine.TMA_STORE):
        _atomic(AtomicKind.ADD, dst, value, memory_order, return_prev)
    builder.emit(CommitGroup(Engine.TMA_STORE))
    builder.emit(WaitGroup(0, Engine.TMA_STORE, sources=True))
    return None


def atomic_max(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Any = None,
) -> Any:
    """`dst = max(dst, value)`, atomically for each element, ignoring NaN; see `atomic_add`.

    >>> T.atomic_max(B[0], A[i])
    """
    return _atomic(AtomicKind.MAX, dst, value, memory_order, return_prev)


def atomic_min(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Any = None,
) -> Any:
    """`dst = min(dst, value)`, atomically for each element, ignoring NaN; see `atomic_add`.

    >>> T.atomic_min(B[0], A[i])
    """
    return _atomic(AtomicKind.MIN, dst, value, memory_order, return_prev)


def atomic_or(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Any:
    """`dst |= value` for one element of an integer tensor; see `atomic_add`.

    >>> T.atomic_or(N[0], 1)
    """
    place = to_operand(dst, "T.atomic_or", "destination")
    if place.extents is not None or isinstance(value, TensorValue | RegionValue):
        raise TileTypeError("T.atomic_or takes an element and a scalar")
    if not place.buffer.dtype.is_int:
        raise TileTypeError(
            f"T.atomic_or needs integers, and '{place.buffer.name}' is '{place.buffer.dtype}'"
        )
    return _atomic(AtomicKind.OR, dst, value, memory_order, return_prev)


def atomic_addx2(dst: Any, src: Any, return_prev: bool = False) -> VectorValue | None:
    """Add two neighbouring elements of `src` to two of `dst`, each atomically.

    Each is given by its first element, `C[i, j]`, or is a slice, a tensor or a vector of two, as
    `C[T.Ramp(i, 1, 2)]` is. With `return_prev`, as in `atomic_add`, the result is the vector of
    what the elements held before. Raises as `atomic_add`.

    >>> T.atomic_addx2(C[0, 0], row[0])
    """
    return _neighbours("T.atomic_addx2", 2, dst, src, return_prev)


def atomic_addx4(dst: Any, src: Any, return_prev: bool = False) -> VectorValue | None:
    """Add four neighbouring elements; see `atomic_addx2`.

    >>> T.atomic_addx4(C[0, 0], row[0])
    """
    return _neighbours("T.atomic_addx4", 4, dst, src, return_prev)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Value:
    """The element `src`, read as one step. Raises `TileValueError` for a releasing order.

    >>> B[i] = T.atomic_load(A[i])
    """
    _check_order("T.atomic_load", memory_order, ("release", "acq_rel"))
    place = _element("T.atomic_load", src)
    zero = build.const(0, place.buffer.dtype)
    return _access(AtomicKind.LOAD, place.buffer, place.mins, zero, "loaded")


def atomic_store(dst: Any, value: Any, memory_order: str = "seq_cst") -> None:
    """`dst = value` for one element, as one step.

    Raises `TileValueError` for an acquiring order.

    >>> T.atomic_store(B[i], A[i])
    """
    _check_order("T.atomic_store", memory_order, ("consume", "acquire", "acq_rel"))
    place = _element("T.atomic_store", dst)
    expr, _ = fitting(value, place.buffer.dtype)
    _emit(AtomicKind.STORE, place.buffer, place.mins, expr)


def _atomic(kind: AtomicKind, dst: Any, value: Any, order: str | None, return_prev: bool) -> Any:
    construct = f"T.atomic_{kind}"
    builder = in_kernel(construct)
    if order is not None:
        _check_order(construct, order, ())
    place = to_operand(dst, construct, "destination")
    _check_memory(construct, place.buffer)
    if place.extents is None and not isinstance(value, TensorValue | RegionValue):
        expr, _ = fitting(value, place.buffer.dtype)
        if not return_prev:
            _emit(kind, place.buffer, place.mins, expr)
            return None
        if builder.enclosing("parallel") is None and place.buffer.scope not in PRIVATE:
            thread_variables(builder)  # each thread gets a value of its own
        return _access(kind, place.buffer, place.mins, expr, "previous")
    if return_prev:
        raise UnsupportedError(
            f"'return_prev' of {construct} needs a single element and a scalar",
            hint="write a T.Parallel loop over the elements",
        )
    _emit_tile(kind, construct, place, value)
    return None


def _emit_tile(kind: AtomicKind, construct: str, place: Operand, value: Any) -> None:
    """The element-wise form: a parallel loop over the box."""
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    if isinstance(value, TensorValue | RegionValue):
        source = to_operand(value, construct, "value")
        src, dst = copy_regions(source, place, construct)
        base = src if source.buffer.scope != "global" or place.buffer.scope == "global" else dst
    else:
        base = dst = place.region(place.extents or ())
        src = None

    def update(place: tuple[Var, ...]) -> Stmt:
        if src is None:
            operand, _ = fitting(value, dst.buffer.dtype)
        else:
            operand = build.cast(Load(src.buffer, element_at(src, place)), dst.buffer.dtype)
        return _update(kind, dst.buffer, element_at(dst, place), operand, builder.site)

    if dst.buffer.scope in PRIVATE:
        if src is not None and src.buffer.scope == "local.fragment":
            raise TileValueError(
                f"'{dst.buffer.name}' is private to each thread, and the fragment "
                f"'{src.buffer.name}' is spread over the threads",
                hint="allocate one of them with T.alloc_shared",
            )
        builder.emit(nest(builder, base.extents, update))
        return
    wide = [extent for extent in base.extents if build.const_int(extent) != 1]
    extents = tuple(wide) or (build.int_const(1),)
    variables = tuple(
        builder.fresh_var(_NAMES[d % len(_NAMES)], extent.dtype) for d, extent in enumerate(extents)
    )
    builder.emit(Parallel(variables, extents, update(variables)))


def _update(
    kind: AtomicKind, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, site: int
) -> Stmt:
    """`buffer[indices] = kind(buffer[indices], value)`: a plain store where nobody else sees it."""
    if buffer.scope not in PRIVATE:
        return Atomic(kind, buffer, indices, value, site=site)
    if kind is not AtomicKind.STORE:
        value = build.binary(kind.value, Load(buffer, indices), value)
    return Store(buffer, indices, value, site=site)


def _neighbours(
    construct: str, count: int, dst: Any, src: Any, return_prev: bool
) -> VectorValue | None:
    builder = in_kernel(construct)
    target, source = _vector(construct, count, dst), _vector(construct, count, src)

    def access(lane: Expr) -> tuple[Buffer, tuple[Expr, ...], Expr]:
        place = target.at(lane)
        if not isinstance(place, Load):
            raise TileTypeError(f"{construct} adds to elements of a tensor, not to a value")
        _check_memory(construct, place.buffer)
        return place.buffer, place.indices, build.cast(source.at(lane), place.dtype)

    if return_prev:
        held = [
            _access(AtomicKind.ADD, *access(build.int_const(step)), "previous")
            for step in range(count)
        ]
        return gather(held[0].expr.dtype.with_lanes(count), tuple(held))
    lane = builder.fresh_var("lane", "int32")
    frame = builder.push("vectorized")
    _emit(AtomicKind.ADD, *access(lane))
    zero, one, stop = build.int_const(0), build.int_const(1), build.int_const(count)
    builder.emit(For(lane, zero, stop, one, LoopKind.VECTORIZED, builder.pop(frame)))
    return None


def _vector(construct: str, count: int, value: Any) -> VectorValue:
    """The `count` elements that begin at an element, or those of a slice, a tensor or a vector."""
    if isinstance(value, VectorValue):
        made = value
    else:
        place = to_operand(value, construct, "operand")
        if place.extents is None and place.mins:

            def at(lane: Expr) -> Expr:
                return Load(place.buffer, (*place.mins[:-1], build.add(place.mins[-1], lane)))

            return VectorValue(count, at, getattr(value, "binding", None))
        region = place.region(place.extents or ())
        made = elements(RegionValue(region, getattr(value, "binding", None)))
    if made.lanes != count:
        raise TileTypeError(
            f"{construct} takes {count} neighbours, and {describe(value)} has {made.lanes} "
            "elements",
            hint="give the first of them, as in 'C[i]'",
        )
    return made


def _element(construct: str, value: Any) -> Operand:
    """A single element of memory that blocks or threads share."""
    place = to_operand(value, construct, "operand")
    if place.extents is not None or not place.mins:
        raise TileTypeError(
            f"{construct} takes an element, as in '{place.buffer.name}[i]', not a whole tensor or "
            "a slice"
        )
    _check_memory(construct, place.buffer)
    return place


def _check_memory(construct: str, buffer: Buffer) -> None:
    if buffer.scope == "local.fragment":
        raise TileValueError(
            f"{construct} works on elements of memory, and '{buffer.name}' is a fragment",
            hint="update it with an assignment in T.Parallel, or reduce it with T.reduce_sum",
        )
    if buffer.dtype.bits < 8 or buffer.dtype.is_bool:
        raise TileTypeError(f"{construct} of '{buffer.dtype}' is not possible")


def _check_order(construct: str, order: Any, refused: tuple[str, ...]) -> None:
    allowed = [name for name in _ORDERS if name not in refused]
    if order not in allowed:
        raise TileValueError(
            f"{order!r} is not a memory order of {construct}",
            hint=f"use one of {', '.join(allowed)}",
        )


def _emit(kind: AtomicKind, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> None:
    builder = in_kernel(f"T.atomic_{kind}")
    _check_memory(f"T.atomic_{kind}", buffer)
    check_access(buffer, indices)
    builder.emit(_update(kind, buffer, indices, value, builder.site))


def _access(
    kind: AtomicKind, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, name: str
) -> Value:
    """An access whose previous content is a value of the kernel."""
    builder = in_kernel(f"T.atomic_{kind}")
    check_access(buffer, indices)
    previous = builder.fresh_var(builder.hint(0, name), buffer.dtype)
    if buffer.scope in PRIVATE:
        builder.emit(Let(previous, Load(buffer, indices)))
        if kind is not AtomicKind.LOAD:
            builder.emit(_update(kind, buffer, indices, value, builder.site))
    else:
        builder.emit(Atomic(kind, buffer, indices, value, previous))
    depends = [parallel_variables(builder, index) for index in (*indices, value)]
    builder.parallel[previous] = frozenset(set().union(*depends))
    return Value(previous, builder.bind(previous.name))
