"""Clusters: neighbouring blocks that wait for each other.

A copy to several blocks of a cluster is one of each block: the blocks that a mask names must name
the same source anyway. What blocks hand to each other goes through global memory.
"""

from __future__ import annotations

from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError, UnsupportedError
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.kernel import KernelBlock
from tileworkbench.compiler.frontend.tensors import TensorValue
from tileworkbench.compiler.frontend.threads import at_thread_level
from tileworkbench.compiler.frontend.values import Value
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Expr
from tileworkbench.compiler.ir.simt import ClusterBarrier
from tileworkbench.language.barriers import alloc_barrier, check_cluster_mask
from tileworkbench.language.tile import copy


def ClusterKernel(
    *blocks: Any, cluster_dims: Any, threads: Any = None, prelude: Any = None
) -> KernelBlock:
    """`T.Kernel` whose blocks come in clusters: `cluster_dims` is how many of them lie along each
    extent of the grid, which must be a multiple of it.

    Raises `TileValueError` for extents that are none, and as `T.Kernel`.
    """
    return KernelBlock(blocks, threads, prelude, cluster_dims)


def block_rank_in_cluster() -> Value:
    """The number of the block in its cluster, x fastest."""
    builder = _in_cluster("T.block_rank_in_cluster")
    rank: Expr = build.int_const(0)
    for var, count in zip(reversed(builder.blocks), reversed(builder.cluster), strict=True):
        extent = build.int_const(count)
        rank = build.add(build.mul(rank, extent), build.binary("floormod", var, extent))
    return Value(rank, builder.bind("rank", kind="kernel"))


def cluster_sync() -> None:
    """All threads of all blocks of a cluster wait for each other."""
    _in_cluster("T.cluster_sync")
    at_thread_level("T.cluster_sync").emit(ClusterBarrier())


def cluster_arrive() -> None:
    """The first half of `cluster_sync`: no effect, `cluster_wait` is where threads wait."""
    _in_cluster("T.cluster_arrive")


def cluster_wait() -> None:
    """The second half of `cluster_sync`."""
    _in_cluster("T.cluster_wait")
    at_thread_level("T.cluster_wait").emit(ClusterBarrier())


def alloc_cluster_barrier(arrive_count: int | list[int]) -> TensorValue:
    """`T.alloc_barrier` in a launch of clusters; only the block's own threads can arrive."""
    _in_cluster("T.alloc_cluster_barrier")
    return alloc_barrier(arrive_count)


def copy_cluster(
    src: Any,
    dst: Any,
    *,
    dst_block: Any = None,
    cluster_mask: int | None = None,
    remote_barrier: Any = None,
    eviction_policy: Any = None,
    annotations: Any = None,
) -> None:
    """`T.copy` that the blocks of `cluster_mask`, a bit for each rank, may share.

    The other options are hints. Raises `UnsupportedError` for a copy into the shared memory of
    another block, and as `T.copy`.
    """
    _in_cluster("T.copy_cluster")
    if dst_block is not None or remote_barrier is not None:
        raise UnsupportedError(
            "T.copy_cluster into the shared memory of another block is not supported yet",
            hint="write to global memory, and read it after T.cluster_sync()",
        )
    if cluster_mask is not None:
        check_cluster_mask("T.copy_cluster", cluster_mask)
    copy(src, dst)


def _in_cluster(construct: str) -> Builder:
    builder = in_kernel(construct)
    if not builder.cluster:
        raise TileValueError(
            f"{construct} needs a launch of clusters",
            hint="with T.ClusterKernel(..., cluster_dims=(2, 1, 1)) as ...",
        )
    return builder
