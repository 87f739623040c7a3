"""Where threads wait for each other: barriers of the block, the warp and the grid, and memory
barriers (mbarriers).

A memory barrier counts arrivals. When as many have come as it was made for, its phase completes and
the next one begins; phases have the parities 0, 1, 0, ... Waiting for parity p returns once the
latest phase of that parity has completed; parity 1 has on a fresh barrier.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import TileTypeError, TileValueError
from tileworkbench.compiler.frontend.builder import in_kernel
from tileworkbench.compiler.frontend.clusters import peer_address, rank_of
from tileworkbench.compiler.frontend.regions import to_operand
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.threads import (
    at_thread_level,
    barrier_address,
    emit_arrival,
    started,
    to_mask,
)
from tileworkbench.compiler.frontend.values import describe, to_value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr
from tileworkbench.compiler.ir.simt import (
    LANGUAGE_WARP,
    Barrier,
    BarrierArrive,
    BarrierExpect,
    BarrierInit,
    BarrierWait,
    CommitGroup,
    Engine,
    GridBarrier,
    WaitGroup,
    WarpBarrier,
)
from tileworkbench.compiler.ir.stmt import Alloc
from tileworkbench.compiler.ir.types import INT32, UINT32, UINT64
from tileworkbench.language.tile import copy

_MOST_ARRIVALS = (1 << 20) - 1  # PTX ISA, "mbarrier.init"
_NAMED_BARRIERS = 16
_ALL_LANES = build.const(0xFFFFFFFF, UINT32)


# Barriers


def sync_threads(barrier_id: int | None = None, arrive_count: int | None = None) -> None:
    """All threads of the block wait for each other; with `barrier_id` (0 to 15) at that barrier,
    and with `arrive_count` (a multiple of 32) that many threads of it.

    Raises `TileTypeError` or `TileValueError` for another number.

    >>> s[tx] = A[tx]
    >>> T.sync_threads()
    >>> B[tx] = s[127 - tx]
    """
    _block_barrier("T.sync_threads", barrier_id, arrive_count, wait=True)


def named_barrier_arrive(barrier_id: int, thread_count: int) -> None:
    """Arrive at a barrier of `thread_count` threads without waiting for the others.

    >>> if tx < 64:
    ...     T.named_barrier_arrive(1, 128)
    ... else:
    ...     T.sync_threads(1, 128)
    """
    _block_barrier("T.named_barrier_arrive", barrier_id, thread_count, wait=False)


def _block_barrier(construct: str, number: Any, count: Any, wait: bool) -> None:
    builder = at_thread_level(construct)
    chosen = _constant(construct, "barrier", number, 0)
    if not 0 <= chosen < _NAMED_BARRIERS:
        raise TileValueError(
            f"{construct} has the barriers 0 to {_NAMED_BARRIERS - 1}, and {chosen} is none of them"
        )
    threads = _constant(construct, "number of threads", count, 0)
    if threads < 0 or threads % LANGUAGE_WARP or (threads == 0 and count is not None):
        raise TileValueError(
            f"the number of threads of {construct} must be a positive multiple of "
            f"{LANGUAGE_WARP}, not {threads}"
        )
    builder.emit(Barrier(chosen, threads, wait))


def _constant(construct: str, what: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TileTypeError(f"the {what} of {construct} must be an integer, not {describe(value)}")
    number = int(value.__index__())
    if number.bit_length() > 63:
        raise TileValueError(f"the {what} of {construct} does not fit into 64 bits")
    return number


def sync_warp(mask: Any = None) -> None:
    """The lanes of the warp named by `mask`, all by default, wait for each other.

    >>> s[tx] = A[tx]
    >>> T.sync_warp()
    >>> B[tx] = s[tx ^ 1]
    """
    builder = at_thread_level("T.sync_warp")
    builder.emit(WarpBarrier(to_mask("T.sync_warp", mask) or _ALL_LANES))


def sync_grid() -> None:
    """All threads of all blocks wait for each other (a cooperative launch).

    >>> N[tx] = 1
    >>> T.sync_grid()
    """
    at_thread_level("T.sync_grid").emit(GridBarrier())


def tvm_storage_sync(scope: str) -> None:
    """A barrier for memory of `scope`: "shared" (or "shared.dyn") for the block, "warp" for the
    warp.

    Raises `TileValueError` for another scope.

    >>> s[tx] = A[tx]
    >>> T.tvm_storage_sync("shared")
    >>> B[tx] = s[127 - tx]
    """
    if scope in ("shared", "shared.dyn"):
        at_thread_level("T.tvm_storage_sync").emit(Barrier())
    elif scope == "warp":
        at_thread_level("T.tvm_storage_sync").emit(WarpBarrier(_ALL_LANES))
    else:
        raise TileValueError(
            f"T.tvm_storage_sync takes 'shared' or 'warp', not {describe(scope)}",
            hint="T.sync_grid() is a barrier of all blocks",
        )


# Memory barriers


def alloc_barrier(arrive_count: int | list[int]) -> TensorValue:
    """Memory barriers with their numbers of arrivals, one number or a list of them; `bars[k]` is
    one of them.

    Raises `TileTypeError` or `TileValueError` for a number that is not positive, and
    `TileValueError` inside a loop, branch or T.ws block.

    >>> full = T.alloc_barrier(128)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    builder = in_kernel("T.alloc_barrier")
    builder.uses.append(("T.alloc_barrier", builder.site))
    counts = list(arrive_count) if isinstance(arrive_count, list | tuple) else [arrive_count]
    numbers = [_constant("T.alloc_barrier", "arrival count", count, 0) for count in counts]
    if not numbers or min(numbers) <= 0:
        raise TileValueError(
            f"the arrival counts of T.alloc_barrier must be positive, not {arrive_count}"
        )
    if max(numbers) > _MOST_ARRIVALS:
        raise TileValueError(
            f"a memory barrier counts at most {_MOST_ARRIVALS} arrivals, not {max(numbers)}"
        )
    if builder.frame.kind != "kernel":
        raise TileValueError(
            "T.alloc_barrier stands inside a loop, branch or T.ws block",
            hint="allocate barriers at the start of the kernel: all threads share them",
        )
    name = builder.fresh(builder.hint(0, "barriers"))
    buffer = Buffer(name, UINT64, (build.int_const(len(numbers)),), "shared.barrier")
    builder.emit(Alloc(buffer))
    for at, number in enumerate(numbers):
        place = Address(buffer, (build.int_const(at),))
        builder.emit(BarrierInit(place, build.int_const(number)))
    return TensorValue(buffer, builder.bind(name, allocated=True))


