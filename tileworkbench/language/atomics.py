"""Accesses of single elements that no other thread or block can come in between of.

Inside T.Parallel each iteration makes one access; outside it every thread of the block does. The
elements lie in global or shared memory, and accesses outside a global tensor are skipped.
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
from tileworkbench.compiler.frontend.regions import Operand, copy_regions, to_operand
from tileworkbench.compiler.frontend.tensors import (
    RegionValue,
    TensorValue,
    check_access,
    parallel_variables,
)
from tileworkbench.compiler.frontend.threads import thread_variables
from tileworkbench.compiler.frontend.values import Value, fitting
from tileworkbench.compiler.frontend.vectors import VectorValue, gather
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load
from tileworkbench.compiler.ir.stmt import Atomic, AtomicKind, For, LoopKind
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

    `dst` is an element `C[i, j]`, a slice or a tensor in global or shared memory. A tensor or slice
    as `value` is added element by element to the box of `dst` that it covers, a scalar to every
    element. With `return_prev`, which needs an element and a scalar, the result is what
    the element held before. `memory_order` is "relaxed" to "seq_cst"; all are executed as
    "seq_cst". Raises `TileTypeError`, `TileValueError` or `ShapeError` for operands that do not
    fit.
    """
    return _atomic(AtomicKind.ADD, dst, value, memory_order, return_prev)


def atomic_max(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Any = None,
) -> Any:
    """`dst = max(dst, value)`, atomically for each element, ignoring NaN; see `atomic_add`."""
    return _atomic(AtomicKind.MAX, dst, value, memory_order, return_prev)


def atomic_min(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    annotations: Any = None,
) -> Any:
    """`dst = min(dst, value)`, atomically for each element, ignoring NaN; see `atomic_add`."""
    return _atomic(AtomicKind.MIN, dst, value, memory_order, return_prev)


def atomic_or(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False
) -> Any:
    """`dst |= value` for one element of an integer tensor; see `atomic_add`."""
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

    Both are given by their first element, `C[i, j]`. With `return_prev`, as in `atomic_add`, the
    result is the vector of what the elements held before. Raises as `atomic_add`.
    """
    return _neighbours("T.atomic_addx2", 2, dst, src, return_prev)


def atomic_addx4(dst: Any, src: Any, return_prev: bool = False) -> VectorValue | None:
    """Add four neighbouring elements; see `atomic_addx2`."""
    return _neighbours("T.atomic_addx4", 4, dst, src, return_prev)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Value:
    """The element `src`, read as one step. Raises `TileValueError` for a releasing order."""
    _check_order("T.atomic_load", memory_order, ("release", "acq_rel"))
    place = _element("T.atomic_load", src)
    zero = build.const(0, place.buffer.dtype)
    return _access(AtomicKind.LOAD, place.buffer, place.mins, zero, "loaded")


def atomic_store(dst: Any, value: Any, memory_order: str = "seq_cst") -> None:
    """`dst = value` for one element, as one step.

    Raises `TileValueError` for an acquiring order.
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
        if builder.enclosing("parallel") is None:
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
    wide = [d for d, extent in enumerate(base.extents) if build.const_int(extent) != 1]
    extents = tuple(base.extents[d] for d in wide)
    variables = tuple(
        builder.fresh_var(_NAMES[d % len(_NAMES)], extent.dtype) for d, extent in enumerate(extents)
    )

    def at(mins: tuple[Expr, ...], sizes: tuple[Expr, ...]) -> tuple[Expr, ...]:
        moving = iter(variables)
        return tuple(
            low if build.const_int(size) == 1 else build.add(low, next(moving))
            for low, size in zip(mins, sizes, strict=True)
        )

    if src is None:
        operand, _ = fitting(value, dst.buffer.dtype)
    else:
        operand = build.cast(Load(src.buffer, at(src.mins, src.extents)), dst.buffer.dtype)
    access = Atomic(kind, dst.buffer, at(dst.mins, dst.extents), operand, site=builder.site)
    if not variables:
        variables, extents = (builder.fresh_var("i", "int32"),), (build.int_const(1),)
    builder.emit(Parallel(variables, extents, access))


def _neighbours(
    construct: str, count: int, dst: Any, src: Any, return_prev: bool
) -> VectorValue | None:
    target, source = _element(construct, dst), _element(construct, src)
    _check_memory(construct, target.buffer)
    dtype = target.buffer.dtype

    def access(lane: Expr) -> tuple[tuple[Expr, ...], Expr]:
        value = Load(source.buffer, (*source.mins[:-1], build.add(source.mins[-1], lane)))
        place = (*target.mins[:-1], build.add(target.mins[-1], lane))
        return place, build.cast(value, dtype)

    if return_prev:
        steps = [access(build.int_const(step)) for step in range(count)]
        held = [
            _access(AtomicKind.ADD, target.buffer, place, value, "previous")
            for place, value in steps
        ]
        return gather(dtype.with_lanes(count), tuple(held))
    builder = in_kernel(construct)
    lane = builder.fresh_var("lane", "int32")
    place, value = access(lane)
    check_access(target.buffer, place)
    body = Atomic(AtomicKind.ADD, target.buffer, place, value, site=builder.site)
    zero, one, stop = build.int_const(0), build.int_const(1), build.int_const(count)
    builder.emit(For(lane, zero, stop, one, LoopKind.VECTORIZED, body))
    return None


def _element(construct: str, value: Any) -> Operand:
    """A single element of memory that blocks or threads share."""
    place = to_operand(value, construct, "operand")
    if place.extents is not None or not place.mins:
        raise TileTypeError(
            f"{construct} takes an element, as in '{place.buffer.name}[i]', not a whole tensor or "
            "a slice"
        )
    if construct not in ("T.atomic_addx2", "T.atomic_addx4"):  # the source may be anywhere
        _check_memory(construct, place.buffer)
    return place


def _check_memory(construct: str, buffer: Buffer) -> None:
    if buffer.scope not in ("global", "shared"):
        raise TileValueError(
            f"{construct} works on global or shared memory, and '{buffer.name}' is {buffer.scope}",
            hint="no other thread sees it: update it with an assignment",
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
    _check_memory(f"T.atomic_{kind}", buffer)
    check_access(buffer, indices)
    in_kernel(f"T.atomic_{kind}").emit(Atomic(kind, buffer, indices, value))


def _access(
    kind: AtomicKind, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, name: str
) -> Value:
    """An access whose previous content is a value of the kernel."""
    builder = in_kernel(f"T.atomic_{kind}")
    check_access(buffer, indices)
    previous = builder.fresh_var(builder.hint(0, name), buffer.dtype)
    builder.emit(Atomic(kind, buffer, indices, value, previous))
    depends = [parallel_variables(builder, index) for index in (*indices, value)]
    builder.parallel[previous] = frozenset(set().union(*depends))
    return Value(previous, builder.bind(previous.name))
