"""The layout of a tile that shares the memory of another one."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.stmt import Alias, Seq, Stmt
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.layout.maps import build_map, flatten, unflatten
from tileworkbench.compiler.lower.threads.context import ThreadContext
from tileworkbench.compiler.lower.threads.inference import LayoutConflict, Place


def seen_as(place: Place, source: Buffer, view: Buffer) -> Place:
    """The layout of `view` that makes its elements the bits `source` has under `place`.

    Raises `LayoutConflict` or `LayoutError` where elements of the view would be torn apart.
    """
    if view is source:
        return place
    shape = const_shape(view)
    if shape is None:
        raise LayoutConflict(
            f"'{view.name}', a view of '{source.name}', has a symbolic shape", source, place
        )
    old, new = source.dtype.bits, view.dtype.bits
    if isinstance(place, Layout):
        return _memory(place, shape, old, new)
    return _registers(place, shape, old, new, source, view)


def lower(op: Alias, context: ThreadContext) -> Stmt:
    """A view of a fragment shares its registers; one of memory stays as it is."""
    if not isinstance(op.buffer.layout, Fragment):
        return op
    source = context.registers(op.source)
    if op.buffer.dtype == op.source.dtype:
        context.prologue.registers[op.buffer] = source
        return Seq(())
    return Alias(context.registers(op.buffer), source, site=op.site)


def _memory(place: Layout, shape: tuple[int, ...], old: int, new: int) -> Layout:
    if old >= new:
        return place.recast(old, new).reshape(shape)
    factor = new // old
    return place.reshape((*shape[:-1], shape[-1] * factor)).recast(old, new)


def _registers(
    place: Fragment, shape: tuple[int, ...], old: int, new: int, source: Buffer, view: Buffer
) -> Fragment:
    box = (*shape, place.replicate)
    factor = old // new if old >= new else new // old

    def narrow(*x: Any) -> tuple[Any, Any]:
        flat = flatten(shape, x[:-1])
        thread, slot = place.evaluate(*unflatten(place.shape, flat // factor), x[-1])
        return thread, slot * factor + flat % factor

    def widen(*x: Any) -> tuple[Any, Any]:
        flat = flatten(shape, x[:-1]) * factor
        thread, slot = place.evaluate(*unflatten(place.shape, flat), x[-1])
        return thread, slot // factor

    if old >= new:
        return Fragment.from_map(build_map(box, narrow), place.thread_range)
    wide = Fragment.from_map(build_map(box, widen), place.thread_range)
    if _registers(wide, place.shape, new, old, view, source) != place:
        raise LayoutConflict(
            f"an element of '{view.name}', a view of '{source.name}', would be torn apart between "
            "threads or registers",
            source,
            place,
            "copy it to shared memory and view it there",
        )
    return wide
