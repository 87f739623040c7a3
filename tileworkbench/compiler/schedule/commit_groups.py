"""Copies of a pipelined loop that complete in groups: where groups end, and what waits for which.

Copies are committed in groups, one for each run of copies of one stage in the schedule. Groups are
numbered from the first one of a step; those of the steps before have numbers below zero. Each step
commits all of them, empty ones too, so the counts of waits are constants.

Where waits count instructions, not groups, those for all but the latest groups hold only if these
had copies: near the loop's end there is a wait for everything in their place.
"""

from __future__ import annotations

from collections.abc import Sequence

from tileworkbench.compiler.ir.build import const_int, unary
from tileworkbench.compiler.ir.rewrite import statements
from tileworkbench.compiler.ir.simt import AsyncCopy, CommitGroup, WaitGroup
from tileworkbench.compiler.ir.stmt import For, If, Seq, Stmt
from tileworkbench.compiler.ir.tile import Pipelined
from tileworkbench.compiler.schedule.pipelines import Item, Schedule, Step


class CommitGroups:
    """The groups of one loop: the `Completion` of copies that threads start themselves."""

    def __init__(self, loop: Pipelined, schedule: Schedule) -> None:
        self.site = loop.site
        self.items = schedule.items
        self.depth = schedule.depth
        self.groups = self._groups()
        self.per_step = max(self.groups.values(), default=-1) + 1
        self.needed = self._needed()
        self.waited = 0  # the latest group of which this step knows that it is complete

    def prepare(self) -> Sequence[Stmt]:
        """Groups need nothing in front of the loop."""
        return ()

    def begin(self, step: Step) -> Sequence[Stmt]:
        """The wait of the loop's first statement that needs copies of earlier steps: in front of
        the step's own copies, so that one barrier serves both.
        """
        self.waited = -self.per_step * (self.depth + 1)
        earlier = [self.needed[at] for at in sorted(self.needed) if self.needed[at] < 0]
        if not earlier or step.number is not None:
            return ()
        self.waited = earlier[0]
        return self._wait(-1 - self.waited, step, self.depth - 1, self.site)

    def before(self, at: int, step: Step) -> Sequence[Stmt]:
        """The wait for the groups that statement `at` needs, unless the step has waited."""
        needed, item = self.needed.get(at), self.items[at]
        if needed is None or needed <= self.waited or not step.runs(item):
            return ()
        self.waited = needed
        committed = len({group for position, group in self.groups.items() if position < at})
        return self._wait(committed - 1 - needed, step, self.depth, item.stmt.site)

    def _wait(self, pending: int, step: Step, ahead: int, site: int) -> Sequence[Stmt]:
        """The wait for all but the latest `pending` groups, the last of which is of the iteration
        that is `ahead`.
        """
        counted = [item for at, item in enumerate(self.items) if at in self.groups and item.counted]
        wait = WaitGroup(pending, site=site)
        if not counted or not pending:
            return (wait,)
        whole = WaitGroup(0, site=site)
        stages = {item.stage for item in counted}
        if len(stages) > 1 or not all(map(_is_certain, counted)):
            return (whole,)  # some groups of the prologue are empty, or of some iterations
        cond = step.exists(ahead - stages.pop())
        if cond is None:
            return (wait,)
        return (wait, If(unary("not", cond), whole, site=site))  # one branch less than two arms

    def behind(self, at: int, step: Step) -> Sequence[Stmt]:
        """The end of a group, also where its copies have no iteration to work on."""
        group = self.groups.get(at)
        ends = group is not None and self.groups.get(at + 1) != group
        return (CommitGroup(site=self.items[at].stmt.site),) if ends else ()

    def finish(self) -> Sequence[Stmt]:
        """A wait for all copies, where nothing in the loop reads what some of them write."""
        read = {buffer for item in self.items for buffer in item.effects.reads}
        if all(self.items[at].effects.writes & read for at in self.groups):
            return ()
        return (WaitGroup(0, site=self.site),)

    def _groups(self) -> dict[int, int]:
        """The number of the group of each statement that starts copies, by position."""
        numbers: dict[int, int] = {}
        before: Item | None = None
        for at, item in enumerate(self.items):
            if item.asynchronous:
                joins = before is not None and before.asynchronous and before.stage == item.stage
                numbers[at] = max(numbers.values(), default=-1) + (not joins)
            before = item
        return numbers

    def _needed(self) -> dict[int, int]:
        """The latest group that each statement needs, by position."""
        needed: dict[int, int] = {}
        for at, item in enumerate(self.items):
            for position, group in self.groups.items():
                writer = self.items[position]
                if writer.effects.writes & item.effects.reads and writer.comes_before(item):
                    wanted = group - (item.stage - writer.stage) * self.per_step
                    needed[at] = max(needed.get(at, wanted), wanted)
        return needed


def _is_certain(item: Item) -> bool:
    """Whether the statement starts as many copies each time it is executed."""
    return all(
        isinstance(stmt, Seq | AsyncCopy)
        or (isinstance(stmt, For) and None not in map(const_int, (stmt.start, stmt.stop)))
        for stmt in statements(item.stmt)
        if any(isinstance(inner, AsyncCopy) for inner in statements(stmt))
    )
