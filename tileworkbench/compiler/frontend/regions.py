"""What tile operators take, and which elements a copy moves.

An operand is a whole tensor, a slice, or one element, which stands for a box that starts there. The
extents of a copy follow these rules. Two whole tensors must have one shape. An element takes the
other side's extents, aligned at the last dimension. The iteration space is the box of the side
nearer the threads (global, shared, fragment or local; the source on a tie); its dimensions that are
not 1 are matched in order with those of the other side, which is thereby only an origin.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import ShapeError, TileTypeError, TileValueError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.frontend.refusals import Stale
from tileworkbench.compiler.frontend.tensors import RegionValue, TensorValue, whole
from tileworkbench.compiler.frontend.values import Value, VarCell, describe, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer, Expr, Load, Region
from tileworkbench.compiler.ir.printer import print_expr, show_shape

_LEVEL = {"global": 0, "shared": 1, "local.fragment": 2, "local": 2, "local.var": 2}
_ONE = build.int_const(1)


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor operand: where it starts and, unless it is a single element, its extents."""

    buffer: Buffer
    mins: tuple[Expr, ...]
    extents: tuple[Expr, ...] | None
    is_whole: bool = False

    def region(self, extents: tuple[Expr, ...]) -> Region:
        """The box of `extents` that starts at this operand."""
        return Region(self.buffer, self.mins, extents)


def to_operand(value: Any, construct: str, role: str) -> Operand:
    """`value` as an operand.

    Raises `TileTypeError` for anything but a tensor, a slice or an element.
    """
    made = _operand(value, construct, role)
    if made.buffer.scope == "shared.barrier" and role != "barrier":
        raise TileTypeError(
            f"{construct} cannot use '{made.buffer.name}', which holds memory barriers, as its "
            f"{role}"
        )
    return made


def _operand(value: Any, construct: str, role: str) -> Operand:
    if isinstance(value, TensorValue):
        region = whole(value.use())
        return Operand(region.buffer, region.mins, region.extents, is_whole=True)
    if isinstance(value, RegionValue):
        region = value.use()
        return Operand(region.buffer, region.mins, region.extents)
    if isinstance(value, VarCell):
        value.binding.check()
        return Operand(value.buffer, value.indices, None)
    if isinstance(value, Value):
        expr = to_value(value).expr
        if isinstance(expr, Load):
            return Operand(expr.buffer, expr.indices, None)
        what = f"the value '{print_expr(expr)}'"
    elif isinstance(value, Stale):
        value.fail()
    else:
        what = describe(value)
    hint = "annotate the parameter, as in 'A: T.Tensor[[M, N], T.float32]'"
    raise TileTypeError(
        f"{construct} needs a tensor, a slice or an element as its {role}, not {what}",
        hint=hint if hasattr(value, "__dlpack__") else None,
    )


def to_region(value: Any, construct: str, role: str) -> Region:
    """Like `to_operand`, with an element as the region of that one element."""
    operand = to_operand(value, construct, role)
    extents = operand.extents if operand.extents is not None else (_ONE,) * len(operand.mins)
    return operand.region(extents)


def to_buffer(value: Any, construct: str, role: str) -> Buffer:
    """`value` as a whole buffer. Raises `TileTypeError` for a part of one."""
    if isinstance(value, VarCell) and not value.indices:
        value.binding.check()
        return value.buffer
    region = to_region(value, construct, role)
    if region is not whole(region.buffer):
        raise TileTypeError(
            f"{construct} needs a whole tensor as its {role}, not a part of '{region.buffer.name}'"
        )
    return region.buffer


def copy_regions(src: Operand, dst: Operand, construct: str = "T.copy") -> tuple[Region, Region]:
    """The two boxes that a copy, or another element-wise operator, moves elements between.

    Raises `ShapeError` when they do not fit.
    """
    if src.is_whole and dst.is_whole and src.extents != dst.extents:
        raise ShapeError(
            f"{construct} needs tensors of one shape: '{src.buffer.name}' is "
            f"{show_shape(src.buffer.shape)} "
            f"and '{dst.buffer.name}' is {show_shape(dst.buffer.shape)}",
            hint="take a slice of the larger one, or give its first element, as in A[i, j]",
        )
    source = src.extents if src.extents is not None else _aligned(dst.extents or (), src, construct)
    target = dst.extents if dst.extents is not None else _aligned(src.extents or (), dst, construct)
    if len(_wide(source)) != len(_wide(target)):
        raise ShapeError(
            f"{construct} cannot match the extents {show_shape(source)} of '{src.buffer.name}' "
            f"with {show_shape(target)} of '{dst.buffer.name}'",
            hint="both need the same number of extents that are not 1; "
            f"{construct} does not broadcast",
        )
    if _LEVEL[src.buffer.scope] >= _LEVEL[dst.buffer.scope]:
        return src.region(source), dst.region(_matched(source, target))
    _check_covers(src, dst, source, target, construct)
    return src.region(_matched(target, source)), dst.region(target)


def _aligned(extents: tuple[Expr, ...], operand: Operand, construct: str) -> tuple[Expr, ...]:
    """`extents` for an element of another rank: missing leading ones are 1, superfluous ones must
    be.
    """
    rank = len(operand.mins)
    superfluous = extents[: max(0, len(extents) - rank)]
    if any(extent is not _ONE for extent in superfluous):
        raise ShapeError(
            f"{construct} cannot place the extents {show_shape(extents)} at an element of "
            f"'{operand.buffer.name}', "
            f"which has {rank} dimension{'s' if rank != 1 else ''}"
        )
    return (_ONE,) * (rank - len(extents)) + extents[len(superfluous) :]


def _wide(extents: tuple[Expr, ...]) -> list[Expr]:
    return [extent for extent in extents if extent is not _ONE]


def _matched(base: tuple[Expr, ...], other: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """`other` with its extents that are not 1 replaced by those of `base`, in order."""
    wide = iter(_wide(base))
    return tuple(extent if extent is _ONE else next(wide) for extent in other)


def _check_covers(
    src: Operand,
    dst: Operand,
    source: tuple[Expr, ...],
    target: tuple[Expr, ...],
    construct: str,
) -> None:
    for have, want in zip(_wide(source), _wide(target), strict=True):
        more, room = build.const_int(have), build.const_int(want)
        if more is not None and room is not None and room < more:
            raise ShapeError(
                f"{construct} would drop elements: {show_shape(source)} of '{src.buffer.name}' do "
                f"not fit into {show_shape(target)} of '{dst.buffer.name}'",
                hint="take a smaller slice of the source",
            )


def check_inside(region: Region, construct: str) -> None:
    """Raise `TileValueError` for a region that provably leaves its buffer."""
    for dim, (low, extent, size) in enumerate(
        zip(region.mins, region.extents, region.buffer.shape, strict=True)
    ):
        start, count, limit = build.const_int(low), build.const_int(extent), build.const_int(size)
        if (
            start is not None
            and count is not None
            and limit is not None
            and not 0 <= start <= limit - count
        ):
            raise TileValueError(
                f"{construct} on {start}:{start + count} leaves dimension {dim} of "
                f"'{region.buffer.name}', which has extent {limit}"
            )
