"""What threads of a block do together or on their own: barriers, exchanges within a warp, memory
barriers (mbarriers), operations that are started and waited for, and matrix instructions.

Barriers, `Exchange`, `Role`, `Peer`, the mbarrier statements, `Start` and the groups are what
kernels may write themselves, so they are legal from stage TILE on. The others come from lowering:
they are legal from stage PLANNED on, where threads still run in lock step and an `AsyncCopy` is
done at once, and have their hardware meaning in stage SIMT. Semantics: PTX ISA, "Parallel
Synchronization and Communication Instructions" and "Warp Level Matrix Instructions".
"""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import ClassVar

from tileworkbench.compiler.ir.effects import NOTHING, Effects, Order, Place
from tileworkbench.compiler.ir.expr import Address, Buffer, Expr, Var
from tileworkbench.compiler.ir.node import node
from tileworkbench.compiler.ir.stmt import Stmt
from tileworkbench.compiler.ir.types import INT32, UINT64, DType

LANGUAGE_WARP = 32
"""The threads of a warp in the T language: its exchanges and named barriers are over 32 lanes. The
warp of a GPU is that of its `Machine`.
"""
LANGUAGE_WARPGROUP = 4 * LANGUAGE_WARP
"""The threads of a warpgroup in the T language, for `T.ws`."""
MATRIX_ROWS, MATRIX_ROW_BITS = 8, 128  # of the matrices that LoadMatrix and StoreMatrix move
TURNING_LANES = 16  # that LoadTurned takes together

# What `Exchange` can do, with the number of operands. Threads of a warp whose number differs in
# the lowest log2(width) bits only form a segment.
EXCHANGES: dict[str, int] = {
    # value, lane | mask | distance: the value of another lane of the segment (one's own outside)
    **dict.fromkeys(("shfl", "shfl_xor", "shfl_up", "shfl_down"), 2),
    # condition: over the warp, int32 0 or 1; `ballot` gives one bit for each lane, uint64
    **dict.fromkeys(("any_sync", "all_sync", "ballot"), 1),
    # no operand: the lanes that run together, uint64
    "activemask": 0,
    # value: the lanes with an equal value, uint64 (for `match_all` 0 unless all are equal)
    **dict.fromkeys(("match_any", "match_all"), 1),
    # value: combined over the warp, the same in all lanes
    **dict.fromkeys(
        ("warp_sum", "warp_max", "warp_min", "warp_and", "warp_or", "warp_xor"),
        1,
    ),
    # condition: a barrier of the block that also counts or combines, int32
    **dict.fromkeys(("block_count", "block_all", "block_any"), 1),
}
_VALUE_KINDS = ("shfl", "shfl_xor", "shfl_up", "shfl_down")


def exchange_dtype(kind: str, args: tuple[Expr, ...]) -> DType:
    """The dtype of the result of an `Exchange`."""
    if kind in _VALUE_KINDS or kind.startswith("warp_"):
        return args[0].dtype
    return INT32 if kind.startswith("block_") or kind in ("any_sync", "all_sync") else UINT64


class Engine(StrEnum):
    """What does an operation that was started, while the threads that started it go on.

    Memory barriers complete the work of TMA, CLUSTER and TENSOR, which counts at one; groups that
    of the others. A group is what a thread started until it commits; groups complete in order.
    """

    CP_ASYNC = "cp.async"  # each thread copies from global to shared memory
    TMA = "tma"  # the copy engine fills shared memory
    TMA_STORE = "tma_store"  # the copy engine empties shared memory
    CLUSTER = "cluster"  # the copy engine fills shared memory of another block
    WGMMA = "wgmma"  # products of warp groups
    TENSOR = "tcgen05"  # products into tensor memory
    VMCNT = "vmcnt"  # AMD: each copy is a group


@node
class Start(Stmt):
    """`body` (copies, a product) begins here. What it reads and writes, it reads and writes at any
    moment until somebody has waited for it: those who started it for their group, or at `barrier`,
    whose current phase also waits for its bytes.
    """

    body: Stmt
    engine: Engine
    barrier: Address | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(updates=(Place("barrier"),))


