"""Copies for which a warp names one place in shared memory: there, the pieces of its threads lie
one behind the other (`global_load_lds` of gfx950).

So threads share such a copy by places of the tile, not by elements of the tensor: thread `t` fills
the 16 bytes number `t`, `t + threads` and so on, and the tile's layout says which elements these
are. A swizzle is then one of the addresses in global memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tileworkbench.compiler.analysis.ranges import Ranges
from tileworkbench.compiler.ir.build import add, const_int, int_const, is_zero, sub
from tileworkbench.compiler.ir.expr import Region
from tileworkbench.compiler.ir.sizes import const_shape, strides_of
from tileworkbench.compiler.ir.stmt import Store
from tileworkbench.compiler.ir.tile import Copy
from tileworkbench.compiler.layout.digits import NotDigitsError
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.index import Index
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import flatten, make_digit_map
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import LayoutMap
from tileworkbench.compiler.lower.threads.nests import AccessKind, Nest
from tileworkbench.compiler.machine.instructions import CopyEngine
from tileworkbench.compiler.machine.machine import Machine


def engine_of(machine: Machine) -> CopyEngine | None:
    """The engine that stores a warp's copies in line."""
    engine = machine.thread_copies
    return engine if engine is not None and engine.in_line else None


def suits(op: Copy, machine: Machine, threads: int, ranges: Ranges) -> bool:
    """Whether the engine can do the copy: a whole tile, every thread equally much of it, from rows
    of whole pieces that are all inside the tensor.
    """
    engine, tile = engine_of(machine), op.dst.buffer
    shape, bits = const_shape(tile), tile.dtype.bits
    if engine is None or shape is None or tile.scope != "shared" or op.loop_layout is not None:
        return False
    piece = 8 * engine.sizes[-1]
    return (
        op.src.buffer.scope == "global"
        and op.src.buffer.dtype == tile.dtype
        and op.coalesced_width is None
        and 8 <= bits <= 64
        and threads % machine.lanes == 0
        and all(n > 1 and not n & n - 1 for n in (*shape, threads))
        and prod(shape) * bits % (threads * piece) == 0
        and _is_whole(op.dst, shape)
        and _has_pieces(op.src, shape, piece // bits, ranges)
    )


def _is_whole(region: Region, shape: tuple[int, ...]) -> bool:
    extents = tuple(const_int(extent) for extent in region.extents)
    return extents == shape and all(is_zero(low) for low in region.mins)


def _has_pieces(region: Region, shape: tuple[int, ...], piece: int, ranges: Ranges) -> bool:
    """Whether rows of the region are whole pieces that lie in the tensor, none of them outside."""
    tensor = region.buffer
    strides = strides_of(tensor)
    extents = [const_int(extent) for extent in region.extents]
    own = [extent for extent in extents if extent != 1]
    if None in extents or own != [extent for extent in shape if extent != 1]:
        return False
    rows = (ranges.divides(piece, stride) for stride in strides[:-1])
    inside = (
        ranges.guards(low, size) + ranges.guards(add(low, sub(extent, int_const(1))), size)
        for low, extent, size in zip(region.mins, region.extents, tensor.shape, strict=True)
    )
    return (
        const_int(strides[-1]) == 1
        and extents[-1] is not None
        and extents[-1] % piece == 0
        and ranges.divides(piece, region.mins[-1])
        and all(rows)
        and not any(inside)
    )


def plan(nest: Nest, layouts: LayoutMap, context: ThreadContext) -> Fragment | None:
    """The loop of a copy whose threads fill a tile one behind the other, None for other nests and
    where the tile's layout has no such threads.
    """
    engine, body = engine_of(context.target.machine), nest.op.body
    if engine is None or nest.fragments or nest.shape is None or not isinstance(body, Store):
        return None
    kinds = {access.buffer.scope: access.kind for access in nest.memory}
    if kinds != {"global": AccessKind.LOAD, "shared": AccessKind.STORE} or len(nest.memory) != 2:
        return None
    tile, shape, threads = body.buffer, nest.shape, context.threads
    vector = 8 * engine.sizes[-1] // max(tile.dtype.bits, 1)
    if body.indices != nest.op.vars or const_shape(tile) != shape or context.start % context.lanes:
        return None
    if prod(shape) % (vector * threads) or threads % context.lanes:
        return None
    layout = layouts.get(tile) or tile.layout or Layout.row_major(shape)
    if not isinstance(layout, Layout) or prod(layout.output_shape) != prod(shape):
        return None
    return _in_line(layout, shape, vector, threads, context.start)


def _in_line(
    layout: Layout, shape: tuple[int, ...], vector: int, threads: int, start: int
) -> Fragment | None:
    def place(*x: Any) -> tuple[Any, Any]:
        flat = flatten(layout.output_shape, layout.evaluate(*x[:-1]))
        number = flat // vector
        return number % threads, number // threads * vector + flat % vector

    box = (*shape, 1)
    try:
        loop = Fragment.from_map(make_digit_map(box, place(*Index.variables(box))))
    except NotDigitsError:
        return None
    return loop.bind_thread_range(start, threads) if start else loop
