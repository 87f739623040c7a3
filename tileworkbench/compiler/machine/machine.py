"""One architecture: what a block of threads finds on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.machine.instructions import (
    Completion,
    CopyEngine,
    MatrixInstruction,
    MatrixMove,
    Scope,
    TurnedLoad,
)

TENSOR_MEMORY = frozenset({"T.tcgen05_gemm", "T.tcgen05_gemm_blockscaled", "T.alloc_tmem"})
"""What kernels name that needs tensor memory."""


VECTOR_BITS = 128
"""The most that a thread accesses at once, on every machine."""

SECTOR_BYTES, LINE_BYTES = 32, 128
"""The parts in which global memory is read and written, and those that an access of a warp moves
as a whole: NVIDIA's documents; for AMD's machines they are counted the same.
"""


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """The memory of a multiprocessor that the threads of a block share.

    Bytes of all of it, and those that each block takes beside its own; a block's are a multiple of
    `granule`. Words of `bank_bytes` lie in `banks` banks in turn. `read_order` has the lanes in the
    order in which reads of so many bytes are served, where that is not their own.
    """

    bytes_: int
    reserved: int = 1024
    granule: int = 128
    banks: int = 32
    bank_bytes: int = 4
    read_order: Mapping[int, tuple[int, ...]] = field(default_factory=dict, hash=False)

    @property
    def most(self) -> int:
        """The bytes that one block can have."""
        return self.bytes_ - self.reserved

    @property
    def row_bytes(self) -> int:
        """Bytes of one row: a word of each bank."""
        return self.banks * self.bank_bytes

    def taken(self, bytes_: int) -> int:
        """The bytes that a block takes if it asks for `bytes_`, with the reserved ones."""
        return -(-bytes_ // self.granule) * self.granule + self.reserved

    def served(self, lanes: int, width: int) -> int:
        """How many of `lanes` threads are served at once when each accesses `width` bytes."""
        return max(1, min(lanes, self.row_bytes // max(width, self.bank_bytes)))

    def phases(self, lanes: int, width: int, reads: bool) -> tuple[tuple[int, ...], ...]:
        """The lanes of a warp that are served at once when each accesses `width` bytes."""
        order = self.read_order.get(width) if reads else None
        order = order or tuple(range(lanes))
        count = self.served(lanes, width)
        return tuple(order[at : at + count] for at in range(0, lanes, count))


@dataclass(frozen=True, slots=True)
class RegisterShares:
    """How warpgroups of a block divide its registers anew while it runs: a thread has from `least`
    to `most`, a multiple of `unit`.
    """

    unit: int
    least: int
    most: int

    def takes(self, count: int) -> bool:
        """Whether a thread can ask for `count`."""
        return count % self.unit == 0 and self.least <= count <= self.most

    def begin(self, registers: int, threads: int) -> int:
        """How many each of `threads` threads has at first, of so many in all."""
        return min(registers // max(threads, 1), self.most) // self.unit * self.unit


@dataclass(frozen=True, slots=True)
class Machine:
    """One architecture.

    Attributes:
        lanes: the threads of a warp.
        warps, blocks: the most that a multiprocessor holds at once; 0 where that is not known here.
        registers: of 32 bits, of a multiprocessor; a warp takes units of `register_granule`, and a
            thread at most `thread_registers`.
        register_shares: how a block divides them anew, None where it cannot.
        block_threads: the most threads of a block.
        block_barriers: the barriers of a block: number 0 is for all its threads, the others for
            groups of them.
        matrices: the matrix instructions, the best first for each dtype.
        atomics: how many neighbours one instruction adds to memory, each atomically, by scope and
            dtype.
        pairs: the 16-bit floats to which one instruction rounds two float32.
        adds_pairs: one instruction adds two float32 to two others.
        memory_barriers: threads can wait for a barrier in shared memory.
        dot_product: a thread multiplies and adds four signed bytes at once.
        cluster_blocks: how many blocks can share their memory, 0 for none.
        dies: take the blocks of a launch in turn, each with a cache of its own.
        early_launch: a launch can begin before the one in front of it has ended.
        turned: how lanes turn elements while they read them from shared memory, None where they
            cannot.
        without: what kernels cannot use, as messages call it, with the way around it.
    """

    name: str
    lanes: int
    shared: SharedMemory
    warps: int = 0
    blocks: int = 0
    registers: int = 65536
    register_granule: int = 256
    thread_registers: int = 255
    register_shares: RegisterShares | None = None
    block_threads: int = 1024
    block_barriers: int = 16
    matrices: tuple[MatrixInstruction, ...] = ()
    moves: tuple[MatrixMove, ...] = ()
    copies: tuple[CopyEngine, ...] = ()
    atomics: Mapping[tuple[str, str], int] = field(default_factory=dict, hash=False)
    pairs: tuple[str, ...] = ()
    adds_pairs: bool = False
    memory_barriers: bool = False
    dot_product: bool = False
    cluster_blocks: int = 0
    dies: int = 1
    early_launch: bool = False
    turned: TurnedLoad | None = None
    without: Mapping[str, str] = field(default_factory=dict, hash=False)

    def warp_registers(self, count: int) -> int:
        """The registers that a warp of threads with `count` each takes."""
        return -(-count * self.lanes // self.register_granule) * self.register_granule

    def matrix(
        self, shape: tuple[int, int, int], dtypes: tuple[str, str, str], scope: Scope = Scope.WARP
    ) -> MatrixInstruction | None:
        """The instruction for M, N and K, and the dtypes of A, B and C."""
        wanted = shape, dtypes, scope
        rows = ((((row.m, row.n, row.k), row.dtypes, row.scope), row) for row in self.matrices)
        return next((row for facts, row in rows if facts == wanted), None)

    def move(self, loads: bool) -> MatrixMove | None:
        """The instruction that moves matrices to registers, or from them."""
        return next((each for each in self.moves if each.loads is loads), None)

    def turns(self, bits: int) -> bool:
        """Whether lanes can turn elements of `bits` bits."""
        return self.turned is not None and bits in self.turned.bits

    @property
    def started_products(self) -> tuple[MatrixInstruction, ...]:
        """The matrix instructions that go on without the threads that started them."""
        return tuple(row for row in self.matrices if row.completes is not Completion.ITSELF)

    def box_copies(self, target: str) -> CopyEngine | None:
        """The engine that copies boxes of tensors to "shared" or to "global" memory."""
        return next((each for each in self.copies if each.boxes and each.target == target), None)

    @property
    def counts_bytes(self) -> bool:
        """Whether a phase of a memory barrier also waits for the bytes of copies."""
        return any(each.completes is Completion.PHASE for each in self.copies)

    @property
    def thread_copies(self) -> CopyEngine | None:
        """The engine for which each thread starts copies of its own, to shared memory."""
        return next((each for each in self.copies if each.sizes), None)

    def atomic_lanes(self, dtype: str, scope: str) -> int:
        """How many neighbouring elements one instruction adds to memory, each atomically."""
        return self.atomics.get((scope, dtype), 1)