@node
class Barrier(Stmt):
    """`count` threads (all of the block for 0) meet at barrier `id`; those with `wait` false arrive
    and go on. Memory accesses before it happen before those after it.
    """

    id: int = 0
    count: int = 0
    wait: bool = True
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.BLOCK, when="wait")


@node
class WarpBarrier(Stmt):
    """The lanes of a warp named by the bits of `mask` meet."""

    mask: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.WARP)


@node
class GridBarrier(Stmt):
    """All threads of all blocks meet (a cooperative launch)."""

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.GRID)


@node
class ClusterBarrier(Stmt):
    """All threads of the blocks of a cluster meet."""

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.CLUSTER)


@node
class ClusterArrive(Stmt):
    """The first half of a `ClusterBarrier`: this thread has come there, and goes on. Those that
    wait for it know what it did before, unless it is `relaxed`.
    """

    relaxed: bool = False
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.ARRIVE)


@node
class ClusterWait(Stmt):
    """The second half: wait until all threads of the blocks of the cluster have arrived as often as
    this one.
    """

    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.CLUSTER_PHASE)


CLUSTER_WIDE = (ClusterBarrier, ClusterArrive, ClusterWait)
"""Where the blocks of a cluster meet."""


@node
class Peer(Stmt):
    """Make `buffer` name what the block of rank `rank` in the cluster has under the name `source`,
    shared memory or memory barriers, for the rest of the enclosing sequence.

    The rank is evaluated once, here, and is the same for all threads. That block has made `source`,
    and a barrier orders that before this; it does not end before the last access.
    """

    buffer: Buffer
    source: Buffer
    rank: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        writes=(Place("buffer"), Place("source"))
    )  # by threads of both blocks


@node
class Exchange(Stmt):
    """`var = kind(args)`: a value that depends on other threads, see EXCHANGES. It names the result
    for the rest of the enclosing sequence.

    All lanes of `mask` (of the warp when None) must execute it together.
    """

    var: Var
    kind: str
    args: tuple[Expr, ...]
    width: int = 32
    mask: Expr | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.BLOCK, when="is_barrier")

    @property
    def is_barrier(self) -> bool:
        """Whether all threads of the block meet at it."""
        return self.kind.startswith("block_")


@node
class Role(Stmt):
    """Only the threads `start .. start + extent - 1` of the block execute `body`; its tile
    operators are theirs alone. Threads that do not take part go on.
    """

    start: int
    extent: int
    body: Stmt
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class BarrierInit(Stmt):
    """The mbarrier expects `count` arrivals in each phase; phase 0 is open."""

    barrier: Address
    count: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(writes=(Place("barrier"),))


@node
class BarrierArrive(Stmt):
    """One arrival at the mbarrier; the phase completes when no arrivals and no bytes are left. With
    an `engine` it comes once all that this thread has started there is done.
    """

    barrier: Address
    engine: Engine | None = None
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(updates=(Place("barrier"),), orders=Order.ARRIVE)


@node
class BarrierExpect(Stmt):
    """The current phase of the mbarrier also waits for `bytes_` bytes of asynchronous copies; when
    negative, so many have arrived.
    """

    barrier: Address
    bytes_: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(updates=(Place("barrier"),))


@node
class BarrierSignal(Stmt):
    """What a copy says at the mbarrier, once for all threads that execute it: `arrivals` arrivals,
    and `bytes_` bytes that the current phase also waits for, or below zero those that have come.
    """

    barrier: Address
    arrivals: int
    bytes_: int
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(updates=(Place("barrier"),), orders=Order.ARRIVE)


@node
class BarrierWait(Stmt):
    """Wait until the phase of that parity has completed (parity 1 has, on a fresh mbarrier)."""

    barrier: Address
    parity: Expr
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(updates=(Place("barrier"),), orders=Order.PHASE)