def mbarrier_wait_parity(mbarrier: Any, parity: Any) -> None:
    """Wait until the phase of that parity (0 or 1) of a memory barrier has completed.

    >>> full = T.alloc_barrier(128)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    _wait("T.mbarrier_wait_parity", mbarrier, parity)


def barrier_wait(mbarrier: Any, parity: Any) -> None:
    """The same as `mbarrier_wait_parity`.

    >>> full = T.alloc_barrier(128)
    >>> T.barrier_arrive(full)
    >>> T.barrier_wait(full, 0)
    """
    _wait("T.barrier_wait", mbarrier, parity)


def _wait(construct: str, mbarrier: Any, parity: Any) -> None:
    builder = at_thread_level(construct)
    place = barrier_address(construct, mbarrier)
    builder.emit(BarrierWait(place, _integer(construct, "parity", parity)))


def _integer(construct: str, what: str, value: Any) -> Expr:
    made = to_value(value).expr
    if not (made.dtype.is_int or made.dtype.is_bool):
        raise TileTypeError(f"the {what} of {construct} must be an integer, not '{made.dtype}'")
    return build.cast(made, INT32)


def mbarrier_arrive(mbarrier: Any, cta_id: Any = None) -> None:
    """Arrive at a memory barrier without waiting; every thread that executes it is an arrival. With
    `cta_id` it is that of the block of this rank in the cluster.

    Raises `TileTypeError` or `TileValueError` for a rank that the cluster does not have, and
    `TileValueError` for one in a launch without clusters.

    >>> full = T.alloc_barrier(128)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    construct = "T.mbarrier_arrive"
    if cta_id is None:
        emit_arrival(construct, mbarrier)
    else:
        builder = at_thread_level(construct)
        place = barrier_address(construct, mbarrier)
        builder.emit(BarrierArrive(peer_address(builder, place, rank_of(construct, cta_id))))


def barrier_arrive(mbarrier: Any) -> None:
    """The same as `mbarrier_arrive`.

    >>> full = T.alloc_barrier(128)
    >>> T.barrier_arrive(full)
    >>> T.barrier_wait(full, 0)
    """
    emit_arrival("T.barrier_arrive", mbarrier)


def mbarrier_expect_tx(mbarrier: Any, tx: Any) -> None:
    """The current phase also waits for `tx` bytes of copies.

    >>> rows = T.alloc_shared((4, 64), T.float16)
    >>> full = T.alloc_barrier(128)
    >>> if T.shuffle_elect(0):
    ...     T.mbarrier_expect_tx(full, T.tma_gather4_bytes(64, T.float16))
    ...     T.tma_gather4(A, rows, 0, [3, 1, 4, 1], barrier=full)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    construct = "T.mbarrier_expect_tx"
    place = barrier_address(construct, mbarrier)
    at_thread_level(construct).emit(
        BarrierExpect(place, _integer(construct, "number of bytes", tx))
    )


def mbarrier_arrive_expect_tx(mbarrier: Any, tx: Any) -> None:
    """`mbarrier_expect_tx`, then `mbarrier_arrive`.

    >>> full = T.alloc_barrier(128)
    >>> T.mbarrier_arrive_expect_tx(full, 0)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    mbarrier_expect_tx(mbarrier, tx)
    mbarrier_arrive(mbarrier)


