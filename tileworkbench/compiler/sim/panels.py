"""Packed matrix multiplication of the CPU stage: what `Pack` and `MicroGemm` compute, on flat
buffers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tileworkbench.compiler.ir import tile
from tileworkbench.compiler.ir.expr import Address
from tileworkbench.compiler.ir.types import DType
from tileworkbench.compiler.sim.expressions import ExpressionTranslator
from tileworkbench.compiler.sim.frame import Frame
from tileworkbench.compiler.sim.memory import Storage
from tileworkbench.compiler.sim.tiles import matmul
from tileworkbench.compiler.sim.values import convert_array

Array = np.ndarray[Any, Any]


class TranslatedAddress:
    """The place of one element; what lies around it is found by offsets in elements."""

    def __init__(self, address: Address, expr: ExpressionTranslator) -> None:
        self._slot = expr.slots.buffer(address.buffer)
        self._indices = expr.all(address.indices)
        self.dtype = address.buffer.dtype

    def load(self, frame: Frame, offsets: Array) -> Array:
        """The elements at `offsets` after the place."""
        storage = frame.storages[self._slot]
        if not offsets.size:
            return np.zeros(offsets.shape, storage.data.dtype)
        place = self._offset(frame, storage) + offsets
        return np.asarray(storage.flat().load(frame, (place,), True, place.shape))

    def store(self, frame: Frame, offsets: Array, values: Array) -> None:
        """Write `values` at `offsets` after the place."""
        storage = frame.storages[self._slot]
        place = self._offset(frame, storage) + offsets
        storage.flat().store(frame, (place,), values, True, place.shape)

    def _offset(self, frame: Frame, storage: Storage) -> int:
        item = storage.data.itemsize
        strides = [stride // item for stride in storage.data.strides]
        indices = [index(frame) for index in self._indices]
        return sum(index * stride for index, stride in zip(indices, strides, strict=True))


def panel_offsets(rows: int, cols: int, width: int, group: int, trailer: int = 0) -> Array:
    """Where element (r, c) of a `rows` x `cols` matrix lies in panels of `width`, by `group` of c.

    `trailer` is the number of elements that follow each panel.
    """
    row, col = np.ogrid[:rows, :cols]
    panel_stride = width * _round_up(cols, group) + trailer
    inside = col // group * width * group + row % width * group + col % group
    return np.asarray(row // width * panel_stride + inside)


def _trailer(operand: str, dtype: DType, width: int) -> int:
    """Bytes after each panel of int8 that belong to the micro-kernel; see `Pack`."""
    return 4 * width if operand == "b" and dtype == "int8" else 0


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def translate_pack(stmt: tile.Pack, expr: ExpressionTranslator) -> Callable[[Frame], None]:
    """The closure of a packing: the valid part of the matrix, zeros elsewhere, in whole panels."""
    src, dst = TranslatedAddress(stmt.src, expr), TranslatedAddress(stmt.dst, expr)
    strides = expr.all((stmt.row_stride, stmt.col_stride))
    valid = expr.all((stmt.valid_rows, stmt.valid_cols))
    padded = (_round_up(stmt.rows, stmt.width), _round_up(stmt.cols, stmt.group))
    trailer = _trailer(stmt.operand, dst.dtype, stmt.width)
    target = panel_offsets(*padded, stmt.width, stmt.group, trailer)

    def pack(frame: Frame) -> None:
        row_stride, col_stride = [stride(frame) for stride in strides]
        limits = [limit(frame) for limit in valid]
        rows, cols = min(max(limits[0], 0), stmt.rows), min(max(limits[1], 0), stmt.cols)
        row, col = np.ogrid[:rows, :cols]
        values = src.load(frame, np.asarray(row * row_stride + col * col_stride))
        values = convert_array(values, src.dtype, dst.dtype)
        matrix = np.zeros(padded, values.dtype)
        matrix[:rows, :cols] = values
        dst.store(frame, target, matrix)

    return pack


def translate_micro_gemm(
    stmt: tile.MicroGemm, expr: ExpressionTranslator
) -> Callable[[Frame], None]:
    """The closure of a product of packed panels."""
    a, b, c = (TranslatedAddress(address, expr) for address in (stmt.a, stmt.b, stmt.c))
    lda, ldc, clear = expr(stmt.lda), expr(stmt.ldc), expr(stmt.clear)
    trailer = _trailer("b", b.dtype, stmt.nr)
    panels_b = panel_offsets(stmt.n, stmt.k, stmt.nr, stmt.group, trailer)
    rows_a, cols_a = np.ogrid[: stmt.m, : stmt.k]
    rows_c, cols_c = np.ogrid[: stmt.m, : stmt.n]

    def micro_gemm(frame: Frame) -> None:
        stride = lda(frame)
        if stmt.columns:
            place_a = panel_offsets(stmt.m, stmt.k, stride, stmt.group)
        else:
            place_a = np.asarray(rows_a * stride + cols_a)
        left, right = a.load(frame, place_a), b.load(frame, panels_b).T
        place_c = np.asarray(rows_c * ldc(frame) + cols_c)
        old = None if clear(frame) else c.load(frame, place_c)
        c.store(frame, place_c, matmul(left, right, old, c.dtype))

    return micro_gemm
