"""Layouts chosen by hand: which place, or which thread and register, holds each element of a tile.

They change no result. The threads of a GPU keep them; a CPU has layouts of its own, so there they
are checked and not used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError, TileTypeError
from tileworkbench.compiler.frontend.annotations import as_shape
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.values import describe
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.layout.fragment import Fragment as _Fragment
from tileworkbench.compiler.layout.layout import Layout as _Layout


def Layout(shape: Any, forward_fn: Callable[..., Any]) -> _Layout:
    """The place of each element: `T.Layout((32, 64), lambda i, j: (j // 8, i, j % 8))`.

    Raises `LayoutError` for a function that gives no places.
    """
    return _Layout.from_function(_extents(shape), forward_fn)


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
    """
    tile = _tile("T.make_swizzled_layout", buffer)
    shape, bits = _constant_shape(tile), tile.dtype.bits
    for width in (128, 64, 32):
        if len(shape) >= 2 and bits in (4, 8, 16, 32, 64) and shape[-1] * bits % (8 * width) == 0:
            return _Layout.swizzled(shape, bits, width)
    return _Layout.row_major(shape)


def annotate_layout(layouts: Mapping[Any, Any]) -> None:
    """The layout of each tile of a dictionary: a `T.Layout` (or its function) for shared memory, a
    `T.Fragment` for fragments.

    Raises `TileTypeError` for a layout of the wrong kind and `LayoutError` for one of another shape
    or one that puts two elements of shared memory in one place.
    """
    construct = "T.annotate_layout"
    builder = in_kernel(construct)
    if not isinstance(layouts, Mapping):
        raise TileTypeError(
            f"{construct} takes a dictionary from tiles to layouts, not {describe(layouts)}"
        )
    for key, layout in layouts.items():
        buffer = _tile(construct, key)
        shape = _constant_shape(buffer)
        if callable(layout) and not isinstance(layout, _Layout | _Fragment):
            layout = _Layout.from_function(shape, layout)
        wanted = _Fragment if buffer.scope == "local.fragment" else _Layout
        if not isinstance(layout, wanted):
            raise TileTypeError(
                f"'{buffer.name}' is {buffer.scope} and needs a T.{wanted.__name__}, not "
                f"{describe(layout)}"
            )
        if layout.shape != shape:
            raise LayoutError(
                f"the layout of '{buffer.name}' has shape {layout.shape}, and the tile {shape}"
            )
        if isinstance(layout, _Layout) and not layout.is_injective:
            raise LayoutError(
                f"the layout of '{buffer.name}' must be injective, and it puts two elements in one "
                "place"
            )
        builder.layouts[buffer] = layout


def _tile(construct: str, value: Any) -> Buffer:
    if not isinstance(value, TensorValue):
        raise TileTypeError(f"{construct} takes tiles, not {describe(value)}")
    buffer = value.use()
    if buffer.scope not in ("shared", "local.fragment"):
        raise TileTypeError(
            f"{construct} takes tiles in shared memory or fragments, and '{buffer.name}' is "
            f"{buffer.scope}"
        )
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
