"""Loops. Their result is iterated over by a `for` statement, whose body is traced once."""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import LayoutError, TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import PythonLoop, current
from tileworkbench.compiler.frontend.control import emit_jump
from tileworkbench.compiler.frontend.loops import (
    GridLoop,
    LoopSpec,
    ParallelLoop,
    PipelinedLoop,
    SerialLoop,
    ShiftedLoop,
)
from tileworkbench.compiler.frontend.schedules import PersistentLoop, TileScheduler
from tileworkbench.compiler.frontend.values import describe
from tileworkbench.compiler.ir.stmt import Break, LoopKind
from tileworkbench.compiler.layout.fragment import Fragment


def _span(start: Any, stop: Any) -> tuple[Any, Any]:
    return (0, start) if stop is None else (start, stop)


def serial(
    start: Any, stop: Any = None, step: Any = None, *, annotations: Any = None
) -> SerialLoop:
    """`for i in T.serial(stop)` or `(start, stop, step)`: in order, as `range`.

    `annotations` has no effect.

    Raises `TileValueError` for a step of 0.

    >>> for k in T.serial(4):
    ...     T.copy(A[k * 16 : k * 16 + 16, :], C[k * 16, 0])
    """
    return SerialLoop(*_span(start, stop), 1 if step is None else step)


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: Any = None,
) -> SerialLoop:
    """The same as `serial`, with the body repeated in the generated code.

    `explicit`, `unroll_factor` and `annotations` have no effect on results. Raises `TileValueError`
    when both `explicit` and `unroll_factor` are given.

    >>> for k in T.unroll(4):
    ...     T.copy(A[k * 16 : k * 16 + 16, :], C[k * 16, 0])
    """
    if explicit and unroll_factor is not None:
        raise TileValueError("T.unroll takes 'explicit' or 'unroll_factor', not both")
    return SerialLoop(*_span(start, stop), 1 if step is None else step, LoopKind.UNROLLED)


def vectorized(start: Any, stop: Any = None, *, annotations: Any = None) -> SerialLoop:
    """A loop whose iterations may be lanes of vector instructions, with the results of `serial`.

    >>> for i in T.vectorized(4):
    ...     C[0, i] = A[0, i]
    """
    return SerialLoop(*_span(start, stop), 1, LoopKind.VECTORIZED)


def grid(*extents: Any) -> GridLoop:
    """`for i, j in T.grid(m, n)`: a serial nest, the last variable fastest. One extent gives a
    number, as in `for i in T.grid(m)`.

    >>> for i, j in T.grid(2, 2):
    ...     T.copy(A[i * 32 : i * 32 + 32, j * 32 : j * 32 + 32], C[i * 32, j * 32])
    """
    if not 1 <= len(extents) <= 16:
        raise TileValueError(f"T.grid takes 1 to 16 extents, not {len(extents)}")
    return GridLoop(extents)


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: Any = None,
) -> ParallelLoop:
    """`for i, j in T.Parallel(m, n)`: the block's threads share the iterations, which must be
    independent of each other.

    The body works on single elements; tile operators and T.Pipelined are not allowed in it, and
    another T.Parallel only directly. `loop_layout` is a T.Fragment over the whole nest: which
    thread of a GPU executes which iteration, and in which order. `coalesced_width` (elements per
    access), `prefer_async` and `annotations` are hints. Raises `TileValueError` for these misuses
    and for an extent that is negative, `LayoutError` for a layout that is not one of the
    iterations.

    >>> for i, j in T.Parallel(64, 64):
    ...     C[i, j] = A[i, j] * 2
    """
    check_loop_layout("T.Parallel", loop_layout)
    if not 1 <= len(extents) <= 16:
        raise TileValueError(f"T.Parallel takes 1 to 16 extents, not {len(extents)}")
    return ParallelLoop(extents, check_width("T.Parallel", coalesced_width), loop_layout)


def parallel(start: Any, stop: Any = None, *, annotations: Any = None) -> LoopSpec:
    """`for i in T.parallel(stop)` or `(start, stop)`: a `T.Parallel` loop of one variable.

    `annotations` has no effect.

    >>> for i in T.parallel(64):
    ...     row[i] = i
    """
    first, last = _span(start, stop)
    loop = Parallel(last - first)
    return loop if isinstance(first, int) and first == 0 else ShiftedLoop(loop, first)


def check_loop_layout(construct: str, layout: Any) -> None:
    """Raise `TileTypeError` for a `loop_layout` that is no T.Fragment, `LayoutError` for one that
    gives two iterations one place in time.
    """
    if layout is None:
        return
    if not isinstance(layout, Fragment):
        raise TileTypeError(
            f"'loop_layout' of {construct} must be a T.Fragment, not {describe(layout)}"
        )
    if not layout.is_injective:
        raise LayoutError(
            f"'loop_layout' of {construct} gives one thread two iterations in one slot"
        )


