"""The blocks of a cluster as a kernel sees them: their ranks, and what the others have in shared
memory.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from tileworkbench.compiler.diagnostics import TileValueError
from tileworkbench.compiler.frontend.builder import Builder, in_kernel
from tileworkbench.compiler.frontend.values import index_expr
from tileworkbench.compiler.ir import build
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr
from tileworkbench.compiler.ir.simt import Peer
from tileworkbench.compiler.ir.types import INT32


def in_cluster(construct: str) -> Builder:
    """The builder, in a launch of clusters. Raises `TileValueError` in another one."""
    builder = in_kernel(construct)
    if not builder.cluster:
        raise TileValueError(
            f"{construct} needs a launch of clusters",
            hint="with T.ClusterKernel(..., cluster_dims=(2, 1, 1)) as ...",
        )
    return builder


def own_rank(builder: Builder) -> Expr:
    """The number of the block in its cluster, x fastest."""
    rank: Expr = build.int_const(0)
    for var, count in zip(reversed(builder.blocks), reversed(builder.cluster), strict=True):
        extent = build.int_const(count)
        rank = build.add(build.mul(rank, extent), build.binary("floormod", var, extent))
    return rank


def rank_of(construct: str, value: Any) -> Expr:
    """The rank `value` of a block in the cluster.

    Raises `TileTypeError` or `TileValueError` for one that the cluster does not have.
    """
    size = prod(in_cluster(construct).cluster)
    rank = build.cast(index_expr(value, f"the block of {construct}")[0], INT32)
    known = build.const_int(rank)
    if known is not None and not 0 <= known < size:
        raise TileValueError(f"{construct} names block {known} of a cluster of {size}")
    return rank


def peer(builder: Builder, buffer: Buffer, rank: Expr) -> Buffer:
    """What the block of that rank has for `buffer`."""
    made = replace(buffer, name=builder.fresh(f"{buffer.name}_peer"))
    builder.emit(Peer(made, buffer, rank))
    return made


def peer_address(builder: Builder, place: Address, rank: Expr) -> Address:
    """The element of the block of that rank that `place` is of this one."""
    return Address(peer(builder, place.buffer, rank), place.indices)
