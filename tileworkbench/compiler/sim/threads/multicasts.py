"""Multicast loads, replaced by one load for each block, with that block's tile and memory barrier.
The block that starts them may end before they are done, the others must not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tileworkbench.compiler.ir.build import int_const
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import Engine, Peer, Start, TensorLoad
from tileworkbench.compiler.ir.stmt import Stmt, items, seq


def is_multicast(stmt: Stmt) -> bool:
    """Whether `stmt` is a load of boxes to several blocks, or holds one."""
    return any(isinstance(each, TensorLoad) and each.blocks for each in statements(stmt))


def unfolded(start: Start) -> Stmt:
    """The loads of a multicast, each started for its own block."""
    return seq([seq(list(_load(start, load))) for load in items(start.body)])


def _load(start: Start, load: Stmt) -> Iterator[Stmt]:
    assert isinstance(load, TensorLoad) and start.barrier is not None
    for rank in range(load.blocks.bit_length()):
        if load.blocks >> rank & 1:
            tile = _named(load.dst.buffer, rank, load)
            barrier = _named(start.barrier.buffer, rank, load)
            yield from (tile, barrier)
            there = replace(load, dst=Address(tile.buffer, load.dst.indices), blocks=0)
            place = Address(barrier.buffer, start.barrier.indices)
            yield replace(start, body=there, engine=Engine.CLUSTER, barrier=place)


def _named(buffer: Buffer, rank: int, load: TensorLoad) -> Peer:
    """The counterpart of `buffer` in the block of that rank."""
    name = f"{buffer.name} of block {rank}"
    return Peer(replace(buffer, name=name), buffer, int_const(rank), site=load.site)
