"""Copies that finish later: ``cp.async`` with its groups, and barriers in shared memory.

In the mode "lazy" a copy lands when somebody executes the wait that requires it, which is as late
as is legal; its source is read then too. In the mode "eager" it lands at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tileworkbench.compiler.diagnostics import RaceError, RunError
from tileworkbench.compiler.sim.ptx.access import locate_bytes, note_access, owned
from tileworkbench.compiler.sim.ptx.clusters import is_peer
from tileworkbench.compiler.sim.ptx.errors import locate
from tileworkbench.compiler.sim.ptx.geometry import WARP
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.state import State


@dataclass(slots=True)
class Copy:
    """One executed ``cp.async``: for each lane where from (a place in the bytes of global memory),
    where to and in which group.

    `present` bytes come from the source, the rest of `size` is filled with zeros.
    """

    pc: int
    lanes: Array
    targets: Array
    sources: Array
    present: Array
    groups: Array
    size: int


@dataclass(slots=True)
class MemoryBarrier:
    """An mbarrier object: `phase` counts the completed phases. `fenced`: engines know of it."""

    expected: int
    pending: int
    transaction_bytes: int = 0
    phase: int = 0
    known: Array | None = None  # what those who arrived in this phase knew
    completed: Array | None = None  # what those who arrived in the last one knew
    fenced: bool = False

    def learn(self, known: Array) -> None:
        """Somebody who knew this has arrived in this phase."""
        self.known = known if self.known is None else np.maximum(self.known, known)


@dataclass(slots=True)
class Store:
    """A bulk copy out of shared memory that `run` carries out."""

    lane: int
    group: int
    run: Callable[[], None]


@dataclass(slots=True)
class Product:
    """An asynchronous matrix product of some warps; `run` computes it for those it is given."""

    warps: Array
    groups: Array
    run: Callable[[Array], None]


@dataclass(slots=True)
class Asynchronous:
    """All asynchronous work of a batch."""

    state: State
    lazy: bool
    copies: list[Copy] = field(default_factory=list)
    barriers: dict[tuple[int, int], MemoryBarrier] = field(default_factory=dict)
    queues: dict[tuple[int, int], list[Callable[[], None]]] = field(default_factory=dict)
    stores: list[Store] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    fenced: dict[int, list[Array]] = field(default_factory=dict)  # by warp: registers at its fence
    committed: Array = field(init=False)
    committed_stores: Array = field(init=False)
    committed_products: Array = field(init=False)  # by warp
    version: int = 0  # counts the changes that may end somebody's wait

    def __post_init__(self) -> None:
        self.committed = np.zeros(self.state.lanes, dtype=np.int64)
        self.committed_stores = np.zeros(self.state.lanes, dtype=np.int64)
        self.committed_products = np.zeros(self.state.lanes // WARP, dtype=np.int64)

    # -- cp.async and its groups

    def issue(self, targets: Array, sources: Array, present: Array, size: int) -> None:
        """Start copies for the active lanes; every argument has one item for each of them."""
        state, lanes = self.state, self.state.index
        locate_bytes(state, "shared", lanes, targets, size, "copies into")
        note_access(state, "shared", lanes, targets, size)
        places = np.zeros(len(lanes), dtype=np.int64)
        for count in np.unique(present):
            mine = present == count
            if count:
                # The source must be aligned as if it were copied whole.
                from_, bytes_ = sources[mine], int(count)
                located = locate_bytes(state, "global", lanes[mine], from_, bytes_, "copies", size)
                places[mine] = located
        real = present > 0
        note_access(state, "global", lanes[real], sources[real], size)
        copy = Copy(state.pc, lanes, targets, places, present, self.committed[lanes], size)
        if not self.lazy:
            self._land(copy, np.ones(len(lanes), dtype=bool), False)
            return
        if state.shadow is not None:
            state.shadow.start_copy(lanes, targets, size)
        self.copies.append(copy)

    def commit(self) -> None:
        self.committed[self.state.mask] += 1

    def wait_group(self, allowed: int) -> None:
        """Finish all but the latest `allowed` groups of each active lane."""
        limit = np.where(self.state.mask, self.committed - allowed, -1)
        self._finish(lambda copy: copy.groups < limit[copy.lanes], False)

    def wait_all(self) -> None:
        """Finish all copies of the active lanes, in a group or not."""
        mask = self.state.mask
        self._finish(lambda copy: mask[copy.lanes], False)

    def _finish(self, chosen: Callable[[Copy], Array], tracked: bool) -> None:
        remaining = []
        for copy in self.copies:
            now = chosen(copy)
            if now.all():
                self._land(copy, now, tracked)
                continue
            remaining.append(copy)
            if now.any():
                self._land(copy, now, tracked)
                for name in ("lanes", "targets", "sources", "present", "groups"):
                    setattr(copy, name, getattr(copy, name)[~now])
        self.copies = remaining

    def _land(self, copy: Copy, chosen: Array, tracked: bool) -> None:
        """Move the bytes. `tracked` says that a memory barrier tells who may look at them."""
        state = self.state
        lanes, targets = copy.lanes[chosen], copy.targets[chosen]
        sources, present = copy.sources[chosen], copy.present[chosen]
        rows = np.zeros((len(lanes), copy.size), dtype=np.uint8)
        view = state.memory.view("global", 8)
        for count in np.unique(present):
            if count:
                mine = present == count
                rows[mine, :count] = view[sources[mine][:, None] + np.arange(count)]
        base = state.geometry.block_index[lanes] * state.memory.shared_stride
        first = (base + targets) // 4
        words = state.memory.view("shared", 32)
        words[first[:, None] + np.arange(copy.size // 4)] = rows.view(np.uint32)
        if state.shadow is not None:
            finish = state.shadow.finish_bulk_copy if tracked else state.shadow.finish_copy
            finish(lanes, targets, copy.size, copy.pc)

    # -- bulk copies to global memory and their groups

    def start_store(self, lane: int, run: Callable[[], None]) -> None:
        """Start a copy that belongs to the lane's next bulk group."""
        if self.lazy:
            self.stores.append(Store(lane, int(self.committed_stores[lane]), run))
        else:
            run()

    def commit_stores(self) -> None:
        self.committed_stores[self.state.mask] += 1

    def wait_stores(self, allowed: int) -> None:
        """Finish all but the latest `allowed` bulk groups of each active lane."""
        mask, committed = self.state.mask, self.committed_stores
        due = [
            mask[store.lane] and store.group < committed[store.lane] - allowed
            for store in self.stores
        ]
        for store, now in zip(self.stores, due, strict=True):
            if now:
                store.run()
        self.stores = [store for store, now in zip(self.stores, due, strict=True) if not now]

    def finish_stores(self) -> None:
        """The end of the blocks: what is still on its way arrives."""
        for store in self.stores:
            store.run()
        self.stores = []

    # -- products of warpgroups

    def start_product(self, warps: Array, run: Callable[[Array], None]) -> None:
        """Start a product that belongs to the warps' next group."""
        if self.lazy:
            self.products.append(Product(warps, self.committed_products[warps], run))
        else:
            run(warps)

    def fence_registers(self) -> None:
        """Products may now use the registers of the active warps as they are (PTX ISA,
        "wgmma.fence").
        """
        for warp in map(int, np.flatnonzero(self._active_warps())):
            self.fenced[warp] = list(self.state.registers)

    def is_fenced(self, warps: Array, slots: Sequence[int]) -> bool:
        """Whether these registers of warps are as they were at the fence, or products left them."""
        registers = self.state.by_warp
        for warp in map(int, warps):
            known = self.fenced.get(warp)
            if known is None:
                return False
            for slot in slots:
                now = self.state.registers[slot]
                if now is known[slot]:
                    continue
                if not np.array_equal(registers(now)[warp], registers(known[slot])[warp]):
                    return False
        return True

    def formed(self, warps: Array, slots: Sequence[int]) -> None:
        """Products of warps have written these registers, which orders them for later products."""
        for warp in map(int, warps):
            known = self.fenced[warp]
            for slot in slots:
                known[slot] = self.state.registers[slot]

    def _active_warps(self) -> Array:
        return np.asarray(self.state.by_warp(self.state.mask).any(axis=1))

    def commit_products(self) -> None:
        self.committed_products[self._active_warps()] += 1

    def wait_products(self, allowed: int) -> None:
        """Finish all but the latest `allowed` groups of products of each active warp, in order."""
        limit = np.where(self._active_warps(), self.committed_products - allowed, -1)
        remaining = []
        for product in self.products:
            now = product.groups < limit[product.warps]
            if now.any():
                product.run(product.warps[now])
                product.warps, product.groups = product.warps[~now], product.groups[~now]
            if len(product.warps):
                remaining.append(product)
        self.products = remaining

    # -- barriers in memory

    def each(self, addresses: Array, verb: str) -> Iterator[tuple[int, int, Array]]:
        """Block, address and lanes for every barrier that the active lanes name. `addresses` is a
        vector over all lanes."""
        state = self.state
        lanes = state.index
        mine = addresses[lanes]
        space = "cluster" if is_peer(mine).any() else "shared"
        locate_bytes(state, space, lanes, mine, 8, verb)
        mine, owners = owned(state, space, lanes, mine)
        if state.shadow is not None and verb != "initialises":
            state.shadow.read(lanes, mine, 8, atomic=True, owners=owners)
        blocks = state.geometry.block_index[lanes] if owners is None else owners
        keys = (blocks.astype(np.int64) << 32) | mine
        for key in np.unique(keys):
            yield int(key >> 32), int(key & 0xFFFFFFFF), lanes[keys == key]

    def initialise(self, block: int, address: int, lanes: Array, count: int) -> None:
        """``mbarrier.init``: a new object, in its first phase."""
        state = self.state
        self.barriers[block, address] = MemoryBarrier(count, count)
        place = np.array([address])
        if state.shadow is not None:
            state.shadow.write(lanes[:1], place, 8)
        start = block * state.memory.shared_stride + address
        state.memory.shared[start : start + 8] = 0

    def barrier(self, block: int, address: int) -> MemoryBarrier:
        known = self.barriers.get((block, address))
        if known is None:
            raise RunError(
                f"there is no initialised barrier at byte {address} of shared memory: "
                f"{locate(self.state.instruction)}"
            )
        return known

    def fence_barriers(self) -> None:
        """A fence behind ``mbarrier.init``: engines may use the barriers of these blocks."""
        blocks = set(map(int, self.state.geometry.block_index[self.state.index]))
        for (block, _), barrier in self.barriers.items():
            barrier.fenced = barrier.fenced or block in blocks

    def require_known(self, block: int, address: int) -> None:
        """Raise `RaceError` for a barrier whose initialisation an engine may not see."""
        if not self.barrier(block, address).fenced and self.state.shadow is not None:
            raise RaceError(
                f"a copy tells the barrier at byte {address} of shared memory, with no fence "
                f"behind its initialisation: {locate(self.state.instruction)}",
                hint="execute 'fence.proxy.async' or 'fence.mbarrier_init' behind it",
            )

    def describe(self, block: int, address: int) -> str:
        """What a barrier's phase still lacks, in words."""
        barrier = self.barrier(block, address)
        bytes_ = barrier.transaction_bytes
        return (
            f"for phase {barrier.phase} of the barrier at byte {address}, which lacks "
            f"{barrier.pending} of {barrier.expected} arrivals and {bytes_} bytes"
        )

    def arrive(
        self, block: int, address: int, lanes: Array, count: int, wide: bool = True
    ) -> None:
        """Let `count` arrivals of these lanes (none for asynchronous work) happen. Those at a
        barrier of another block tell what they did if they are `wide`: of the scope of the cluster.
        """
        barrier = self.barrier(block, address)
        barrier.pending -= count
        if barrier.pending < 0:
            raise RunError(
                f"the barrier at byte {address} of shared memory has {-barrier.pending} more "
                f"arrivals in a phase than the {barrier.expected} it expects: "
                f"{locate(self.state.instruction)}"
            )
        shadow = self.state.shadow
        if shadow is not None:
            own = self.state.geometry.block_index[lanes] == block
            heard = lanes if wide else lanes[own]
            if not len(lanes):
                barrier.learn(shadow.release_copies(block))
            elif len(heard):
                barrier.learn(shadow.release(heard))
        self.settle(barrier)

    def complete(self, block: int, address: int, bytes_: int) -> None:
        """A bulk copy has brought bytes that a barrier counts."""
        barrier = self.barrier(block, address)
        barrier.transaction_bytes -= bytes_
        shadow = self.state.shadow
        if shadow is not None:
            known = shadow.release_copies(block)
            barrier.learn(known)
        self.settle(barrier)

    def settle(self, barrier: MemoryBarrier) -> None:
        """Complete the phase when everybody and everything expected has arrived."""
        if barrier.pending == 0 and barrier.transaction_bytes == 0:
            barrier.phase += 1
            barrier.pending = barrier.expected
            barrier.completed, barrier.known = barrier.known, None
            self.version += 1

    def queue(self, block: int, address: int, work: Callable[[], None]) -> None:
        """Do `work`, which ends by arriving, at once or when somebody waits for the barrier."""
        if self.lazy:
            self.queues.setdefault((block, address), []).append(work)
            self.version += 1
        else:
            work()

    def drain(self, block: int, address: int) -> None:
        """Do what is queued for a barrier, for somebody waits for it."""
        for work in self.queues.pop((block, address), ()):
            work()

    def land(self, issued: list[Copy], lanes: Array) -> None:
        """Finish those of the `issued` copies that belong to these lanes and are still under way;
        a barrier in memory tells who may look at them."""
        mine = np.zeros(self.state.lanes, dtype=bool)
        mine[lanes] = True
        early = {id(copy) for copy in issued}

        def chosen(copy: Copy) -> Array:
            return mine[copy.lanes] & (id(copy) in early)

        self._finish(chosen, True)

    def is_complete(
        self, block: int, address: int, lanes: Array, *, parity: int | None, token: int, wide: bool
    ) -> bool:
        """Whether the phase that a wait names is over; if so the lanes learn what was released: by
        other blocks only if the wait is `wide`, of the scope of the cluster.
        """
        barrier = self.barrier(block, address)
        done = (barrier.phase & 1) != parity if parity is not None else barrier.phase > token
        if not done:
            self.drain(block, address)
            done = (barrier.phase & 1) != parity if parity is not None else barrier.phase > token
        shadow = self.state.shadow
        if done and shadow is not None and barrier.completed is not None:
            shadow.acquire(lanes, barrier.completed, wide)
        return done
