"""Layouts chosen by hand: which place, or which thread and register, holds each element.

Those of tiles change no result: the threads of a GPU keep them, and a CPU has layouts of its own,
so there they are checked and not used. That of a tensor in global memory says where the caller
finds each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError, TileTypeError
from tileworkbench.compiler.frontend.annotations import as_shape
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.global_layouts import (
    FormulaLayout,
    Placement,
    annotate,
    placement,
    placement_of,
)
from tileworkbench.compiler.frontend.private_tiles import PRIVATE
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import Operators, describe, extent_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.layout.fragment import Fragment as _Fragment
from tileworkbench.compiler.layout.layout import SWIZZLES as _SWIZZLES
from tileworkbench.compiler.layout.layout import Layout as _Layout

_TILES = ("shared", "local.fragment")


def Layout(shape: Any, forward_fn: Callable[..., Any]) -> Any:
    """The place of each element: `T.Layout((32, 64), lambda i, j: (j // 8, i, j % 8))`.

    An extent may be a symbol in the layout of a tensor in global memory. Raises `LayoutError` for
    a function that gives no places.

    >>> T.annotate_layout({a: T.Layout((64, 64), lambda i, j: i * 72 + j)})
    """
    extents = as_shape(shape)
    if any(isinstance(extent, Operators) for extent in extents):
        known = tuple(extent_expr(extent, "an extent of T.Layout") for extent in extents)
        return FormulaLayout(known, forward_fn)
    return _Layout.from_function(_extents(extents), forward_fn)


def Fragment(
    shape: Any,
    forward_fn: Callable[..., Any] | None = None,
    forward_thread_fn: Callable[..., Any] | None = None,
    replicate: int = 1,
    forward_index_fn: Callable[..., Any] | None = None,
) -> _Fragment:
    """The thread and register of each element: `forward_fn(*index)` gives both, or
    `forward_thread_fn` the thread and `forward_index_fn` the register.

    With `replicate` copies the first two functions take the copy's number as a last argument.
    Raises `TileTypeError` without a function and `LayoutError` for one that gives no places.

    >>> T.annotate_layout({row: T.Fragment((64,), lambda i: (i, 0))})
    """
    if forward_fn is not None:
        return _Fragment(_extents(shape), forward_fn, replicate)
    if forward_thread_fn is None:
        raise TileTypeError(
            "T.Fragment needs a function", hint="pass forward_fn or forward_thread_fn"
        )
    return _Fragment.from_function(_extents(shape), forward_thread_fn, forward_index_fn, replicate)


def make_swizzled_layout(buffer: Any) -> _Layout:
    """The layout of a shared tile in which 8 neighbouring rows of 16 bytes touch all banks: the
    widest swizzle that its rows allow, row-major order where they allow none.

    >>> T.annotate_layout({b: T.make_swizzled_layout(b)})
    """
    tile = _buffer("T.make_swizzled_layout", buffer, _TILES)
    shape, bits = _constant_shape(tile), tile.dtype.bits
    for width in _SWIZZLES:
        if len(shape) >= 2 and bits in (4, 8, 16, 32, 64) and shape[-1] * bits % (8 * width) == 0:
            return _Layout.swizzled(shape, bits, width)
    return _Layout.row_major(shape)


def annotate_layout(layouts: Mapping[Any, Any]) -> None:
    """The layout of each buffer of a dictionary: a `T.Layout` (or its function) for shared memory,
    a `T.Fragment` for fragments.

    A `T.Layout` of a tensor in global memory says where in the caller's memory this launch finds
    the tensor's elements: `A[i, j]` lies at `forward_fn(i, j)`, in row-major order of these
    indices. Memory that is private to a thread takes either, without effect. Raises
    `TileTypeError` for a layout of the wrong kind and `LayoutError` for one of another shape or
    one that puts two elements in one place.

    >>> T.annotate_layout({a: T.make_swizzled_layout(a)})
    """
    construct = "T.annotate_layout"
    builder = in_kernel(construct)
    if not isinstance(layouts, Mapping):
        raise TileTypeError(
            f"{construct} takes a dictionary from tiles to layouts, not {describe(layouts)}"
        )
    for key, layout in layouts.items():
        buffer = _buffer(construct, key, ("global", *_TILES, *PRIVATE))
        if buffer.scope == "global":
            annotate(builder, buffer, _placement(buffer, layout))
        else:
            _annotate_tile(builder, buffer, layout)


def _placement(buffer: Buffer, layout: Any) -> Placement:
    """The places that a layout, or its function, gives to the elements of a tensor."""
    if isinstance(layout, FormulaLayout):
        made = placement(layout.shape, layout.function)
    elif isinstance(layout, _Layout):
        _check_injective(buffer, layout)
        made = placement_of(layout)
    elif callable(layout) and not isinstance(layout, _Fragment):
        return _placement(buffer, Layout(TensorValue(buffer).shape, layout))
    else:
        raise TileTypeError(
            f"'{buffer.name}' is {buffer.scope} and needs a T.Layout, not {describe(layout)}"
        )
    if made.shape != buffer.shape:
        raise LayoutError(
            f"the layout of '{buffer.name}' has shape {show_shape(made.shape)}, and the tensor "
            f"{show_shape(buffer.shape)}"
        )
    return made


def _annotate_tile(builder: Builder, buffer: Buffer, layout: Any) -> None:
    shape = _constant_shape(buffer)
    if callable(layout) and not isinstance(layout, _Layout | _Fragment):
        layout = _Layout.from_function(shape, layout)
    private = buffer.scope in PRIVATE
    wanted = _Fragment if buffer.scope == "local.fragment" else _Layout
    if not isinstance(layout, _Layout | _Fragment if private else wanted):
        raise TileTypeError(
            f"'{buffer.name}' is {buffer.scope} and needs a T.{wanted.__name__}, not "
            f"{describe(layout)}"
        )
    if layout.shape != shape:
        raise LayoutError(
            f"the layout of '{buffer.name}' has shape {layout.shape}, and the tile {shape}"
        )
    if private:
        return
    if isinstance(layout, _Layout):
        _check_injective(buffer, layout)
    builder.layouts[buffer] = layout


def _check_injective(buffer: Buffer, layout: _Layout) -> None:
    if not layout.is_injective:
        raise LayoutError(
            f"the layout of '{buffer.name}' must be injective, and it puts two elements in one "
            "place"
        )


def _buffer(construct: str, value: Any, scopes: tuple[str, ...]) -> Buffer:
    if not isinstance(value, TensorValue):
        raise TileTypeError(f"{construct} takes tiles, not {describe(value)}")
    buffer = value.use()
    if buffer.scope not in scopes:
        raise TileTypeError(f"{construct} does not take '{buffer.name}', which is {buffer.scope}")
    return buffer


def _extents(shape: Any) -> tuple[int, ...]:
    extents = as_shape(shape)
    for extent in extents:
        if isinstance(extent, bool) or not hasattr(extent, "__index__"):
            raise TileTypeError(f"an extent of a layout must be an integer, not {describe(extent)}")
    return tuple(extent.__index__() for extent in extents)


def _constant_shape(buffer: Buffer) -> tuple[int, ...]:
    """The extents of a tile, which are constants."""
    return tuple(build.const_int(extent) or 0 for extent in buffer.shape)
