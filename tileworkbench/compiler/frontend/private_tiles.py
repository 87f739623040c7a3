"""Tile operators on what each thread has for itself, in kernels that tell their threads apart:
every thread executes its own, element by element.
"""

from __future__ import annotations

from collections.abc import Callable

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.frontend.builder import Builder
from tileworkbench.compiler.frontend.tensors import whole
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region, Var
from tileworkbench.compiler.ir.stmt import Alloc, For, LoopKind, Stmt, Store, seq
from tileworkbench.compiler.ir.tile import Copy, ReduceKind
from tileworkbench.compiler.ir.types import FLOAT32, DType

PRIVATE = ("local", "local.var")
_NAMES = "ijklmnop"


def is_private(builder: Builder, *buffers: Buffer) -> bool:
    """Whether each thread has an operator on `buffers` for itself: the kernel tells its threads
    apart, and some of them are a thread's own memory, none a tile spread over the threads.
    """
    scopes = {buffer.scope for buffer in buffers}
    apart = not scopes.isdisjoint(PRIVATE) and "local.fragment" not in scopes
    return bool(builder.thread_vars) and apart


def part_of(builder: Builder, construct: str, region: Region, filled: bool) -> Buffer:
    """The tile that a region is all of, or else a fragment for it, `filled` with its elements.

    Raises `TileValueError` for a region whose size is not known.
    """
    buffer = region.buffer
    if region is whole(buffer):
        return buffer
    if any(build.const_int(extent) is None for extent in region.extents):
        raise TileValueError(
            f"the extents of what {construct} takes of '{buffer.name}' must be known while "
            "compiling"
        )
    name = builder.fresh(f"{buffer.name}_part")
    made = Buffer(name, buffer.dtype, region.extents, "local.fragment")
    builder.emit(Alloc(made))
    if filled:
        builder.emit(Copy(region, whole(made)))
    return made


def emit_copy(builder: Builder, src: Region, dst: Region) -> None:
    """Copy element by element: what `copy_regions` has matched is in order."""
    base = dst if src.buffer.scope == "global" else src

    def assign(place: tuple[Var, ...]) -> Stmt:
        value = build.cast(Load(src.buffer, element_at(src, place)), dst.buffer.dtype)
        return Store(dst.buffer, element_at(dst, place), value, site=builder.site)

    builder.emit(nest(builder, base.extents, assign))


def emit_fill(builder: Builder, dst: Region, value: Expr) -> None:
    """Fill element by element."""

    def assign(place: tuple[Var, ...]) -> Stmt:
        return Store(dst.buffer, element_at(dst, place), value, site=builder.site)

    builder.emit(nest(builder, dst.extents, assign))


def emit_reduce(
    builder: Builder,
    kind: ReduceKind,
    src: Buffer,
    dst: Buffer,
    dim: int,
    clear: bool,
    nan_propagate: bool,
) -> None:
    """Reduce along `dim`: in the destination's dtype, in float32 for narrower floats."""
    narrow = dst.dtype.is_float and dst.dtype.bits < 32
    dtype = FLOAT32 if narrow else dst.dtype
    total = Buffer(builder.fresh("total"), dtype, (), "local.var")
    kept = (*src.shape[:dim], *src.shape[dim + 1 :])

    def step(place: tuple[Var, ...], at: Expr) -> Stmt:
        index = (*place[:dim], at, *place[dim:])
        value = build.cast(build.cast(Load(src, index), dst.dtype), dtype)
        if kind in (ReduceKind.ABSMAX, ReduceKind.ABSSUM) and dtype.is_signed:
            value = build.unary("abs", value)
        return Store(
            total, (), _combine(kind, Load(total, ()), value, nan_propagate), site=builder.site
        )

    def reduce(place: tuple[Var, ...]) -> Stmt:
        at = builder.fresh_var("k", src.shape[dim].dtype)
        target = place if len(dst.shape) == len(kept) else (*place[:dim], _ZERO, *place[dim:])
        result: Expr = Load(total, ())
        if not clear:
            old = build.cast(Load(dst, target), dtype)
            result = _combine(kind, old, result, nan_propagate)
        return seq(
            [
                Alloc(total, _identity(kind, dtype), site=builder.site),
                _loop(at, src.shape[dim], step(place, at)),
                Store(dst, target, build.cast(result, dst.dtype), site=builder.site),
            ]
        )

    builder.emit(nest(builder, kept, reduce, ones=True))


_ZERO = build.int_const(0)


def _identity(kind: ReduceKind, dtype: DType) -> Expr:
    """What leaves every value as it is when combined with it."""
    if kind is ReduceKind.MAX:
        return build.const(float("-inf") if dtype.is_float else int(dtype.min_value), dtype)
    if kind is ReduceKind.MIN:
        return build.const(float("inf") if dtype.is_float else int(dtype.max_value), dtype)
    if kind is ReduceKind.BITAND:
        return build.const(True, dtype) if dtype.is_bool else build.const(-1, dtype)
    return build.const(1 if kind is ReduceKind.PROD else 0, dtype)


def _combine(kind: ReduceKind, a: Expr, b: Expr, nan_propagate: bool) -> Expr:
    names = {"sum": "add", "abssum": "add", "absmax": "max", "prod": "mul"}
    name = names.get(kind, kind.removeprefix("bit"))
    if name in ("max", "min") and nan_propagate and a.dtype.is_float:
        return build.call(f"{name}_nan", a, b)
    arithmetic = {"add": build.add, "mul": build.mul}.get(name)
    return build.binary(name, a, b) if arithmetic is None else arithmetic(a, b)


def nest(
    builder: Builder,
    extents: tuple[Expr, ...],
    body: Callable[[tuple[Var, ...]], Stmt],
    ones: bool = False,
) -> Stmt:
    """`body` at every place of the box `extents`, of which extents of 1 have no loop unless `ones`.

    The loops are unrolled: a thread's own array is in registers, which have no index.
    """
    wide = [extent for extent in extents if ones or build.const_int(extent) != 1]
    place = tuple(builder.fresh_var(_NAMES[d % 8], e.dtype) for d, e in enumerate(wide))
    made = body(place)
    for var, extent in reversed(list(zip(place, wide, strict=True))):
        made = _loop(var, extent, made)
    return made


def _loop(var: Var, extent: Expr, body: Stmt) -> Stmt:
    zero, one = build.const(0, extent.dtype), build.const(1, extent.dtype)
    return For(var, zero, extent, one, LoopKind.UNROLLED, body, site=body.site)


def element_at(region: Region, place: tuple[Var, ...]) -> tuple[Expr, ...]:
    """The element of `region` at `place`."""
    moving = iter(place)
    return tuple(
        low if build.const_int(extent) == 1 else build.add(low, next(moving))
        for low, extent in zip(region.mins, region.extents, strict=True)
    )
