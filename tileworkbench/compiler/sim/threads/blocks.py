"""Runs the strands of a block: wakes them, merges them, and finds out when all wait for ever."""

from __future__ import annotations

from typing import Any

import numpy as np

from tileworkbench.compiler.diagnostics import DeadlockError, RunError
from tileworkbench.compiler.sim.report import located
from tileworkbench.compiler.sim.threads.barriers import GridWait
from tileworkbench.compiler.sim.threads.frame import ThreadFrame
from tileworkbench.compiler.sim.threads.strands import Code, MeetWait, Strand, finish
from tileworkbench.compiler.sim.values import mask_or

Array = np.ndarray[Any, Any]


class BlockRun:
    """The threads of one block."""

    def __init__(self, frame: ThreadFrame, body: Code, dtypes: tuple[Any, ...]) -> None:
        self.frame, self._dtypes = frame, dtypes
        self.moved = False  # when it was last advanced
        self.strands: list[Strand] = []
        self.strands.append(Strand(self.strands, frame, [(body, None)]))

    def advance(self) -> bool:
        """Run until the block has ended (True) or can only go on when others have."""
        self.moved = False
        while True:
            moved = False
            for strand in self._order():
                if strand.waiting is None and not strand.joining:
                    self._advance(strand)
                    moved = True
            self.strands[:] = [strand for strand in self.strands if not _ended(strand)]
            if not self.strands:
                self.moved = True
                return True
            if self._release() or moved or self._join():
                self.moved = True
                continue
            return False

    def _advance(self, strand: Strand) -> None:
        try:
            strand.advance()
        except KeyboardInterrupt:
            self.frame.recorder.interrupted_at = strand.frame.site
            raise

    def meetings(self) -> list[GridWait] | None:
        """The barriers over several blocks at which the threads wait; None when some wait
        elsewhere.
        """
        waiting = [strand.waiting for strand in self.strands]
        waits = [wait for wait in waiting if isinstance(wait, GridWait)]
        return waits if len(waits) == len(waiting) else None

    def _order(self) -> list[Strand]:
        """The strands in the order they run next."""
        strands, random = list(self.strands), self.frame.random
        if random is None or len(strands) == 1:
            return strands
        return [strands[at] for at in random.permutation(len(strands))]

    def _release(self) -> bool:
        free = [s for s in self.strands if s.waiting is not None and s.waiting.ready()]
        for strand in free:
            if strand.waiting is not None:
                finish(strand.waiting, strand.frame)
                if not isinstance(strand.waiting, MeetWait):
                    for observer in strand.frame.observers:
                        observer.passed(strand.frame)
            strand.waiting = None
        self._merge(free)
        return bool(free)

    def _join(self) -> bool:
        joining = [strand for strand in self.strands if strand.joining]
        for strand in joining:
            strand.joining = False
        self._merge(joining)
        return bool(joining)

    def _merge(self, strands: list[Strand]) -> None:
        """Merge the strands that are at the same place."""
        kept: list[Strand] = []
        for strand in strands:
            for other in kept:
                stack = _same_place(other, strand)
                if stack is not None:
                    other.stack = stack
                    _unite(other.frame, strand.frame, self._dtypes)
                    self.strands.remove(strand)
                    break
            else:
                kept.append(strand)

    def deadlock(self) -> RunError:
        """The error of a deadlock: which threads wait for what."""
        program, parts = self.frame.recorder.program, []
        for strand in self.strands:
            if strand.waiting is not None:
                span = program.span(strand.at)
                line = f" ({span})" if span is not None else ""
                threads = ranges_text(strand.frame.owned_threads())
                wait = "waits" if strand.frame.owned_threads().size == 1 else "wait"
                parts.append(f"{threads} {wait} {strand.waiting.describe()}{line}")
        here = np.zeros(self.frame.threads, np.bool_)
        for strand in self.strands:
            here[strand.frame.owned_threads()] = True
        if not here.all():
            ended = np.flatnonzero(~here)
            parts.append(f"{ranges_text(ended)} {'has' if len(ended) == 1 else 'have'} ended")
        block = f"({', '.join(map(str, self.frame.block))})"
        span = program.span(self.strands[0].at)
        return located(
            DeadlockError,
            f"block {block} waits for ever: {'; '.join(parts)}",
            span,
            "let all threads that a barrier waits for reach it, whatever branch they take",
        )


def _ended(strand: Strand) -> bool:
    return not strand.stack and strand.waiting is None and not strand.joining


def ranges_text(threads: Array) -> str:
    """`thread 3`, `threads 0-31, 64` or `threads 0, 2, 4, ..., 62`."""
    steps = np.diff(threads)
    if len(threads) > 4 and steps[0] > 1 and (steps == steps[0]).all():
        first, second, third = threads[:3]
        return f"threads {first}, {second}, {third}, ..., {threads[-1]}"
    breaks = np.flatnonzero(np.diff(threads) != 1) + 1
    parts = [
        str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in np.split(threads, breaks)
    ]
    return f"thread{'s' if len(threads) > 1 else ''} {', '.join(parts)}"


def _same_place(a: Strand, b: Strand) -> list[tuple[Code, Any]] | None:
    """The stack of both strands merged, None where they are not at the same place."""
    if len(a.stack) != len(b.stack):
        return None
    made = []
    for (code, state), (other, other_state) in zip(a.stack, b.stack, strict=True):
        if code is not other:
            return None
        if state is not None:
            state = state.merged(other_state)
            if state is None:
                return None
        made.append((code, state))
    return made


def _unite(a: ThreadFrame, b: ThreadFrame, dtypes: tuple[Any, ...]) -> None:
    """Add the threads of `b` to `a`: values that differ become one value for each thread."""
    mine = np.broadcast_to(np.asarray(b.owned), a.lanes)
    for slot, (left, right) in enumerate(zip(a.values, b.values, strict=True)):
        if left is right or right is None:
            continue
        if left is None:
            a.values[slot] = right
            continue
        if type(left) is not np.ndarray and type(right) is not np.ndarray and left == right:
            continue
        wide = max(np.ndim(left), np.ndim(right)) > 1
        chosen = mine[:, None] if wide else mine
        dtype = dtypes[slot]
        a.values[slot] = np.where(chosen, np.asarray(right, dtype), np.asarray(left, dtype))
    a.apart = a.lock_step
    a.mask, a.broke = mask_or(a.mask, b.mask), mask_or(a.broke, b.broke)
    owned = np.broadcast_to(np.asarray(a.owned), a.lanes) | mine
    a.owned = True if owned.all() else owned
    if a.owned is True and type(a.mask) is np.ndarray and a.mask.all():
        a.mask = True
