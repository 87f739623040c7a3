"""Operators on whole tiles.

All threads of a block take part, and each is finished before the next starts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tileworkbench.compiler.diagnostics import ShapeError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.loops import check_iterations, refuse_in_parallel
from tileworkbench.compiler.frontend.private_tiles import (
    emit_copy,
    emit_fill,
    emit_reduce,
    is_private,
    part_of,
)
from tileworkbench.compiler.frontend.regions import (
    Operand,
    check_inside,
    copy_regions,
    to_buffer,
    to_operand,
    to_region,
)
from tileworkbench.compiler.frontend.tensors import TensorValue, emit_store, whole
from tileworkbench.compiler.frontend.threads import arrive_once, barrier_address
from tileworkbench.compiler.frontend.values import Operators, condition, fitting
from tileworkbench.compiler.ir import build, tile
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.ir.tile import ReduceKind, WarpPolicy
from tileworkbench.compiler.layout import Fragment
from tileworkbench.language.loops import check_loop_layout, check_width


class GemmWarpPolicy(IntEnum):
    """How the warps of a block share the result of T.gemm; changes no value.

    >>> T.gemm(a, b, acc, policy=T.GemmWarpPolicy.FullRow)
    """

    Square = 0
    FullRow = 1
    FullCol = 2


_POLICIES = {
    GemmWarpPolicy.Square: WarpPolicy.SQUARE,
    GemmWarpPolicy.FullRow: WarpPolicy.FULL_ROW,
    GemmWarpPolicy.FullCol: WarpPolicy.FULL_COL,
}
_ONE = build.int_const(1)


def operator_builder(construct: str) -> Builder:
    """The builder, where an operator on tiles can stand."""
    builder = in_kernel(construct)
    refuse_in_parallel(builder, construct)
    return builder


def copy(
    src: Any,
    dst: Any,
    coalesced_width: int | None = None,
    *,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """Copy elements with a cast to the destination's dtype.

    Each side is a tensor, a slice `A[i:i + m, :]`, or an element `A[i, j]`, which stands for the
    box of the other side's extents that starts there. What lies outside a global source reads as
    its safe value (zero); what lies outside a global destination is dropped. `loop_layout` is as in
    T.Parallel, over the extents that are not 1 of the side that is nearer the threads; the other
    keywords are hints. Raises `ShapeError` for extents that do not fit together.

    >>> T.copy(A[0:32, :], C[32, 0])
    """
    check_loop_layout("T.copy", loop_layout)
    width = check_width("T.copy", coalesced_width)
    source, target = to_operand(src, "T.copy", "source"), to_operand(dst, "T.copy", "destination")
    emit_operands(source, target, width, loop_layout)


def emit_operands(
    source: Operand, target: Operand, width: int | None = None, loop_layout: Fragment | None = None
) -> None:
    """`T.copy` of operands."""
    if source.extents is None and target.extents is None:
        value = build.cast(Load(source.buffer, source.mins), target.buffer.dtype)
        emit_store(Store(target.buffer, target.mins, value))
        return
    regions, builder = copy_regions(source, target), operator_builder("T.copy")
    if is_private(builder, source.buffer, target.buffer):
        emit_copy(builder, *regions)
    else:
        wide = [e for e in regions[0].extents if build.const_int(e) != 1]
        check_iterations("T.copy", loop_layout, wide or regions[0].extents[-1:])
        builder.emit(tile.Copy(*regions, width, loop_layout))


def fill(buffer: Any, value: Any) -> None:
    """Set every element of a tensor, slice or element to `value`, cast to its dtype.

    Raises `TileValueError` for a region that provably leaves the tensor.

    >>> T.fill(acc, 1.0)
    """
    builder = operator_builder("T.fill")
    target = buffer.filled() if isinstance(buffer, TensorValue) else buffer
    region = to_region(target, "T.fill", "destination")
    check_inside(region, "T.fill")
    expr, _ = fitting(value, region.buffer.dtype)
    if is_private(builder, region.buffer):
        emit_fill(builder, region, expr)
    else:
        builder.emit(tile.Fill(region, expr))


def clear(buffer: Any) -> None:
    """Set every element of a tensor, slice or element to zero.

    >>> T.clear(acc)
    """
    fill(buffer, 0)


# Matrix products ----------------------------------------------------------------------------------
# -------------------


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: Any = GemmWarpPolicy.Square,
    clear_accum: Any = False,
    k_pack: int = 1,
    mbar: Any = None,
    annotations: Any = None,
) -> None:
    """`C += op(A) @ op(B)`, accumulated in C's dtype.

    C is an (M, N) tile; A is (M, K), or (K, M) when `transpose_A`; B is (K, N), or (N, K) when
    `transpose_B`; further leading extents must be 1. All are tiles in shared memory or fragments.
    Where `clear_accum` (a bool or a condition) holds, C is overwritten. The memory barrier `mbar`
    gets one arrival when the product is done. `policy`, `k_pack` and `annotations` change no
    result. Raises `ShapeError` for shapes that do not fit and
    `TileTypeError` for dtypes that do not.

    >>> T.gemm(a, b, acc, transpose_B=True)
    """
    builder = operator_builder("T.gemm")
    a, b, c = (to_region(v, "T.gemm", f"operand {n}") for v, n in ((A, "A"), (B, "B"), (C, "C")))
    for region, name in ((a, "A"), (b, "B"), (c, "C")):
        _check_matrix(region, name)
    _check_product(a, b, c, bool(transpose_A), bool(transpose_B))
    _check_types(a, b, c)
    kinds = dict.fromkeys(str(region.buffer.dtype) for region in (a, b))
    builder.uses += [(f"T.gemm of '{kind}'", builder.site) for kind in kinds if "float8" in kind]
    if mbar is not None:
        barrier_address("T.gemm", mbar)
    if k_pack not in (1, 2):
        raise TileValueError(f"'k_pack' of T.gemm must be 1 or 2, not {k_pack}")
    clears = (
        condition(clear_accum, "'clear_accum'").expr if isinstance(clear_accum, Operators) else None
    )
    flag: Expr = clears if clears is not None else build.const(bool(clear_accum), "bool")
    builder.emit(tile.Gemm(a, b, c, bool(transpose_A), bool(transpose_B), flag, _policy(policy)))
    if mbar is not None:
        arrive_once("T.gemm", mbar)


def _policy(policy: Any) -> WarpPolicy:
    try:
        return _POLICIES[GemmWarpPolicy(policy)]
    except ValueError:
        raise TileValueError(
            f"{policy!r} is not a T.GemmWarpPolicy", hint="use Square, FullRow or FullCol"
        ) from None


def _check_matrix(region: Region, name: str) -> None:
    extents = region.extents
    shown = show_shape(extents)
    if region.buffer.scope == "global":
        raise TileValueError(
            f"operand {name} of T.gemm, '{region.buffer.name}', is in global memory",
            hint="copy a tile of it into shared memory first, with T.copy",
        )
    if len(extents) < 2:
        raise ShapeError(
            f"operand {name} of T.gemm, '{region.buffer.name}', must be a matrix, not of shape "
            f"{shown}"
        )
    if any(extent is not _ONE for extent in extents[:-2]):
        raise ShapeError(
            f"the leading extents of operand {name} of T.gemm, '{region.buffer.name}', must be "
            f"1, not {shown}"
        )
    if any(build.const_int(extent) is None for extent in extents[-2:]):
        raise TileValueError(
            f"the extents of operand {name} of T.gemm, '{region.buffer.name}', must be known "
            f"while compiling, not {shown}"
        )


def _check_product(a: Region, b: Region, c: Region, transpose_a: bool, transpose_b: bool) -> None:
    (m, k), (k_b, n), (m_c, n_c) = a.extents[-2:], b.extents[-2:], c.extents[-2:]
    if transpose_a:
        m, k = k, m
    if transpose_b:
        k_b, n = n, k_b
    shapes = (
        f"A is {show_shape(a.extents)}, B is {show_shape(b.extents)}, C is {show_shape(c.extents)}"
    )
    flags = f"with transpose_A={transpose_a}, transpose_B={transpose_b}"
    for name, left, right, sides in (
        ("K", k, k_b, "A and B"),
        ("M", m, m_c, "A and C"),
        ("N", n, n_c, "B and C"),
    ):
        if left is not right:
            raise ShapeError(
                f"T.gemm {name} shape check failed: {name} is {build.const_int(left)} and "
                f"{build.const_int(right)} in {sides}",
                hint=f"{shapes}, {flags}",
            )


def _check_types(a: Region, b: Region, c: Region) -> None:
    left, right, result = a.buffer.dtype, b.buffer.dtype, c.buffer.dtype
    if left != right and not (left.bits == right.bits == 8 and left.is_float and right.is_float):
        raise TileTypeError(
            f"the operands of T.gemm must have one dtype, not '{left}' and '{right}'",
            hint="copy one of them into a tile of the other's dtype",
        )
    if left.is_float and not result.is_float:
        raise TileTypeError(
            f"T.gemm of '{left}' cannot accumulate in '{result}'",
            hint="use a float32 fragment for C",
        )
    if left.is_int and not (result.is_int or result.is_float):
        raise TileTypeError(
            f"T.gemm of '{left}' cannot accumulate in '{result}'",
            hint="use an int32 fragment for C",
        )


# Reductions ---------------------------------------------------------------------------------------
# -------------------


def reduce(
    buffer: Any,
    out: Any,
    kind: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """`out = reduce(buffer)` along `dim`, or `out = combine(out, reduce(buffer))` when not `clear`.

    Both are tiles or slices of them. `kind` is "sum", "max", "min", "absmax", "abssum", "bitand",
    "bitor", "bitxor" or "prod". `out` has the shape of `buffer` without `dim`, or with extent 1
    there; elements are converted to its dtype first. max, min and absmax ignore NaN unless
    `nan_propagate`. `batch` and `annotations` are hints. Raises
    `ShapeError`, `TileTypeError` or `TileValueError` for operands that do not fit.

    >>> T.reduce(acc, row, "sum", dim=1)
    """
    try:
        which = ReduceKind(kind)
    except ValueError:
        raise TileValueError(
            f"'{kind}' is not a reduction", hint=f"use one of {', '.join(ReduceKind)}"
        ) from None
    construct = f"T.reduce_{which}"
    builder = operator_builder(construct)
    source, target = (
        to_region(value, construct, role)
        for value, role in ((buffer, "source"), (out, "destination"))
    )
    if batch < 1:
        raise TileValueError(f"'batch' of {construct} must be positive, not {batch}")
    for operand in (source.buffer, target.buffer):
        _check_reduced(construct, which, operand)
    shape = source.extents
    axis = _axis(construct, dim, len(shape))
    dropped = (*shape[:axis], *shape[axis + 1 :])
    kept = (*shape[:axis], _ONE, *shape[axis + 1 :])
    if target.extents not in (dropped, kept):
        raise ShapeError(
            f"{construct} of '{source.buffer.name}' with shape {show_shape(shape)} along dimension "
            f"{axis} gives "
            f"{show_shape(dropped)} or {show_shape(kept)}, and '{target.buffer.name}' is "
            f"{show_shape(target.extents)}"
        )
    if is_private(builder, source.buffer, target.buffer):
        src, dst = to_buffer(buffer, construct, "source"), to_buffer(out, construct, "destination")
        emit_reduce(builder, which, src, dst, axis, bool(clear), bool(nan_propagate))
        return
    src = part_of(builder, construct, source, filled=True)
    dst = part_of(builder, construct, target, filled=not clear)
    builder.emit(tile.Reduce(which, src, dst, axis, bool(clear), bool(nan_propagate)))
    if dst is not target.buffer:
        builder.emit(tile.Copy(whole(dst), target))


def _check_reduced(construct: str, which: ReduceKind, operand: Buffer) -> None:
    if operand.scope == "global":
        raise TileValueError(
            f"{construct} works on tiles, and '{operand.name}' is in global memory",
            hint="copy it into a fragment first, with T.copy",
        )
    if which.startswith("bit") and operand.dtype.is_float:
        raise TileTypeError(
            f"{construct} needs integers or bool, and '{operand.name}' is '{operand.dtype}'"
        )


def _axis(construct: str, dim: Any, rank: int) -> int:
    if isinstance(dim, bool) or not isinstance(dim, int):
        raise TileTypeError(f"'dim' of {construct} must be an integer, not {dim!r}")
    if not -rank <= dim < rank:
        raise TileValueError(
            f"'dim' of {construct} is {dim}, and its source has {rank} "
            f"dimension{'s' if rank != 1 else ''}"
        )
    return dim % rank


def reduce_sum(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Any = None,
) -> None:
    """Sum along `dim`; see `reduce`.

    >>> T.reduce_sum(acc, row, dim=1)
    """
    reduce(buffer, out, "sum", dim, clear, batch)


def reduce_max(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Maximum along `dim`; see `reduce`.

    >>> T.reduce_max(acc, row, dim=1)
    """
    reduce(buffer, out, "max", dim, clear, batch, nan_propagate)


