"""Copies of four rows that need not be neighbours, by the copy engine of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tileworkbench.compiler.diagnostics import ShapeError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.dtypes import to_dtype
from tileworkbench.compiler.frontend.regions import to_buffer
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.threads import at_thread_level, barrier_address, started
from tileworkbench.compiler.frontend.values import describe, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Buffer
from tileworkbench.compiler.ir.printer import show_shape
from tileworkbench.compiler.ir.simt import BarrierExpect, Engine
from tileworkbench.language.tile import copy

_ROWS = 4


def tma_gather4(
    src: Any,
    dst: Any,
    col: Any,
    rows: Sequence[Any],
    *,
    barrier: Any,
    swizzle: Any = None,
    eviction_policy: Any = None,
    annotations: Any = None,
) -> None:
    """Copy the columns from `col` on of four `rows` of the tensor `src` (N, C) to the shared tile
    `dst` (4, K): `dst[r, :] = src[rows[r], col : col + K]`.

    What lies outside `src` is 0. Each thread that executes this delivers `tma_gather4_bytes` at
    `barrier`, which must expect them (`T.mbarrier_expect_tx`): let one thread do both, in
    `if T.shuffle_elect(0)`. It is done when the phase has completed. The other options
    are hints. Raises `TileTypeError`, `TileValueError` or `ShapeError` for operands of another
    kind.

    >>> rows = T.alloc_shared((4, 64), T.float16)
    >>> full = T.alloc_barrier(128)
    >>> if T.shuffle_elect(0):
    ...     T.mbarrier_expect_tx(full, T.tma_gather4_bytes(64, T.float16))
    ...     T.tma_gather4(A, rows, 0, [3, 1, 4, 1], barrier=full)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    builder = at_thread_level("T.tma_gather4")
    width = _width("T.tma_gather4", src, dst, rows)
    place = barrier_address("T.tma_gather4", barrier)
    with started(Engine.TMA, place):
        for at, row in enumerate(rows):
            copy(src[row, col : col + width], dst[at, :])
    arrived = build.int_const(-tma_gather4_bytes(width, dst.buffer.dtype))
    builder.emit(BarrierExpect(place, arrived))


def tma_scatter4(
    src: Any,
    dst: Any,
    col: Any,
    rows: Sequence[Any],
    *,
    swizzle: Any = None,
    eviction_policy: Any = None,
    annotations: Any = None,
) -> None:
    """Copy the shared tile `src` (4, K) to the columns from `col` on of four `rows` of the tensor
    `dst` (N, C): `dst[rows[r], col : col + K] = src[r, :]`.

    What lies outside `dst` is skipped. It is done behind T.tma_store_arrive and T.tma_store_wait.
    Raises as `tma_gather4`.

    >>> rows = T.alloc_shared((4, 64), T.float16)
    >>> T.clear(rows)
    >>> T.tma_scatter4(rows, A, 0, [3, 1, 4, 2])
    >>> T.tma_store_arrive()
    >>> T.tma_store_wait(0)
    """
    at_thread_level("T.tma_scatter4")
    width = _width("T.tma_scatter4", dst, src, rows)
    with started(Engine.TMA_STORE):
        for at, row in enumerate(rows):
            copy(src[at, :], dst[row, col : col + width])


def tma_gather4_bytes(K_box: int, dtype: Any) -> int:
    """The bytes of four rows of `K_box` elements, which `T.mbarrier_expect_tx` announces.

    >>> size = T.tma_gather4_bytes(64, T.float16)
    """
    return (_ROWS * K_box * to_dtype(dtype).bits + 7) // 8


def _width(construct: str, tensor: Any, tile: Any, rows: Any) -> int:
    """The columns of a shared tile for four `rows` of a matrix in global memory, all checked."""
    far, near = _matrix(construct, tensor, "global"), _matrix(construct, tile, "shared")
    if far.dtype != near.dtype:
        raise TileValueError(
            f"{construct} cannot convert between '{far.dtype}' and '{near.dtype}'",
            hint="give the tile the tensor's dtype",
        )
    width = build.const_int(near.shape[1])
    if build.const_int(near.shape[0]) != _ROWS or width is None:
        raise ShapeError(
            f"{construct} needs a tile of {_ROWS} rows of constant length; '{near.name}' is "
            f"{show_shape(near.shape)}"
        )
    if not isinstance(rows, Sequence):
        raise TileTypeError(f"the rows of {construct} must be a list, not {describe(rows)}")
    if len(rows) != _ROWS:
        raise TileValueError(f"{construct} takes {_ROWS} rows, not {len(rows)}")
    for row in rows:
        to_value(row)
    return width


def _matrix(construct: str, value: Any, scope: str) -> Buffer:
    role = "tensor" if scope == "global" else "tile"
    if not isinstance(value, TensorValue):
        raise TileTypeError(f"the {role} of {construct} must be whole, not {describe(value)}")
    buffer = to_buffer(value, construct, role)
    if buffer.scope != scope or len(buffer.shape) != 2:
        raise TileValueError(
            f"{construct} moves rows between a matrix in global memory and a shared tile; "
            f"'{buffer.name}' has {len(buffer.shape)} dimensions and lies in {buffer.scope} memory"
        )
    return buffer
