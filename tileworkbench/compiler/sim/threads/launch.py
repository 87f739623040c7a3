"""The blocks of a launch: one after another or, with a barrier of the grid or of clusters, side by
side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.arena import Arena
from tileworkbench.compiler.sim.threads.barriers import BlockBarriers, GridWait
from tileworkbench.compiler.sim.threads.blocks import BlockRun
from tileworkbench.compiler.sim.threads.copies import CopyQueue
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.order import Order
from tileworkbench.compiler.sim.threads.plan import KernelPlan
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
        for storage in host.storages:
            if isinstance(storage, ThreadTensor):
                storage.marks = None  # kernels come one after another
        numbers = range(total) if host.random is None else map(int, host.random.permutation(total))
        waiting: list[BlockRun] = []
        for number in numbers:
            block = BlockRun(self._frame(number, grid), code, self._dtypes)
            if not self._advance(block):
                waiting.append(block)
        while waiting:
            ready = _complete(waiting, total, cluster)
            if not ready:
                raise self._left_waiting(waiting)
            for block in ready:
                self._release(block, total)
            self._base += total
            ended = [block for block in ready if self._advance(block)]
            waiting = [block for block in waiting if block not in ended]
        host.launch_base = self._base + total
        host.order.now = self._now

    def _advance(self, block: BlockRun) -> bool:
        """Run a block whose threads are all ordered behind what happened before."""
        order = block.frame.order
        order.since, order.now = self._now, self._now + 1
        ended = block.advance()
        self._now = order.now
        return ended

    def _release(self, block: BlockRun, total: int) -> None:
        """The threads of `block` leave the barrier of the grid; accesses from now on are in no
        conflict with those before.
        """
        for strand in block.strands:
            if isinstance(strand.waiting, GridWait):
                strand.waiting.released = True
            strand.frame.launch_base += total
            strand.frame.block_number += total

    def _left_waiting(self, waiting: list[BlockRun]) -> Exception:
        first = waiting[0]
        span = self._host.recorder.program.span(first.strands[0].at)
        blocks = "1 block waits" if len(waiting) == 1 else f"{len(waiting)} blocks wait"
        return located(
            DeadlockError,
            f"{blocks} at a barrier of the {_meeting(first).place} that the others do not reach",
            span,
        )

    def _frame(self, number: int, grid: tuple[int, ...]) -> ThreadFrame:
        """The state in which block `number` begins."""
        host, plan, threads = self._host, self._plan, self._threads
        host.recorder.blocks += 1
        values, storages = list(host.values), list(host.storages)
        block, rest = [], number
        for slot, extent in zip(self._block_slots, grid, strict=True):
            block.append(rest % extent)
            rest //= extent
            values[slot] = block[-1]
        linear = np.arange(threads)
        for (slot, dtype), extent in zip(self._thread_slots, self._extents, strict=False):
            values[slot] = (linear % extent).astype(dtype)
            linear = linear // extent
        arena = self._shared()
        return replace(
            host,
            values=values,
            storages=storages,
            order=Order(threads, self._now),
            lanes=(threads,),
            threads=threads,
            block=tuple(block),
            block_number=self._base + number + 1,
            launch_base=self._base,
            lock_step=plan.lock_step,
            partial=plan.partial,
            shared=arena,
            copies=None if plan.lock_step else CopyQueue(arena, threads),
            barriers=BlockBarriers(threads),
            warp_meetings={},
        )

    def _shared(self) -> Arena:
        """Shared memory with undefined contents."""
        plan = self._plan
        if self._arena is None or plan.grid_wide:
            self._arena = Arena(plan.shared_bytes, plan.granule, self._threads, plan.partial)
        else:
            self._arena.forget()
        return self._arena


def _meeting(block: BlockRun) -> GridWait:
    """What all strands of a block wait at, as far as the first one knows."""
    found = block.strands[0].waiting
    assert isinstance(found, GridWait)  # nothing else lets the launch go on
    return found


def _complete(waiting: list[BlockRun], total: int, cluster: tuple[int, ...]) -> list[BlockRun]:
    """The blocks whose barrier all others of the grid, or of their cluster, have reached too."""
    groups: dict[tuple[int, ...] | None, list[BlockRun]] = {}
    for block in waiting:
        own = None
        if _meeting(block).of_cluster:
            own = tuple(b // c for b, c in zip(block.frame.block, cluster, strict=True))
        groups.setdefault(own, []).append(block)
    sizes = {own: total if own is None else prod(cluster) for own in groups}
    return [block for own, group in groups.items() if len(group) == sizes[own] for block in group]
