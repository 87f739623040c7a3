"""Clusters: neighbouring blocks that run at once, wait for each other and write to each other's
shared memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.frontend.clusters import (
    in_cluster,
    own_rank,
    peer,
    peer_address,
    rank_of,
)
from tileworkbench.compiler.frontend.kernel import KernelBlock
from tileworkbench.compiler.frontend.regions import to_operand
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.threads import at_thread_level, barrier_address, started
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.ir.simt import (
    BarrierSignal,
    ClusterArrive,
    ClusterBarrier,
    ClusterWait,
    Engine,
)
from tileworkbench.language.barriers import alloc_barrier, check_cluster_mask
from tileworkbench.language.loops import check_loop_layout, check_width
from tileworkbench.language.tile import copy, emit_operands


def ClusterKernel(
    *blocks: Any, cluster_dims: Any, threads: Any = None, prelude: Any = None
) -> KernelBlock:
    """`T.Kernel` whose blocks come in clusters: `cluster_dims` is how many of them lie along each
    extent of the grid, which must be a multiple of it.

    Raises `TileValueError` for extents that are none, and as `T.Kernel`.

    >>> @T.prim_func
    ... def kernel(A: T.Tensor((256,), T.float32)):
    ...     with T.ClusterKernel(4, cluster_dims=2, threads=64) as bx:
    ...         T.fill(A[bx * 64 : bx * 64 + 64], T.block_rank_in_cluster())
    """
    return KernelBlock(blocks, threads, prelude, cluster_dims)


def block_rank_in_cluster() -> Value:
    """The number of the block in its cluster, x fastest.

    >>> B[bx * 128 + tx] = T.block_rank_in_cluster()
    """
    builder = in_cluster("T.block_rank_in_cluster")
    return Value(own_rank(builder), builder.bind("rank", kind="kernel"))


def cluster_sync() -> None:
    """All threads of all blocks of a cluster wait for each other.

    >>> T.cluster_sync()
    """
    in_cluster("T.cluster_sync")
    at_thread_level("T.cluster_sync").emit(ClusterBarrier())


def cluster_arrive() -> None:
    """The first half of `cluster_sync`: the thread has come there, and goes on. What it does from
    here on is not ordered before what others do behind their `cluster_wait`.

    >>> T.cluster_arrive()
    >>> T.cluster_wait()
    """
    in_cluster("T.cluster_arrive")
    at_thread_level("T.cluster_arrive").emit(ClusterArrive())


def cluster_arrive_relaxed() -> None:
    """`cluster_arrive` that orders no memory: others only know that the thread came there.

    >>> T.cluster_arrive_relaxed()
    >>> T.cluster_wait()
    """
    in_cluster("T.cluster_arrive_relaxed")
    at_thread_level("T.cluster_arrive_relaxed").emit(ClusterArrive(relaxed=True))


def cluster_wait() -> None:
    """The second half of `cluster_sync`: wait until all threads of the cluster have arrived as
    often as this one, which arrives first.

    >>> T.cluster_arrive()
    >>> T.cluster_wait()
    """
    in_cluster("T.cluster_wait")
    at_thread_level("T.cluster_wait").emit(ClusterWait())


def alloc_cluster_barrier(arrive_count: int | list[int]) -> TensorValue:
    """`T.alloc_barrier` in a launch of clusters: threads of other blocks can arrive there too, with
    `T.mbarrier_arrive(bars[k], rank)` or a copy, once `T.cluster_sync()` says that it is made.

    >>> full = T.alloc_cluster_barrier(256)
    >>> T.cluster_sync()
    >>> T.mbarrier_arrive(full, 0)
    >>> if T.block_rank_in_cluster() == 0:
    ...     T.mbarrier_wait_parity(full, 0)
    >>> T.cluster_sync()
    """
    in_cluster("T.alloc_cluster_barrier")
    return alloc_barrier(arrive_count)


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: Any = None,
    coalesced_width: int | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """`T.copy` between the blocks of a cluster.

    With `dst_block`, a rank, it writes to `dst` in the shared memory of that block, which has made
    it before a `T.cluster_sync()`. That block can read it behind another one or, with
    `remote_barrier`, behind a phase of its own barrier of that name: the copy is one arrival there.
    With a barrier the copy is asynchronous: until that phase is complete this block may neither
    write to `src` nor end. Without one its threads store to `dst` themselves.
    With `cluster_mask`, a bit for each rank, blocks share what they read from global memory, as in
    `T.tma_copy`. All blocks wait for each other before and behind it, unless a condition lets only
    one of the mask get here: then T.cluster_sync() says that the tile is there.
    The other options are those of `T.copy`. Raises `TileValueError` for options that exclude each
    other and a destination that is not in shared memory, `UnsupportedError` for a mask where only
    some threads or blocks would wait for the others, and as `T.copy`.

    >>> T.copy(A[bx * 128 : bx * 128 + 128], s)
    >>> T.cluster_sync()
    >>> T.copy_cluster(s, other, dst_block=1 - T.block_rank_in_cluster())
    >>> T.cluster_sync()
    >>> T.copy(other, B[bx * 128])
    """
    construct = "T.copy_cluster"
    builder = in_cluster(construct)
    if dst_block is None and remote_barrier is not None:
        raise TileValueError(
            f"'remote_barrier' of {construct} is that of a copy into the memory of another block",
            hint="say which one with dst_block=rank",
        )
    if dst_block is not None and cluster_mask is not None:
        raise TileValueError(f"{construct} takes 'dst_block' or 'cluster_mask', not both")
    if dst_block is None and cluster_mask is None:
        copy(src, dst, coalesced_width, loop_layout=loop_layout)
        return
    at_thread_level(construct)
    check_loop_layout(construct, loop_layout)
    width = check_width(construct, coalesced_width)
    source, target = to_operand(src, construct, "source"), to_operand(dst, construct, "destination")
    if cluster_mask is not None:
        # Imported here: few kernels need the analysis of who copies.
        from tileworkbench.language.multicast import multicast

        check_cluster_mask(construct, cluster_mask)
        multicast(construct, builder, source, target, int(cluster_mask), None)
        return
    rank = rank_of(construct, dst_block)
    if target.buffer.scope != "shared":
        raise TileValueError(
            f"{construct} writes to the shared memory of another block, and "
            f"'{target.buffer.name}' is not in shared memory"
        )
    barrier = None if remote_barrier is None else barrier_address(construct, remote_barrier)
    theirs = replace(target, buffer=peer(builder, target.buffer, rank))
    if barrier is None:
        emit_operands(source, theirs, width, loop_layout)
        return
    place = peer_address(builder, barrier, rank)
    with started(Engine.CLUSTER, place):
        emit_operands(source, theirs, width, loop_layout)
    builder.emit(BarrierSignal(place, arrivals=1, bytes_=0))