def reduce_min(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Minimum along `dim`; see `reduce`.

    >>> T.reduce_min(acc, row, dim=1)
    """
    reduce(buffer, out, "min", dim, clear, batch, nan_propagate)


def reduce_absmax(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: Any = None,
) -> None:
    """Largest absolute value along `dim`; see `reduce`.

    >>> T.reduce_absmax(acc, row, dim=1)
    """
    reduce(buffer, out, "absmax", dim, clear, batch, nan_propagate)


def reduce_abssum(
    buffer: Any, out: Any, dim: int = -1, batch: int = 1, annotations: Any = None
) -> None:
    """Sum of absolute values along `dim`; see `reduce`. Always overwrites `out`.

    >>> T.reduce_abssum(acc, row, dim=1)
    """
    reduce(buffer, out, "abssum", dim, True, batch)


def reduce_bitand(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Any = None,
) -> None:
    """Bitwise and along `dim`; see `reduce`.

    >>> T.reduce_bitand(bits, word, dim=1)
    """
    reduce(buffer, out, "bitand", dim, clear, batch)


def reduce_bitor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Any = None,
) -> None:
    """Bitwise or along `dim`; see `reduce`.

    >>> T.reduce_bitor(bits, word, dim=1)
    """
    reduce(buffer, out, "bitor", dim, clear, batch)


def reduce_bitxor(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Any = None,
) -> None:
    """Bitwise exclusive or along `dim`; see `reduce`.

    >>> T.reduce_bitxor(bits, word, dim=1)
    """
    reduce(buffer, out, "bitxor", dim, clear, batch)


def reduce_prod(
    buffer: Any,
    out: Any,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    annotations: Any = None,
) -> None:
    """Product along `dim`; see `reduce`.

    >>> T.reduce_prod(acc, row, dim=1)
    """
    reduce(buffer, out, "prod", dim, clear, batch)


def cumsum(
    src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: Any = None
) -> None:
    """Inclusive running sum of a tile along `dim`, from the end when `reverse`, into `dst`
    (default: in place). `annotations` has no effect.

    Raises `TileValueError` for a dimension out of range and `ShapeError` for a destination of
    another shape.

    >>> T.cumsum(a, dim=1)
    """
    _scan("T.cumsum", ReduceKind.SUM, src, dst, dim, reverse)


def cummax(
    src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: Any = None
) -> None:
    """Inclusive running maximum; see `cumsum`.

    >>> T.cummax(a, dim=1)
    """
    _scan("T.cummax", ReduceKind.MAX, src, dst, dim, reverse)


def _scan(construct: str, kind: ReduceKind, src: Any, dst: Any, dim: int, reverse: bool) -> None:
    builder = operator_builder(construct)
    source = to_region(src, construct, "source")
    target = source if dst is None else to_region(dst, construct, "destination")
    for region in (source, target):
        if region.buffer.scope == "global":
            raise TileValueError(
                f"{construct} works on tiles, and '{region.buffer.name}' is in global memory",
                hint="copy it into shared memory or a fragment first, with T.copy",
            )
    axis = _axis(construct, dim, len(source.extents))
    if source.extents != target.extents:
        raise ShapeError(
            f"{construct} needs one shape: the source is {show_shape(source.extents)}, the "
            f"destination {show_shape(target.extents)}"
        )
    builder.emit(tile.Scan(kind, source, target, axis, bool(reverse)))


def transpose(src: Any, dst: Any) -> None:
    """`dst[..., j, i] = src[..., i, j]` for two tiles or slices.

    Raises `ShapeError` when the shapes do not fit.

    >>> T.transpose(a, b)
    """
    source, target = (
        to_region(src, "T.transpose", "source"),
        to_region(dst, "T.transpose", "destination"),
    )
    extents = source.extents
    swapped = (*extents[:-2], *reversed(extents[-2:]))
    if len(extents) < 2 or target.extents != swapped:
        raise ShapeError(
            f"T.transpose cannot turn {show_shape(extents)} into {show_shape(target.extents)}",
            hint="both need at least two dimensions, and the last two are exchanged",
        )
    builder = operator_builder("T.transpose")
    names = tuple(builder.fresh_var("ijklmnop"[d], e.dtype) for d, e in enumerate(extents))
    places = (*names[:-2], names[-1], names[-2])
    read = Load(
        source.buffer, tuple(build.add(low, v) for low, v in zip(source.mins, names, strict=True))
    )
    write = tuple(build.add(low, v) for low, v in zip(target.mins, places, strict=True))
    store = Store(target.buffer, write, build.cast(read, target.buffer.dtype), site=builder.site)
    builder.emit(tile.Parallel(names, extents, store))
