"""What a statement of lowered code does in a pipeline: copy, wait, or a part of a product.

It follows from what a statement declares to read, write, start and order (`ir/effects.py`).
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from enum import StrEnum

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir import simt
from tileworkbench.compiler.ir import stmt as st
from tileworkbench.compiler.ir.effects import Access, Order, accesses, declared, order_of
from tileworkbench.compiler.ir.expr import Binary, Buffer, Call, Expr, Load, Ramp, Unary


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


TMA = "TMA"
THROUGH_REGISTERS = "through registers"
TO_REGISTERS = "to registers"
_ORDERS: dict[Order, tuple[Kind, str]] = {
    Order.GROUP: (Kind.WAIT, "copies"),
    Order.PHASE: (Kind.WAIT, "memory barrier"),
    Order.BLOCK: (Kind.WAIT, "block barrier"),
    Order.WARP: (Kind.WAIT, "warp barrier"),
    Order.CLUSTER: (Kind.WAIT, "cluster barrier"),
    Order.CLUSTER_PHASE: (Kind.WAIT, "cluster barrier"),
    Order.GRID: (Kind.WAIT, "grid barrier"),
    Order.ARRIVE: (Kind.SIGNAL, ""),
    Order.COMMIT: (Kind.COMMIT, ""),
}
_GROUPS = {simt.Engine.WGMMA: "products", simt.Engine.TMA_STORE: "stores"}
_NAMES = (
    *(st.Let, st.Alloc, st.Alias, st.Pointer, simt.Peer, simt.BarrierInit),
    *(simt.Start, simt.TensorMap),
)
JOINED = (Kind.MOVE, Kind.COMPUTE, Kind.STORE, Kind.COPY, Kind.PRODUCT)
"""Kinds of which neighbours with one site are one operation; the last of them says what it is."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A shared buffer and its first index, which in a pipeline is the stage's."""

    buffer: Buffer
    index: Expr


@dataclass(slots=True)
class Work:
    """What is done, and how much of it.

    `bytes_` of global memory, `shared_bytes`, `flops` of matrix instructions whose operands are of
    `dtype`, and `issues` (instructions). `how` says how a copy travels and what a wait waits for.
    Work with an `engine` is only started here; the engine does it later.
    """

    kind: Kind
    how: str = ""
    _: KW_ONLY
    bytes_: float = 0
    shared_bytes: float = 0
    flops: float = 0
    issues: float = 0
    dtype: str = ""
    engine: str = ""

    @property
    def started(self) -> bool:
        """Whether an engine does it later."""
        return bool(self.engine)

    def add(self, work: Work, threads: float, warps: float) -> None:
        """`work` is done too, by so many threads and warps."""
        self.bytes_ += threads * work.bytes_
        self.shared_bytes += threads * work.shared_bytes
        self.flops += warps * work.flops
        self.issues += warps * work.issues
        self.dtype = self.dtype or work.dtype
        self.engine = self.engine or work.engine


@dataclass(slots=True, kw_only=True)
class Leaf(Work):
    """One statement that does something: bytes of one thread, operations of one warp. It `fetches`
    from global memory to registers, for which a thread waits when it `uses` them.
    """

    writes: tuple[Tile, ...] = ()
    reads: tuple[Tile, ...] = ()
    fetches: tuple[Buffer, ...] = ()
    uses: tuple[Buffer, ...] = ()
    issues: float = 1


def takes_turns(stmt: st.Stmt) -> bool:
    """Whether each iteration of a loop around `stmt` counts by itself: it waits, or starts
    something.
    """
    return order_of(stmt) in _ORDERS or any(access.started for access in declared(stmt))


def waits_for_others(stmt: st.Stmt) -> bool:
    """Whether `stmt` waits for what was started, or for a phase of a memory barrier."""
    return order_of(stmt) in (Order.GROUP, Order.PHASE)


def leaf_of(stmt: st.Stmt) -> Leaf | None:
    """What `stmt` itself does, None for one that only makes names or has statements below it."""
    leaf = _leaf_of(stmt)
    if leaf is not None and leaf.kind in JOINED:
        registers = [access for access in accesses(stmt) if access.buffer.scope == "local"]
        leaf.uses = tuple(access.buffer for access in registers if access.reads)
        if leaf.how == TO_REGISTERS:
            leaf.fetches = tuple(access.buffer for access in registers if access.writes)
    return leaf


