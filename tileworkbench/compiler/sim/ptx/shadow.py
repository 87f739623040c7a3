"""Who wrote and who read each byte of shared memory, and whether that was ordered.

Order is happens-before with vector clocks over the blocks of a cluster: one clock per warp, and one
per block for the asynchronous copies that a barrier in memory completes. Barriers join clocks.
Between threads of one warp only a synchronisation of that warp orders anything.

Threads and asynchronous work (tensor copies, warpgroup products) see shared memory through
different proxies: what threads wrote needs a proxy fence before the others may read it.

Bytes are tracked in granules: sixteen bytes at first, halved whenever an access is smaller.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import RaceError
from tileworkbench.compiler.sim.ptx.errors import UninitializedReadError, locate
from tileworkbench.compiler.sim.ptx.geometry import WARP, Geometry
from tileworkbench.compiler.sim.ptx.module import Instruction
from tileworkbench.compiler.sim.ptx.numeric import Array

NOBODY, SEVERAL, WHOLE_WARP, ASYNCHRONOUS = -1, -2, -3, -4


class Shadow:
    """Detectors of uninitialised reads, races and unawaited copies for a batch of blocks."""

    def __init__(self, geometry: Geometry, stride: int, code: tuple[Instruction, ...]) -> None:
        blocks, cluster = len(geometry.blocks), geometry.cluster_blocks
        warps = geometry.warps * cluster
        self.geometry, self.code = geometry, code
        self.warps = warps  # of a cluster, block after block
        self.stride = stride
        self.pc = 0  # the instruction being executed
        self.granule = 16
        count = blocks * self.stride // self.granule
        self.valid = np.zeros(count, dtype=bool)
        self.atomic = np.zeros(count, dtype=bool)
        self.unfenced = np.zeros(count, dtype=bool)  # written by threads, no proxy fence since
        self.writer = np.full(count, NOBODY, dtype=np.int32)
        self.writer_warp = np.zeros(count, dtype=np.int32)
        self.write_clock = np.zeros(count, dtype=np.int32)
        self.write_pc = np.zeros(count, dtype=np.int32)
        self.pending = np.full(count, -1, dtype=np.int32)  # the pc of a copy on its way
        self.reader = np.full((count, warps), NOBODY, dtype=np.int32)
        self.read_clock = np.zeros((count, warps), dtype=np.int32)
        self.read_pc = np.zeros((count, warps), dtype=np.int32)
        # The clock of agent w as agent v knows it; behind the warps come each block's copies.
        clusters, agents = blocks // cluster, warps + cluster
        self.clocks = np.zeros((clusters, agents, agents), dtype=np.int32)
        own = np.arange(agents)
        self.clocks[:, own, own] = 1
        # Accesses of a warp with an earlier clock are ordered between its threads.
        self.warp_sync = np.zeros((clusters, warps), dtype=np.int32)

        self._fenced: dict[tuple[int, int], Array] = {}

    # -- order

    def synchronise_block(self, block: int, warps: Array) -> None:
        """A barrier of these warps of a block: all before it is ordered before all after it."""
        cluster, agents = self._agents_of(block, warps)
        clocks = self.clocks[cluster]
        clocks[agents] = clocks[agents].max(axis=0)
        self._advance(cluster, agents)
        self.warp_sync[cluster, agents] = clocks[agents, agents]

    def synchronise_warps(self, blocks: Array, warps: Array) -> None:
        """A barrier of the threads of each of these warps."""
        clusters, agents = self._agents_of(blocks, warps)
        self.clocks[clusters, agents, agents] += 1
        self.warp_sync[clusters, agents] = self.clocks[clusters, agents, agents]

    def release(self, lanes: Array) -> Array:
        """The knowledge of the warps of these lanes, of one cluster, for somebody who acquires it
        later.
        """
        cluster, _, agents = self._agents(lanes)
        return self._release(int(cluster[0]), np.unique(agents))

    def acquire(self, lanes: Array, known: Array, wide: bool = True) -> None:
        """What was released is ordered before all that the warps of these lanes, of one cluster, do
        from here on. Unless it is `wide`, only what their own blocks did.
        """
        numbers, _, all_agents = self._agents(lanes)
        cluster, agents = int(numbers[0]), np.unique(all_agents)
        clocks, per_block = self.clocks[cluster], self.geometry.warps
        if not wide:
            ranks = np.arange(len(known)) // per_block
            ranks[self.warps :] = np.arange(len(known) - self.warps)
            for rank in np.unique(agents // per_block):
                mine = agents[agents // per_block == rank]
                clocks[mine] = np.maximum(clocks[mine], np.where(ranks == rank, known, -1))
        else:
            clocks[agents] = np.maximum(clocks[agents], known)
        sync = self.warp_sync[cluster]
        sync[agents] = np.maximum(sync[agents], known[agents] + 1)

    def knows(self, lanes: Array, owners: Array) -> Array:
        """Whether the warp of each lane has learnt anything from the block that owns the memory."""
        cluster, _, agents = self._agents(lanes)
        first = owners % self.geometry.cluster_blocks * self.geometry.warps
        theirs = first[:, None] + np.arange(self.geometry.warps)
        known = self.clocks[cluster[:, None], agents[:, None], theirs].max(axis=1)
        return np.asarray((known > 0) | (owners == self.geometry.block_index[lanes]))

    def fence(self, lanes: Array) -> None:
        """A fence of these lanes' memory: what a later relaxed operation on a barrier releases."""
        for number, agent in self._warps(lanes):
            self._fenced[number, agent] = self._release(number, np.array([agent]))

    def fenced(self, lanes: Array) -> Array:
        """What the fences of the warps of these lanes have ordered."""
        nothing = np.full_like(self.clocks[0, 0], -1)
        known = [self._fenced.get(agent, nothing) for agent in self._warps(lanes)]
        return np.asarray(np.max(known, axis=0))

    def _release(self, cluster: int, agents: Array) -> Array:
        known = np.asarray(self.clocks[cluster][agents].max(axis=0))
        self._advance(cluster, agents)
        return known

    def _advance(self, cluster: int, agents: Array) -> None:
        self.clocks[cluster, agents, agents] += 1

    def _agents_of(self, block: Any, warps: Array) -> tuple[Any, Array]:
        """The cluster of a block, and the numbers that its warps have there."""
        cluster, rank = divmod(block, self.geometry.cluster_blocks)
        return cluster, np.asarray(rank * self.geometry.warps + warps)

    # -- granules

    def _cover(
        self, lanes: Array, offsets: Array, size: int, owners: Array | None = None
    ) -> tuple[Array, Array]:
        """The granules of an access of `size` bytes at byte `offsets` of each lane's block, or of
        `owners`, and for each the lane."""
        while self.granule > size:
            self._refine()
        blocks = self.geometry.block_index[lanes] if owners is None else owners
        base = blocks * self.stride + offsets
        while (base & (self.granule - 1)).any():
            self._refine()
        first = base // self.granule
        if size == self.granule:
            return first, lanes
        count = size // self.granule
        return (first[:, None] + np.arange(count)).ravel(), np.repeat(lanes, count)

    def _refine(self) -> None:
        self.granule //= 2
        for name in (
            *(
                "valid",
                "atomic",
                "unfenced",
                "writer",
                "writer_warp",
                "write_clock",
                "write_pc",
                "pending",
            ),
            *("reader", "read_clock", "read_pc"),
        ):
            setattr(self, name, np.repeat(getattr(self, name), 2, axis=0))

    # -- accesses

    def read(
        self,
        lanes: Array,
        offsets: Array,
        size: int,
        *,
        atomic: bool = False,
        whole: bool = False,
        proxy: bool = False,
        owners: Array | None = None,
    ) -> None:
        """Check and note a read; `owners` are the blocks whose memory it is where these are not the
        lanes' own. `whole` says that a warp reads together (ldmatrix), `proxy` that
        the asynchronous proxy reads for a thread."""
        granules, lanes = self._cover(lanes, offsets, size, owners)
        self._check_pending(granules, lanes, "reads")
        if proxy:
            self._check_fenced(granules, lanes, "read")
        if not (valid := self.valid[granules]).all():
            at = int(np.argmin(valid))
            raise UninitializedReadError(
                f"{self._name(lanes[at])} reads {self._place(granules[at])} before anything is "
                f"written there, in {locate(self.code[self.pc])}"
            )
        block, thread, warp = self._agents(lanes)
        if not atomic:
            self._check_writer(granules, lanes, "reads", whole)
        elif (wrong := ~self.atomic[granules]).any():
            self._check_writer(granules[wrong], lanes[wrong], "reads", whole)
        if atomic:
            return
        clock = self.clocks[block, warp, warp]
        reader = np.full(len(lanes), WHOLE_WARP, dtype=np.int32) if whole else thread
        old, old_clock = self.reader[granules, warp], self.read_clock[granules, warp]
        unordered = (old != NOBODY) & (old != reader) & (old_clock >= self.warp_sync[block, warp])
        new = np.where(unordered, np.int32(SEVERAL), reader)
        self.reader[granules, warp] = new
        mixed = self.reader[granules, warp] != new
        if mixed.any():
            self.reader[granules[mixed], warp[mixed]] = SEVERAL
        self.read_clock[granules, warp] = clock
        self.read_pc[granules, warp] = self.pc

    def write(
        self,
        lanes: Array,
        offsets: Array,
        size: int,
        *,
        changed: Array | None = None,
        lost: Array | None = None,
        atomic: bool = False,
        whole: bool = False,
        owners: Array | None = None,
    ) -> None:
        """Check and note a write, with `owners` as in `read`. `changed` says for each byte of each
        lane whether it gets another value: writing what is there already disturbs nobody. `lost`
        says for each lane whether another one wrote something else there in the same instruction.
        """
        if lost is not None and lost.any():
            at = int(np.argmax(lost))
            met = np.abs(offsets - offsets[at]) < size
            met[at] = False
            other = self._thread(int(self._agents(lanes)[1][int(np.argmax(met))]))
            raise RaceError(
                f"{self._name(lanes[at])} and {other} write different values to byte "
                f"{int(offsets[at])} of shared memory at once: {locate(self.code[self.pc])}"
            )
        granules, lanes = self._cover(lanes, offsets, size, owners)
        self._check_pending(granules, lanes, "writes")
        block, thread, warp = self._agents(lanes)
        checked: Array = np.ones(len(lanes), dtype=bool)
        if changed is not None:
            checked = np.asarray(changed.reshape(len(lanes), self.granule).any(axis=1))
        if checked.any():
            others = checked & ~self.atomic[granules] if atomic else checked
            self._check_writer(granules[others], lanes[others], "writes", whole)
            self._check_readers(granules[checked], lanes[checked], whole)
        self._note_write(granules, thread, warp, self.clocks[block, warp, warp])
        self.atomic[granules] = atomic
        self.unfenced[granules] = True
        if whole:
            self.writer[granules] = WHOLE_WARP

    def _note_write(self, granules: Array, thread: Array, warp: Array, clock: Array) -> None:
        self.valid[granules] = True
        self.writer[granules] = thread
        self.writer_warp[granules] = warp
        self.write_clock[granules] = clock
        self.write_pc[granules] = self.pc
        self.reader[granules] = NOBODY

    def fence_proxy(self, lanes: Array) -> None:
        """A fence between the proxies: what was written before, as these lanes know it, may be read
        and overwritten by asynchronous work."""
        per_cluster = self.stride // self.granule * self.geometry.cluster_blocks
        for number, agent in self._warps(lanes):
            mine = slice(number * per_cluster, (number + 1) * per_cluster)
            writers = self.writer_warp[mine]
            known = self.write_clock[mine] <= self.clocks[number, agent][writers]
            self.unfenced[mine] &= ~(known | (writers == agent))

    # -- asynchronous copies

    def start_copy(
        self,
        lanes: Array,
        offsets: Array,
        size: int,
        owners: Array | None = None,
        *,
        proxy: bool = False,
    ) -> None:
        """A copy into these bytes, with `owners` and `proxy` as in `read`, may land from now on."""
        granules, lanes = self._cover(lanes, offsets, size, owners)
        if proxy:
            self._check_fenced(granules, lanes, "write")
        self._check_pending(granules, lanes, "copies into")
        self._check_writer(granules, lanes, "copies into", False)
        self._check_readers(granules, lanes, False)
        self.reader[granules] = NOBODY
        self.pending[granules] = self.pc

    def finish_copy(self, lanes: Array, offsets: Array, size: int, pc: int) -> None:
        """A copy has landed, seen by the threads that waited for it."""
        granules, lanes = self._cover(lanes, offsets, size)
        block, thread, warp = self._agents(lanes)
        self._note_write(granules, thread, warp, self.clocks[block, warp, warp])
        self.write_pc[granules] = pc
        self.pending[granules] = -1
        self.atomic[granules] = False
        self.unfenced[granules] = False

    def finish_bulk_copy(self, lanes: Array, offsets: Array, size: int, pc: int) -> None:
        """A copy has landed that a barrier in memory tracks: whoever waits for that sees it."""
        granules, lanes = self._cover(lanes, offsets, size)
        block = self.geometry.cluster_index[lanes]
        agent = (self.warps + self.geometry.rank[lanes]).astype(np.int32)
        asynchronous = np.full(len(lanes), ASYNCHRONOUS, dtype=np.int32)
        self._note_write(granules, asynchronous, agent, self.clocks[block, agent, agent])
        self.write_pc[granules] = pc
        self.pending[granules] = -1
        self.atomic[granules] = False
        self.unfenced[granules] = False

    def release_copies(self, block: int) -> Array:
        """The knowledge of the asynchronous copies that have landed in a block."""
        cluster, rank = divmod(block, self.geometry.cluster_blocks)
        return self._release(cluster, np.array([self.warps + rank]))

    # -- checks

    def _agents(self, lanes: Array) -> tuple[Array, Array, Array]:
        """The cluster of each lane, its thread and its warp, counted over the cluster."""
        geometry = self.geometry
        thread = geometry.rank[lanes] * geometry.block_lanes + geometry.thread[lanes]
        return geometry.cluster_index[lanes], thread.astype(np.int32), thread // WARP

    def _warps(self, lanes: Array) -> list[tuple[int, int]]:
        """The warps of these lanes, each by its cluster and number."""
        block, _, warp = self._agents(lanes)
        return sorted({(int(b), int(w)) for b, w in zip(block, warp, strict=True)})

    def _check_pending(self, granules: Array, lanes: Array, verb: str) -> None:
        pending = self.pending[granules]
        if (pending >= 0).any():
            at = int(np.argmax(pending >= 0))
            copy = self.code[pending[at]]
            raise RaceError(
                f"{self._name(lanes[at])} {verb} {self._place(granules[at])} while the "
                f"asynchronous copy {locate(copy)} may still write there: "
                f"{locate(self.code[self.pc])}",
                hint="wait for the copy, then synchronise the threads that use it",
            )

    def _check_fenced(self, granules: Array, lanes: Array, verb: str) -> None:
        if not (unfenced := self.unfenced[granules]).any():
            return
        at = int(np.argmax(unfenced))
        raise RaceError(
            f"{self._name(lanes[at])} lets the asynchronous proxy {verb} "
            f"{self._place(granules[at])}, which threads wrote with no proxy fence between: "
            f"{locate(self.code[self.pc])} after "
            f"{locate(self.code[int(self.write_pc[granules[at]])])}",
            hint="execute 'fence.proxy.async' after the writes, before the barrier",
        )

    def _check_writer(self, granules: Array, lanes: Array, verb: str, whole: bool) -> None:
        block, thread, warp = self._agents(lanes)
        writer, writer_warp = self.writer[granules], self.writer_warp[granules]
        clock = self.write_clock[granules]
        same_warp = (writer_warp == warp) & (writer != ASYNCHRONOUS)
        within = (writer == thread) | (writer == WHOLE_WARP) | (clock < self.warp_sync[block, warp])
        ordered = np.where(same_warp, within, clock <= self.clocks[block, warp, writer_warp])
        ordered = np.asarray(ordered | (writer == NOBODY))
        if not ordered.all():
            at = int(np.argmin(ordered))
            raise self._race(
                granules[at],
                lanes[at],
                verb,
                int(writer[at]),
                int(writer_warp[at]),
                "wrote",
                int(self.write_pc[granules[at]]),
            )

    def _check_readers(self, granules: Array, lanes: Array, whole: bool) -> None:
        block, thread, warp = self._agents(lanes)
        readers, clocks = self.reader[granules], self.read_clock[granules]
        others = np.arange(self.warps)
        known = self.clocks[block, warp][:, : self.warps]
        within = (
            (readers == thread[:, None])
            | (readers == WHOLE_WARP)
            | (clocks < self.warp_sync[block, warp][:, None])
        )
        ordered = np.where(others == warp[:, None], within, clocks <= known)
        ordered = np.asarray(ordered | (readers == NOBODY))
        if not ordered.all():
            at, by = (int(each) for each in np.unravel_index(np.argmin(ordered), ordered.shape))
            raise self._race(
                granules[at],
                lanes[at],
                "writes",
                int(readers[at, by]),
                by,
                "read",
                int(self.read_pc[granules[at], by]),
            )

    def _race(
        self, granule: int, lane: int, verb: str, other: int, warp: int, did: str, pc: int
    ) -> RaceError:
        names: dict[int, str] = {
            SEVERAL: f"threads of warp {warp % self.geometry.warps}",
            WHOLE_WARP: f"warp {warp % self.geometry.warps}",
            ASYNCHRONOUS: "an asynchronous copy",
        }
        who = names.get(other) or self._thread(other)
        return RaceError(
            f"{self._name(lane)} {verb} {self._place(granule)}, which {who} {did} with no "
            f"synchronisation between: {locate(self.code[self.pc])} after "
            f"{locate(self.code[pc])}"
        )

    def _thread(self, number: int) -> str:
        """``thread 3``, and of which block of the cluster."""
        rank, thread = divmod(number, self.geometry.block_lanes)
        of_block = f" of block {rank} of the cluster" if self.geometry.cluster_blocks > 1 else ""
        return f"thread {thread}{of_block}"

    def _name(self, lane: int) -> str:
        return self.geometry.thread_name(int(lane))

    def _place(self, granule: int) -> str:
        return f"byte {int(granule) * self.granule % self.stride} of shared memory"