# Copies that announce their bytes at a memory barrier


def tma_copy(
    src: Any,
    dst: Any,
    *,
    barrier: Any = None,
    cluster_mask: Any = None,
    leader_scope_threads: int | None = None,
    eviction_policy: Any = None,
    annotations: Any = None,
) -> None:
    """`T.copy` between global and shared memory by the copy engine.

    A copy into shared memory is started here and is done when the current phase of `barrier` has
    completed, which waits for its bytes too; the arrivals stay the user's. A copy into global
    memory takes no barrier: it is done behind T.tma_store_arrive and T.tma_store_wait.

    With `cluster_mask`, a bit for each rank, the copy goes to the same place in all these blocks of
    the cluster, before the next statement, and its bytes to the same barrier. Where all of them
    name one place in `dst`, the lowest-ranked one that gets here copies for all, else each copies
    its part. A block expects at its barrier what all these send; one that does not get here says so
    itself, with T.mbarrier_expect_tx. Blocks outside the mask copy for themselves. The other
    options are hints.

    Raises `TileValueError` for a barrier that is missing or superfluous, `UnsupportedError` for a
    place that blocks of the mask take from memory, and as `T.copy`; when it is compiled for a
    machine with the engine, also for rows that the engine cannot take, of the tensor or the tile.

    >>> full = T.alloc_barrier(128)
    >>> T.tma_copy(A, a, barrier=full)
    >>> T.mbarrier_arrive(full)
    >>> T.mbarrier_wait_parity(full, 0)
    """
    builder = at_thread_level("T.tma_copy")
    builder.uses.append(("T.tma_copy", builder.site))
    origin = to_operand(src, "T.tma_copy", "source")
    place = to_operand(dst, "T.tma_copy", "destination")
    source, target = origin.buffer.scope, place.buffer.scope
    if {source, target} != {"global", "shared"}:
        raise TileValueError(
            f"T.tma_copy moves between global and shared memory, not from {source} to {target}",
            hint="use T.copy",
        )
    if target == "shared" and barrier is None:
        raise TileValueError(
            "T.tma_copy into shared memory needs the memory barrier that says when it has arrived",
            hint="barrier=bars[k], of bars = T.alloc_barrier(...)",
        )
    told = None
    if barrier is not None:
        told = barrier_address("T.tma_copy", barrier)
        if target == "global":
            raise TileValueError("T.tma_copy into global memory takes no barrier")
    if cluster_mask is None:
        with started(Engine.TMA if told is not None else Engine.TMA_STORE, told):
            copy(src, dst)
    else:
        # Imported here: few kernels need the analysis of who copies.
        from tileworkbench.language.multicast import multicast

        check_cluster_mask("T.tma_copy", cluster_mask)
        multicast("T.tma_copy", builder, origin, place, int(cluster_mask), told)


def check_cluster_mask(construct: str, mask: Any) -> None:
    """Raise `TileValueError` for a mask that names no blocks of a cluster."""
    size = prod(in_kernel(construct).cluster)
    if _constant(construct, "cluster mask", mask, 0) not in range(1, 1 << size):
        raise TileValueError(
            f"the cluster mask {mask} of {construct} names blocks that a cluster of {size} lacks",
            hint="give bit k for the block of rank k, in a T.ClusterKernel",
        )


def tma_store_arrive() -> None:
    """End a group of copies into global memory by T.tma_copy.

    >>> T.tma_copy(a, A)
    >>> T.tma_store_arrive()
    >>> T.tma_store_wait(0)
    """
    in_kernel("T.tma_store_arrive").emit(CommitGroup(Engine.TMA_STORE))


def tma_store_wait(count: int = 0, read: bool = True) -> None:
    """Wait until at most `count` groups of copies into global memory are left; with `read`, until
    the others have read shared memory, which may be written then.

    Raises `TileTypeError` or `TileValueError` for another number.

    >>> T.tma_copy(a, A)
    >>> T.tma_store_arrive()
    >>> T.tma_store_wait(0)
    """
    builder = in_kernel("T.tma_store_wait")
    groups = _constant("T.tma_store_wait", "number of groups", count, 0)
    if groups < 0:
        raise TileValueError(
            f"the number of groups of T.tma_store_wait must not be negative, not {count}"
        )
    builder.emit(WaitGroup(groups, Engine.TMA_STORE, bool(read)))
