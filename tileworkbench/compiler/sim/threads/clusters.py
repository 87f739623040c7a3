"""Runs the blocks of a cluster in turns, each as far as it can get."""

from __future__ import annotations

from tileworkbench.compiler.diagnostics import DeadlockError
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import GridWait
from tileworkbench.compiler.sim.threads.blocks import BlockRun
from tileworkbench.compiler.sim.threads.order import Clock
from tileworkbench.compiler.sim.threads.peers import end


class ClusterRun:
    """The blocks of one cluster, or a single block, that have not ended."""

    def __init__(self, blocks: list[BlockRun], clock: Clock) -> None:
        self.blocks, self.clock = blocks, clock
        self._size = len(blocks)

    def advance(self) -> bool:
        """Run until all have ended (True) or those that have not wait at the barrier of the
        grid.
        """
        while self.blocks:
            moved = False
            for block in self._order():
                ended = block.advance()
                moved |= block.moved
                if ended:
                    self.blocks.remove(block)
                    if block.frame.flights is not None:
                        block.frame.flights.end(block.frame)
                    end(block.frame)
            if moved or self._leave_barrier():
                continue
            if all(_waits_at(block, of_cluster=False) for block in self.blocks):
                return False
            raise self._deadlock()
        return True

    def _order(self) -> list[BlockRun]:
        """The blocks in the order they run next."""
        blocks, random = list(self.blocks), self.blocks[0].frame.random
        if random is None or len(blocks) == 1:
            return blocks
        return [blocks[at] for at in random.permutation(len(blocks))]

    def _leave_barrier(self) -> bool:
        """Let the blocks go on when all of them wait at the barrier of the cluster."""
        waiting = [block for block in self.blocks if _waits_at(block, of_cluster=True)]
        if len(waiting) != self._size or not all(map(_is_whole, waiting)):
            return False
        for block in waiting:
            for wait in block.meetings() or ():
                wait.released = True
        self.clock.meet()
        return True

    def release(self, total: int) -> None:
        """Let all blocks, of `total`, leave the barrier of the grid. Accesses after it do not race
        with accesses before it.
        """
        for block in self.blocks:
            for strand in block.strands:
                if isinstance(strand.waiting, GridWait):
                    strand.waiting.released = True
                strand.frame.launch_base += total
                strand.frame.block_number += total

    def _deadlock(self) -> Exception:
        for block in self.blocks:
            if block.meetings() is None or not _is_whole(block):
                return block.deadlock()
        return left_waiting(self.blocks)


def left_waiting(blocks: list[BlockRun]) -> Exception:
    """The error of barriers that not all blocks reach."""
    first = blocks[0]
    place = (first.meetings() or [GridWait()])[0].place
    count = "1 block waits" if len(blocks) == 1 else f"{len(blocks)} blocks wait"
    return located(
        DeadlockError,
        f"{count} at a barrier of the {place} that the others do not reach",
        first.frame.recorder.program.span(first.strands[0].at),
        "let every block reach it, whatever branch it takes",
    )


def _waits_at(block: BlockRun, of_cluster: bool) -> bool:
    waits = block.meetings()
    return waits is not None and all(wait.of_cluster is of_cluster for wait in waits)


def _is_whole(block: BlockRun) -> bool:
    """Whether no thread has ended."""
    return sum(len(strand.frame.owned_threads()) for strand in block.strands) == block.frame.threads
