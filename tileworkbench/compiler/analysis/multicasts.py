"""Copies of one tile to several blocks of a cluster, which the copy engine does at once.

The front end writes a copy for each block that gets the tile: its memory and its memory barrier are
named, the copy is started there, and that barrier waits for its bytes. Where such copies follow one
another and differ in the block only, they are one multicast: the engine reads the tile once, writes
it to the same place in each block, and counts the bytes at each one's barrier (PTX ISA,
"cp.async.bulk.tensor", ".multicast::cluster").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.build import const_int
from tileworkbench.compiler.ir.effects import accesses
from tileworkbench.compiler.ir.expr import Address, Buffer
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import BarrierSignal, Engine, Peer, Start
from tileworkbench.compiler.ir.stmt import Seq, Stmt
from tileworkbench.compiler.ir.tile import Copy

# The statements of a copy to one block.
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Multicast:
    """`copy`, written as if it were within this block, to the blocks whose bits are set in
    `blocks`; the `barrier` of each of them counts `bytes_` bytes. `parts` are its statements.
    """

    copy: Copy
    barrier: Address
    bytes_: int
    blocks: int
    parts: tuple[Stmt, ...]

    def joined(self, other: Multicast) -> Multicast | None:
        """Both in one, None where they differ in more than the block."""
        alike = (self.copy, self.barrier, self.bytes_) == (other.copy, other.barrier, other.bytes_)
        if not alike or self.blocks & other.blocks:
            return None
        blocks, parts = self.blocks | other.blocks, (*self.parts, *other.parts)
        return Multicast(self.copy, self.barrier, self.bytes_, blocks, parts)


def parted(stmts: Sequence[Stmt]) -> Iterator[Sequence[Stmt] | Multicast]:
    """The multicasts of a sequence, and the statements before, between and behind them."""
    at, plain = 0, 0
    while at < len(stmts):
        sent = _send(stmts[at : at + _PARTS])
        if sent is None:
            at += 1
            continue
        if plain < at:
            yield stmts[plain:at]
        at += _PARTS
        while (other := _send(stmts[at : at + _PARTS])) and (both := sent.joined(other)):
            sent, at = both, at + _PARTS
        yield sent
        plain = at
    if plain < at:
        yield stmts[plain:]


def _send(parts: Sequence[Stmt]) -> Multicast | None:
    """The copy to one block that begins with these statements."""
    match parts:
        case [
            Peer(theirs, tile, rank),
            Peer(told, barrier, other),
            Start(Copy(dst=dst) as copy, Engine.CLUSTER, Address(at, indices) as place),
            BarrierSignal(signalled, 0, bytes_),
        ] if (
            bytes_ < 0
            and (dst.buffer, at, rank) == (theirs, told, other)
            and signalled == place
            and copy.src.buffer.scope == "global"
        ):
            number = const_int(rank)
            if number is None:
                return None
            own = replace(copy, dst=replace(dst, buffer=tile))
            return Multicast(own, Address(barrier, indices), -bytes_, 1 << number, tuple(parts))
    return None


def multicasts(body: Stmt) -> Iterator[Multicast]:
    """All of a kernel."""
    for stmt in statements(body):
        if isinstance(stmt, Seq):
            yield from (part for part in parted(stmt.stmts) if isinstance(part, Multicast))


def reached_by_threads(body: Stmt) -> frozenset[Buffer]:
    """The buffers of this block that threads of other blocks access: all that have a name there,
    except those that only multicasts write.
    """
    source = {stmt.buffer: stmt.source for stmt in statements(body) if isinstance(stmt, Peer)}
    if not source:
        return frozenset()
    parts = (part for each in multicasts(body) for part in each.parts)
    engines = {id(below) for part in parts for below in statements(part)}
    return frozenset(
        source[access.buffer]
        for stmt in statements(body)
        if id(stmt) not in engines and not isinstance(stmt, Peer)
        for access in accesses(stmt)
        if access.buffer in source
    )
