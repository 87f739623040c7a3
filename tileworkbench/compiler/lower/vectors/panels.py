"""Panels: the layout of packed gemm operands, recognised from a buffer's `Layout`."""

from __future__ import annotations

from functools import lru_cache

from tileworkbench.compiler.analysis.micro_tile import panel_elements, panel_group
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.sizes import const_shape
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.layout.fragment import Fragment
from tileworkbench.compiler.layout.layout import Layout
from tileworkbench.compiler.target import Target

_TURNED = ("float64", "float32", "int32", "float16")  # one element is one unit of a panel


@dataclass(frozen=True, slots=True)
class PanelForm:
    """Dimension `dim` is cut in panels of `width`; `group` indices of the other lie together."""

    dim: int
    width: int
    group: int


def panel_form(buffer: Buffer) -> PanelForm | None:
    """How a buffer is kept in panels, or None for row-major order."""
    layout = buffer.layout
    if layout is None or isinstance(layout, Fragment) or layout.rank != 2:
        return None
    return _find_form(layout, panel_group(buffer.dtype))


@lru_cache(maxsize=256)
def _find_form(layout: Layout, group: int) -> PanelForm | None:
    if layout == Layout.row_major(layout.shape):
        return None
    for dim in (1, 0):
        width = 1
        while width < layout.shape[dim] and _place(layout, dim, width) == width * group:
            width += 1
        if width == layout.shape[dim] and layout.shape[1 - dim] > group:
            # A single panel may be wider than the matrix: where the next row begins tells.
            next_row = (group, 0) if dim else (0, group)
            width = max(width, layout.offset(*next_row) // group)
        # One panel along a dimension is also panels of width 1 along the other: not that one.
        if width > 1 and layout == Layout.panels(layout.shape, dim, width, group):
            return PanelForm(dim, width, group)
    return None


def _place(layout: Layout, dim: int, index: int) -> int:
    return layout.offset(*((0, index) if dim else (index, 0)))


def panel_storage(buffer: Buffer, form: PanelForm) -> Buffer:
    """The memory of operand B in panels: a flat buffer, padded to whole panels."""
    shape = const_shape(buffer) or (0, 0)
    rows, cols = shape[form.dim], shape[1 - form.dim]
    size = panel_elements("b", rows, cols, form.width, buffer.dtype)
    return Buffer(buffer.name, buffer.dtype, (int_const(size),), buffer.scope)


def can_turn(dtype: DType, rows: int, columns: int, target: Target) -> bool:
    """Whether a packing can turn a tile: whole vectors of its rows become columns."""
    lanes = target.vector_bits // dtype.bits
    return str(dtype) in _TURNED and lanes > 1 and rows % lanes == 0 and columns > 1
