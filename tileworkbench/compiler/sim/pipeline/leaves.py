"""What a statement of lowered code is to a pipeline: a copy, a wait, part of a product.

This is the only place that knows which nodes of the IR these are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.expr import Address, Binary, Buffer, Call, Expr, Load, Ramp, Unary
from tileworkbench.compiler.ir.rewrite import walk


class Kind(StrEnum):
    """What an operation does. `MOVE` is between shared memory and registers, `SIGNAL` arrives at a
    memory barrier, `COMMIT` ends a group of asynchronous copies.
    """

    COPY = "copy"
    STORE = "store"
    PRODUCT = "product"
    COMPUTE = "compute"
    MOVE = "move"
    WAIT = "wait"
    SIGNAL = "signal"
    COMMIT = "commit"


ASYNCHRONOUS = "cp.async"
THROUGH_REGISTERS = "through registers"
TO_REGISTERS = "to registers"
_WAITS: dict[type[st.Stmt], str] = {
    simt.WaitGroup: "copies",
    simt.Barrier: "block barrier",
    simt.WarpBarrier: "warp barrier",
    simt.GridBarrier: "grid barrier",
    simt.ClusterBarrier: "cluster barrier",
    simt.BarrierWait: "memory barrier",
}
_SIGNALS = (simt.BarrierArrive, simt.BarrierExpect, simt.BarrierSignal)
JOINED = (Kind.MOVE, Kind.COMPUTE, Kind.STORE, Kind.COPY, Kind.PRODUCT)
"""Kinds of which neighbours with one site are one operation; the last of them says what it is."""
TURNS = (*_WAITS, *_SIGNALS, simt.AsyncCopy, simt.CommitGroup)
"""Statements that make each iteration of a loop around them count by itself."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A shared buffer and its first index, which in a pipeline is the stage's."""

    buffer: Buffer
    index: Expr


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement that does something.

    `bytes_` of global memory, `shared_bytes` and `issues` (instructions) are those of one thread,
    `flops` those of a warp. `how` says how a copy travels and what a wait waits for.
    """

    kind: Kind
    how: str = ""
    writes: tuple[Tile, ...] = ()
    reads: tuple[Tile, ...] = ()
    bytes_: int = 0
    shared_bytes: int = 0
    flops: int = 0
    issues: int = 1
    dtype: str = ""


def leaf_of(stmt: st.Stmt) -> Leaf | None:
    """What `stmt` itself does, None for one that only makes names or has statements below it."""
    match stmt:
        case simt.AsyncCopy(dst, _, elements):
            size = elements * dst.buffer.dtype.bits // 8
            return Leaf(Kind.COPY, ASYNCHRONOUS, _shared(dst), bytes_=size)
        case simt.CommitGroup():
            return Leaf(Kind.COMMIT, issues=0)
        case simt.Mma(a, _, _, m, n, k):
            name = "tfloat32" if str(a.buffer.dtype) == "float32" else str(a.buffer.dtype)
            return Leaf(Kind.PRODUCT, flops=2 * m * n * k, dtype=name)
        case simt.LoadMatrix(_, src, count):
            return Leaf(Kind.MOVE, reads=_shared(src), shared_bytes=4 * count)
        case simt.StoreMatrix(dst, _, count):
            return Leaf(Kind.MOVE, writes=_shared(dst), shared_bytes=4 * count)
        case st.Store(buffer, indices, value):
            return _store(buffer, indices, value)
        case st.Atomic(_, buffer, indices, value):
            return _store(buffer, indices, value)
        case simt.Exchange(args=args):
            return Leaf(Kind.COMPUTE, issues=1 + sum(map(_operations, args)))
    if type(stmt) in _WAITS:
        return Leaf(Kind.WAIT, _WAITS[type(stmt)])
    if isinstance(stmt, _SIGNALS):
        return Leaf(Kind.SIGNAL)
    return Leaf(Kind.COMPUTE) if isinstance(stmt, st.ExternCall) else None


def joined(first: Kind, second: Kind) -> Kind:
    """What an operation is that is both."""
    return max(first, second, key=JOINED.index)


def _store(buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> Leaf:
    size = _lanes(indices) * buffer.dtype.lanes * buffer.dtype.scalar.bits // 8
    loads = list(_loads(value))
    reads = tuple(Tile(load.buffer, load.indices[0]) for load in loads if _is_tile(load.buffer))
    writes = (Tile(buffer, indices[0]),) if _is_tile(buffer) else ()
    near = sum(_lanes(load.indices) * load.buffer.dtype.bits // 8 for load in loads if reads)
    issues = 1 + _operations(value) * _lanes(indices)
    fetched = [load for load in loads if load.buffer.scope == "global"]
    if buffer.scope == "global":
        moved = size + sum(_load_bytes(load) for load in fetched)
        return Leaf(Kind.STORE, "", writes, reads, moved, near, issues=issues)
    if fetched:
        how = THROUGH_REGISTERS if buffer.scope == "shared" else TO_REGISTERS
        moved = sum(_load_bytes(load) for load in fetched)
        return Leaf(Kind.COPY, how, writes, reads, moved, near, issues=issues)
    near += size if writes else 0
    return Leaf(Kind.COMPUTE, "", writes, reads, 0, near, issues=issues)


def _load_bytes(load: Load) -> int:
    return _lanes(load.indices) * load.buffer.dtype.bits // 8


def _lanes(indices: tuple[Expr, ...]) -> int:
    return max((index.lanes for index in indices if isinstance(index, Ramp)), default=1)


def _is_tile(buffer: Buffer) -> bool:
    return buffer.scope == "shared" and bool(buffer.shape)


def _shared(address: Address) -> tuple[Tile, ...]:
    return (Tile(address.buffer, address.indices[0]),) if _is_tile(address.buffer) else ()


def _loads(value: Expr) -> Iterator[Load]:
    return (node for node in walk(value) if isinstance(node, Load))


def _operations(value: Expr) -> int:
    """Arithmetic in a value, without that of its addresses."""
    if isinstance(value, Load):
        return 0
    own = isinstance(value, Binary | Unary | Call)
    below = (child for child in value.children() if isinstance(child, Expr))
    return int(own) + sum(map(_operations, below))