def _leaf_of(stmt: st.Stmt) -> Leaf | None:
    match stmt:
        case simt.Mma(a, _, _, m, n, k):
            return Leaf(Kind.PRODUCT, flops=2 * m * n * k, dtype=_product_name(a.buffer))
        case simt.Wgmma(a, b, n=n, k=k, a_form=a_form):  # each of the four warps does 16 rows
            left = _tile(a.buffer, a.indices) if a_form else ()
            return Leaf(
                Kind.PRODUCT,
                flops=2 * 16 * n * k,
                dtype=_product_name(b.buffer),
                engine=simt.Engine.WGMMA,
                reads=(*left, *_tile(b.buffer, b.indices)),
            )
        case simt.TensorLoad(dst):
            writes = _tile(dst.buffer, dst.indices)
            return Leaf(Kind.COPY, TMA, writes=writes, engine=simt.Engine.TMA)
        case simt.TensorStore(src=src):
            reads = _tile(src.buffer, src.indices)
            return Leaf(Kind.STORE, TMA, reads=reads, engine=simt.Engine.TMA_STORE)
        case simt.WaitGroup(engine=engine) if engine in _GROUPS:
            return Leaf(Kind.WAIT, _GROUPS[engine])
        case simt.LoadMatrix(_, src, count):
            return Leaf(Kind.MOVE, reads=_tile(src.buffer, src.indices), shared_bytes=4 * count)
        case simt.LoadTurned(_, src):
            return Leaf(Kind.MOVE, reads=_tile(src.buffer, src.indices), shared_bytes=8)
        case simt.StoreMatrix(dst, _, count):
            return Leaf(Kind.MOVE, writes=_tile(dst.buffer, dst.indices), shared_bytes=4 * count)
        case simt.Exchange(args=args) if order_of(stmt) is None:
            return Leaf(Kind.COMPUTE, issues=1 + sum(map(_operations, args)))
        case st.ExternCall():
            return Leaf(Kind.COMPUTE)
    order = order_of(stmt)
    if order in _ORDERS:
        return Leaf(*_ORDERS[order], issues=0 if order is Order.COMMIT else 1)
    return None if isinstance(stmt, _NAMES) else _by_accesses(stmt)


def _product_name(operand: Buffer) -> str:
    """The type of the operands of a matrix instruction."""
    return "tfloat32" if str(operand.dtype) == "float32" else str(operand.dtype)


def joined(first: Kind, second: Kind) -> Kind:
    """The kind of an operation that does both."""
    return max(first, second, key=JOINED.index)


def _by_accesses(stmt: st.Stmt) -> Leaf | None:
    """A statement that writes, by where it reads and writes; None for one that does not."""
    if not any(access.writes for access in declared(stmt)):
        return None
    uses = list(accesses(stmt))
    if any(access.buffer.scope == "shared.barrier" for access in uses):
        return Leaf(Kind.SIGNAL)
    engine = type(stmt).effects.starts
    writes = {access.buffer.scope for access in uses if access.writes}
    fetched = [access for access in uses if access.reads and access.buffer.scope == "global"]
    far = [access for access in uses if access.buffer.scope == "global"]
    near = [access for access in uses if _tile(access.buffer, access.indices)]
    values = [child for child in stmt.children() if isinstance(child, Expr)]
    issues = 1 + max(map(_operations, values), default=0) * max(map(_count, uses))
    kind, how = Kind.COMPUTE, ""
    if "global" in writes:
        kind = Kind.STORE
    elif fetched:
        kind = Kind.COPY
        how = THROUGH_REGISTERS if "shared" in writes else TO_REGISTERS
    return Leaf(
        kind,
        engine or how,
        writes=tuple(t for a in near if a.writes for t in _tile(a.buffer, a.indices)),
        reads=tuple(t for a in near if a.reads for t in _tile(a.buffer, a.indices)),
        bytes_=sum(map(_bytes, far if kind is Kind.STORE else fetched)),
        shared_bytes=0 if engine else sum(map(_bytes, near)),
        issues=issues,
        engine=engine,
    )


def _count(access: Access) -> int:
    """How many elements one thread accesses."""
    lanes = (index.lanes for index in access.indices if isinstance(index, Ramp))
    return max(access.count, *lanes, 1)


def _bytes(access: Access) -> int:
    return _count(access) * access.buffer.dtype.bits * access.buffer.dtype.lanes // 8


def _tile(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Tile, ...]:
    return (Tile(buffer, indices[0]),) if buffer.scope == "shared" and indices else ()


def _operations(value: Expr) -> int:
    """Arithmetic in a value, without that of its addresses."""
    if isinstance(value, Load):
        return 0
    own = isinstance(value, Binary | Unary | Call)
    below = (child for child in value.children() if isinstance(child, Expr))
    return int(own) + sum(map(_operations, below))
