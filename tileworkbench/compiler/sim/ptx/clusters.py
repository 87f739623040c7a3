"""Clusters: the shared memory of other blocks, and the barrier of all their threads (PTX ISA,
"mapa", "barrier.cluster").

An address of the shared memory of the block of rank r has r + 1 above the 24 bits that an address
of the block's own memory has; as a generic one it is in the same window.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tileworkbench.compiler.diagnostics import RaceError, RunError
from tileworkbench.compiler.sim.ptx.errors import locate, unsupported
from tileworkbench.compiler.sim.ptx.module import Instruction
from tileworkbench.compiler.sim.ptx.numeric import Array
from tileworkbench.compiler.sim.ptx.state import State

_BITS = 24
_OFFSET = (1 << _BITS) - 1


def is_peer(addresses: Array) -> Array:
    """Whether shared addresses are those of a block by its rank."""
    return np.asarray(addresses > _OFFSET, dtype=bool)


def resolve(state: State, lanes: Array, addresses: Array) -> tuple[Array, Array]:
    """The block of the batch whose shared memory each address is in, and the byte there.

    Raises `RaceError` for the memory of a block that may not run yet, or no longer.
    """
    geometry = state.geometry
    own = geometry.block_index[lanes]
    rank = np.asarray((addresses >> _BITS) - 1)
    _check_ranks(state, lanes, rank)
    owners = np.where(rank < 0, own, own - geometry.rank[lanes] + rank)
    there = np.asarray(state.by_block(state.live).any(axis=1))[owners]
    if not there.all():
        _refuse(state, lanes, owners, there, "has ended")
    if state.shadow is not None:
        known = state.shadow.knows(lanes, owners)
        if not known.all():
            _refuse(state, lanes, owners, known, "may not have begun")
    return owners, addresses & _OFFSET


def _refuse(state: State, lanes: Array, owners: Array, right: Array, what: str) -> None:
    at = int(np.argmin(right))
    rank = int(owners[at]) % state.geometry.cluster_blocks
    raise RaceError(
        f"{state.geometry.thread_name(int(lanes[at]))} uses shared memory of block {rank} of its "
        f"cluster, which {what}: {locate(state.instruction)}",
        hint="let all blocks wait at 'barrier.cluster' first, and before they end",
    )


def _check_ranks(state: State, lanes: Array, ranks: Array) -> None:
    outside = np.asarray(ranks >= state.geometry.cluster_blocks)
    if outside.any():
        at = int(np.argmax(outside))
        raise RunError(
            f"{state.geometry.thread_name(int(lanes[at]))} names block {int(ranks[at])} of a "
            f"cluster of {state.geometry.cluster_blocks}: {locate(state.instruction)}"
        )


def rank_address(ranks: Array) -> Array:
    """Where the shared memory of the blocks of these ranks begins."""
    return np.asarray((ranks.astype(np.int64) + 1) << _BITS)


def map_address(state: State, addresses: Array, ranks: Array) -> Array:
    """``mapa``: the address of the same variable in the block of that rank, less the window."""
    _check_ranks(state, state.index, ranks[state.index])
    return np.asarray((addresses & _OFFSET) + rank_address(ranks))


@dataclass(slots=True)
class ClusterBarriers:
    """How often each lane has arrived at the barrier of its cluster, and waited there.

    `known` is what those who arrived in the open phase knew, `completed` those of the last one.
    """

    state: State
    arrived: Array = field(init=False)
    waited: Array = field(init=False)
    known: dict[int, Array] = field(default_factory=dict)
    completed: dict[int, Array] = field(default_factory=dict)
    settled: dict[int, int] = field(default_factory=dict)  # phases that are over

    def __post_init__(self) -> None:
        self.arrived = np.zeros(self.state.lanes, dtype=np.int64)
        self.waited = np.zeros(self.state.lanes, dtype=np.int64)

    def arrive(self, relaxed: bool) -> None:
        """The active lanes arrive; unless `relaxed` they tell what they did."""
        state = self.state
        for cluster, lanes in self._clusters(state.index):
            twice = self.arrived[lanes] > self.waited[lanes]
            if twice.any():
                self._fail(lanes[int(np.argmax(twice))], "arrives twice without waiting")
            self.arrived[lanes] += 1
            if state.shadow is not None and not relaxed:
                told, before = state.shadow.release(lanes), self.known.get(cluster)
                self.known[cluster] = told if before is None else np.maximum(before, told)
            self.settle(cluster)

    def settle(self, cluster: int) -> int:
        """The phases that are over: all lanes that have not ended have arrived as often."""
        mine = self.state.live & (self.state.geometry.cluster_index == cluster)
        phase = int(self.arrived[mine].min()) if mine.any() else 0
        if phase > self.settled.get(cluster, 0):
            self.settled[cluster] = phase
            if cluster in self.known:
                self.completed[cluster] = self.known.pop(cluster)
            self.state.asynchronous.version += 1
        return phase

    def done(self) -> Array:
        """The active lanes whose phase is over; they learn what was told in it."""
        finished = np.zeros(self.state.lanes, dtype=bool)
        for cluster, lanes in self._clusters(self.state.index):
            alone = self.arrived[lanes] == self.waited[lanes]
            if alone.any():
                self._fail(lanes[int(np.argmax(alone))], "waits and has not arrived")
            over = lanes[self.arrived[lanes] <= self.settle(cluster)]
            finished[over] = True
            self.waited[over] = self.arrived[over]
            if self.state.shadow is not None and len(over) and cluster in self.completed:
                self.state.shadow.acquire(over, self.completed[cluster])
        return finished

    def describe(self, lane: int) -> str:
        """Whom a lane waits for, in words."""
        geometry = self.state.geometry
        mine = self.state.live & (geometry.cluster_index == geometry.cluster_index[lane])
        late = int((self.arrived[mine] < self.arrived[lane]).sum())
        return f"for {late} threads of its cluster"

    def _clusters(self, lanes: Array) -> list[tuple[int, Array]]:
        numbers = self.state.geometry.cluster_index[lanes]
        return [(int(each), lanes[numbers == each]) for each in np.unique(numbers)]

    def _fail(self, lane: int, what: str) -> None:
        raise RunError(
            f"{self.state.geometry.thread_name(int(lane))} {what} at the barrier of its cluster: "
            f"{locate(self.state.instruction)}"
        )


def is_relaxed(i: Instruction) -> bool:
    """Whether an arrival orders no memory."""
    if i.has("acquire") and i.has("arrive"):
        raise unsupported(i, "an arrival that acquires")
    return i.has("relaxed")
