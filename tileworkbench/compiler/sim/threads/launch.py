"""Runs the blocks of a launch: cluster after cluster or, with a barrier of the grid, all in turns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from math import prod
from operator import mul
from typing import Any

import numpy as np

from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.sim.flights import Flights
from tileworkbench.compiler.sim.threads.arena import Arena
from tileworkbench.compiler.sim.threads.barriers import BlockBarriers
from tileworkbench.compiler.sim.threads.blocks import BlockRun
from tileworkbench.compiler.sim.threads.clusters import ClusterRun, left_waiting
from tileworkbench.compiler.sim.threads.copies import CopyQueue
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.order import Clock, ClusterPhases, Order
from tileworkbench.compiler.sim.threads.plan import KernelPlan
from tileworkbench.compiler.sim.threads.register_file import RegisterFile
from tileworkbench.compiler.sim.threads.strands import Code
from tileworkbench.compiler.sim.threads.tensors import ThreadTensor


class Launch:
    """One launch of a kernel."""

    def __init__(
        self,
        frame: ThreadFrame,
        plan: KernelPlan,
        threads: tuple[int, ...],
        thread_slots: Sequence[tuple[int, np.dtype[Any]]],
        block_slots: Sequence[int],
        dtypes: tuple[Any, ...],
    ) -> None:
        self._host, self._plan, self._extents = frame, plan, threads
        self._threads, self._dtypes = prod(threads), dtypes
        self._thread_slots, self._block_slots = thread_slots, block_slots
        self._now = frame.order.now
        self._arena: Arena | None = None
        self._base = frame.launch_base

    def run(self, code: Code, grid: tuple[int, ...], cluster: tuple[int, ...] = ()) -> None:
        """Execute all blocks."""
        host, total = self._host, prod(grid)
        host.launch += 1
        for storage in host.storages:
            if isinstance(storage, ThreadTensor):
                storage.marks = None  # kernels come one after another
        waiting: list[ClusterRun] = []
        clusters = self._clusters(grid, cluster if self._plan.cluster_wide else ())
        chosen = len(clusters.picked) * len(clusters.offsets)
        if host.options.blocks is None:
            host.recorder.launch(total, chosen)
        fences = host.options.fences or not self._plan.lock_step
        for blocks in clusters:
            clock = Clock(len(blocks) * self._threads, self._now, self._now + 1)
            frames = [self._frame(number, grid, clock, rank) for rank, number in enumerate(blocks)]
            products = self._plan.products
            flights = Flights(clock.threads, fences, products) if self._plan.starts else None
            phases = ClusterPhases(clock.threads)
            for frame in frames:
                frame.phases = phases
                frame.cluster, frame.block_number = frames, frames[0].block_number
                frame.flights = flights
            run = ClusterRun([BlockRun(frame, code, self._dtypes) for frame in frames], clock)
            if not self._advance(run):
                waiting.append(run)
        while waiting:
            if sum(len(run.blocks) for run in waiting) != total:
                raise left_waiting([block for run in waiting for block in run.blocks])
            self._base += total
            for run in waiting:
                run.release(total)
            waiting = [run for run in waiting if not self._advance(run)]
        host.recorder.launch_ended(chosen)
        host.launch_base = self._base + total
        host.order.clock.now = self._now

    def _clusters(self, grid: tuple[int, ...], cluster: tuple[int, ...]) -> _Clusters:
        """The blocks to run that know each other, cluster after cluster."""
        host, offsets = self._host, [0]
        firsts: Sequence[int] = range(prod(grid))
        picked: Sequence[int]
        if cluster:
            offsets = _numbers([range(count) for count in cluster], grid)
            firsts = _numbers(
                [range(0, extent, count) for extent, count in zip(grid, cluster, strict=True)], grid
            )
        if host.options.blocks is not None and not self._plan.grid_wide and not cluster:
            picked = host.options.chosen(prod(grid))
        elif host.options.blocks is not None and not self._plan.grid_wide:
            named = set(host.options.chosen(prod(grid)))
            picked = [
                at
                for at, first in enumerate(firsts)
                if any(first + offset in named for offset in offsets)
            ]
        elif self._plan.grid_wide:  # all of them or none
            picked = range(len(firsts)) if host.chosen(1, prod(grid)) else ()
        else:
            picked = host.chosen(len(firsts), len(offsets))
        if host.random is not None:
            picked = [picked[at] for at in host.random.permutation(len(picked))]
        return _Clusters(firsts, offsets, picked)

    def _advance(self, run: ClusterRun) -> bool:
        """Run blocks that begin after everything before them has ended."""
        run.clock.since, run.clock.now = self._now, self._now + 1
        ended = run.advance()
        self._now = run.clock.now
        return ended

    def _frame(self, number: int, grid: tuple[int, ...], clock: Clock, rank: int) -> ThreadFrame:
        """The state in which block `number` begins, with its rank in its cluster."""
        host, plan, threads = self._host, self._plan, self._threads
        host.recorder.blocks += 1
        values, storages = list(host.values), list(host.storages)
        host.grid = grid
        block = host.block_of(number)
        for slot, position in zip(self._block_slots, block, strict=True):
            values[slot] = position
        linear = np.arange(threads)
        for (slot, dtype), extent in zip(self._thread_slots, self._extents, strict=False):
            values[slot] = (linear % extent).astype(dtype)
            linear = linear // extent
        arena = self._shared(clock.threads)
        trace, first = host.options.trace, rank * threads
        order = Order(threads, clock, first)
        if trace is not None:
            order = trace.order(threads, clock, first, block)
        return replace(
            host,
            values=values,
            storages=storages,
            order=order,
            lanes=(threads,),
            threads=threads,
            block=block,
            block_number=self._base + number + 1,
            launch_base=self._base,
            lock_step=plan.lock_step,
            partial=plan.partial,
            blocks=plan.blocks,
            shared=arena,
            copies=None if plan.lock_step else CopyQueue(arena, threads),
            barriers=BlockBarriers(threads),
            registers=RegisterFile(),
            warp_meetings={},
            rank=rank,
            made={},
            visits=[],
        )

    def _shared(self, threads: int) -> Arena:
        """Shared memory with undefined contents, which `threads` have access to."""
        plan = self._plan
        if self._arena is None or plan.grid_wide or plan.cluster_wide:
            self._arena = Arena(plan.shared_bytes, plan.granule, threads, plan.partial)
        else:
            self._arena.forget()
        return self._arena


@dataclass(frozen=True, slots=True)
class _Clusters:
    """The numbers of the blocks of some clusters, by rank: a grid may have too many for a list.

    `firsts` are the first blocks of all clusters, `offsets` leads from them to the others, `picked`
    are the positions in `firsts` of those that run, in order.
    """

    firsts: Sequence[int]
    offsets: Sequence[int]
    picked: Sequence[int]

    def __iter__(self) -> Iterator[tuple[int, ...]]:
        for at in self.picked:
            yield tuple(self.firsts[at] + offset for offset in self.offsets)


def _numbers(places: list[range], grid: tuple[int, ...]) -> list[int]:
    """The numbers of the blocks in a box of the grid, x fastest."""
    strides = [prod(grid[:d]) for d in range(len(grid))]
    return [sum(map(mul, reversed(place), strides)) for place in product(*reversed(places))]