@node
class AsyncCopy(Stmt):
    """cp.async: `elements` contiguous elements (4, 8 or 16 bytes) from global `src` to shared
    `dst`, zeros where `predicate` is false. The data are there for the issuing thread after a wait
    on its group, for others after a barrier behind that.

    With `in_line` one instruction of a warp: what its threads copy lies in shared memory one behind
    the other, and waits count instructions.
    """

    dst: Address
    src: Address
    elements: int
    predicate: Expr | None = None
    in_line: bool = False
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("src", count="elements"),),
        (Place("dst", count="elements"),),
        starts="cp.async",
    )


@node
class TensorMap(Stmt):
    """Make `buffer`, of scope "tensor_map", the name of what the copy engine is told of the tensor
    `source`: its shape and strides are those of `buffer`. A copy moves `box` elements, a number
    for each dimension, which lie in shared memory one behind the other, the last dimension
    innermost, and then with the swizzle of `swizzle` bytes (0: none).
    """

    buffer: Buffer
    source: Buffer
    box: tuple[int, ...]
    swizzle: int = 0
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class TensorLoad(Stmt):
    """cp.async.bulk.tensor: the box at `src`, an element of a tensor map, goes to shared memory
    from `dst` on; what is outside the tensor is zero. One thread does it, in a `Start`.

    With `blocks`, a bit for each rank in the cluster, it goes to the same place in all these
    blocks, and each of them is told of its bytes at its own memory barrier of that name.
    """

    dst: Address
    src: Address
    blocks: int = 0
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst"),), starts="tma")


@node
class TensorStore(Stmt):
    """The inverse of `TensorLoad`: what is outside the tensor is dropped. With `reduce` ("add")
    each element of the tensor is updated, in one step that nobody can interrupt.
    """

    dst: Address
    src: Address
    reduce: str = ""
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst"),), starts="tma_store")


@node
class CommitGroup(Stmt):
    """What this thread has started on `engine` since the last commit is one group, even nothing."""

    engine: Engine = Engine.CP_ASYNC
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.COMMIT)


@node
class WaitGroup(Stmt):
    """Wait until at most `pending` of this thread's latest groups are unfinished; with `sources`,
    until the others have at least read all that they read.
    """

    pending: int
    engine: Engine = Engine.CP_ASYNC
    sources: bool = False
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.GROUP)


@node
class LoadMatrix(Stmt):
    """ldmatrix: `count` (1, 2, 4) matrices of 8 rows of 16 bytes from shared memory.

    Lane 8i + r gives in `src` the address of row r of matrix i. Lane t gets in 32-bit register i of
    `dst` the 32 bits at columns 4(t % 4) .. of row t // 4 of matrix i; when `transpose`, the 16-bit
    elements of rows 2(t % 4), 2(t % 4) + 1 of column t // 4.
    """

    dst: Address
    src: Address
    count: int
    transpose: bool
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src", rows=True),), (Place("dst"),))


@node
class LoadTurned(Stmt):
    """ds_read_b64_tr_b16 and _b8: every 16 lanes of a warp read 4 rows of 16 elements of 16 bits,
    or 8 rows of bytes, from shared memory, and turn them.

    16 / elements neighbouring lanes name a row: each gives in `src` the address of so many
    `elements` of it. Lane c gets column c, in as many neighbouring registers from `dst` on.
    """

    dst: Address
    src: Address
    elements: int = 4
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("src", count="elements"),), (Place("dst", count="elements"),)
    )


@node
class StoreMatrix(Stmt):
    """stmatrix: the inverse of `LoadMatrix`; the lanes' addresses are in `dst`."""

    dst: Address
    src: Address
    count: int
    transpose: bool
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("src"),), (Place("dst", rows=True),))


@node
class Mma(Stmt):
    """mma.sync.m`m`n`n`k`k`: `c += a @ b` by a warp, on consecutive registers of each lane in the
    instruction's order. The dtypes are the buffers'; "tfloat32" operands are float32 bits.
    """

    a: Address
    b: Address
    c: Address
    m: int
    n: int
    k: int
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects((Place("a"), Place("b"), Place("c")), (Place("c"),))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def dtypes(self) -> tuple[str, str, str]:
        return _dtypes(self)


