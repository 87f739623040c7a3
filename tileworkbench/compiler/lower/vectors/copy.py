"""`T.copy`: an element-wise nest, or a packing when the destination is a gemm operand kept in
panels.
"""

from __future__ import annotations

from tileworkbench.compiler.ir.build import (
    binary,
    cast,
    conjunction,
    const_int,
    int_const,
    select,
    sub,
)
from tileworkbench.compiler.ir.expr import Address, Expr, Load, Region
from tileworkbench.compiler.ir.sizes import strides_of
from tileworkbench.compiler.ir.stmt import Stmt, Store
from tileworkbench.compiler.ir.tile import Copy, Pack
from tileworkbench.compiler.lower.shared.regions import element, match_dims, wide_dims
from tileworkbench.compiler.lower.vectors.context import Context, Vote
from tileworkbench.compiler.lower.vectors.elementwise import nest
from tileworkbench.compiler.lower.vectors.panels import PanelForm, panel_form, panel_storage

_LEVEL = {"global": 0, "shared": 1}


def infer_layout(op: Copy, context: Context) -> tuple[Vote, ...]:
    """The source is read by elements; the destination takes any layout when the copy can pack."""
    votes = [Vote(op.src.buffer, "is read element by element by a copy")]
    obstacle = _obstacle_to_packing(op, context)
    if obstacle is None:
        votes.append(Vote(op.dst.buffer, "is filled by whole-tile copies", binding=False))
    else:
        votes.append(Vote(op.dst.buffer, obstacle))
    return tuple(votes)


def _obstacle_to_packing(op: Copy, context: Context) -> str | None:
    """Why the copy cannot write panels; None when it can."""
    src, dst = op.src, op.dst
    if src.buffer.scope != "global" or dst.buffer.scope == "global":
        return "is not filled from global memory"
    whole = dst.extents == dst.buffer.shape and all(low is int_const(0) for low in dst.mins)
    if (
        not whole
        or len(wide_dims(dst)) != 2
        or len(dst.buffer.shape) != 2
        or len(wide_dims(src)) != 2
    ):
        return "is filled in parts"
    if src.buffer.dtype.is_packed:
        return f"is unpacked from '{src.buffer.dtype}' when it is filled"
    if src.buffer.dtype != dst.buffer.dtype:
        return f"is converted from '{src.buffer.dtype}' when it is filled"
    strides = strides_of(src.buffer)
    if all(const_int(strides[d]) != 1 for d in wide_dims(src)):
        return "is filled from strided memory"
    if src.buffer.name in context.safe_values:
        return f"'{src.buffer.name}' has a safe value that is not zero"
    for low in src.mins:
        if not context.ranges.in_range(low, int_const(0))[0]:
            return "may start before the source's first element"
    return None


def lower(op: Copy, context: Context) -> Stmt:
    """The copy as `Pack` when the destination is in panels, else as an element-wise nest.

    Raises `ShapeError` when the non-unit dimensions of the two sides cannot be matched.
    """
    form = panel_form(op.dst.buffer)
    if form is not None:
        return _pack(op, context, form)
    src, dst = op.src, op.dst
    pairs = match_dims(op, context)
    src_nearer = _LEVEL.get(src.buffer.scope, 2) >= _LEVEL.get(dst.buffer.scope, 2)
    base = src if src_nearer else dst
    extents = tuple(base.extents[pair[0 if src_nearer else 1]] for pair in pairs)

    def assign(variables: tuple[Expr, ...]) -> Stmt:
        from_dims = {pair[0]: var for pair, var in zip(pairs, variables, strict=True)}
        to_dims = {pair[1]: var for pair, var in zip(pairs, variables, strict=True)}
        value = cast(Load(src.buffer, element(src, from_dims)), dst.buffer.dtype)
        return Store(dst.buffer, element(dst, to_dims), value, site=op.site)

    return nest(context, extents, op.site, assign)


def _pack(op: Copy, context: Context, form: PanelForm) -> Stmt:
    """The copy as panels, zero outside the source."""
    src, dst, dim = op.src, op.dst, form.dim
    dims = wide_dims(src)
    outer, inner = dims[dim], dims[1 - dim]
    strides = strides_of(src.buffer)
    valid = {d: _valid(src, d, dst.buffer.shape[at], context) for at, d in enumerate(dims)}
    inside = conjunction(
        [
            binary("lt", low, src.buffer.shape[d])
            for d, low in enumerate(src.mins)
            if d not in dims and not context.ranges.in_range(low, src.buffer.shape[d])[1]
        ]
    )
    if inside is not None:
        valid[outer] = select(inside, valid[outer], int_const(0))
    rows, cols = const_int(dst.buffer.shape[dim]), const_int(dst.buffer.shape[1 - dim])
    return Pack(
        "b",  # operand A is never kept in panels
        Address(src.buffer, src.mins),
        strides[outer],
        strides[inner],
        Address(panel_storage(dst.buffer, form), (int_const(0),)),
        rows or 0,
        cols or 0,
        valid[outer],
        valid[inner],
        form.width,
        form.group,
        site=op.site,
    )


def _valid(src: Region, d: int, extent: Expr, context: Context) -> Expr:
    """How many of the `extent` elements from the region's start along `d` lie inside the source."""
    low, bound = src.mins[d], src.buffer.shape[d]
    rest = sub(bound, low)
    if context.ranges.proves(binary("ge", rest, extent)):
        return extent
    return binary("max", binary("min", rest, extent), int_const(0))
