"""Threads of a block: their indices, their warps and groups, and code for some of them.

Statements outside T.Parallel are executed by every thread. These names tell the threads apart.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.roles import RoleBlock, role_of_groups
from tileworkbench.compiler.frontend.threads import (
    LaunchIndex,
    check_dimension,
    kernel_value,
    launch_index,
    linear_index,
    thread_index,
)
from tileworkbench.compiler.frontend.values import Value, describe, from_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.simt import LANGUAGE_WARP, LANGUAGE_WARPGROUP

_THREADS = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
_BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def get_thread_binding(dim: int = 0) -> Value:
    """The thread's index along `dim` (0 is x); 0 along one that the block does not have.

    >>> B[T.get_thread_binding()] = 1
    """
    builder = in_kernel("T.get_thread_binding")
    return thread_index(builder, check_dimension("T.get_thread_binding", dim, 3))


def get_thread_bindings() -> list[Value]:
    """The thread's indices x, y, z.

    >>> x, y, z = T.get_thread_bindings()
    """
    builder = in_kernel("T.get_thread_bindings")
    return [thread_index(builder, dim) for dim in range(3)]


def get_thread_extent(dim: int = 0) -> int:
    """How many threads a block has along `dim`.

    >>> B[tx] = T.get_thread_extent(0)
    """
    builder = in_kernel("T.get_thread_extent")
    dim = check_dimension("T.get_thread_extent", dim, 3)
    return (*builder.threads, 1, 1)[dim]


def get_thread_extents() -> list[int]:
    """How many threads a block has along x, y, z.

    >>> x, y, z = T.get_thread_extents()
    """
    builder = in_kernel("T.get_thread_extents")
    return list((*builder.threads, 1, 1)[:3])


def get_block_binding(dim: int = 0) -> Value:
    """The index of the block along `dim` of the grid.

    >>> B[tx] = T.get_block_binding(0)
    """
    builder = in_kernel("T.get_block_binding")
    dim = check_dimension("T.get_block_binding", dim, len(builder.blocks))
    return kernel_value(builder, builder.blocks[dim])


def get_block_bindings() -> list[Value]:
    """The indices of the block, one for each extent of the grid.

    >>> (block,) = T.get_block_bindings()
    """
    builder = in_kernel("T.get_block_bindings")
    return [kernel_value(builder, var) for var in builder.blocks]


def get_block_extent(dim: int = 0) -> Any:
    """The extent of the grid along `dim`: an integer where it is known, else a value.

    >>> B[tx] = T.get_block_extent(0)
    """
    builder = in_kernel("T.get_block_extent")
    return from_expr(builder.grid[check_dimension("T.get_block_extent", dim, len(builder.grid))])


def get_block_extents() -> list[Any]:
    """The extents of the grid.

    >>> (blocks,) = T.get_block_extents()
    """
    return [from_expr(extent) for extent in in_kernel("T.get_block_extents").grid]


def thread_binding(
    start: int, stop: int | str | None = None, thread: str | None = None, *, annotations: Any = None
) -> LaunchIndex:
    """`tx = T.thread_binding(n, "threadIdx.x")`: the thread's (or block's) index, of as many as the
    launch has along that dimension. In `for tx in T.thread_binding(...)` the iterations are the
    threads.

    Raises `TileValueError` for another number of them.

    >>> for t in T.thread_binding(128, "threadIdx.x"):
    ...     B[t] = A[t]
    """
    if isinstance(stop, str) and thread is None:
        stop, thread = None, stop
    bounds: tuple[Any, Any] = (0, start) if stop is None else (start, stop)
    first, last = bounds
    if thread not in (*_THREADS, *_BLOCKS):
        raise TileValueError(
            f"T.thread_binding needs the name of an index, not {describe(thread)}",
            hint="thread='threadIdx.x', or .y, .z, or 'blockIdx.x' and so on",
        )
    for bound in (first, last):
        if isinstance(bound, bool) or not isinstance(bound, int):
            raise TileTypeError(
                f"a bound of T.thread_binding must be an integer, not {describe(bound)}"
            )
    return launch_index(first, last, thread)


# Warps and warp groups


def get_lane_idx(warp_size: int | None = None) -> Value:
    """The thread's index in its warp of 32 (or `warp_size`) threads.

    >>> B[tx] = T.get_lane_idx()
    """
    return _of_linear(
        "T.get_lane_idx", "floormod", _size("T.get_lane_idx", warp_size, LANGUAGE_WARP)
    )


def get_warp_idx(warp_size: int | None = None) -> Value:
    """The number of the thread's warp in the block.

    >>> B[tx] = T.get_warp_idx()
    """
    return _of_linear(
        "T.get_warp_idx", "floordiv", _size("T.get_warp_idx", warp_size, LANGUAGE_WARP)
    )


def get_warp_idx_sync(warp_size: int | None = None) -> Value:
    """The same as `get_warp_idx`, for code that whole warps execute.

    >>> B[tx] = T.get_warp_idx_sync()
    """
    construct = "T.get_warp_idx_sync"
    return _of_linear(construct, "floordiv", _size(construct, warp_size, LANGUAGE_WARP))


def get_warp_group_idx(warp_size: int | None = None, warps_per_group: int | None = None) -> Value:
    """The number of the thread's warp group, of 4 warps unless `warps_per_group` says otherwise.

    >>> B[tx] = T.get_warp_group_idx()
    """
    construct = "T.get_warp_group_idx"
    warp = _size(construct, warp_size, LANGUAGE_WARP)
    warps = _size(construct, warps_per_group, LANGUAGE_WARPGROUP // LANGUAGE_WARP)
    return _of_linear(construct, "floordiv", warp * warps)


def shuffle_elect(thread_extent: int) -> Value:
    """True in one thread of every `thread_extent` neighbours; for 0 in one thread of the block.

    >>> if T.shuffle_elect(32):
    ...     B[tx] = 1
    """
    construct = "T.shuffle_elect"
    builder = in_kernel(construct)
    if isinstance(thread_extent, bool) or not isinstance(thread_extent, int):
        raise TileTypeError(
            f"the extent of {construct} must be an integer, not {describe(thread_extent)}"
        )
    if thread_extent < 0 or thread_extent % LANGUAGE_WARP:
        raise TileValueError(
            f"the extent of {construct} must be 0 or a multiple of {LANGUAGE_WARP}, "
            f"not {thread_extent}"
        )
    index = linear_index(builder)
    if thread_extent:
        index = build.binary("floormod", index, build.int_const(thread_extent))
    return _kernel_wide(build.binary("eq", index, build.int_const(0)))


def _size(construct: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise TileTypeError(f"a size of {construct} must be an integer, not {describe(value)}")
    if value <= 0:
        raise TileValueError(f"a size of {construct} must be positive, not {value}")
    return value


def _of_linear(construct: str, op: str, size: int) -> Value:
    index = linear_index(in_kernel(construct))
    return _kernel_wide(build.binary(op, index, build.int_const(size)))


def _kernel_wide(value: Expr) -> Value:
    """A value of thread indices, which ends with the launch."""
    return Value(value, in_kernel("a thread index").bind("thread", kind="kernel"))


# Roles


def ws(*groups: int) -> RoleBlock:
    """`with T.ws(0, 1):` the statements inside are executed by these groups of 128 threads only,
    and tile operators in it are shared by the threads of these groups. Of groups that are not
    neighbours the longest row of neighbours (the first of several) executes tile operators.

    Raises `TileValueError` for a group that the block does not have.

    >>> with T.ws(0):
    ...     T.copy(A, a)
    """
    return role_of_groups(groups)
