"""Tile operators as whole-tile numpy operations: what `ir/tile.py` says each of them computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import VerifyError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.expr import Buffer, Expr, Region
from tileworkbench.compiler.ir.tile import ReduceKind
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.expressions import Evaluate, ExpressionTranslator
from tileworkbench.compiler.sim.extrema import MAX, MAX_NAN, MIN, MIN_NAN, Extremum
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.regions import read_box, write_box
from tileworkbench.compiler.sim.values import convert_array, narrowed, storage_dtype, working_dtype

Array = np.ndarray[Any, Any]
Box = tuple[int, ...]
_LEVEL = {"global": 0, "shared": 1, "local.fragment": 2, "local": 2, "local.var": 2}


@dataclass(frozen=True, slots=True)
class TranslatedRegion:
    """A region whose corner and extents are closures."""

    slot: int
    mins: tuple[Evaluate, ...]
    extents: tuple[Evaluate, ...]
    dtype: DType

    def storage(self, frame: Frame) -> Storage:
        """The memory it lies in."""
        return frame.storages[self.slot]

    def corner(self, frame: Frame) -> Box:
        """The indices of the first element."""
        return tuple([low(frame) for low in self.mins])

    def shape(self, frame: Frame) -> Box:
        """The extents of the region; one below zero is zero."""
        return tuple([max(extent(frame), 0) for extent in self.extents])

    def read(self, frame: Frame) -> Array:
        """The elements of the region."""
        return read_box(frame, self.storage(frame), self.corner(frame), self.shape(frame))

    def write(self, frame: Frame, values: Array) -> None:
        """Replace its elements by `values`, which has as many."""
        shape = self.shape(frame)
        write_box(frame, self.storage(frame), self.corner(frame), values.reshape(shape))


def translate(stmt: st.Stmt, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    """The closure of a tile operator."""
    match stmt:
        case tile.Copy():
            return _copy(stmt, expr)
        case tile.Gemm():
            return _gemm(stmt, expr)
        case tile.Fill(dst, value):
            return _fill(_region(dst, expr), expr(value))
        case tile.Reduce():
            return _reduce(stmt, expr)
        case tile.Scan():
            return _scan(stmt, expr)
    raise TypeError(f"the simulator has no meaning for {type(stmt).__name__}")


def _region(region: Region, expr: ExpressionTranslator) -> TranslatedRegion:
    slot = expr.slots.buffer(region.buffer)
    return TranslatedRegion(
        slot, expr.all(region.mins), expr.all(region.extents), region.buffer.dtype
    )


def _whole(buffer: Buffer, expr: ExpressionTranslator) -> TranslatedRegion:
    zeros = tuple([_zero] * len(buffer.shape))
    return TranslatedRegion(expr.slots.buffer(buffer), zeros, expr.all(buffer.shape), buffer.dtype)


def _zero(frame: Frame) -> int:
    return 0


def _copy(stmt: tile.Copy, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    src, dst = _region(stmt.src, expr), _region(stmt.dst, expr)
    from_src = _LEVEL[stmt.src.buffer.scope] >= _LEVEL[stmt.dst.buffer.scope]
    base, other = (stmt.src, stmt.dst) if from_src else (stmt.dst, stmt.src)
    places = _matching(base, other)
    extents, rank = expr.all(base.extents), len(other.extents)

    def copy(frame: Frame) -> None:
        own = tuple([max(extent(frame), 0) for extent in extents])
        given = [1] * rank
        for axis, place in places:
            given[place] = own[axis]
        src_shape, dst_shape = (own, tuple(given)) if from_src else (tuple(given), own)
        values = read_box(frame, src.storage(frame), src.corner(frame), src_shape)
        values = convert_array(values, src.dtype, dst.dtype).reshape(dst_shape)
        write_box(frame, dst.storage(frame), dst.corner(frame), values)

    return copy


def _matching(base: Region, other: Region) -> list[tuple[int, int]]:
    """Pairs (dimension of `base`, dimension of `other`) that run together: those that are not 1, in
    order.
    """
    own, given = _wide(base.extents), _wide(other.extents)
    if len(own) == len(given):
        return list(zip(own, given, strict=True))
    if len(base.extents) == len(other.extents):
        return [(axis, axis) for axis in range(len(base.extents))]
    raise VerifyError(f"the regions of '{base.buffer.name}' and '{other.buffer.name}' do not match")


def _wide(extents: tuple[Expr, ...]) -> list[int]:
    return [axis for axis, extent in enumerate(extents) if const_int(extent) != 1]


def _fill(dst: TranslatedRegion, value: Evaluate) -> Callable[[Frame], None]:
    storage = storage_dtype(dst.dtype)

    def fill(frame: Frame) -> None:
        dst.write(frame, np.full(dst.shape(frame), value(frame), storage))

    return fill


def _gemm(stmt: tile.Gemm, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    a, b, c, clear = (
        _region(stmt.a, expr),
        _region(stmt.b, expr),
        _region(stmt.c, expr),
        expr(stmt.clear),
    )

    def gemm(frame: Frame) -> None:
        left, right = _matrix(a.read(frame)), _matrix(b.read(frame))
        left = left.T if stmt.transpose_a else left
        right = right.T if stmt.transpose_b else right
        old = None if clear(frame) else c.read(frame)
        c.write(frame, matmul(left, right, old, c.dtype))

    return gemm


def _matrix(values: Array) -> Array:
    return values.reshape(values.shape[-2:])


def matmul(a: Array, b: Array, old: Array | None, dtype: DType) -> Array:
    """`a @ b`, plus `old` when given, accumulated in `dtype` (float32 for narrower floats) and
    rounded to it once.

    Integers are exact and wrap.
    """
    if dtype.is_float:
        working = working_dtype(dtype)
        total = a.astype(working) @ b.astype(working)
    else:
        total = _integer_matmul(a, b)
    if old is not None:
        total = total + old.reshape(total.shape).astype(total.dtype)
    return convert_array(total, DType(str(total.dtype)), dtype)


def _integer_matmul(a: Array, b: Array) -> Array:
    """The exact product of integer matrices modulo 2 ** 64, through float64 where that is exact
    (and fast).
    """
    wide_a, wide_b = a.astype(np.int64), b.astype(np.int64)
    bound = (
        a.shape[-1] * float(np.abs(wide_a).max(initial=0)) * float(np.abs(wide_b).max(initial=0))
    )
    if bound < 2.0**53:
        return np.asarray(wide_a.astype(np.float64) @ wide_b.astype(np.float64)).astype(np.int64)
    return np.asarray(wide_a @ wide_b)


# Reductions ----------------------------------------------------------

_COMBINE: dict[ReduceKind, np.ufunc | Extremum] = {
    ReduceKind.SUM: np.add,
    ReduceKind.ABSSUM: np.add,
    ReduceKind.MAX: MAX,
    ReduceKind.ABSMAX: MAX,
    ReduceKind.MIN: MIN,
    ReduceKind.BITAND: np.bitwise_and,
    ReduceKind.BITOR: np.bitwise_or,
    ReduceKind.BITXOR: np.bitwise_xor,
    ReduceKind.PROD: np.multiply,
}
_PROPAGATING = {
    ReduceKind.MAX: MAX_NAN,
    ReduceKind.ABSMAX: MAX_NAN,
    ReduceKind.MIN: MIN_NAN,
}


def combiner(kind: ReduceKind, nan_propagate: bool) -> np.ufunc | Extremum:
    """The operation a reduction repeats; maxima and minima ignore NaN unless told otherwise."""
    return _PROPAGATING.get(kind, _COMBINE[kind]) if nan_propagate else _COMBINE[kind]


def identity(kind: ReduceKind, dtype: DType) -> float | int | bool:
    """The result of a reduction of no elements."""
    if kind in (ReduceKind.MAX, ReduceKind.MIN):
        if dtype.is_float:
            return -np.inf if kind is ReduceKind.MAX else np.inf
        return dtype.min_value if kind is ReduceKind.MAX else dtype.max_value
    if kind is ReduceKind.BITAND:
        return True if dtype.is_bool else -1 if dtype.kind == "int" else dtype.max_value
    nothing = 1 if kind is ReduceKind.PROD else 0
    return bool(nothing) if dtype.is_bool else nothing


def _reduce(stmt: tile.Reduce, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    src, dst, dtype = _whole(stmt.src, expr), _whole(stmt.dst, expr), stmt.dst.dtype
    combine, start = combiner(stmt.kind, stmt.nan_propagate), identity(stmt.kind, dtype)
    working = working_dtype(dtype)
    magnitude = stmt.kind in (ReduceKind.ABSMAX, ReduceKind.ABSSUM)

    def reduce(frame: Frame) -> None:
        values = convert_array(src.read(frame), src.dtype, dtype).astype(working)
        values = np.abs(values) if magnitude else values
        total = combine.reduce(values, axis=stmt.dim, dtype=working, initial=working.type(start))
        if not stmt.clear:
            total = combine(dst.read(frame).reshape(total.shape).astype(working), total)
        dst.write(frame, narrowed(np.asarray(total, working), storage_dtype(dtype)))

    return reduce


def _scan(stmt: tile.Scan, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    src, dst, dtype = _region(stmt.src, expr), _region(stmt.dst, expr), stmt.dst.buffer.dtype
    combine, storage = combiner(stmt.kind, False), storage_dtype(dtype)

    def scan(frame: Frame) -> None:
        """Each result is the previous one combined with the next element, rounded to the dtype."""
        values = convert_array(src.read(frame), src.dtype, dtype)
        values = np.flip(values, stmt.dim) if stmt.reverse else values
        total = combine.accumulate(values, axis=stmt.dim, dtype=storage)
        dst.write(frame, np.flip(total, stmt.dim) if stmt.reverse else total)

    return scan