@node
class Wgmma(Stmt):
    """wgmma.mma_async.m64n`n`k`k`: `c += a @ b`, or `c = a @ b` where `clear` holds, by a
    warpgroup: four warps, the first of which has a number that is a multiple of four.

    `c`, and `a` without `a_form`, are consecutive registers of each lane in the instruction's
    order. Other operands lie in shared memory from their address on, in the form (leading, stride,
    swizzle, transposed) of a `layout.descriptors.Descriptor`. It is part of a `Start`.
    """

    a: Address
    b: Address
    c: Address
    clear: Expr
    n: int
    k: int
    a_form: tuple[int, ...]
    b_form: tuple[int, ...]
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(
        (Place("a"), Place("b"), Place("c")), (Place("c"),), starts="wgmma"
    )
    m: ClassVar[int] = 64

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.m, self.n, self.k

    @property
    def dtypes(self) -> tuple[str, str, str]:
        return _dtypes(self)


def _dtypes(product: Mma | Wgmma) -> tuple[str, str, str]:
    """Those of A, B and C."""
    a, b, c = (str(each.buffer.dtype) for each in (product.a, product.b, product.c))
    return a, b, c


@node
class Fence(Stmt):
    """Order this thread's accesses: those of memory for "block", "grid", or "async" (before the
    copy engine and wgmma read what threads wrote to shared memory), for "wgmma" those of registers
    before it reads and writes them.
    """

    kind: str
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.FENCE)


@node
class SetRegisters(Stmt):
    """setmaxnreg: from here on the threads of a warpgroup, which reach this together, have `count`
    registers each: fewer than before, or with `increase` more, once others have given them back.
    """

    count: int
    increase: bool
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = NOTHING


@node
class GridDependency(Stmt):
    """griddepcontrol, between launches that follow one another: with `wait` until the launch before
    this one has ended and its memory can be seen, else the launch behind this one may begin once
    all blocks have come here or ended. Where launches do not overlap it does nothing.
    """

    wait: bool
    site: int = field(default=0, compare=False)
    effects: ClassVar[Effects] = Effects(orders=Order.FENCE)


THREAD_LEVEL = (
    Barrier,
    WarpBarrier,
    GridBarrier,
    *CLUSTER_WIDE,
    Peer,
    Exchange,
    Role,
    BarrierInit,
    BarrierArrive,
    BarrierExpect,
    BarrierSignal,
    BarrierWait,
    Fence,
    GridDependency,
)
ASYNCHRONOUS = (Start, CommitGroup, WaitGroup)
LOWERED = (
    AsyncCopy,
    TensorMap,
    TensorLoad,
    TensorStore,
    LoadMatrix,
    LoadTurned,
    StoreMatrix,
    Mma,
    Wgmma,
    SetRegisters,
)


# How the plain statements (without a body or a result) are called in the text of the IR.
NAMES: dict[str, type[Stmt]] = {
    "sync_threads": Barrier,
    "sync_warp": WarpBarrier,
    "sync_grid": GridBarrier,
    "cluster_sync": ClusterBarrier,
    "cluster_arrive": ClusterArrive,
    "cluster_wait": ClusterWait,
    "barrier_init": BarrierInit,
    "barrier_arrive": BarrierArrive,
    "barrier_expect": BarrierExpect,
    "barrier_signal": BarrierSignal,
    "barrier_wait": BarrierWait,
    "async_copy": AsyncCopy,
    "tensor_load": TensorLoad,
    "tensor_store": TensorStore,
    "commit_group": CommitGroup,
    "wait_group": WaitGroup,
    "load_matrix": LoadMatrix,
    "load_turned": LoadTurned,
    "store_matrix": StoreMatrix,
    "mma": Mma,
    "wgmma": Wgmma,
    "set_registers": SetRegisters,
    "fence": Fence,
    "grid_dependency": GridDependency,
}
