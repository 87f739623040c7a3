"""Collects what a simulated run finds, while it runs."""

from __future__ import annotations

from dataclasses import field
from math import inf
from time import perf_counter

from tileworkbench.compiler.diagnostics import OutOfBoundsError
from tileworkbench.compiler.fast_dataclass import dataclass
from tileworkbench.compiler.ir.program import Program
from tileworkbench.compiler.sim.masked import MaskLog, index_text
from tileworkbench.compiler.sim.observers import Observer
from tileworkbench.compiler.sim.report import (
    AccessCount,
    Finding,
    FindingKind,
    LimitReached,
    SimReport,
    element,
    located,
)

_Key = tuple[FindingKind, str, str, int, int]  # detail, buffer, site, the other site


@dataclass(slots=True)
class _Tally:
    index: tuple[int, ...]
    block: tuple[int, ...]
    count: int
    thread: int | None
    other_thread: int | None
    other_block: tuple[int, ...]
    iterations: tuple[tuple[int, ...], ...]
    differs: bool = False


@dataclass(slots=True)
class Recorder:
    """Collects a run's findings, one entry per kind, buffer and statement."""

    program: Program
    stop_at_out_of_bounds: bool = True
    blocks: int = 0
    launched: int = 0
    deadline: float = inf
    statements_left: int = -1  # below zero: without a limit
    limited: bool = False
    timed_out: bool = False
    executions: list[int] = field(default_factory=list)
    accesses: tuple[AccessCount, ...] = ()
    instructions: tuple[tuple[str, int], ...] = ()
    barriers: int = 0
    interrupted_at: int | None = None  # the statement of the threads that ran, where they have one
    observers: tuple[Observer, ...] = ()
    _found: dict[_Key, _Tally] = field(default_factory=dict)
    masks: MaskLog = field(default_factory=MaskLog)

    def __post_init__(self) -> None:
        self.executions = [0] * max(len(self.program.sites), 1)

    def executed(self, site: int, count: int) -> None:
        """Statement `site` is about to run `count` times more."""
        self.statements_left -= 1
        if not self.statements_left or (
            self.deadline is not inf and perf_counter() > self.deadline
        ):
            self.timed_out = self.limited = True
            raise LimitReached
        while site >= len(self.executions):  # programs made by hand have sites without spans
            self.executions.append(0)
        self.executions[site] += count

    def launch(self, total: int, chosen: int) -> None:
        """A launch of `total` blocks begins, of which so many are to run."""
        self.launched, self.limited = total, chosen < total
        if not chosen:
            raise LimitReached

    def launch_ended(self, chosen: int) -> None:
        """They have run: nothing comes after a launch that was not complete."""
        if self.limited and chosen < self.launched:
            raise LimitReached

    def found(
        self,
        kind: FindingKind,
        detail: str,
        buffer: str,
        index: tuple[int, ...],
        block: tuple[int, ...],
        site: int,
        count: int,
        thread: int | None = None,
        other: int = 0,
        other_thread: int | None = None,
        other_block: tuple[int, ...] = (),
        iterations: tuple[tuple[int, ...], ...] = (),
        differs: bool = True,
    ) -> None:
        """Record a violation, first seen at `index`, of `count` elements; `other` is the site of
        the access it is in conflict with.
        """
        key = (kind, detail, buffer, site, other)
        first = _Tally(index, block, 0, thread, other_thread, other_block, iterations)
        tally = self._found.setdefault(key, first)
        tally.count += count
        tally.differs |= differs
        if tally is first:
            for observer in self.observers:
                observer.failed(self._finding(key, tally))

    def out_of_bounds(
        self,
        access: str,
        buffer: str,
        shape: tuple[int, ...],
        index: tuple[int, ...],
        block: tuple[int, ...],
        site: int,
        count: int,
        thread: int | None = None,
    ) -> None:
        """An access outside a buffer that the language does not mask: raises `OutOfBoundsError`, or
        records it.
        """
        detail = f"this {access} is outside its shape {index_text(shape)}"
        if not self.stop_at_out_of_bounds:
            self.found(FindingKind.OUT_OF_BOUNDS, detail, buffer, index, block, site, count, thread)
            return
        where = f" in block {index_text(block)}" if block else ""
        where += f", thread {thread}" if thread is not None else ""
        raise located(
            OutOfBoundsError,
            f"'{element(buffer, index)}' is outside '{buffer}' of shape {index_text(shape)}{where}",
            self.program.span(site),
            "only accesses of global tensors are masked; guard this one with an 'if'",
        )

    def _finding(self, key: _Key, tally: _Tally) -> Finding:
        kind, detail, buffer, site, other = key
        return Finding(
            kind,
            detail,
            buffer,
            tally.index,
            tally.block,
            site,
            self.program.span(site),
            tally.count,
            tally.thread,
            self.program.span(other) if other else None,
            tally.other_thread,
            tally.other_block,
            tally.iterations,
            tally.differs,
        )

    def report(self) -> SimReport:
        """Everything recorded so far."""
        by_kind: dict[FindingKind, list[Finding]] = {kind: [] for kind in FindingKind}
        for key, tally in self._found.items():
            by_kind[key[0]].append(self._finding(key, tally))
        return SimReport(
            tuple(by_kind[FindingKind.OUT_OF_BOUNDS]),
            tuple(by_kind[FindingKind.UNINITIALISED]),
            tuple(by_kind[FindingKind.RACE]),
            self.masks.report(self.program, self.blocks),
            tuple(self.executions),
            self.blocks,
            tuple(by_kind[FindingKind.MISALIGNED]),
            tuple(by_kind[FindingKind.DIVERGENT]),
            self.accesses,
            self.instructions,
            self.barriers,
            self.launched if self.limited else 0,
            self.timed_out,
        )