def check_width(construct: str, width: Any) -> int | None:
    """A checked `coalesced_width`."""
    if width is None:
        return None
    if not isinstance(width, int) or width <= 0:
        raise TileValueError(
            f"'coalesced_width' of {construct} must be a positive integer, not {width}"
        )
    return width


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: Any = None,
    stage: Any = None,
    sync: Any = None,
    group: Any = None,
    annotations: Any = None,
) -> PipelinedLoop:
    """`for k in T.Pipelined(stop, num_stages=3)`: a serial loop whose copies may run ahead of its
    computation.

    Every option is about scheduling and changes no result; `order` and `stage` hold one integer per
    statement of the body. Raises `TileTypeError` or `TileValueError` for an option of the wrong
    kind.

    >>> part = T.alloc_shared((64, 16), T.float16)
    >>> for k in T.Pipelined(4, num_stages=2):
    ...     T.copy(A[:, k * 16 : k * 16 + 16], part)
    ...     T.gemm(part, part, acc, transpose_B=True)
    """
    if isinstance(num_stages, bool) or not isinstance(num_stages, int):
        raise TileTypeError(
            f"'num_stages' of T.Pipelined must be an integer, not {describe(num_stages)}"
        )
    if num_stages < 0:
        raise TileValueError(f"'num_stages' of T.Pipelined must not be negative, not {num_stages}")
    schedule = {
        name: _integers(name, value) for name, value in (("order", order), ("stage", stage))
    }
    if order and stage and len(schedule["order"]) != len(schedule["stage"]):
        raise TileValueError(
            "'order' and 'stage' of T.Pipelined must have one entry per statement each"
        )
    for name, value in (("sync", sync), ("group", group)):
        if value is not None and not isinstance(value, list | tuple):
            raise TileTypeError(f"'{name}' of T.Pipelined must be a list, not {describe(value)}")
    return PipelinedLoop(*_span(start, stop), num_stages, schedule["order"], schedule["stage"])


def Persistent(
    domain: Any,
    wave_size: Any,
    index: Any,
    group_size: int = 8,
    num_stages: int = 0,
    annotations: Any = None,
) -> PersistentLoop:
    """`for bm, bn in T.Persistent([M, N], workers, bx)`: the tiles of the box `domain` that worker
    `index` of `wave_size` visits; together the workers visit each once.

    Tiles that are near in time are near in the box: the last dimension is walked in groups of
    `group_size`. `num_stages` and `annotations` have no effect. Raises `TileTypeError` or
    `TileValueError` for a domain or group size that is none.

    >>> for m, n in T.Persistent([2, 2], 1, bx):
    ...     T.copy(A[m * 32 : m * 32 + 32, n * 32 : n * 32 + 32], C[m * 32, n * 32])
    """
    if not isinstance(domain, list | tuple) or not 1 <= len(domain) <= 8:
        raise TileTypeError(
            f"the domain of T.Persistent must be a list of extents, not {describe(domain)}"
        )
    if isinstance(group_size, bool) or not isinstance(group_size, int) or group_size <= 0:
        raise TileValueError(
            f"'group_size' of T.Persistent must be a positive integer, not {group_size}"
        )
    return PersistentLoop(tuple(domain), wave_size, index, group_size)


def PersistentTileScheduler(
    num_m: Any,
    num_n: Any,
    num_workers: Any = None,
    swizzle_size: int = 1,
    column_major: bool = True,
    cluster_size: int = 1,
    stateful: bool = True,
    name: str | None = None,
) -> TileScheduler:
    """The tiles of a `num_m` x `num_n` grid, handed out to persistent workers.

    `init(worker)` starts, `valid()` says whether there is a tile, `next_tile()` goes on; `m_idx`,
    `n_idx`, `linear_idx` and `current_iter` are the current tile's; `coord(id)` is any tile's
    place. `num_workers` is the number of blocks of the launch by default. Tiles are numbered
    along m (n unless `column_major`) in panels of `swizzle_size`; clusters take `cluster_size`
    rows. Raises `TileTypeError` or `TileValueError` for arguments of a wrong kind.

    >>> tiles = T.PersistentTileScheduler(2, 2)
    >>> tiles.init(bx)
    >>> while tiles.valid():
    ...     C[tiles.m_idx * 32, tiles.n_idx * 32] = 1
    ...     tiles.next_tile()
    """
    return TileScheduler(
        (num_m, num_n), num_workers, swizzle_size, bool(column_major), cluster_size, name
    )


def _integers(name: str, values: Any) -> tuple[int, ...]:
    if values is None:
        return ()
    if not isinstance(values, list | tuple) or not all(isinstance(value, int) for value in values):
        raise TileTypeError(
            f"'{name}' of T.Pipelined must be a list of integers, not {describe(values)}"
        )
    return tuple(values)


def loop_break() -> None:
    """Leave the innermost loop: the same as `break`.

    >>> for k in T.serial(64):
    ...     if A[0, k] > 0:
    ...         T.loop_break()
    """
    builder = current("T.loop_break")
    if not builder.loops or isinstance(builder.loops[-1], PythonLoop):
        raise TileValueError("'T.loop_break' stands in no loop of the kernel")
    emit_jump(builder, builder.loops[-1], Break(), "T.loop_break")


Serial = serial
Unroll = unroll
Vectorized = vectorized
